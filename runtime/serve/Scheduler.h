//===- Scheduler.h - which tokens of which requests a step takes -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One thread owns a Scheduler. It decides over kv::Cache alone; what computes is a StepModel, so that tests
// run it on a function and a clock of their own. README.md says the rules. Attributes of a request that steps under way
// change ahead of their results: computed, promised, promisedLogprobs, flights.
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
  /// Of a group of layers.
  struct Places {
    std::vector<int64_t> slots;  ///< [T]
    std::vector<int64_t> tables; ///< [R, pages], unused entries 0
    std::vector<int64_t> places; ///< [T], of a group with a window; of others empty
    int64_t pages = 0;
  };
  /// [T]. A token below 0 is not known yet: ~token says where the step before has it, see kDrawnTokens.
  std::vector<int64_t> tokens;
  std::vector<int64_t> positions, requests; ///< [T]
  std::vector<Places> groups;
  std::vector<int64_t> rows; ///< [R]: tokens whose logits are wanted; ascending
};

/// Of what a step gives: ~i is the token of the greatest logit of row i, ~(kDrawnTokens + i) that of draw i.
inline constexpr int64_t kDrawnTokens = int64_t(1) << 32;

/// What a step gives. Its scheduler sizes them: logits [R, vocabulary], or none where nobody wants them; best [R];
/// drawn, a token for each draw, -1 where no logit is a number above -infinity; ranked, what logprobs follow from.
struct StepResults {
  std::vector<float> logits;
  std::vector<int64_t> best, drawn;
  std::vector<engine::RankResult> ranked;
};

enum class SwapWay : uint8_t { ToHost, ToDevice };

/// What computes steps, in their order. A step is launched, may be asked for draws, and is waited for.
class StepModel {
public:
  virtual ~StepModel() = default;
  /// Starts a step, or does it all: it writes the keys and values of all tokens, of each of `rows` the token of the
  /// greatest logit, and the logits where they have room. `batch`, which it may pad, and `into` stay until the step
  /// is waited for.
  virtual Status launch(Batch &batch, StepResults &into) = 0;
  /// So many pages, and more, a row of the tables is given.
  virtual int64_t roundedPages(int64_t pages) const { return pages; }
  /// Whether draw() can be asked for tokens and logprobs, so that logits stay where they are.
  virtual bool draws() const { return false; }
  /// Behind a launch without logits, before the next one.
  virtual Status draw(const DrawList &) { return unsupportedError("the model draws no tokens"); }
  /// Whether a step may be launched before the one ahead of it is waited for, with tokens which that will give.
  virtual bool overlaps() const { return false; }
  /// Until the oldest step that was launched is over, and its results are there.
  virtual Status wait() = 0;
  /// Nobody waits for what was launched any more.
  virtual void abandon() {}
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
  bool overlap = false; ///< where the model can: a step is launched before the one ahead of it is waited for
};

