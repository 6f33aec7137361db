//===- Context.h - runs entries on one device -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What lives between runs: device, states, arenas, staging, outputs, kept layouts and
// graphs, counters. Run.h is one step with it; steps that were submitted stand in
// `flights`, in order. One caller's thread at a time.
//
// Who owns the insides: the caller's thread, or the worker thread from the moment that a
// step is queued for it until it has nothing left. The mutex guards what both look at.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_EXEC_CONTEXT_H
#define LATHE_RUNTIME_EXEC_CONTEXT_H

#include "../comm/PeerArenas.h"
#include "../comm/World.h"
#include "../host/Lists.h"
#include "Engine.h"
#include "Graphs.h"
#include "Layout.h"
#include "lathe/runtime/lathe.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <thread>

namespace lathe::runtime {

class Run;

/// Memory and sizes of one input or output that the context holds for an entry.
struct PortMemory {
  Block device, host;
  std::vector<int64_t> dims, strides; ///< of the last result
};

/// How a result reaches the caller.
struct Delivery {
  enum class Way { Sizes, InPlace, Copy, Strings } way = Way::Sizes;
  void *source = nullptr;
  void *target = nullptr; ///< memory of the context, or the caller's
  void *caller = nullptr; ///< where the end of the step puts it from `target`
  CopyKind kind = CopyKind::DeviceToDevice;
  bool byHost = false;    ///< both are on the host beside a GPU: the end of the step copies
  bool inGraph = false;
  uint64_t bytes = 0;     ///< Strings: those at the target
  const PortShape *shape = nullptr;
};

/// Lists that a step works with. They are handed on, so that the next need not make them again.
struct StepLists {
  std::vector<int64_t> symbols;
  std::vector<int64_t> inputBytes;
  std::vector<StateSlot *> states;
  std::vector<void *> inputData;  ///< where the program reads each input
  std::vector<void *> outputData; ///< where it writes each output with an Output buffer
  std::vector<uint8_t> placement; ///< how each port was placed: inputs, then outputs
  std::vector<uint8_t> wanted;    ///< of a graph
  std::vector<void *> addresses;     ///< per buffer; null while unknown
  std::vector<void *> launchBuffers; ///< of the launch at hand
  std::vector<Delivery> deliveries;
  std::vector<std::pair<int32_t, int64_t>> advances; ///< states and how far
  std::vector<std::pair<const char *, size_t>> callersInputs;

  void clear() {
    symbols.clear();
    inputBytes.clear();
    states.clear();
    inputData.clear();
    outputData.clear();
    placement.clear();
    wanted.clear();
    addresses.clear();
    launchBuffers.clear();
    deliveries.clear();
    advances.clear();
    callersInputs.clear();
  }
};

/// What a step holds while it is under way: two steps of an entry never share it.
struct PortMemories {
  StepLists lists;
  std::vector<PortMemory> inputs, outputs;
  std::vector<Block> before; ///< fixed-size states as they were before the step
};

/// A place for a step under way, from its submission until it has been waited for.
struct Slot {
  bool taken = false;
  MarkHandle mark = nullptr;
  Block status; ///< pinned: kernels write their errors to the host
};

struct ProfileEntry {
  uint64_t calls = 0, row = 0; ///< row: of those last handed out
  double seconds = 0, flops = 0, bytes = 0;
  std::string name, config;
};

/// One call of a step while profiling.
struct TimedCall {
  const ProfileEntry *of;
  double begin, seconds;
};

/// What a context keeps for one entry.
struct EntryMemory {
  std::deque<PortMemories> ports; ///< by slot; its addresses last
  PortMemories &portsOf(int slot) {
    while (ports.size() <= static_cast<size_t>(slot))
      ports.emplace_back();
    return ports[slot];
  }
  std::unique_ptr<Strings> strings; ///< of the run under way; made by the first
  Lists lists;                      ///< of the run under way
  ShapeCache shapes;
  /// By number, slot and values of its symbols.
  std::unordered_map<std::vector<int64_t>, SegmentGraph, SizesHash> segments;
  std::map<const CompiledStep *, ProfileEntry> profile;
};

struct CustomCall {
  lathe_call_function function = nullptr;
  void *user = nullptr;
};

/// The caller's events: the step begins behind `waits`, and `record` is recorded behind it.
struct Events {
  std::span<void *const> waits;
  void *record = nullptr;
};

/// A step that waits for the worker, with what it reads.
struct QueuedStep {
  const Program *program = nullptr;
  std::vector<lathe_tensor> inputs;
  std::span<lathe_tensor> outputs;
  std::vector<void *> waits;
  void *record = nullptr;
  std::deque<std::vector<int64_t>> sizes;
  std::deque<std::unique_ptr<void, void (*)(void *)>> data;

