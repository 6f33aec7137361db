//===- Scheduler.h - which tokens of which requests a step takes -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One thread owns a Scheduler. It decides over kv::Cache alone; what computes is a StepModel, so that tests
// run it on a function and a clock of their own. README.md says the rules.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_SERVE_SCHEDULER_H
#define LATHE_RUNTIME_SERVE_SCHEDULER_H

#include "Draws.h"
#include "Request.h"
#include "lathe/runtime/KvCache.h"

#include <functional>
#include <map>

namespace lathe::serve {

/// Tokens of several sequences, as lathe/engine/Llm.h says the inputs of a step.
struct Batch {
  std::vector<int64_t> tokens, positions, requests, slots; ///< [T]
  std::vector<int64_t> tables;                             ///< [R, pages], unused entries 0
  std::vector<int64_t> rows;                               ///< [R]: tokens whose logits are wanted; ascending
  int64_t pages = 0;
};

enum class SwapWay : uint8_t { ToHost, ToDevice };

/// What computes a step.
class StepModel {
public:
  virtual ~StepModel() = default;
  /// Writes the keys and values of all tokens, of each of `rows` the token of the greatest logit to `best` [R], and
  /// the logits [R, vocabulary], which are empty where nobody wants them.
  virtual Status run(const Batch &batch, std::span<float> logits, std::span<int64_t> best) = 0;
  /// Whether draw() can be asked for tokens and logprobs, so that logits stay where they are.
  virtual bool draws() const { return false; }
  /// After a run without logits: a token for each of the list's draws, -1 where no logit is a number above -infinity, and
  /// what logprobs follow from for each of its ranks.
  virtual Status draw(const DrawList &, std::span<int64_t> /*tokens*/, std::span<engine::RankResult>) {
    return unsupportedError("the model draws no tokens");
  }
  /// Copies a block of the pool, before the run of the step.
  virtual Status copyBlock(kv::BlockId from, kv::BlockId to) = 0;
  /// Copies a block between the pool and host memory, where the cache has blocks there, behind all copies before it.
  virtual Status swapBlock(kv::BlockId /*device*/, kv::BlockId /*host*/, SwapWay) {
    return unsupportedError("the model has no host memory for blocks");
  }
};

/// Whether keys and values of a request that gives way go to host memory, if there is some, or are computed again.
enum class Swap : uint8_t { Never, ByCost, Always };

struct Limits {
  uint32_t stepTokens = 64;      ///< of all requests in one step
  uint32_t requests = 32;        ///< that hold keys and values at once; at most stepTokens
  uint32_t sequenceTokens = 4096; ///< prompt and answer
  uint32_t vocabulary = 0;
  double watermark = 0.05; ///< share of the blocks that stays free when a request is admitted beside others
  Swap swap = Swap::ByCost;
};

struct SchedulerCounters {
  uint64_t steps = 0, promptTokens = 0, computedTokens = 0, generatedTokens = 0, preemptions = 0, forks = 0;
  uint64_t swaps = 0; ///< of the preemptions, those whose keys and values went to host memory
};

class Scheduler {
public:
  using Clock = std::function<int64_t()>; ///< ns

  /// `model` lives as long as the scheduler. Usage error where limits contradict each other or the cache.
  static Result<std::unique_ptr<Scheduler>> create(std::unique_ptr<kv::Cache> cache, StepModel &model,
                                                   const Limits &limits, Clock clock);

  /// The id of the first answer; those of the other samples follow it. Usage error, with the figures, for what can
  /// never run. May throw std::bad_alloc, and has done nothing then.
  Result<uint64_t> submit(RequestOptions options);
  /// After an error all requests are as before the step, and it may be tried again.
  Status step();
  /// Null when there is none.
  const Request *find(uint64_t id) const;
  /// Ends a request that is not finished; what it has stays readable. False when there is none.
  bool cancel(uint64_t id);
  /// Forgets a request, finished or not; false when there is none.
  bool release(uint64_t id);

  /// From now on; usage error for a weight that is no positive number.
  Status setTenant(uint64_t tenant, const TenantOptions &options);
  /// Tokens that a tenant had, over its weight; of those that were idle, raised to what others had meanwhile.
  double virtualTokens(uint64_t tenant) const;

