//===- Scheduler.cpp - requests, and what comes of a step -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A step is attempted, and undone where anything fails, memory included; what follows a success (settle)
// allocates nothing.
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
      limits.stepTokens > config.maxStepTokens || config.groups.size() != 1)
    return usageError("the cache is smaller than the scheduler's limits, or has several groups");
  if (!(limits.watermark >= 0 && limits.watermark <= 1))
    return usageError("the watermark is " + std::to_string(limits.watermark) + ", not a share from 0 to 1");
  std::unique_ptr<Scheduler> made(new Scheduler(std::move(cache), model, limits, std::move(clock)));
  made->running.reserve(limits.requests);
  made->admitted.reserve(limits.requests);
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
  all.erase(id);
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

Status Scheduler::step() {
  Status status;
  try {
    status = attempt();
  } catch (const std::bad_alloc &) {
    status = runtimeError("out of memory");
  }
  if (!status.ok()) {
    undo();
    return status;
  }
  if (!parts.empty())
    settle();
  return okStatus();
}

Status Scheduler::attempt() {
  batch.tokens.clear();
  batch.positions.clear();
  batch.requests.clear();
  batch.slots.clear();
  batch.rows.clear();
  batch.pages = 0;
  parts.clear();
  drawn.clear();
  promptLogprobs.clear();
  admitted.clear();
  for (Request *request : running)
    request->planned = false;
  budget = limits.stepTokens;
  admits = true;
  if (kv::Outcome begun = cache->begin(); !begun.ok())
    return toStatus(begun);
  LATHE_RETURN_IF_ERROR(plan());
  if (!parts.empty())
    LATHE_RETURN_IF_ERROR(compute());
  cache->clearTransfers();
  kv::Outcome kept = cache->commit();
  return kept.ok() ? okStatus() : toStatus(kept);
}