  /// Copies sizes, and the values of host memory. `device`: where the step will run.
  Status keep(std::span<const lathe_tensor> inputs);
};

/// The inputs of a step with what it draws from behind them, where its plan draws.
class DrawnInputs {
public:
  DrawnInputs(const Program &program, std::span<const lathe_tensor> inputs, uint64_t seed, uint64_t run);
  DrawnInputs(const DrawnInputs &) = delete;
  std::span<const lathe_tensor> all() const { return given; }

private:
  static constexpr int64_t kDims[1] = {2};
  alignas(64) int64_t words[2];
  std::vector<lathe_tensor> list;
  std::span<const lathe_tensor> given;
};

/// A step that was submitted and not yet waited for.
struct Flight {
  enum class State { Queued, Started, Ended };
  uint64_t number = 0;
  int slot = -1;
  State state = State::Queued;
  std::unique_ptr<QueuedStep> queued;
  std::unique_ptr<Run> run; ///< from its start until it is waited for
  bool decided = false;     ///< `outcome` is known, but those behind it are not over
  Status outcome;           ///< when ended
  Status behind;            ///< of a queued step: the failure ahead that its caller was told of since
};

class Context {
public:
  struct Options {
    DeviceOptions device;
    std::string target;
    bool graphs = true, overlap = true;
    GraphLimits limits;
    std::shared_ptr<Communicator> communicator; ///< of an engine for several ranks: this one's
    std::shared_ptr<PeerArenas> peers;          ///< and on GPUs what collectives go through
    Joined world;                               ///< where the ranks are processes
    int64_t patience = int64_t(60) * 1000000000; ///< nanoseconds; negative: endless
  };
  /// Nanoseconds for which the thread of a rank on a GPU looks for work before it sleeps: waking it takes as long as
  /// the kernels of a small step.
  static constexpr int64_t kAwake = 200000;

  static Result<std::shared_ptr<Context>> create(std::shared_ptr<const Engine> engine,
                                                 const std::string &device,
                                                 const Options &options);
  /// As a rank of an engine for a mesh, when all others have come. The engine decides `world.expected` and
  /// `world.identity`, the options `world.patience`.
  static Result<std::shared_ptr<Context>> createRank(std::shared_ptr<const Engine> engine,
                                                     const std::string &device, Options options, World world);
  ~Context();

  /// Ends the use of a context: what is under way is cancelled and waited for, or abandoned
  /// when it does not end within the patience.
  static void close(std::shared_ptr<Context> context);

  // Steps.cpp: as the functions of lathe.h; `entry` empty: the first.
  Status run(const std::string &entry, std::span<const lathe_tensor> inputs,
             std::span<lathe_tensor> outputs);
  Result<uint64_t> submit(const std::string &entry, std::span<const lathe_tensor> inputs,
                          std::span<lathe_tensor> outputs, const Events &events);
  /// `nanoseconds` < 0: the patience of the context.
  Status wait(uint64_t step, int64_t nanoseconds);
  Result<bool> ended(uint64_t step);
  void cancel(uint64_t step);
  Status warm(const std::string &entry, std::span<const lathe_tensor> inputs,
              std::span<const lathe_tensor> outputs);
  // Of a group: wait() in two parts, so that a member's success can be taken back.
  Status settle(uint64_t step, Deadline deadline);
  Status outcomeOf(uint64_t step); ///< of one that has been settled
  Status takeBack(uint64_t step, const Status &why, Deadline deadline);
  Status release(uint64_t step);
  /// Until all that was submitted has ended and the device does nothing.
  Status rest(Deadline deadline);

  Result<int64_t> stateLength(const std::string &name);
  Result<int64_t> stateCapacity(const std::string &name);
  Status truncateState(const std::string &name, int64_t length);
  Status resetStates(const std::string &name); ///< empty: all
  Status readState(const std::string &name, lathe_tensor &value);
  Status writeState(const std::string &name, const lathe_tensor &value);
  Status seed(uint64_t value);
  Status registerCall(const std::string &name, CustomCall call);
  void setTap(lathe_tap_function function, void *user);
  void setProfiling(bool on);
  void timeGraphs(bool on);
  const std::vector<lathe_profile_row> &profileRows();
  const std::vector<lathe_profile_event> &profileEvents();
  lathe_counters counters() const;
  void resetCounters();

  const std::string &target() const { return targetName; }
  int64_t rank() const { return communicator ? communicator->rank() : 0; }
  int64_t ranks() const { return communicator ? communicator->ranks() : 1; }
  /// The memory of a result for its caller, freed by Device::freeResult: the context makes other for the next run. Null
  /// where it is not by itself, or a graph knows its place.
  Result<void *> handOver(const lathe_tensor &tensor, size_t bytes);
  /// A copy of the tensor's values in new memory of the same kind; row-major.
  Result<void *> copyOut(const lathe_tensor &tensor, size_t bytes);
  const std::shared_ptr<Device> &deviceHandle() const { return device; }

private:
  Context() = default;
  friend class Run;

