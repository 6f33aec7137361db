//===- LlmApi.cpp - the C interface of serving ------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Translates lathe_llm.h to Scheduler and EngineModel. No exception leaves a function.
//
//===----------------------------------------------------------------------===//
#include "../Handles.h"
#include "../device/OpenDevice.h"
#include "EngineModel.h"
#include "lathe/runtime/lathe_llm.h"

#include <algorithm>
#include <chrono>
#include <cstring>

using namespace lathe;
using namespace lathe::runtime;

struct lathe_llm {
  std::unique_ptr<serve::EngineModel> model;
  std::unique_ptr<serve::Scheduler> scheduler; ///< goes first: it names the model
};

namespace {

constexpr uint64_t kDefaultKvBytes = 256ull << 20;
constexpr uint32_t kDefaultSequenceTokens = 4096, kDefaultStepTokens = 64, kDefaultRequests = 32;

template <typename T> Status readSized(const T *given, T &into, const char *what) {
  into = {};
  if (!given)
    return okStatus();
  if (given->size < sizeof given->size)
    return usageError(std::string(what) + ": size is not set");
  std::memcpy(&into, given, std::min<size_t>(given->size, sizeof into));
  return okStatus();
}

Status noRequest(uint64_t id) { return usageError("there is no such request", "request " + std::to_string(id)); }

Result<engine::LlmInfo> infoOf(const lathe_engine *engine) {
  const engine::EngineReader &file = engineOf(engine)->file();
  const auto *section = file.find(engine::SectionType::Llm, engine::kLlmSection);
  if (!section)
    return usageError("the engine has no section llm: it is none of a paged decoder", "lathe_llm_create");
  return engine::parseLlm(section->bytes, "section llm");
}

int64_t nowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Status create(const lathe_engine *engine, const char *device, const lathe_llm_options &given, lathe_llm **out) {
  Result<engine::LlmInfo> info = infoOf(engine);
  if (!info)
    return info.status();
  serve::Limits limits;
  limits.sequenceTokens = given.max_sequence_tokens ? given.max_sequence_tokens : kDefaultSequenceTokens;
  limits.stepTokens = given.max_step_tokens ? given.max_step_tokens : kDefaultStepTokens;
  limits.requests = given.max_requests ? given.max_requests : std::min(kDefaultRequests, limits.stepTokens);
  limits.vocabulary = info->vocabulary;
  limits.overlap = given.overlap >= 0; // where the model does
  Result<engine::KvCapacity> capacity = engine::kvCapacity(
      int64_t(std::min<uint64_t>(given.kv_bytes ? given.kv_bytes : kDefaultKvBytes, INT64_MAX)), info->groups,
      /*shards=*/1, limits.sequenceTokens, limits.stepTokens);
  if (!capacity)
    return capacity.status();
  kv::Config config;
  config.groups = info->groups;
  config.blocks = capacity->blocks;
  config.hostBlocks = uint32_t(std::min<uint64_t>(given.swap_bytes / uint64_t(capacity->blockBytes), UINT32_MAX / 2));
  if (given.swap_bytes && !config.hostBlocks)
    return usageError("swap_bytes, " + std::to_string(given.swap_bytes) + ", do not hold a block of " +
                      std::to_string(capacity->blockBytes));
  config.maxSequences = limits.requests * (config.hostBlocks ? 2 : 1); // as many may be swapped
  config.maxSequenceTokens = limits.sequenceTokens;
  config.maxStepTokens = limits.stepTokens;
  config.prefixCache = !given.no_prefix_cache;
  config.eventCapacity = 0;
  Result<std::unique_ptr<kv::Cache>> cache = kv::Cache::create(config);
  if (!cache)
    return cache.status();
  auto llm = std::make_unique<lathe_llm>();
  serve::EngineModelOptions options;
  options.device = device ? device : "cpu";
  options.threads = given.threads;
  options.blocks = config.blocks;
  options.hostBlocks = config.hostBlocks;
  options.stepTokens = limits.stepTokens;
  options.batchInvariant = given.batch_invariant != 0;
  options.graphs = given.no_graphs == 0;
  options.overlap = given.overlap > 0 || (given.overlap == 0 && runtime::deviceKind(options.device) != "cpu");
  auto model = serve::EngineModel::create(engine, *info, options);
  if (!model)
    return model.status();
  llm->model = std::move(*model);
  auto scheduler = serve::Scheduler::create(std::move(*cache), *llm->model, limits, nowNs);
  if (!scheduler)
    return scheduler.status();
  llm->scheduler = std::move(*scheduler);
  *out = llm.release();
  return okStatus();
}

} // namespace