struct SchedulerCounters {
  uint64_t steps = 0, promptTokens = 0, computedTokens = 0, generatedTokens = 0, preemptions = 0, forks = 0;
  uint64_t swaps = 0;    ///< of the preemptions, those whose keys and values went to host memory
  uint64_t waitedNs = 0; ///< for steps that were launched to be over
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
  /// After an error all requests are as before the step, and it may be tried again. Where steps overlap, it
  /// launches one and waits for the one before, whose tokens come: one step later than they would otherwise.
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
  /// The batch of the last step that was planned.
  const Batch &lastBatch() const { return (flying ? flying : next)->batch; }

private:
  struct Tenant {
    TenantOptions options;
    bool configured = false;
    double virtualTokens = 0; ///< Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024
    uint32_t live = 0, running = 0; ///< requests that are not finished; that hold blocks
    uint64_t runningTokens = 0;
    std::vector<Request *> waiting; ///< in order of precedence; has room for all that live
  };
  /// Tokens of a request in a step, and rows of logits: one for each of `logprobRows` tokens of its prompt, and
  /// one for the last of its tokens, which may be the last of those.
  struct Part {
    Request *request;
    uint32_t first, count;
    bool completes = false; ///< behind them comes a new token
    bool fed = false;       ///< its token is one that the step before gives
    bool takesBest = false; ///< the token of the greatest logit is the new one, and nothing else is asked for
    bool ranked = false;    ///< logprobs of the new one are
    uint32_t index = 0;     ///< of the new token in the answer
    uint32_t firstRow = 0, logprobRows = 0, lastRow = 0;
    uint32_t firstLogprob = 0; ///< of its prompt
    uint32_t firstAnswer = 0, answers = 0;
  };
  /// A token that a step gives, for the request of a part or one that it holds.
  struct Answer {
    Request *request;
    int64_t draw = -1;   ///< of the model's; -1: none, as where the greatest is taken
    bool isVoid = false; ///< finished before it was asked for
    std::optional<uint32_t> token = std::nullopt;
    std::optional<Logprobs> logprobs = std::nullopt;
  };
  struct Step {
    Batch batch;
    std::vector<Part> parts; ///< a request each
    std::vector<Answer> answers;
    std::vector<std::vector<Logprobs>> promptLogprobs; ///< a part each
    DrawList draws; ///< of a model that draws by itself
    StepResults results;
    size_t tokens = 0;     ///< without what the model pads
    int64_t launched = 0;  ///< by the clock
    bool underWay = false; ///< its requests are in what they name as such
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
  bool takeDecodes();
  void addPart(Request *request, std::span<const uint32_t> tokens, size_t firstSlot);
  kv::Slots slotsFor(size_t tokens);
  uint64_t blocksOf(uint32_t tokens) const;
  Status awaitTokens();
  Status preempt(Request *request);
  Result<bool> swapOut(Request *request);
  bool swapCostsLess(const Request &request) const;
  Result<bool> begin(Request *request);
  void giveUp(Request *request);
  void leave(Request *request);
  void enqueue(Request *request);
  struct PagesSeen;
  PagesSeen pagesSeen(const Part &part, const engine::KvGroup &group) const;
  void writeTable(const Part &part, uint32_t group, int64_t *to) const;
  void finishTables(uint32_t group);
  Tenant &tenantOf(const Request *request) { return *tenants.find(request->options.tenant)->second; }

  // Scheduler.cpp: requests, and the way of a step.
  Status attempt();
  Status launch();
  Status transfer();
  void undo();
  void depart();
  void abandonFlights();
  bool overlaps() const { return limits.overlap && model.overlaps(); }
  static void follow(double &cost, int64_t took, size_t count);
  void finishRequest(Request *request, Finish how);
  void letGo(Request *request);
  Tenant &makeTenant(uint64_t id);
  double leastVirtualTokens() const;

  // Settle.cpp: what comes of it.
  template <typename Known, typename Next> void forDraws(Step &step, Known known, Next next);
  static bool takesBest(const Request &request, uint64_t index);
  Status ask(Step &step);
  Status collect(Step &step);
  Status checkToken(int64_t token) const;
  void readDraws(Step &step);
  void drawHere(Step &step);
  void settle(Step &step);
  void settle(Step &step, const Part &part);
  void append(Request *request, Answer &answer);
  void fork(Request *from, Request *to);

  std::unique_ptr<kv::Cache> cache;
  StepModel &model;
  Limits limits;
  Clock clock;
  int64_t settled = 0; ///< when the last step was over, which is when its tokens came
  std::map<uint64_t, std::unique_ptr<Request>> all;
  std::map<uint64_t, std::unique_ptr<Request>> released; ///< that steps under way name
  std::map<uint64_t, std::unique_ptr<Tenant>> tenants;
  std::vector<Request *> running;  ///< hold blocks; in order of precedence; has room for limits.requests
  std::vector<Request *> admitted; ///< in this step; has the same room
  std::array<Step, 2> steps;
  Step *next = &steps[0];   ///< the one that is planned
  Step *flying = nullptr;   ///< the other, where it is under way
  bool awaitsTokens = false; ///< the plan needs to know what the step under way gives
  bool launched = false;     ///< the step that is planned
  int64_t collected = 0;     ///< when the last step was over
  Status lost;              ///< of a step that was launched and given up, for the next call
  size_t live = 0;
  uint32_t budget = 0;       ///< tokens that this step may still take
  bool admits = false;       ///< this step; not once blocks were short
  std::vector<float> processed;
  std::vector<Request *> decodes; ///< of takeDecodes(), as are the next two
  std::vector<kv::Append> appends;
  std::vector<uint32_t> known;
  std::vector<int32_t> slots; ///< of tokens that take() reserves, group after group
  size_t slotStride = 0;      ///< from one group's to the next one's
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
