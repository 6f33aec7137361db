//===- Offsets.cpp - lifetimes and arena offsets --------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Packs the buffers of each program into one arena, as formulas over its sizes.
// On one stream two buffers may share bytes when one's last step is before the
// other's first; on several, when events order all that touches them. What the
// host reads (conditions, numbers of trips) gets an arena in its memory.
//
//   %a = exec.buffer "a" {arena}          exec.arena <256>
//   %b = exec.buffer "b" {arena}    =>    %a = exec.buffer "a" {arena, live = [0, 2], offset = 0}
//                                         %b = exec.buffer "b" {arena, live = [1, 3], offset = 128}
//
//===----------------------------------------------------------------------===//
#include "ProgramBuilder.h"

#include "lathe/analysis/MemoryPlan.h"
#include "lathe/analysis/PlanValidator.h"
#include "lathe/analysis/StreamConflicts.h"
#include "lathe/ir/Streams.h"

#include <random>

using namespace mlir;

namespace lathe {

#define GEN_PASS_DEF_OFFSETSPASS
#include "lathe/passes/Passes.h.inc"

namespace plan {

DimExpr bytesOf(Type type) {
  DType dtype = *dtypeOf(cast<TensorType>(type).getElementType());
  DimExpr count = product(physicalDimsOf(type));
  unsigned bits = bitWidth(dtype);
  return bits % 8 ? DimExpr::ceilDiv(count * DimExpr(int64_t(bits)), 8)
                  : count * DimExpr(int64_t(bits / 8));
}

bool isStep(Operation *op) {
  return isa<exec::LaunchOp, exec::CopyOp, exec::BindOp, exec::AdvanceOp, exec::TapOp,
             exec::CallOp, exec::CollectiveOp, exec::IfOp, exec::ElseOp, exec::EndIfOp, exec::LoopOp,
             exec::EndLoopOp>(op);
}

exec::BufferOp rootOf(Value buffer) {
  auto op = buffer.getDefiningOp<exec::BufferOp>();
  while (op && op.getBase())
    op = op.getBase().getDefiningOp<exec::BufferOp>();
  return op;
}

/// Values of the symbols between and at their bounds, to validate formulas at.
static std::vector<std::map<std::string, int64_t>>
samples(const std::map<std::string, DimRange> &bounds, const std::map<std::string, int64_t> &opt) {
  std::vector<std::map<std::string, int64_t>> points = {opt};
  std::mt19937 random(1);
  for (int round = 0; round < 8; ++round) {
    std::map<std::string, int64_t> point;
    for (const auto &[name, range] : bounds) {
      int64_t hi = range.hi == DimRange::kUnbounded ? range.lo + 1000 : range.hi;
      point[name] = round == 0   ? range.lo
                    : round == 1 ? hi
                                 : range.lo + int64_t(random() % uint64_t(hi - range.lo + 1));
    }
    points.push_back(point);
  }
  return points;
}

std::map<std::string, int64_t> planningPoint(ModuleOp module) {
  std::map<std::string, int64_t> point = symbolOptima(module);
  for (const auto &[name, range] : symbolRanges(module))
    if (range.hi != DimRange::kUnbounded)
      point[name] = range.hi;
  return point;
}

/// Pairs that may not share bytes where steps run on several streams.
static Result<analysis::ConflictList>
conflictsOf(exec::ProgramOp program, const llvm::DenseMap<Operation *, unsigned> &number) {
  std::vector<analysis::StreamStep> steps;
  llvm::DenseMap<int64_t, int> signalled;
  for (Operation &op : program.getBody().front()) {
    if (!isStep(&op))
      continue;
    StreamPlace place = streamPlaceOf(&op);
    analysis::StreamStep step;
    step.stream = place.stream;
    for (int64_t event : place.waits)
      step.waits.push_back(signalled.lookup(event));
    for (Value operand : op.getOperands())
      if (auto found = number.find(rootOf(operand)); found != number.end())
        step.touches.push_back(found->second);
    if (place.signal >= 0)
      signalled[place.signal] = steps.size();
    steps.push_back(std::move(step));
  }
  return analysis::conflictsOfStreams(steps, number.size());
}

/// Symbols that get values between steps of a program: each follows from these.
static std::map<std::string, std::set<std::string>> boundBetween(exec::ProgramOp program) {
  std::map<std::string, std::set<std::string>> bound;
  for (auto bind : program.getBody().front().getOps<exec::BindOp>())
    if (!bind.getBuffer() || rootOf(bind.getBuffer()).getKind() != exec::BufferKind::Input)
      bound[bind.getSymbol().str()].insert(bind.getSymbol().str());
  for (auto size : program.getBody().front().getOps<exec::SizeOp>())
    if (auto value = size.getValue()) {
      std::set<std::string> names, from;
      value->expr().collectSymbols(names);
      for (const std::string &name : names)
        if (auto found = bound.find(name); found != bound.end())
          from.insert(found->second.begin(), found->second.end());
      if (!from.empty())
        bound[size.getName().str()] = from;
    }
  return bound;
}

namespace {

/// What a program needs from its arenas: each buffer with the steps from its first use to its last.
struct ArenaBuffers {
  SmallVector<exec::BufferOp> buffers;
  std::vector<analysis::SymbolicBuffer> items;
  llvm::DenseMap<Operation *, unsigned> number;
};

} // namespace

static ArenaBuffers buffersOf(exec::ProgramOp program, int64_t alignment) {
  ArenaBuffers found;
  int64_t step = 0;
  // Loops that are open: their first step, and the buffers that they touch.
  SmallVector<std::pair<int64_t, llvm::SetVector<unsigned>>> loops;
  SmallVector<std::tuple<int64_t, int64_t, llvm::SetVector<unsigned>>> closed;
  for (Operation &op : program.getBody().front()) {
    if (auto buffer = dyn_cast<exec::BufferOp>(op)) {
      if (buffer.getKind() == exec::BufferKind::Arena ||
          buffer.getKind() == exec::BufferKind::Workspace) {
        found.number[&op] = found.buffers.size();
        found.buffers.push_back(buffer);
        analysis::SymbolicBuffer item;
        item.size = bytesOf(buffer.getType());
        item.alignment = alignment;
        item.begin = INT64_MAX;
        found.items.push_back(item);
      }
      continue;
    }
    if (!isStep(&op))
      continue;
    if (isa<exec::LoopOp>(op))
      loops.push_back({step, {}});
    for (Value operand : op.getOperands())
      if (exec::BufferOp root = rootOf(operand))
        if (auto at = found.number.find(root); at != found.number.end()) {
          analysis::SymbolicBuffer &item = found.items[at->second];
          item.begin = std::min(item.begin, step);
          item.end = step + 1;
          for (auto &[first, touched] : loops)
            touched.insert(at->second);
        }
    ++step;
    if (isa<exec::EndLoopOp>(op)) {
      auto [first, touched] = loops.pop_back_val();
      closed.push_back({first, step, touched});
    }
  }
  // What lives beyond a loop lives in all of its iterations; inner loops come first.
  for (const auto &[first, end, touched] : closed)
    for (unsigned index : touched) {
      analysis::SymbolicBuffer &item = found.items[index];
      if (item.begin < first || item.end > end) {
        item.begin = std::min(item.begin, first);
        item.end = std::max(item.end, end);
      }
    }
  for (analysis::SymbolicBuffer &item : found.items)
    item.begin = std::min(item.begin, item.end);
  return found;
}

/// Offsets in one arena, checked by the independent validator.
static FailureOr<analysis::SymbolicSolution> solve(exec::ProgramOp program, ModuleOp module,
                                                   const analysis::SymbolicProblem &problem) {
  auto solution = analysis::planSymbolic(problem);
  if (!solution.ok())
    return program.emitError("memory planning: ") << solution.status().message();
  for (const auto &point : samples(problem.bounds, symbolOptima(module))) {
    auto at = analysis::evaluateProblem(problem, point);
    if (!at.ok())
      continue; // sizes that do not broadcast or overflow are refused at run time
    double all = 0;
    for (const analysis::Buffer &buffer : at->buffers)
      all += double(buffer.size);
    if (all > 0x1p60)
      continue; // so is an arena that overflows
    analysis::Solution numbers;
    for (const DimExpr &offset : solution->offsets) {
      auto value = offset.evaluate(point);
      if (!value.ok())
        return program.emitError("memory planning: ") << value.status().message();
      numbers.offsets.push_back(*value);
    }
    auto height = solution->height.evaluate(point);
    if (!height.ok())
      return program.emitError("memory planning: ") << height.status().message();
    numbers.height = *height;
    // The arena may be larger than this point needs; the validator wants the exact height.
    int64_t exact = 0;
    for (auto [item, offset] : llvm::zip(at->buffers, numbers.offsets))
      exact = std::max(exact, offset + item.size);
    if (exact > numbers.height)
      return program.emitError("memory planning: buffers end behind the arena");
    numbers.height = exact;
    if (Status valid = analysis::validatePlan(*at, numbers); !valid.ok())
      return program.emitError("memory planning: ") << valid.message();
  }
  return *solution;
}

/// Gives arena buffers of the program their offsets and writes an `exec.arena` for those of sizes that
/// are known when a run begins, and one for each set of symbols that others wait for. `live` of each
/// buffer is set.
static LogicalResult assignOffsets(exec::ProgramOp program, ModuleOp module, int64_t alignment) {
  ArenaBuffers all = buffersOf(program, alignment);
  if (all.buffers.empty())
    return success();
  analysis::ConflictList conflicts;
  if (hasStreams(program)) {
    auto found = conflictsOf(program, all.number);
    if (!found.ok())
      return program.emitError("memory planning: ") << found.status().str();
    conflicts = std::move(*found);
    // For readers of `live`: what may run beside each other is alive together.
    for (auto [a, b] : conflicts) {
      analysis::SymbolicBuffer &x = all.items[a], &y = all.items[b];
      analysis::SymbolicBuffer &first = x.begin <= y.begin ? x : y;
      first.end = std::max(first.end, std::max(x.begin, y.begin) + 1);
    }
  }
  const std::map<std::string, std::set<std::string>> late = boundBetween(program);
  std::map<std::set<std::string>, SmallVector<unsigned>> arenas; // by the symbols that they wait for
  for (auto [i, item] : llvm::enumerate(all.items)) {
    std::set<std::string> names, waits;
    item.size.collectSymbols(names);
    for (const std::string &name : names)
      if (auto found = late.find(name); found != late.end())
        waits.insert(found->second.begin(), found->second.end());
    arenas[waits].push_back(i);
  }

  Builder attrs(program.getContext());
  OpBuilder builder(*program.getBody().front().getOps<exec::BufferOp>().begin());
  for (auto [number, arena] : llvm::enumerate(arenas)) {
    ArrayRef<unsigned> members = arena.second;
    analysis::SymbolicProblem problem;
    problem.bounds = symbolRanges(module);
    problem.point = planningPoint(module);
    llvm::DenseMap<int, int> place;
    for (unsigned member : members) {
      place[member] = problem.buffers.size();
      problem.buffers.push_back(all.items[member]);
    }
    if (hasStreams(program)) {
      problem.conflicts.emplace();
      for (auto [a, b] : conflicts)
        if (place.count(a) && place.count(b))
          problem.conflicts->emplace_back(place[a], place[b]);
    }
    FailureOr<analysis::SymbolicSolution> solution = solve(program, module, problem);
    if (failed(solution))
      return failure();
    for (auto [i, member] : llvm::enumerate(members)) {
      exec::BufferOp buffer = all.buffers[member];
      buffer.setIndex(number);
      buffer.setOffsetAttr(DimAttr::get(attrs.getContext(), solution->offsets[i]));
      int64_t live[] = {problem.buffers[i].begin, problem.buffers[i].end};
      buffer.setLiveAttr(attrs.getDenseI64ArrayAttr(live));
    }
    exec::ArenaOp::create(builder, program.getLoc(), DimAttr::get(attrs.getContext(), solution->height),
                          /*on_host=*/false);
  }
  return success();
}

/// An arena on the host for what the host reads, which has its offsets already.
static void placeHostBuffers(exec::ProgramOp program) {
  SmallVector<exec::BufferOp> onHost;
  for (auto buffer : program.getBody().front().getOps<exec::BufferOp>())
    if (buffer.getKind() == exec::BufferKind::Host)
      onHost.push_back(buffer);
  if (onHost.empty())
    return;
  SmallVector<exec::ArenaOp> arenas(program.getBody().front().getOps<exec::ArenaOp>());
  DimExpr bytes = 0;
  for (exec::BufferOp buffer : onHost) {
    buffer.setIndex(arenas.size());
    DimExpr lines = DimExpr::ceilDiv(bytesOf(buffer.getType()), kHostLine) * DimExpr(kHostLine);
    bytes = DimExpr::max(bytes, buffer.getOffset()->expr() + lines);
  }
  OpBuilder before(*program.getBody().front().getOps<exec::BufferOp>().begin());
  exec::ArenaOp::create(before, program.getLoc(), DimAttr::get(program.getContext(), bytes),
                        /*on_host=*/true);
}

} // namespace plan

namespace {

struct OffsetsPass : impl::OffsetsPassBase<OffsetsPass> {
  void runOnOperation() override {
    for (ModuleOp module : targetModules(getOperation())) {
      auto target = targetOf(module);
      if (failed(target))
        return signalPassFailure();
      for (auto program : module.getOps<exec::ProgramOp>()) {
        if (failed(plan::assignOffsets(program, module, plan::alignmentOf(*target))))
          return signalPassFailure();
        plan::placeHostBuffers(program);
      }
    }
  }
};

} // namespace

} // namespace lathe