lathe_error *lathe_llm_create(const lathe_engine *engine, const char *device, const lathe_llm_options *options,
                              lathe_llm **out) {
  return guarded([&]() -> Status {
    if (!engine || !out)
      return usageError("lathe_llm_create: a pointer is NULL");
    lathe_llm_options given;
    LATHE_RETURN_IF_ERROR(readSized(options, given, "lathe_llm_options"));
    return create(engine, device, given, out);
  });
}

void lathe_llm_destroy(lathe_llm *llm) { delete llm; }

lathe_error *lathe_llm_submit(lathe_llm *llm, const lathe_llm_request *request, uint64_t *id) {
  return guarded([&]() -> Status {
    if (!llm || !request || !id)
      return usageError("lathe_llm_submit: a pointer is NULL");
    lathe_llm_request given;
    LATHE_RETURN_IF_ERROR(readSized(request, given, "lathe_llm_request"));
    if ((!given.tokens && given.token_count) || (!given.stop_tokens && given.stop_count) ||
        ((!given.bias_tokens || !given.bias_values) && given.bias_count) || (!given.allowed && given.allowed_words))
      return usageError("lathe_llm_request: tokens, bias or what is allowed is NULL");
    if (given.allowed && !given.allowed_words)
      return usageError("lathe_llm_request: the mask of allowed tokens has no words");
    serve::RequestOptions wanted;
    wanted.prompt.assign(given.tokens, given.tokens + given.token_count);
    wanted.stopTokens.assign(given.stop_tokens, given.stop_tokens + given.stop_count);
    wanted.maxTokens = given.max_tokens;
    wanted.samples = given.samples ? given.samples : 1;
    wanted.priority = given.priority;
    wanted.tenant = given.tenant;
    if (given.logprobs)
      wanted.logprobs = given.top_logprobs;
    if (given.prompt_logprobs)
      wanted.promptLogprobs = given.top_logprobs;
    serve::Sampling &sampling = wanted.sampling;
    sampling.temperature = given.temperature;
    sampling.topK = given.top_k;
    sampling.topP = given.top_p == 0 ? 1 : given.top_p;
    sampling.minP = given.min_p;
    sampling.seed = given.seed;
    sampling.repetitionPenalty = given.repetition_penalty == 0 ? 1 : given.repetition_penalty;
    sampling.presencePenalty = given.presence_penalty;
    sampling.frequencyPenalty = given.frequency_penalty;
    sampling.minTokens = given.min_tokens;
    for (size_t i = 0; i < given.bias_count; ++i)
      sampling.bias.push_back({given.bias_tokens[i], given.bias_values[i]});
    sampling.allowed.assign(given.allowed, given.allowed + given.allowed_words);
    Result<uint64_t> submitted = llm->scheduler->submit(std::move(wanted));
    if (!submitted)
      return submitted.status();
    *id = *submitted;
    return okStatus();
  });
}