  size_t unfinished() const { return live; }
  size_t runningRequests() const { return running.size(); }
  size_t waitingRequests() const { return live - running.size(); }
  const SchedulerCounters &counters() const { return total; }
  const kv::Cache &blocks() const { return *cache; }
  /// The batch of the last step.
  const Batch &lastBatch() const { return batch; }

private:
  struct Tenant {
    TenantOptions options;
    bool configured = false;
    double virtualTokens = 0; ///< Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024
    uint32_t live = 0, running = 0; ///< requests that are not finished; that hold blocks
    uint64_t runningTokens = 0;
    std::vector<Request *> waiting; ///< in order of precedence; has room for all that live
  };
  /// Tokens of a request in this step, and rows of logits: one for each of `logprobRows` tokens of its prompt, and
  /// one for the last of its tokens, which may be the last of those.
  struct Part {
    Request *request;
    uint32_t first, count;
    uint32_t firstRow = 0, logprobRows = 0, lastRow = 0;
    bool completes() const { return first + count == request->tokens.size(); }
  };
  /// A token that a step gives, for a request and those it holds.
  struct Drawn {
    std::optional<uint32_t> token;
    std::optional<Logprobs> logprobs;
  };

  Scheduler(std::unique_ptr<kv::Cache> cache, StepModel &model, const Limits &limits, Clock clock)
      : cache(std::move(cache)), model(model), limits(limits), clock(std::move(clock)) {}

  // Plan.cpp: what a step takes.
  Status plan();
  Status makeRoom();
  Status planPart(Request *request);
  Result<bool> admitNext(const Request *before);
  Tenant *nextTenant();
  bool fits(const Request &request) const;
  Result<bool> take(Request *request, uint32_t count);
  Status preempt(Request *request);
  Result<bool> swapOut(Request *request);
  bool swapCostsLess(const Request &request) const;
  Result<bool> begin(Request *request);
  void giveUp(Request *request);
  void leave(Request *request);
  void enqueue(Request *request);
  void finishTables();
  Tenant &tenantOf(const Request *request) { return *tenants.find(request->options.tenant)->second; }

  // Scheduler.cpp: what comes of it.
  Status attempt();
  Status compute();
  Status transfer();
  template <typename Known, typename Next> void forDraws(Known known, Next next);
  Status checkToken(int64_t token) const;
  Status drawByModel();
  void drawHere();
  void undo();
  void settle();
  void settle(const Part &part, Drawn *next);
  void append(Request *request, Drawn &drawn);
  void fork(Request *from, Request *to);
  void finishRequest(Request *request, Finish how);
  void letGo(Request *request);
  Tenant &makeTenant(uint64_t id);
  double leastVirtualTokens() const;

  std::unique_ptr<kv::Cache> cache;
  StepModel &model;
  Limits limits;
  Clock clock;
  int64_t settled = 0; ///< when the last step was over, which is when its tokens came
  std::map<uint64_t, std::unique_ptr<Request>> all;
  std::map<uint64_t, std::unique_ptr<Tenant>> tenants;
  std::vector<Request *> running;  ///< hold blocks; in order of precedence; has room for limits.requests
  std::vector<Request *> admitted; ///< in this step; has the same room
  std::vector<Part> parts;         ///< of this step, a request each
  std::vector<Drawn> drawn;        ///< of this step: of each part that completes, its own and those it holds
  std::vector<std::vector<Logprobs>> promptLogprobs; ///< of this step, a part each
  size_t live = 0;
  uint32_t budget = 0;       ///< tokens that this step may still take
  bool admits = false;       ///< this step; not once blocks were short
  Batch batch;
  std::vector<float> logits; ///< of the last step, or none
  std::vector<float> processed;
  std::vector<int64_t> best;
  DrawList draws;                    ///< of a model that draws by itself
  std::vector<int64_t> drawnTokens;  ///< of these
  std::vector<engine::RankResult> ranked;
  std::vector<int32_t> slots;
  SampleScratch scratch;
  SchedulerCounters total;
  double tokenCost = 0, blockCost = 0; ///< ns of a token of a step, of a block's copy, lately; 0: not known
  uint32_t swapped = 0;                ///< requests
  uint64_t nextId = 1;
};

/// Of two requests, the one that goes first: of the greater priority, or older.
inline bool precedes(const Request *a, const Request *b) {
  return a->options.priority != b->options.priority ? a->options.priority > b->options.priority : a->id < b->id;
}

} // namespace lathe::serve

#endif // LATHE_RUNTIME_SERVE_SCHEDULER_H
