//===- Scheduler.h - which tokens of which requests a step takes -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One thread owns a Scheduler. It decides over kv::Cache alone; what computes is a StepModel, so that tests
// run it on a function and a clock of their own. README.md says the rules.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_SERVE_SCHEDULER_H
#define LATHE_RUNTIME_SERVE_SCHEDULER_H

#include "Sampler.h"
#include "lathe/runtime/KvCache.h"

#include <deque>
#include <functional>
#include <map>
#include <memory>

namespace lathe::serve {

/// Tokens of several sequences, as lathe/engine/Llm.h says the inputs of a step.
struct Batch {
  std::vector<int64_t> tokens, positions, requests, slots; ///< [T]
  std::vector<int64_t> tables;                             ///< [R, pages], unused entries 0
  std::vector<int64_t> rows;                               ///< [R]: the last token of each request
  int64_t pages = 0;
};

/// What computes a step.
class StepModel {
public:
  virtual ~StepModel() = default;
  /// Writes the keys and values of all tokens, of each of `rows` the token of the greatest logit to `best` [R], and
  /// the logits [R, vocabulary], which are empty where nobody wants them.
  virtual Status run(const Batch &batch, std::span<float> logits, std::span<int64_t> best) = 0;
  /// Copies a block of the pool, before the run of the step.
  virtual Status copyBlock(kv::BlockId from, kv::BlockId to) = 0;
};

struct Limits {
  uint32_t stepTokens = 64;      ///< of all requests in one step
  uint32_t requests = 32;        ///< that hold keys and values at once; at most stepTokens
  uint32_t sequenceTokens = 4096; ///< prompt and answer
  uint32_t vocabulary = 0;
};

enum class Finish : uint8_t { None, Length, Stop };

struct RequestOptions {
  std::vector<uint32_t> prompt, stopTokens;
  uint32_t maxTokens = 1;
  Sampling sampling;
};

struct Request {
  uint64_t id = 0;
  RequestOptions options;
  std::vector<uint32_t> tokens; ///< prompt and answer
  uint32_t computed = 0;        ///< of tokens: their keys and values are in the cache
  kv::SeqId sequence = kv::kNoSequence;
  bool planned = false; ///< in this step
  Finish finish = Finish::None;
  int64_t submitted = 0, firstToken = -1, lastToken = -1; ///< by the clock, ns

  std::span<const uint32_t> answer() const { return std::span(tokens).subspan(options.prompt.size()); }
  uint32_t pending() const { return uint32_t(tokens.size()) - computed; }
};

struct SchedulerCounters {
  uint64_t steps = 0, promptTokens = 0, computedTokens = 0, generatedTokens = 0, preemptions = 0;
};

class Scheduler {
public:
  using Clock = std::function<int64_t()>; ///< ns

  /// `model` lives as long as the scheduler. Usage error where limits contradict each other or the cache.
  static Result<std::unique_ptr<Scheduler>> create(std::unique_ptr<kv::Cache> cache, StepModel &model,
                                                   const Limits &limits, Clock clock);

  /// Usage error, with the figures, for what can never run.
  Result<uint64_t> submit(RequestOptions options);
  /// After an error all requests are as before the step, and it may be tried again.
  Status step();
  /// Null when there is none.
  const Request *find(uint64_t id) const;
  /// Forgets a request, finished or not; false when there is none.
  bool release(uint64_t id);

  size_t unfinished() const { return waiting.size() + running.size(); }
  size_t runningRequests() const { return running.size(); }
  size_t waitingRequests() const { return waiting.size(); }
  const SchedulerCounters &counters() const { return total; }
  const kv::Cache &blocks() const { return *cache; }
  /// The batch of the last step.
  const Batch &lastBatch() const { return batch; }

private:
  struct Part {
    Request *request;
    uint32_t first, count; ///< tokens of the request
  };

  Scheduler(std::unique_ptr<kv::Cache> cache, StepModel &model, const Limits &limits, Clock clock)
      : cache(std::move(cache)), model(model), limits(limits), clock(std::move(clock)) {}
  Status plan();
  Status planRunning(bool decodes);
  Status admit();
  /// Adds `count` tokens of a request to the step; false when there are no blocks.
  Result<bool> take(Request *request, uint32_t count);
  void preempt(Request *request);
  void finishTables();
  void undo();
  /// `logits` is empty where the request takes the most likely token, `best`.
  void accept(Part part, std::span<const float> logits, uint32_t best);

  std::unique_ptr<kv::Cache> cache;
  StepModel &model;
  Limits limits;
  Clock clock;
  std::map<uint64_t, std::unique_ptr<Request>> all;
  std::deque<Request *> waiting; ///< in the order of their ids
  std::vector<Request *> running; ///< hold blocks; in the order of their ids
  std::vector<Request *> admitted; ///< in this step
  std::vector<Part> parts;       ///< of this step, a request each
  uint32_t budget = 0;           ///< tokens that this step may still take
  Batch batch;
  std::vector<float> logits; ///< of the last step, or none
  std::vector<int64_t> best;
  std::vector<uint32_t> scratch;
  SchedulerCounters total;
  uint64_t nextId = 1;
};

} // namespace lathe::serve

#endif // LATHE_RUNTIME_SERVE_SCHEDULER_H
