//===- Offsets.cpp - lifetimes and arena offsets --------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ProgramBuilder.h"

#include "lathe/analysis/MemoryPlan.h"
#include "lathe/analysis/PlanValidator.h"

#include <random>

using namespace mlir;

namespace lathe::plan {

DimExpr bytesOf(Type type) {
  DType dtype = *dtypeOf(cast<TensorType>(type).getElementType());
  DimExpr count = product(physicalDimsOf(type));
  unsigned bits = bitWidth(dtype);
  return bits % 8 ? DimExpr::ceilDiv(count * DimExpr(int64_t(bits)), 8)
                  : count * DimExpr(int64_t(bits / 8));
}

bool isStep(Operation *op) {
  return isa<exec::LaunchOp, exec::CopyOp, exec::BindOp, exec::AdvanceOp, exec::TapOp,
             exec::CallOp, exec::IfOp, exec::ElseOp, exec::EndIfOp, exec::LoopOp,
             exec::EndLoopOp>(op);
}

/// The buffer whose memory this is.
static exec::BufferOp rootOf(Value buffer) {
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

LogicalResult assignOffsets(exec::ProgramOp program, ModuleOp module, int64_t alignment) {
  SmallVector<exec::BufferOp> placed;
  llvm::DenseMap<Operation *, unsigned> number;
  analysis::SymbolicProblem problem;
  int64_t step = 0;
  Operation *firstBuffer = nullptr;
  // Loops that are open: their first step, and the buffers that they touch.
  SmallVector<std::pair<int64_t, llvm::SetVector<unsigned>>> loops;
  SmallVector<std::tuple<int64_t, int64_t, llvm::SetVector<unsigned>>> closed;
  for (Operation &op : program.getBody().front()) {
    if (auto buffer = dyn_cast<exec::BufferOp>(op)) {
      if (!firstBuffer)
        firstBuffer = &op;
      if (buffer.getKind() == exec::BufferKind::Arena ||
          buffer.getKind() == exec::BufferKind::Workspace) {
        number[&op] = placed.size();
        placed.push_back(buffer);
        analysis::SymbolicBuffer item;
        item.size = bytesOf(buffer.getType());
        item.alignment = alignment;
        item.begin = INT64_MAX;
        problem.buffers.push_back(item);
      }
      continue;
    }
    if (!isStep(&op))
      continue;
    if (isa<exec::LoopOp>(op))
      loops.push_back({step, {}});
    for (Value operand : op.getOperands())
      if (exec::BufferOp root = rootOf(operand))
        if (auto found = number.find(root); found != number.end()) {
          analysis::SymbolicBuffer &item = problem.buffers[found->second];
          item.begin = std::min(item.begin, step);
          item.end = step + 1;
          for (auto &[first, touched] : loops)
            touched.insert(found->second);
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
      analysis::SymbolicBuffer &item = problem.buffers[index];
      if (item.begin < first || item.end > end) {
        item.begin = std::min(item.begin, first);
        item.end = std::max(item.end, end);
      }
    }
  for (analysis::SymbolicBuffer &item : problem.buffers)
    item.begin = std::min(item.begin, item.end);
  if (placed.empty())
    return success();

  problem.bounds = symbolRanges(module);
  problem.point = planningPoint(module);
  auto solution = analysis::planSymbolic(problem);
  if (!solution.ok())
    return program.emitError("memory planning: ") << solution.status().message();
  for (const auto &point : samples(problem.bounds, symbolOptima(module))) {
    auto at = analysis::evaluateProblem(problem, point);
    if (!at.ok())
      continue; // sizes that do not broadcast or overflow are refused at run time
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

  Builder attrs(program.getContext());
  for (auto [i, buffer] : llvm::enumerate(placed)) {
    buffer.setOffsetAttr(DimAttr::get(attrs.getContext(), solution->offsets[i]));
    int64_t live[] = {problem.buffers[i].begin, problem.buffers[i].end};
    buffer.setLiveAttr(attrs.getDenseI64ArrayAttr(live));
  }
  OpBuilder builder(firstBuffer);
  exec::ArenaOp::create(builder, program.getLoc(),
                        DimAttr::get(attrs.getContext(), solution->height), /*on_host=*/false);
  return success();
}

} // namespace lathe::plan
