//===- Streams.cpp - independent kernels beside each other ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Describes the steps of a GPU's program to lib/analysis (StreamChoice.h): what they
// wait for by what they read and write, and how long they take by the kernels' figures
// and grids at the best sizes. Steps get the streams that come back, and events where
// one waits for another stream. A remark says what was estimated, where it paid and
// where it did not. Where OverlapCollectives.cpp has given steps their streams, events
// alone are added.
//
//   exec.launch @a(%x, %s)        exec.launch @a(%x, %s) {exec.signal = 0}
//   exec.launch @b(%x, %t)   =>   exec.launch @b(%x, %t) {exec.signal = 1, exec.stream = 1}
//   exec.launch @c(%s, %t, %y)    exec.launch @c(%s, %t, %y) {exec.waits = [1]}
//
//===----------------------------------------------------------------------===//
#include "LaunchTime.h"

#include "lathe/analysis/StreamChoice.h"
#include "lathe/ir/Streams.h"

#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace lathe {

#define GEN_PASS_DEF_STREAMSPASS
#include "lathe/passes/Passes.h.inc"

namespace {

using plan::Point, plan::valueAt;

/// What a step reads and writes: buffers that are no views.
struct Effects {
  SmallVector<exec::BufferOp> reads, writes;
};

class ProgramStreams {
public:
  ProgramStreams(exec::ProgramOp program, ModuleOp module, const Target &target, int64_t most)
      : program(program), kernels(module), target(target), rates(ratesOf(target)),
        point(symbolOptima(module)), most(most) {}

  LogicalResult run() {
    if (hasStreams(program))
      return orderStreams();
    for (Operation &op : program.getBody().front())
      if (Operation *host = takesHost(op)) {
        missedRemark(host->getLoc(), "Streams")
            << (isa<exec::CollectiveOp>(host) ? "one stream: ranks meet in one order in entry '"
                                              : "one stream: the host takes part in entry '")
            << program.getSymName() << "'";
        return success();
      }
    for (Operation &op : program.getBody().front())
      if (isa<exec::LaunchOp, exec::CopyOp>(op) && failed(describe(op)))
        return failure();
    analysis::StreamCosts costs;
    costs.eventSeconds = rates.eventSeconds;
    // Without a number, streams are used where the estimate leaves no doubt.
    constexpr int kDefaultStreams = 4;
    costs.streams = most ? most : kDefaultStreams;
    costs.gain = most ? 1 : costs.gain;
    Result<analysis::StreamChoice> choice = analysis::chooseStreams(steps, costs);
    if (!choice.ok())
      return program.emitError("internal: streams: ") << choice.status().str();
    for (const analysis::StreamRegion &region : choice->regions)
      tell(region, costs.gain);
    write(*choice);
    return success();
  }

private:
  /// Events for steps that have their streams already.
  LogicalResult orderStreams() {
    analysis::StreamChoice choice;
    for (Operation &op : program.getBody().front())
      if (isa<exec::LaunchOp, exec::CopyOp, exec::CollectiveOp>(op)) {
        if (failed(describe(op)))
          return failure();
        choice.streams.push_back(int(streamPlaceOf(&op).stream));
      }
    choice.waits = analysis::waitsOf(steps, choice.streams);
    write(choice);
    return success();
  }

  /// The step itself where not all of it is enqueued on the device, or it has a place in an order that ranks share.
  static Operation *takesHost(Operation &op) {
    bool onHost = llvm::any_of(op.getOperands(), [](Value memory) {
      exec::BufferOp root = plan::rootOf(memory);
      return root && root.getOnHost();
    });
    bool takes = isa<exec::BindOp, exec::CallOp, exec::IfOp, exec::LoopOp, exec::TapOp, exec::CollectiveOp>(op) ||
                 (onHost && plan::isStep(&op));
    return takes ? &op : nullptr;
  }

  LogicalResult describe(Operation &op) {
    int number = steps.size();
    analysis::TimedStep step;
    Effects effects;
    if (auto launch = dyn_cast<exec::LaunchOp>(op)) {
      if (failed(describeLaunch(launch, step, effects)))
        return failure();
    } else if (auto collective = dyn_cast<exec::CollectiveOp>(op)) {
      effects.reads = {plan::rootOf(collective.getInput())};
      effects.writes = {plan::rootOf(collective.getOutput())};
    } else {
      auto copy = cast<exec::CopyOp>(op);
      effects.reads = {plan::rootOf(copy.getSource())};
      effects.writes = {plan::rootOf(copy.getTarget())};
      double bytes = valueAt(plan::bytesOf(copy.getSource().getType()), point).value_or(0);
      step.seconds = 2 * std::max(bytes, 0.0) / rates.bytesPerSecond;
    }
    llvm::SetVector<int> after;
    for (exec::BufferOp buffer : effects.reads)
      if (auto it = uses.find(buffer); it != uses.end() && it->second.writer >= 0)
        after.insert(it->second.writer);
    for (exec::BufferOp buffer : effects.writes) {
      Use &use = uses[buffer];
      if (use.writer >= 0)
        after.insert(use.writer);
      after.insert(use.readers.begin(), use.readers.end());
    }
    for (exec::BufferOp buffer : effects.reads)
      uses[buffer].readers.push_back(number);
    for (exec::BufferOp buffer : effects.writes)
      uses[buffer] = {number, {}};
    after.remove(number);
    step.after.assign(after.begin(), after.end());
    steps.push_back(std::move(step));
    ops.push_back(&op);
    return success();
  }

