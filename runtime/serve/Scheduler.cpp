//===- Scheduler.cpp - requests, and the way of a step ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A step is attempted, and undone where anything fails, memory included; what follows a success (Settle.cpp)
// allocates nothing. Where steps overlap, one that was launched can only be given up, with all that it was to write.
//
//===----------------------------------------------------------------------===//
#include "Scheduler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <utility>

namespace lathe::serve {

Result<std::unique_ptr<Scheduler>> Scheduler::create(std::unique_ptr<kv::Cache> cache, StepModel &model,
                                                     const Limits &limits, Clock clock) {
  const kv::Config &config = cache->config();
  if (limits.stepTokens == 0 || limits.requests == 0 || limits.vocabulary == 0)
    return usageError("a step takes at least one token of one request, and a vocabulary has at least one token");
  if (limits.requests > limits.stepTokens)
    return usageError(std::to_string(limits.requests) + " requests at once have no place in steps of " +
                      std::to_string(limits.stepTokens) + " tokens");
  if (limits.requests > config.maxSequences || limits.sequenceTokens > config.maxSequenceTokens ||
      limits.stepTokens > config.maxStepTokens)
    return usageError("the cache is smaller than the scheduler's limits");
  for (const engine::KvGroup &group : config.groups)
    if (group.kind != engine::KvGroupKind::Full && group.kind != engine::KvGroupKind::Window)
      return usageError("a group of the cache keeps neither all tokens nor a window of them");
  if (!(limits.watermark >= 0 && limits.watermark <= 1))
    return usageError("the watermark is " + std::to_string(limits.watermark) + ", not a share from 0 to 1");
  std::unique_ptr<Scheduler> made(new Scheduler(std::move(cache), model, limits, std::move(clock)));
  made->running.reserve(limits.requests);
  made->admitted.reserve(limits.requests);
  for (Step &step : made->steps)
    step.batch.groups.resize(config.groups.size());
  return made;
}

//===----------------------------------------------------------------------===//
// Tenants
//===----------------------------------------------------------------------===//

/// Of those that have requests; infinite when none has.
double Scheduler::leastVirtualTokens() const {
  double least = std::numeric_limits<double>::infinity();
  for (auto &[id, tenant] : tenants)
    if (tenant->live)
      least = std::min(least, tenant->virtualTokens);
  return least;
}

Scheduler::Tenant &Scheduler::makeTenant(uint64_t id) {
  if (auto it = tenants.find(id); it != tenants.end())
    return *it->second;
  // Idle ones that would be raised to the others' tokens are as good as new.
  const double least = leastVirtualTokens();
  std::erase_if(tenants, [&](const auto &entry) {
    return !entry.second->configured && !entry.second->live && entry.second->virtualTokens <= least;
  });
  return *tenants.emplace(id, std::make_unique<Tenant>()).first->second;
}

Status Scheduler::setTenant(uint64_t id, const TenantOptions &options) {
  if (!(options.weight > 0) || std::isinf(options.weight))
    return usageError("a weight of " + std::to_string(options.weight) + " is no positive number",
                      "tenant " + std::to_string(id));
  Tenant &tenant = makeTenant(id);
  tenant.options = options;
  tenant.configured = true;
  return okStatus();
}

double Scheduler::virtualTokens(uint64_t tenant) const {
  auto it = tenants.find(tenant);
  return it == tenants.end() ? 0 : it->second->virtualTokens;
}

//===----------------------------------------------------------------------===//
// Requests
//===----------------------------------------------------------------------===//

static Status check(const RequestOptions &options, const Limits &limits) {
  if (options.prompt.empty() || options.maxTokens == 0 || options.samples == 0)
    return usageError("a request has a prompt of at least one token and asks for at least one, in one sample or more");
  for (uint32_t token : options.prompt)
    if (token >= limits.vocabulary)
      return usageError("token " + std::to_string(token) + " is not below the vocabulary's " +
                        std::to_string(limits.vocabulary));
  const uint64_t length = uint64_t(options.prompt.size()) + options.maxTokens;
  if (length > limits.sequenceTokens)
    return usageError("a prompt of " + std::to_string(options.prompt.size()) + " tokens and " +
                      std::to_string(options.maxTokens) + " to generate are " + std::to_string(length) +
                      ", more than the " + std::to_string(limits.sequenceTokens) + " of a sequence");
  if (options.samples > limits.requests)
    return usageError(std::to_string(options.samples) + " samples are more than the " +
                      std::to_string(limits.requests) + " requests at once");
  if (options.sampling.minTokens > options.maxTokens)
    return usageError("min_tokens, " + std::to_string(options.sampling.minTokens) + ", is more than max_tokens, " +
                      std::to_string(options.maxTokens));
  for (const std::optional<uint32_t> &top : {options.logprobs, options.promptLogprobs})
    if (top && *top > kMostLogprobs)
      return usageError("logprobs of the " + std::to_string(*top) + " likeliest tokens are more than " +
                        std::to_string(kMostLogprobs));
  return checkSampling(options.sampling, limits.vocabulary);
}

Result<uint64_t> Scheduler::submit(RequestOptions options) {
  LATHE_RETURN_IF_ERROR(check(options, limits));
  Tenant &tenant = makeTenant(options.tenant);
  const uint32_t samples = options.samples;
  const size_t length = options.prompt.size() + options.maxTokens;
  const int64_t now = clock();
  std::vector<std::unique_ptr<Request>> made;
  for (uint32_t sample = 0; sample < samples; ++sample) {
    auto request = std::make_unique<Request>();
    request->id = nextId + sample;
    request->options = options;
    request->options.sampling.sample += sample;
    if (sample)
      request->options.promptLogprobs.reset();
    request->tokens.reserve(length);
    request->tokens.assign(options.prompt.begin(), options.prompt.end());
    request->submitted = now;
    if (options.logprobs)
      request->logprobs.reserve(options.maxTokens);
    if (options.promptLogprobs)
      request->promptLogprobs.reserve(options.prompt.size());
    if (penalizes(options.sampling))
      request->counts.addPrompt(options.prompt, options.maxTokens);
    made.push_back(std::move(request));
  }
  for (size_t i = 1; i < made.size(); ++i)
    made[0]->held.push_back(made[i].get());
  const size_t room = tenant.live + samples;
  if (room > tenant.waiting.capacity())
    tenant.waiting.reserve(std::max(room, 2 * tenant.waiting.capacity()));
  Request *first = made[0].get();
  size_t entered = 0;
  try {
    for (; entered < made.size(); ++entered) {
      auto &slot = all[nextId + entered];
      slot = std::move(made[entered]);
    }
  } catch (const std::bad_alloc &) {
    while (entered--)
      all.erase(nextId + entered);
    throw;
  }
  // Who was idle has no claim on what others had meanwhile.
  if (const double least = leastVirtualTokens(); !tenant.live && std::isfinite(least))
    tenant.virtualTokens = std::max(tenant.virtualTokens, least);
  tenant.live += samples;
  live += samples;
  nextId += samples;
  total.promptTokens += first->options.prompt.size();
  enqueue(first);
  return first->id;
}

const Request *Scheduler::find(uint64_t id) const {
  auto it = all.find(id);
  return it == all.end() ? nullptr : it->second.get();
}

bool Scheduler::cancel(uint64_t id) {
  auto it = all.find(id);
  if (it == all.end())
    return false;
  if (it->second->finish == Finish::None)
    finishRequest(it->second.get(), Finish::Cancelled);
  return true;
}

bool Scheduler::release(uint64_t id) {
  if (!cancel(id))
    return false;
  auto node = all.extract(id);
  if (node.mapped()->flights)
    released.insert(std::move(node));
  return true;
}

void Scheduler::finishRequest(Request *request, Finish how) {
  letGo(request);
  request->finish = how;
  --tenantOf(request).live;
  --live;
}

/// Takes a request out of the lists that it is in; those that it holds go on without it.
void Scheduler::letGo(Request *request) {
  if (request->sequence != kv::kNoSequence) {
    giveUp(request);
  } else if (std::erase(tenantOf(request).waiting, request)) {
    if (request->swapped != kv::kNoSequence) {
      (void)cache->close(std::exchange(request->swapped, kv::kNoSequence));
      request->computed = 0;
      --swapped;
    }
  } else {
    for (auto it = all.find(request->id); it != all.begin();) // held by one of the few before it
      if (std::erase((--it)->second->held, request))
        return;
  }
  if (request->held.empty())
    return;
  Request *heir = request->held.front();
  heir->held = std::move(request->held);
  heir->held.erase(heir->held.begin());
  request->held.clear();
  enqueue(heir);
}

//===----------------------------------------------------------------------===//
// A step
//===----------------------------------------------------------------------===//

template <typename Work> static Status withinMemory(Work work) {
  try {
    return work();
  } catch (const std::bad_alloc &) {
    return runtimeError("out of memory");
  }
}

/// Where steps overlap: the next one is launched, then what the one under way gives is read, and then the draws of
/// the next one follow its launch, as they may depend on that.
Status Scheduler::step() {
  if (!lost.ok())
    return std::exchange(lost, okStatus());
  awaitsTokens = launched = false;
  Status status = withinMemory([&] { return attempt(); });
  if (!status.ok()) {
    undo();
    if (!awaitsTokens)
      return status;
  }
  if (!overlaps()) {
    if (launched)
      settle(*next);
    return okStatus();
  }
  if (flying) {
    status = withinMemory([&] { return collect(*flying); });
    if (!status.ok()) {
      abandonFlights();
      return status;
    }
    settle(*flying);
    flying = nullptr;
  }
  if (launched) {
    flying = next;
    next = next == &steps[0] ? &steps[1] : &steps[0];
    lost = withinMemory([&] { return ask(*flying); });
    if (!lost.ok()) // what this call gave stays
      abandonFlights();
  }
  return okStatus();
}

Status Scheduler::attempt() {
  next->batch.tokens.clear();
  next->batch.positions.clear();
  next->batch.requests.clear();
  for (Batch::Places &group : next->batch.groups)
    group.slots.clear();
  next->batch.rows.clear();
  next->parts.clear();
  next->answers.clear();
  next->promptLogprobs.clear();
  admitted.clear();
  budget = limits.stepTokens;
  admits = true;
  if (kv::Outcome begun = cache->begin(); !begun.ok())
    return toStatus(begun);
  LATHE_RETURN_IF_ERROR(plan());
  if (!next->parts.empty()) {
    LATHE_RETURN_IF_ERROR(launch());
    launched = true;
    if (!overlaps()) {
      LATHE_RETURN_IF_ERROR(ask(*next));
      LATHE_RETURN_IF_ERROR(collect(*next));
    }
  }
  cache->clearTransfers();
  if (kv::Outcome kept = cache->commit(); !kept.ok())
    return toStatus(kept);
  depart();
  return okStatus();
}

/// Lets the mean cost of one follow what so many took, in ns.
void Scheduler::follow(double &cost, int64_t took, size_t count) {
  const double one = double(took) / double(count);
  cost = cost == 0 ? one : 0.9 * cost + 0.1 * one;
}

/// Makes the copies that the cache asks for, list after list.
Status Scheduler::transfer() {
  const kv::Transfers wanted = cache->transfers();
  if (!wanted.moves.empty())
    return internalError("the cache asks for moves of tokens that no request caused");
  const int64_t before = clock();
  for (const kv::SwapCopy &copy : wanted.swapOuts)
    LATHE_RETURN_IF_ERROR(model.swapBlock(copy.device, copy.host, SwapWay::ToHost));
  for (const kv::SwapCopy &copy : wanted.swapIns)
    LATHE_RETURN_IF_ERROR(model.swapBlock(copy.device, copy.host, SwapWay::ToDevice));
  if (const size_t count = wanted.swapOuts.size() + wanted.swapIns.size())
    follow(blockCost, clock() - before, count);
  for (const kv::BlockCopy &copy : wanted.copies)
    LATHE_RETURN_IF_ERROR(model.copyBlock(copy.from, copy.to));
  cache->clearTransfers();
  return okStatus();
}

Status Scheduler::launch() {
  for (uint32_t group = 0; group < next->batch.groups.size(); ++group)
    finishTables(group);
  for (Part &part : next->parts) {
    part.firstAnswer = uint32_t(next->answers.size());
    if (part.completes) {
      next->answers.push_back({part.request});
      for (Request *held : part.request->held)
        next->answers.push_back({held});
    }
    part.answers = uint32_t(next->answers.size()) - part.firstAnswer;
  }
  LATHE_RETURN_IF_ERROR(transfer());
  const bool reads = !model.draws() && std::any_of(next->parts.begin(), next->parts.end(), [](const Part &part) {
    return part.logprobRows || part.answers > 1 || (part.completes && !part.takesBest);
  });
  next->results.logits.resize(reads ? next->batch.rows.size() * limits.vocabulary : 0);
  next->results.best.resize(next->batch.rows.size());
  next->tokens = next->batch.tokens.size();
  next->launched = clock();
  return model.launch(next->batch, next->results);
}

/// The step is under way, or over: until it is settled its requests have more coming than they know.
void Scheduler::depart() {
  next->underWay = !next->parts.empty();
  for (const Part &part : next->parts) {
    Request *request = part.request;
    request->computed = part.first + part.count;
    request->promised += part.completes;
    request->promisedLogprobs += part.logprobRows;
    request->unknown = part.fed;
    request->source = part.completes && part.takesBest ? int64_t(part.lastRow) : -1;
    ++request->flights;
  }
  for (const Answer &answer : next->answers)
    ++answer.request->flights;
}

/// The step did not happen: what it admitted waits again, and so does what it preempted.
void Scheduler::undo() {
  cache->clearTransfers();
  if (cache->stepIsOpen())
    (void)cache->rollback();
  while (!admitted.empty()) {
    Request *request = admitted.back();
    if (cache->isSwapped(request->sequence)) { // again: its blocks came back in this step
      request->swapped = request->sequence;
      ++swapped;
      leave(request);
    } else {
      giveUp(request);
    }
    enqueue(request);
  }
  if (std::exchange(launched, false))
    flying ? abandonFlights() : model.abandon();
}

/// What is under way will never be known: the keys and values that it writes are nobody's, and all that run compute
/// theirs again.
void Scheduler::abandonFlights() {
  model.abandon();
  for (Step &step : steps) {
    if (!std::exchange(step.underWay, false))
      continue;
    for (const Part &part : step.parts)
      part.request->flights = 0;
    for (const Answer &answer : step.answers)
      answer.request->flights = 0;
  }
  released.clear();
  flying = nullptr;
  while (!running.empty()) {
    Request *request = running.back();
    request->promised = request->promisedLogprobs = 0;
    request->unknown = false;
    giveUp(request);
    enqueue(request);
  }
  cache->clearCache();
}

} // namespace lathe::serve