  // Steps.cpp
  Result<const Program *> programOf(const std::string &entry) const;
  bool streams(const Program &program) const;
  bool isCancelled(uint64_t step) const { return step >= cancelFrom && step <= cancelTo; }
  /// Whether ranks come to one outcome of a step before it is over here: on the CPU as its steps end, in processes by
  /// what they tell. Else a group compares what its members came to.
  bool endsTogether() const { return world || (communicator && !peers); }
  bool isOver(uint64_t step) const;
  Result<int> takeSlot();
  void freeSlot(int slot);
  Slot &slotAt(int slot); ///< stays where it is while others are added
  Status settleHere(uint64_t step, Deadline deadline);
  Status releaseHere(uint64_t step);
  Flight *find(uint64_t step);
  /// `here`: on this thread where the worker has nothing.
  Result<uint64_t> admit(const Program &program, std::span<const lathe_tensor> inputs,
                         std::span<lathe_tensor> outputs, const Events &events, bool here);
  Status awaitEnd(uint64_t step, Deadline deadline);
  Status drain();
  // By the owner of the insides.
  Status startFlight(Flight &flight, const Program &program, std::span<const lathe_tensor> inputs,
                     std::span<lathe_tensor> outputs, const Events &events);
  Result<bool> advanceFlights();
  /// Of ranks on GPUs that are processes, while step `number` begins: looks after those ahead, so that others who wait
  /// for their ends get them. An error when one failed, or this one is cancelled.
  Status lookAhead(uint64_t number);
  Result<bool> cancelBehind(Status outcome);
  void endFlight(Flight &flight, Status outcome);
  void count(const lathe_counters &step);
  void workerMain();

  // Context.cpp
  Result<StateSlot *> wholeState(const std::string &name);

  // CapturedRun.cpp
  void dropGraph(GraphHandle &handle);
  /// Of those that were used before this step and by no step under way.
  GraphHandle takeOldestGraph(uint64_t before);

  std::shared_ptr<const Engine> engine;
  std::shared_ptr<Device> device; ///< outlives everything below
  std::shared_ptr<const DeviceImage> image;
  std::shared_ptr<Communicator> communicator; ///< null without other ranks
  std::shared_ptr<PeerArenas> peers;          ///< null without other ranks, and on the CPU
  std::shared_ptr<WorldRank> world;           ///< where `peers` are processes: `communicator`
  bool tellsAll = false; ///< the other ranks have each step too, and wait for one that does not begin here
  std::string targetName;
  bool graphsWanted = true, overlapWanted = true, prefaultWanted = false;
  int64_t patience = 0;
  std::unique_ptr<StateStore> states;
  std::vector<Block> arenas, hostArenas; ///< by number of the plan's arena
  std::deque<Slot> slots;
  GraphStore graphs;
  /// Raised when memory that a graph may know has moved.
  uint64_t generation = 1;
  std::map<const Program *, EntryMemory> entries;
  std::map<std::string, CustomCall> calls;
  lathe_tap_function tap = nullptr;
  void *tapUser = nullptr;
  bool profiling = false;
  bool timingGraphs = false;
  std::chrono::steady_clock::time_point profileStart;
  std::vector<TimedCall> timedCalls;
  std::vector<lathe_profile_row> rows;
  std::vector<lathe_profile_event> profiledEvents;
  uint64_t drawSeed = 0, nextDraw = 0; ///< what the next step draws from
  std::vector<int64_t> key; ///< of the shape that is looked for

  std::atomic_flag busy = ATOMIC_FLAG_INIT;
  std::atomic<uint64_t> submitted{0};           ///< number of the last step
  std::atomic<uint64_t> cancelFrom{UINT64_MAX}, cancelTo{0}; ///< steps that are cancelled
  std::atomic<bool> expired{false};             ///< a wait has gone beyond its deadline
  std::map<uint64_t, Status> untold; ///< errors of steps that a later wait went past

  mutable std::mutex mutex; ///< what follows, and the states of flights
  /// A step failed: those behind it end cancelled until a wait has told the caller. 0: none.
  uint64_t failedStep = 0;
  Status failure;
  std::condition_variable changed;
  std::deque<std::unique_ptr<Flight>> flights; ///< rising numbers
  lathe_counters sums{};
  std::thread worker;
  bool workerHasWork = false, stopping = false;
  std::shared_ptr<Context> self; ///< of a context that was given up while its worker runs
};

} // namespace lathe::runtime

#endif // LATHE_RUNTIME_EXEC_CONTEXT_H