  LogicalResult describeLaunch(exec::LaunchOp launch, analysis::TimedStep &step,
                               Effects &effects) {
    auto kernel = kernels.lookup<exec::KernelOp>(launch.getKernel());
    if (!kernel)
      return launch.emitOpError("launches a kernel that does not exist");
    FailureOr<std::vector<KernelVariant>> variants = variantsOf(kernel);
    if (failed(variants))
      return failure();
    // Inputs, what is written, and packed weights of single variants.
    size_t shared = launch.getBuffers().size() - ownPackings(*variants).size();
    size_t inputs = variants->front().spec.numInputs;
    for (auto [i, memory] : llvm::enumerate(launch.getBuffers()))
      (i >= inputs && i < shared ? effects.writes : effects.reads).push_back(plan::rootOf(memory));

    LaunchTime time = plan::launchTime(launch, kernel, *variants, target, rates, point);
    step.seconds = time.seconds;
    step.share = time.share;
    return success();
  }

  void tell(const analysis::StreamRegion &region, double gain) {
    std::string figures =
        llvm::formatv("{0} kernels on {1} streams: {2:F1} us instead of {3:F1} us by estimate, {4:F2} x "
                      "(an event {5:F2} us)",
                      region.end - region.first, region.streams, region.after * 1e6,
                      region.before * 1e6, region.after > 0 ? region.before / region.after : 1.0,
                      rates.eventSeconds * 1e6);
    Location loc = ops[region.first]->getLoc();
    if (region.used)
      passedRemark(loc, "Streams") << figures;
    else if (region.streams > 1)
      missedRemark(loc, "Streams")
          << "one stream: " << figures << ", below " << llvm::formatv("{0:F2} x", gain).str();
    else
      missedRemark(loc, "Streams")
          << llvm::formatv("one stream: more gain nothing for {0} kernels of {1:F1} us by estimate "
                           "(an event {2:F2} us)",
                           region.end - region.first, region.before * 1e6,
                           rates.eventSeconds * 1e6)
                 .str();
  }

  void write(const analysis::StreamChoice &choice) {
    Builder b(program.getContext());
    std::vector<int64_t> events(steps.size(), -1);
    for (const std::vector<int> &waits : choice.waits)
      for (int ahead : waits)
        events[ahead] = 0;
    int64_t count = 0;
    for (int64_t &event : events)
      if (event == 0)
        event = count++;
    for (auto [i, op] : llvm::enumerate(ops)) {
      if (choice.streams[i])
        op->setAttr(kStreamAttr, b.getI64IntegerAttr(choice.streams[i]));
      if (events[i] >= 0)
        op->setAttr(kSignalAttr, b.getI64IntegerAttr(events[i]));
      SmallVector<int64_t> waits;
      for (int ahead : choice.waits[i])
        waits.push_back(events[ahead]);
      if (!waits.empty())
        op->setAttr(kWaitsAttr, b.getDenseI64ArrayAttr(waits));
    }
  }

  struct Use {
    int writer = -1; ///< the last step that writes the buffer
    SmallVector<int> readers; ///< those that have read it since
  };

  exec::ProgramOp program;
  SymbolTable kernels;
  const Target &target;
  const TargetRates rates;
  const Point point;
  const int64_t most;
  std::vector<analysis::TimedStep> steps;
  SmallVector<Operation *> ops; ///< of the steps
  llvm::DenseMap<Operation *, Use> uses;
};

struct StreamsPass : impl::StreamsPassBase<StreamsPass> {
  void runOnOperation() override {
    int64_t most = 0;
    if (auto given = optionStrings(getOperation(), kStreamsOption);
        !given.empty() && StringRef(given[0]).getAsInteger(10, most)) {
      getOperation().emitError("'streams' of lathe.options is no number: ") << given[0];
      return signalPassFailure();
    }
    for (ModuleOp module : targetModules(getOperation())) {
      auto target = targetOf(module);
      if (failed(target))
        return signalPassFailure();
      if (!target->isCuda() || most == 1)
        continue;
      for (auto program : module.getOps<exec::ProgramOp>())
        if (failed(ProgramStreams(program, module, *target, most).run()))
          return signalPassFailure();
    }
  }
};

} // namespace

} // namespace lathe