lathe_error *lathe_llm_set_tenant(lathe_llm *llm, uint64_t tenant, const lathe_llm_tenant *options) {
  return guarded([&]() -> Status {
    if (!llm || !options)
      return usageError("lathe_llm_set_tenant: a pointer is NULL");
    lathe_llm_tenant given;
    LATHE_RETURN_IF_ERROR(readSized(options, given, "lathe_llm_tenant"));
    return llm->scheduler->setTenant(tenant,
                                     {given.weight == 0 ? 1 : given.weight, given.max_requests, given.max_tokens});
  });
}

lathe_error *lathe_llm_step(lathe_llm *llm, size_t *unfinished) {
  return guarded([&]() -> Status {
    if (!llm)
      return usageError("lathe_llm_step: a pointer is NULL");
    Status status = llm->scheduler->step();
    if (unfinished)
      *unfinished = llm->scheduler->unfinished();
    return status;
  });
}

lathe_error *lathe_llm_result_of(const lathe_llm *llm, uint64_t id, lathe_llm_result *out) {
  return guarded([&]() -> Status {
    if (!llm || !out)
      return usageError("lathe_llm_result_of: a pointer is NULL");
    const serve::Request *request = llm->scheduler->find(id);
    if (!request)
      return noRequest(id);
    auto since = [&](int64_t time) { return time < 0 ? int64_t(-1) : time - request->submitted; };
    std::span<const uint32_t> answer = request->answer();
    *out = {answer.data(), answer.size(), static_cast<lathe_llm_finish>(request->finish),
            since(request->firstToken), since(request->lastToken)};
    return okStatus();
  });
}

lathe_error *lathe_llm_logprobs_of(const lathe_llm *llm, uint64_t id, int32_t ofPrompt, size_t index,
                                   lathe_llm_logprobs *out) {
  return guarded([&]() -> Status {
    if (!llm || !out)
      return usageError("lathe_llm_logprobs_of: a pointer is NULL");
    const serve::Request *request = llm->scheduler->find(id);
    if (!request)
      return noRequest(id);
    const std::vector<serve::Logprobs> &known = ofPrompt ? request->promptLogprobs : request->logprobs;
    const size_t at = ofPrompt ? index - 1 : index; // the first token of a prompt has none
    if (at >= known.size())
      return usageError("there are no logprobs of token " + std::to_string(index) +
                            (ofPrompt ? " of the prompt" : " of the answer"),
                        "request " + std::to_string(id));
    static_assert(sizeof(lathe_llm_logprob) == sizeof(serve::TokenLogprob));
    *out = {known[at].logprob, known[at].rank, reinterpret_cast<const lathe_llm_logprob *>(known[at].top.data()),
            known[at].top.size()};
    return okStatus();
  });
}

lathe_error *lathe_llm_cancel(lathe_llm *llm, uint64_t id) {
  return guarded([&]() -> Status { return llm && llm->scheduler->cancel(id) ? okStatus() : noRequest(id); });
}

lathe_error *lathe_llm_release(lathe_llm *llm, uint64_t id) {
  return guarded([&]() -> Status { return llm && llm->scheduler->release(id) ? okStatus() : noRequest(id); });
}

void lathe_llm_get_counters(const lathe_llm *llm, lathe_llm_counters *out) {
  const serve::Scheduler &scheduler = *llm->scheduler;
  const serve::SchedulerCounters &total = scheduler.counters();
  kv::Counters blocks = scheduler.blocks().counters();
  const lathe_llm_counters all = {out->size,
                                  total.steps,
                                  total.promptTokens,
                                  blocks.hitTokens,
                                  total.computedTokens,
                                  total.generatedTokens,
                                  total.preemptions,
                                  uint32_t(scheduler.waitingRequests()),
                                  uint32_t(scheduler.runningRequests()),
                                  scheduler.blocks().config().blocks,
                                  uint32_t(blocks.committedBlocks + blocks.reservedBlocks),
                                  total.swaps,
                                  total.waitedNs};
  std::memcpy(out, &all, std::min<size_t>(all.size, sizeof all)); // of an older caller, whose struct is shorter, only that
}
