//===- Settle.cpp - what comes of a step ------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The tokens of a step are asked for where its model draws (ask), read when it is over (collect), and given to their
// requests (settle), which allocates nothing.
//
//===----------------------------------------------------------------------===//
#include "Scheduler.h"

#include <algorithm>
#include <utility>

namespace lathe::serve {

bool Scheduler::takesBest(const Request &request, uint64_t index) {
  return takesGreatest(request.options.sampling, index) && !request.options.logprobs;
}

/// Calls known(part, number of the part, row, token) for each token of a prompt whose logprobs are wanted, and
/// then next(part, answer) for each request that gets a token and is not finished meanwhile.
template <typename Known, typename Next> void Scheduler::forDraws(Step &step, Known known, Next next) {
  for (size_t i = 0; i < step.parts.size(); ++i) {
    const Part &part = step.parts[i];
    for (uint32_t r = 0; r < part.logprobRows; ++r)
      known(part, i, part.firstRow + r, part.request->options.prompt[part.firstLogprob + r + 1]);
    for (uint32_t a = 0; a < part.answers; ++a)
      if (Answer &answer = step.answers[part.firstAnswer + a]; !answer.isVoid)
        next(part, answer);
  }
}

/// Asks a model that draws for the tokens, and notes where they will be. What the requests have so far is known.
Status Scheduler::ask(Step &step) {
  step.draws.clear();
  step.results.drawn.clear();
  step.results.ranked.clear();
  if (!model.draws() || std::all_of(step.parts.begin(), step.parts.end(), [](const Part &part) {
        return !part.logprobRows && (part.takesBest || !part.completes);
      }))
    return okStatus();
  for (Answer &answer : step.answers)
    answer.isVoid = answer.request->finish != Finish::None;
  forDraws(step,
           [&](const Part &part, size_t, uint32_t row, uint32_t token) {
             step.draws.addRanked(row, token, *part.request->options.promptLogprobs);
           },
           [&](const Part &part, Answer &answer) {
             const RequestOptions &options = answer.request->options;
             if (part.takesBest)
               return;
             answer.draw = int64_t(step.draws.draws().size());
             step.draws.add({part.lastRow, &options.sampling, &answer.request->counts, options.stopTokens, part.index,
                             part.ranked, options.logprobs.value_or(0)});
           });
  step.results.drawn.resize(step.draws.draws().size());
  step.results.ranked.resize(step.draws.ranks().size());
  LATHE_RETURN_IF_ERROR(model.draw(step.draws));
  for (const Part &part : step.parts)
    if (part.completes && step.answers[part.firstAnswer].draw >= 0)
      part.request->source = kDrawnTokens + step.answers[part.firstAnswer].draw;
  return okStatus();
}

/// Until the step is over: its tokens and logprobs.
Status Scheduler::collect(Step &step) {
  const int64_t begin = clock();
  LATHE_RETURN_IF_ERROR(model.wait());
  const int64_t now = clock();
  total.waitedNs += uint64_t(now - begin);
  follow(tokenCost, now - std::max(step.launched, collected), step.tokens);
  collected = now;
  for (int64_t token : step.results.best)
    LATHE_RETURN_IF_ERROR(checkToken(token));
  for (int64_t token : step.results.drawn)
    if (token != -1)
      LATHE_RETURN_IF_ERROR(checkToken(token));
  step.promptLogprobs.resize(step.parts.size());
  model.draws() ? readDraws(step) : drawHere(step);
  return okStatus();
}

Status Scheduler::checkToken(int64_t token) const {
  if (token >= 0 && token < int64_t(limits.vocabulary))
    return okStatus();
  return internalError("a step answers with token " + std::to_string(token) + " of a vocabulary of " +
                       std::to_string(limits.vocabulary));
}

void Scheduler::readDraws(Step &step) {
  const StepResults &results = step.results;
  size_t rank = 0;
  forDraws(step,
           [&](const Part &, size_t i, uint32_t, uint32_t) {
             step.promptLogprobs[i].push_back(logprobsOf(results.ranked[rank++]));
           },
           [&](const Part &part, Answer &answer) {
             const int64_t found = answer.draw < 0 ? results.best[part.lastRow] : results.drawn[size_t(answer.draw)];
             if (found >= 0)
               answer.token = uint32_t(found);
             if (part.ranked) {
               Logprobs logprobs = logprobsOf(results.ranked[rank++]);
               if (answer.token)
                 answer.logprobs = std::move(logprobs);
             }
           });
}

void Scheduler::drawHere(Step &step) {
  auto rowOf = [&](uint32_t row) {
    return std::span<const float>(step.results.logits).subspan(size_t(row) * limits.vocabulary, limits.vocabulary);
  };
  auto known = [&](const Part &part, size_t i, uint32_t row, uint32_t token) {
    step.promptLogprobs[i].push_back(logprobsOf(rowOf(row), token, *part.request->options.promptLogprobs));
  };
  forDraws(step, known, [&](const Part &part, Answer &answer) {
    const Request &request = *answer.request;
    const Sampling &sampling = request.options.sampling;
    if (takesGreatest(sampling, part.index)) {
      answer.token = uint32_t(step.results.best[part.lastRow]);
    } else {
      processed.assign(rowOf(part.lastRow).begin(), rowOf(part.lastRow).end());
      processLogits(processed, sampling, request.counts, request.options.stopTokens, part.index);
      answer.token = sampleToken(processed, sampling, part.index, scratch);
    }
    if (answer.token && request.options.logprobs)
      answer.logprobs = logprobsOf(rowOf(part.lastRow), *answer.token, *request.options.logprobs);
  });
}

void Scheduler::settle(Step &step) {
  ++total.steps;
  settled = clock();
  step.underWay = false;
  for (size_t i = 0; i < step.parts.size(); ++i) {
    const Part &part = step.parts[i];
    Request *request = part.request;
    --request->flights;
    request->promised -= part.completes;
    request->promisedLogprobs -= part.logprobRows;
    total.computedTokens += part.count;
    if (request->finish != Finish::None)
      continue; // it stopped, or was cancelled, while the step was under way
    for (Logprobs &one : step.promptLogprobs[i])
      request->promptLogprobs.push_back(std::move(one));
    settle(step, part);
  }
  for (const Answer &answer : step.answers)
    --answer.request->flights;
  if (!released.empty())
    std::erase_if(released, [](const auto &entry) { return entry.second->flights == 0; });
}

/// The tokens of a part have their keys and values; where they were the last ones, the next token follows.
void Scheduler::settle(Step &step, const Part &part) {
  Request *request = part.request;
  Tenant &tenant = tenantOf(request);
  if (const uint32_t computed = part.first + part.count; computed > request->charged) {
    tenant.virtualTokens += (computed - request->charged) / tenant.options.weight;
    request->charged = computed;
  }
  for (uint32_t a = 1; a < part.answers; ++a)
    if (Answer &answer = step.answers[part.firstAnswer + a]; answer.request->finish == Finish::None) {
      fork(request, answer.request);
      append(answer.request, answer);
    }
  if (!part.completes)
    return;
  request->held.clear();
  append(request, step.answers[part.firstAnswer]);
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

void Scheduler::append(Request *request, Answer &answer) {
  if (!answer.token)
    return finishRequest(request, Finish::Failed);
  const uint32_t token = *answer.token;
  request->tokens.push_back(token);
  if (std::exchange(request->unknown, false))
    (void)cache->provide(request->sequence, token);
  if (answer.logprobs)
    request->logprobs.push_back(std::move(*answer.logprobs));
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
