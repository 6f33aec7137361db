//===- Scheduler.cpp - which tokens of which requests a step takes -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Scheduler.h"

#include <algorithm>

namespace lathe::serve {

namespace {

bool older(const Request *a, const Request *b) { return a->id < b->id; }

template <typename List> void insertByAge(List &list, Request *request) {
  list.insert(std::upper_bound(list.begin(), list.end(), request, older), request);
}

} // namespace

Result<std::unique_ptr<Scheduler>> Scheduler::create(std::unique_ptr<kv::Cache> cache, StepModel &model,
                                                     const Limits &limits, Clock clock) {
  const kv::Config &config = cache->config();
  if (limits.stepTokens == 0 || limits.requests == 0 || limits.vocabulary == 0)
    return usageError("a step takes at least one token of one request, and a vocabulary has at least one token");
  if (limits.requests > limits.stepTokens)
    return usageError(std::to_string(limits.requests) + " requests at once have no place in steps of " +
                      std::to_string(limits.stepTokens) + " tokens");
  if (limits.requests > config.maxSequences || limits.sequenceTokens > config.maxSequenceTokens ||
      limits.stepTokens > config.maxStepTokens || config.groups.size() != 1)
    return usageError("the cache is smaller than the scheduler's limits, or has several groups");
  return std::unique_ptr<Scheduler>(new Scheduler(std::move(cache), model, limits, std::move(clock)));
}

Result<uint64_t> Scheduler::submit(RequestOptions options) {
  if (options.prompt.empty() || options.maxTokens == 0)
    return usageError("a request has a prompt of at least one token and asks for at least one");
  for (uint32_t token : options.prompt)
    if (token >= limits.vocabulary)
      return usageError("token " + std::to_string(token) + " is not below the vocabulary's " +
                        std::to_string(limits.vocabulary));
  const uint64_t length = uint64_t(options.prompt.size()) + options.maxTokens;
  if (length > limits.sequenceTokens)
    return usageError("a prompt of " + std::to_string(options.prompt.size()) + " tokens and " +
                      std::to_string(options.maxTokens) + " to generate are " + std::to_string(length) +
                      ", more than the " + std::to_string(limits.sequenceTokens) + " of a sequence");
  auto request = std::make_unique<Request>();
  request->id = nextId++;
  request->tokens = options.prompt;
  request->options = std::move(options);
  request->submitted = clock();
  total.promptTokens += request->tokens.size();
  uint64_t id = request->id;
  waiting.push_back(request.get());
  all.emplace(id, std::move(request));
  return id;
}

const Request *Scheduler::find(uint64_t id) const {
  auto it = all.find(id);
  return it == all.end() ? nullptr : it->second.get();
}

bool Scheduler::release(uint64_t id) {
  auto it = all.find(id);
  if (it == all.end())
    return false;
  Request *request = it->second.get();
  std::erase(waiting, request);
  std::erase(running, request);
  if (request->sequence != kv::kNoSequence)
    (void)cache->close(request->sequence);
  all.erase(it);
  return true;
}

//===----------------------------------------------------------------------===//
// A step
//===----------------------------------------------------------------------===//

Status Scheduler::step() {
  batch = {};
  parts.clear();
  for (Request *request : running)
    request->planned = false;
  admitted.clear();
  budget = limits.stepTokens;
  if (kv::Outcome begun = cache->begin(); !begun.ok())
    return toStatus(begun);
  Status status = plan();
  if (status.ok() && !parts.empty()) {
    finishTables();
    kv::Transfers transfers = cache->transfers();
    if (!transfers.swapIns.empty() || !transfers.swapOuts.empty() || !transfers.moves.empty())
      status = internalError("the cache asks for transfers that no request caused");
    for (const kv::BlockCopy &copy : transfers.copies)
      if (status.ok())
        status = model.copyBlock(copy.from, copy.to);
    const bool draws = std::any_of(parts.begin(), parts.end(), [](const Part &part) {
      return !isGreedy(part.request->options.sampling);
    });
    logits.resize(draws ? batch.rows.size() * limits.vocabulary : 0);
    best.resize(batch.rows.size());
    if (status.ok())
      status = model.run(batch, logits, best);
    for (int64_t token : best)
      if (status.ok() && (token < 0 || token >= int64_t(limits.vocabulary)))
        status = internalError("a step answers with token " + std::to_string(token) + " of a vocabulary of " +
                               std::to_string(limits.vocabulary));
  }
  cache->clearTransfers();
  if (!status.ok()) {
    undo();
    return status;
  }
  if (kv::Outcome kept = cache->commit(); !kept.ok()) {
    undo();
    return toStatus(kept);
  }
  if (parts.empty())
    return okStatus();
  ++total.steps;
  for (size_t i = 0; i < parts.size(); ++i)
    accept(parts[i],
           logits.empty() ? std::span<const float>() : std::span(logits).subspan(i * limits.vocabulary, limits.vocabulary),
           uint32_t(best[i]));
  return okStatus();
}

/// Decodes first: none waits for a prompt. Then prompts that were begun, then those that wait.
Status Scheduler::plan() {
  LATHE_RETURN_IF_ERROR(planRunning(/*decodes=*/true));
  LATHE_RETURN_IF_ERROR(planRunning(/*decodes=*/false));
  return admit();
}

Status Scheduler::planRunning(bool decodes) {
  for (size_t i = 0; i < running.size() && budget; ++i) { // the oldest first
    Request *request = running[i];
    if ((request->pending() == 1) != decodes || request->planned)
      continue;
    bool gone = false;
    while (!gone) {
      Result<bool> taken = take(request, std::min(request->pending(), budget));
      if (!taken)
        return taken.status();
      if (*taken)
        break;
      // The youngest that this step does not need yet gives its blocks up, at last the request itself.
      auto victim = std::find_if(running.rbegin(), running.rend(),
                                 [&](const Request *other) { return !other->planned; });
      gone = *victim == request;
      preempt(*victim);
    }
    if (gone)
      --i; // the next one has its place
  }
  return okStatus();
}

Status Scheduler::admit() {
  const uint32_t blockTokens = cache->config().groups[0].layout.blockTokens;
  while (budget && running.size() < limits.requests && !waiting.empty()) {
    Request *request = waiting.front();
    // Its whole prompt has room, and those that run can each begin a block.
    uint32_t need = (uint32_t(request->tokens.size()) + blockTokens) / blockTokens;
    if (!running.empty() && need + running.size() > cache->availableBlocks())
      return okStatus();
    if (request->sequence == kv::kNoSequence)
      if (kv::Outcome opened = cache->open({}, request->sequence); !opened.ok())
        return toStatus(opened);
    uint32_t found = 0;
    if (kv::Outcome attached = cache->attach(request->sequence, request->tokens, found); !attached.ok())
      return toStatus(attached);
    request->computed = found;
    waiting.pop_front();
    request->planned = false;
    insertByAge(running, request);
    admitted.push_back(request);
    Result<bool> taken = take(request, std::min(request->pending(), budget));
    if (!taken)
      return taken.status();
    if (!*taken) { // what it found is held now and was counted as available
      preempt(request);
      return okStatus();
    }
  }
  return okStatus();
}

Result<bool> Scheduler::take(Request *request, uint32_t count) {
  kv::Append append{request->sequence, count, 0};
  std::span<const uint32_t> tokens = std::span(request->tokens).subspan(request->computed, count);
  std::vector<int32_t> slots(count);
  kv::Slots out;
  out.slots[0] = slots.data();
  kv::Outcome reserved = cache->reserve({&append, 1}, tokens, out);
  if (reserved.code == kv::Code::NoBlocks)
    return false;
  if (!reserved.ok())
    return toStatus(reserved);
  for (uint32_t i = 0; i < count; ++i) {
    batch.tokens.push_back(tokens[i]);
    batch.positions.push_back(request->computed + i);
    batch.requests.push_back(int64_t(parts.size()));
    batch.slots.push_back(slots[i]);
  }
  batch.rows.push_back(int64_t(batch.tokens.size()) - 1);
  parts.push_back({request, request->computed, count});
  request->planned = true;
  budget -= count;
  return true;
}

void Scheduler::preempt(Request *request) {
  (void)cache->preempt(request->sequence, kv::Preempt::Recompute);
  std::erase(running, request);
  std::erase(admitted, request);
  request->computed = 0;
  insertByAge(waiting, request);
  ++total.preemptions;
}

void Scheduler::finishTables() {
  for (const Part &part : parts)
    batch.pages = std::max<int64_t>(batch.pages, cache->tableEntries(part.request->sequence, 0));
  batch.tables.assign(parts.size() * size_t(batch.pages), 0);
  for (size_t i = 0; i < parts.size(); ++i) {
    std::span<const kv::BlockId> row = cache->table(parts[i].request->sequence, 0);
    uint32_t entries = cache->tableEntries(parts[i].request->sequence, 0);
    std::copy_n(row.begin(), entries, batch.tables.begin() + int64_t(i) * batch.pages);
  }
}

/// The step did not happen: what it attached is gone, what it preempted waits on.
void Scheduler::undo() {
  if (cache->stepIsOpen())
    (void)cache->rollback();
  for (Request *request : std::vector<Request *>(admitted)) {
    std::erase(running, request);
    request->computed = 0;
    insertByAge(waiting, request);
  }
  admitted.clear();
}

/// The tokens of a part have their keys and values; where they were the last ones, the next token follows.
void Scheduler::accept(Part part, std::span<const float> row, uint32_t best) {
  Request &request = *part.request;
  request.computed = part.first + part.count;
  total.computedTokens += part.count;
  if (request.pending())
    return;
  const Sampling &sampling = request.options.sampling;
  uint32_t token = isGreedy(sampling) ? best : sample(row, sampling, request.answer().size(), scratch);
  request.tokens.push_back(token);
  request.lastToken = clock();
  if (request.firstToken < 0)
    request.firstToken = request.lastToken;
  ++total.generatedTokens;
  const std::vector<uint32_t> &stops = request.options.stopTokens;
  if (std::find(stops.begin(), stops.end(), token) != stops.end())
    request.finish = Finish::Stop;
  else if (request.answer().size() == request.options.maxTokens)
    request.finish = Finish::Length;
  else
    return;
  (void)cache->close(request.sequence);
  request.sequence = kv::kNoSequence;
  std::erase(running, &request);
}

} // namespace lathe::serve
