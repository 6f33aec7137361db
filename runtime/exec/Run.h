//===- Run.h - one step of one entry ----------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// start(): sizes from the inputs, guards, layout, memory, then the steps (or a graph) and the
// copies of the results, as far as possible without waiting. over() polls. finish(): errors of
// kernels, results to the caller. undo() takes the states back; it is for steps that failed
// and for those behind them.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_EXEC_RUN_H
#define LATHE_RUNTIME_EXEC_RUN_H

#include "Context.h"

#include <functional>

namespace lathe::runtime {

struct CollectiveCommand;

/// One launch or copy of a collective on GPUs.
struct CollectivePart {
  int launch = -1; ///< CompiledCollective::launches; -1: `bytes` are copied from `in` to `out`
  void *in = nullptr, *out = nullptr;
  int64_t bytes = 0;
  std::vector<int64_t> sizes; ///< of the launch: elements, or rows and run
  engine::CollectiveShape shape{1, 1};
};

class Run : StepLists {
public:
  Run(Context &context, const Program &program, uint64_t number, int slot);
  ~Run() { ports.lists = std::move(static_cast<StepLists &>(*this)); }
  Run(const Run &) = delete;

  /// Enqueues the step, or does it all where the host takes part. `inputs` and `events` are not
  /// used later, `outputs` until finish(). After an error nothing is left of it.
  Status start(std::span<const lathe_tensor> inputs, std::span<lathe_tensor> outputs,
               const Events &events);
  /// Captures the graph of these sizes, or on the CPU makes the memory, and does nothing else.
  Status warm(std::span<const lathe_tensor> inputs, std::span<lathe_tensor> outputs);
  /// Whether the device has done it all.
  Result<bool> over();
  /// Once, when it is over.
  Status finish();
  /// Newest step first, when it is over: the states are as before start().
  void undo();

  lathe_counters sums{}; ///< of this step alone

private:
  // Binding.cpp: before the steps
  Status checkCounts();
  bool makeKey();
  Status bindSizes();
  Status bindSymbols();
  Status bindSymbol(int32_t symbol, int64_t value, const std::string &what,
                    const std::string &where);
  /// Gives derived symbols their values as far as what they are made of is known.
  Status deriveSymbols();
  Status checkInput(size_t index);
  Status checkData(size_t index);
  Status checkStates();
  Status startHostValues();
  Result<Shape *> makeShape();
  Status lay();
  Status placeInput(size_t index);
  Status placeStrings(size_t index);
  Status placeArenas();
  Status stageInputs();
  Status placeMemory();
  Status placeOutput(size_t index);
  void *addressOf(int32_t buffer) const;
  void computeAddresses();
  bool overlapsInput(const void *data, size_t bytes) const;

  // Run.cpp: the steps
  Status prepare();
  Status prefault();
  Status startAll(const Events &events);
  Status makeReady(const Events &events);
  Status runSteps(const Events &events);
  Status cancelled() const;
  bool isContextMemory(size_t output) const;
  bool wantsGraph() const;
  bool wantsSegments() const;
  Status runBlock(int32_t index);
  Status runStep(const CompiledStep &step);
  Status relay();
  Status launch(const CompiledStep &step);
  ProfileEntry &timed(const CompiledStep &step, double seconds);
  LaunchCommand commandOf(const CompiledStep &step, const SiteLaunch &where, size_t launch);
  Status gatherBuffers(const CompiledStep &step);
  Status copy(const CompiledStep &step);
  Status bind(const CompiledStep &compiled);
  void forgetDerived(std::span<const int32_t> of);
  Status bindLate(int32_t symbol, int64_t value, const std::string &nodes);
  Status loop(const engine::LoopStep &step, const std::string &nodes);
  Status branch(const engine::IfStep &step);
  Status waitForDevice();
  Status startStatus();
  Status checkStatus();
  Status saveStates();
  Status advance(const CompiledStep &step);

  // Ranks.cpp: with the other ranks of a mesh
  Status startOnAllRanks(const Status &own, const Events &events);
  Status placed(const Status &status, const char *when) const;
  std::string description() const;
  Result<Exchange> exchangeOf(const CompiledStep &step);
  Status exchange(const CompiledStep &step);

  // DeviceRanks.cpp: the same by kernels of GPUs
  Status exchangeOnDevice(const CompiledStep &step);
  Result<std::vector<CollectivePart>> collectiveParts(const CompiledStep &step);
  void fillCommand(const CompiledStep &step, const CollectivePart &part, bool mayOverlap, CollectiveCommand &out);
  Status updateCollective(const Graph &graph, const GraphNode &node);

  // ProcessRanks.cpp: where the ranks of GPUs are processes
  Status startApart(const Status &ready, const Events &events);
  Status makeCopies();
  Status meetAgain(uint32_t notes);
  Status shareFresh();
  Status shareInStep(const std::string &nodes);
  Result<bool> overOnAllRanks(const Status &reached);
  void watchOthers();
  Status lookAhead() const;

  // CapturedRun.cpp: graphs
  Status runWithGraph(bool launchIt);
  Status runSegment(int32_t block, const Segment &segment);
  void forgetSegments();
  Status capture(Graph &graph, bool copies);
  Result<GraphHandle> captured(GraphHandle reuse, const std::function<Status()> &body);
  Status updateGraph(Graph &graph);
  void noteNode(size_t before, const CompiledStep &step, int launch, bool mayOverlap,
                std::span<const int32_t> buffers);

  // Calls.cpp: code of others
  Status hostOp(const CompiledStep &step);
  Status customCall(const CompiledStep &step);
  Status showTap(lathe_tap_kind kind, const std::string &name, const CompiledStep &step,
                 std::span<const int32_t> buffers, const SiteLaunch *site);
  Result<std::vector<int64_t>> dimsOf(int32_t buffer);

  // Outputs.cpp: after the steps
  Result<PortShape> outputShape(size_t index);
  Status planDelivery(size_t index);
  Status deliverStrings(size_t index, Delivery &delivery);
  Status enqueueDeliveries(bool inGraph);
  Status finishDelivery(size_t index);

  Context &context;
  const Program &program;
  const engine::Plan &plan;
  Device &device;
  EntryMemory &entry;
  Slot &slot;
  PortMemories &ports;
  const uint64_t number;
  const int slotNumber;
  std::span<const lathe_tensor> inputs; ///< during start()
  std::span<lathe_tensor> outputs;

  Shape *shape = nullptr;         ///< of a program whose sizes are known at its start
  const Layout *layout = nullptr; ///< of the shape, or `ownLayout`
  Layout ownLayout;
  std::vector<PortShape> ownOutputs; ///< of a program without a shape
  /// Elements of `placement`.
  enum Placement : uint8_t { Own, Callers, Staged };
  std::vector<bool> saved;                           ///< states that can be put back
  bool advanced = false;                             ///< lengths have been raised
  Graph *capturing = nullptr;
  bool deviceBusy = false; ///< work was enqueued since the last wait
  uint64_t launches = 0;
  uint64_t meeting = 0; ///< WorldRank::step() of this step
  bool told = false;    ///< `own` to the other ranks
  bool isAgreed = false;
  Status own, agreed;   ///< how it went here, and what it came to on all ranks
  std::string waitedIn; ///< the collective that a rank has not come to
  std::chrono::steady_clock::time_point watched; ///< when others were looked after last
  int stream = 0;       ///< of the step at hand
  bool overlaps = true; ///< it may begin before the one ahead is over
};

} // namespace lathe::runtime

#endif // LATHE_RUNTIME_EXEC_RUN_H