/// Lets the mean cost of one follow what so many took, in ns.
static void follow(double &cost, int64_t took, size_t count) {
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

Status Scheduler::compute() {
  finishTables();
  LATHE_RETURN_IF_ERROR(transfer());
  const bool reads = !model.draws() && std::any_of(parts.begin(), parts.end(), [](const Part &part) {
    const Request &request = *part.request;
    return part.logprobRows || (part.completes() && (request.options.logprobs || !request.held.empty() ||
                                                     !takesGreatest(request.options.sampling, request.answer().size())));
  });
  logits.resize(reads ? batch.rows.size() * limits.vocabulary : 0);
  best.resize(batch.rows.size());
  const int64_t before = clock();
  LATHE_RETURN_IF_ERROR(model.run(batch, logits, best));
  follow(tokenCost, clock() - before, batch.tokens.size());
  for (int64_t token : best)
    LATHE_RETURN_IF_ERROR(checkToken(token));
  promptLogprobs.resize(parts.size());
  if (model.draws())
    return drawByModel();
  drawHere();
  return okStatus();
}

Status Scheduler::checkToken(int64_t token) const {
  if (token >= 0 && token < int64_t(limits.vocabulary))
    return okStatus();
  return internalError("a step answers with token " + std::to_string(token) + " of a vocabulary of " +
                       std::to_string(limits.vocabulary));
}

/// Calls known(part, number of the part, row, token) for each token of a prompt whose logprobs are wanted, and then
/// next(part, request) for each request that gets a token.
template <typename Known, typename Next> void Scheduler::forDraws(Known known, Next next) {
  for (size_t i = 0; i < parts.size(); ++i) {
    const Part &part = parts[i];
    const Request &request = *part.request;
    for (uint32_t r = 0; r < part.logprobRows; ++r)
      known(part, i, part.firstRow + r, request.tokens[request.promptLogprobs.size() + r + 1]);
    if (!part.completes())
      continue;
    next(part, request);
    for (const Request *held : request.held)
      next(part, *held);
  }
}

void Scheduler::drawHere() {
  auto rowOf = [&](uint32_t row) { return std::span(logits).subspan(size_t(row) * limits.vocabulary, limits.vocabulary); };
  auto known = [&](const Part &part, size_t i, uint32_t row, uint32_t token) {
    promptLogprobs[i].push_back(logprobsOf(rowOf(row), token, *part.request->options.promptLogprobs));
  };
  forDraws(known, [&](const Part &part, const Request &request) {
    Drawn result;
    const uint64_t index = request.answer().size();
    const Sampling &sampling = request.options.sampling;
    if (takesGreatest(sampling, index)) {
      result.token = uint32_t(best[part.lastRow]);
    } else {
      processed.assign(rowOf(part.lastRow).begin(), rowOf(part.lastRow).end());
      processLogits(processed, sampling, request.counts, request.options.stopTokens, index);
      result.token = sampleToken(processed, sampling, index, scratch);
    }
    if (result.token && request.options.logprobs)
      result.logprobs = logprobsOf(rowOf(part.lastRow), *result.token, *request.options.logprobs);
    drawn.push_back(std::move(result));
  });
}

Status Scheduler::drawByModel() {
  auto taken = [](const Request &request) { // without a draw
    return takesGreatest(request.options.sampling, request.answer().size()) && !request.options.logprobs;
  };
  draws.clear();
  forDraws([&](const Part &part, size_t, uint32_t row,
               uint32_t token) { draws.addRanked(row, token, *part.request->options.promptLogprobs); },
           [&](const Part &part, const Request &request) {
             const RequestOptions &options = request.options;
             if (!taken(request))
               draws.add({part.lastRow, &options.sampling, &request.counts, options.stopTokens, request.answer().size(),
                          options.logprobs.has_value(), options.logprobs.value_or(0)});
           });
  drawnTokens.resize(draws.draws().size());
  ranked.resize(draws.ranks().size());
  if (!drawnTokens.empty() || !ranked.empty())
    LATHE_RETURN_IF_ERROR(model.draw(draws, drawnTokens, ranked));
  for (int64_t token : drawnTokens)
    if (token != -1)
      LATHE_RETURN_IF_ERROR(checkToken(token));
  size_t token = 0, rank = 0;
  forDraws([&](const Part &, size_t i, uint32_t, uint32_t) { promptLogprobs[i].push_back(logprobsOf(ranked[rank++])); },
           [&](const Part &part, const Request &request) {
             Drawn result;
             const int64_t found = taken(request) ? best[part.lastRow] : drawnTokens[token++];
             if (found >= 0)
               result.token = uint32_t(found);
             if (request.options.logprobs) {
               Logprobs logprobs = logprobsOf(ranked[rank++]);
               if (result.token)
                 result.logprobs = std::move(logprobs);
             }
             drawn.push_back(std::move(result));
           });
  return okStatus();
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
}

void Scheduler::settle() {
  ++total.steps;
  settled = clock();
  Drawn *next = drawn.data();
  for (size_t i = 0; i < parts.size(); ++i) {
    for (Logprobs &one : promptLogprobs[i])
      parts[i].request->promptLogprobs.push_back(std::move(one));
    const size_t answers = parts[i].completes() ? 1 + parts[i].request->held.size() : 0;
    settle(parts[i], next);
    next += answers;
  }
}

/// The tokens of a part have their keys and values; where they were the last ones, the next token follows.
void Scheduler::settle(const Part &part, Drawn *next) {
  Request *request = part.request;
  Tenant &tenant = tenantOf(request);
  request->computed = part.first + part.count;
  total.computedTokens += part.count;
  if (request->computed > request->charged) {
    tenant.virtualTokens += (request->computed - request->charged) / tenant.options.weight;
    request->charged = request->computed;
  }
  if (request->pending())
    return;
  for (size_t i = 0; i < request->held.size(); ++i) {
    fork(request, request->held[i]);
    append(request->held[i], next[1 + i]);
  }
  request->held.clear();
  append(request, next[0]);
}

/// Another answer to the prompt of `from`, whose keys and values it shares; it waits where there is no room for it,
/// and finds them in the prefix cache.
void Scheduler::fork(Request *from, Request *to) {
  Tenant &tenant = tenantOf(to);
  const TenantOptions &quota = tenant.options;
  const uint64_t length = to->options.prompt.size() + to->options.maxTokens;
  to->charged = from->computed;
  const bool room = running.size() < limits.requests && (!quota.maxRequests || tenant.running < quota.maxRequests) &&
                    (!quota.maxTokens || tenant.runningTokens + length <= quota.maxTokens);
  if (!room || !cache->fork(from->sequence, to->sequence).ok()) {
    enqueue(to);
    return;
  }
  to->computed = from->computed;
  running.insert(std::upper_bound(running.begin(), running.end(), to, precedes), to);
  ++tenant.running;
  tenant.runningTokens += length;
  ++total.forks;
}

void Scheduler::append(Request *request, Drawn &drawn) {
  if (!drawn.token)
    return finishRequest(request, Finish::Failed);
  const uint32_t token = *drawn.token;
  request->tokens.push_back(token);
  if (drawn.logprobs)
    request->logprobs.push_back(std::move(*drawn.logprobs));
  if (penalizes(request->options.sampling))
    request->counts.addAnswer(token);
  request->lastToken = settled;
  if (request->firstToken < 0)
    request->firstToken = request->lastToken;
  ++total.generatedTokens;
  Tenant &tenant = tenantOf(request);
  tenant.virtualTokens += 1 / tenant.options.weight;
  const std::vector<uint32_t> &stops = request->options.stopTokens;
  if (std::find(stops.begin(), stops.end(), token) != stops.end())
    finishRequest(request, Finish::Stop);
  else if (request->answer().size() == request->options.maxTokens)
    finishRequest(request, Finish::Length);
}

} // namespace lathe::serve
