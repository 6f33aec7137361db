//===- GrowReductions.cpp - ops over the same rows ------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A reduction reads rows; whoever reads the same rows, or the row's result,
// joins, so that the data is loaded once.
//
//   %m = reduce max %x         kernel reduction {
//   %e = exp (sub %x, %m)  =>    reduce, sub, exp, reduce, div
//   %s = reduce sum %e         }
//   %y = div %e, %s
//
// On a GPU a block has a row, or a thread has a column. Where that leaves most of the card idle for long,
// blocks share the terms of a result (codegen/device/split.cuh): the reduction then has a kernel of its
// own, and what reads the same rows reads them again.
//
//===----------------------------------------------------------------------===//
#include "FusionGraph.h"

#include "lathe/codegen/TargetRates.h"

using namespace mlir;

namespace lathe::fuse {

/// Which dimensions of the first operand are reduced; empty when it is no plain reduction.
static std::vector<bool> reducedDims(Operation *op) {
  auto structured = cast<StructuredOpInterface>(op);
  size_t parallel = llvm::count(structured.getIterators(), utils::IteratorType::parallel);
  AffineMap map = structured.getAccessMaps().front();
  std::vector<bool> reduced;
  if (!map)
    return reduced;
  for (AffineExpr expr : map.getResults()) {
    auto dim = dyn_cast<AffineDimExpr>(expr);
    reduced.push_back(dim && dim.getPosition() >= parallel);
  }
  return reduced;
}

static std::vector<DimExpr> withoutOnes(ArrayRef<DimExpr> dims) {
  std::vector<DimExpr> kept;
  for (const DimExpr &dim : dims)
    if (dim != DimExpr(1))
      kept.push_back(dim);
  return kept;
}

/// One value a row, with or without the reduced dimensions as 1.
static bool isRowValue(Value value, const Group &group) {
  std::vector<DimExpr> rows;
  for (auto [dim, reduced] : llvm::zip(group.space, group.reduced))
    if (!reduced)
      rows.push_back(dim);
  return withoutOnes(dimsOf(value)) == withoutOnes(rows);
}

static bool isMemberValue(const FusionGraph &graph, Value value, const Group &group) {
  Operation *producer = value.getDefiningOp();
  return producer && graph.ownerOf(producer) == &group;
}

/// Whether the op works on the group's rows and reads something of the group.
static bool fits(const FusionGraph &graph, Operation *op, const Group &group) {
  if (!llvm::any_of(op->getOperands(),
                    [&](Value operand) { return isMemberValue(graph, operand, group); }))
    return false;
  OpClass kind = *classOf(op);
  Value result = op->getResult(0);
  if (kind == OpClass::Pointwise)
    return (hasDims(result, group.space) && !group.shared) || isRowValue(result, group);
  if (kind == OpClass::Reduction)
    return !group.shared && hasDims(op->getOperand(0), group.space) && reducedDims(op) == group.reduced;
  if (kind != OpClass::Movement || op->getNumOperands() != 1)
    return false;
  if (isView(op))
    return isRowValue(op->getOperand(0), group) && isRowValue(result, group);
  // A broadcast of the row's value over the row.
  AffineMap map = cast<StructuredOpInterface>(op).getAccessMaps().front();
  return !group.shared && map && map.isProjectedPermutation(/*allowZeroInResults=*/true) && !map.isPermutation() &&
         isRowValue(op->getOperand(0), group) && hasDims(result, group.space);
}

/// Whether the group reads the op, at once or through free pointwise ops that will be
/// computed where they are read.
static bool feeds(const FusionGraph &graph, Operation *op, const Group &group) {
  if (graph.ownerOf(op))
    return graph.ownerOf(op) == &group;
  return graph.isFree(op) && isClass(op, OpClass::Pointwise) && !op->use_empty() &&
         llvm::all_of(op->getResult(0).getUsers(),
                      [&](Operation *user) { return feeds(graph, user, group); });
}

/// The free ops between the op and the group, which read the op and feed the group.
static void collectBetween(const FusionGraph &graph, Operation *op, const Group &group,
                           llvm::SetVector<Operation *> &between) {
  for (Operation *user : op->getResult(0).getUsers())
    if (graph.isFree(user) && feeds(graph, user, group) && between.insert(user))
      collectBetween(graph, user, group, between);
}

static void grow(FusionGraph &graph, Group &group) {
  bool started = false;
  for (Operation *op : graph.ops()) {
    started |= op == group.anchor;
    if (!started || !graph.isFree(op) || isImageOfCodes(op) || !fits(graph, op, group))
      continue;
    if (graph.mayOwn(op, group)) {
      graph.own(op, group);
      passedRemark(op->getLoc(), "RowFusion") << "fused with the reduction over the same rows";
    } else {
      missedRemark(op->getLoc(), "RowFusion")
          << "not fused with the reduction over the same rows: an operand depends on it "
             "through another kernel";
    }
  }
  if (group.shared)
    return;
  // What makes the rows joins when others read it too: it is stored on the way.
  for (Operation *op : llvm::reverse(graph.ops())) {
    if (!graph.isFree(op) || isImageOfCodes(op) || !isClass(op, OpClass::Pointwise) ||
        !hasDims(op->getResult(0), group.space))
      continue;
    bool inside = false, outside = false;
    for (Operation *user : op->getResult(0).getUsers())
      (feeds(graph, user, group) ? inside : outside) = true;
    if (!inside || !outside)
      continue;
    llvm::SetVector<Operation *> between;
    collectBetween(graph, op, group, between);
    for (Operation *reader : between)
      graph.own(reader, group);
    if (graph.mayOwn(op, group)) {
      graph.own(op, group);
      passedRemark(op->getLoc(), "RowFusion") << "computed and stored by the reduction that reads it";
    }
  }
}

/// What else would be computed over the rows of a reduction in its kernel: how many reductions there are, it
/// among them, whether something of all elements is stored, and whether anything has elements of 64 bits.
struct RowWork {
  int reductions = 0;
  bool whole = false, wide = false;
};
static RowWork workOver(const FusionGraph &graph, const Group &group) {
  RowWork work;
  llvm::SetVector<Operation *> todo;
  todo.insert(group.anchor);
  for (unsigned i = 0; i < todo.size(); ++i) {
    Operation *op = todo[i];
    bool reduces = isClass(op, OpClass::Reduction);
    work.reductions += reduces;
    work.wide |= elementTypeOf(op->getResult(0)).getIntOrFloatBitWidth() > 32;
    for (Operation *user : op->getResult(0).getUsers()) {
      if (!classOf(user) || !graph.isFree(user))
        continue;
      bool same = isClass(user, OpClass::Reduction)
                      ? hasDims(user->getOperand(0), group.space) && reducedDims(user) == group.reduced
                      : hasDims(user->getResult(0), group.space) || isRowValue(user->getResult(0), group);
      if (same)
        todo.insert(user);
      work.whole |= same && hasDims(user->getResult(0), group.space) && !isClass(user, OpClass::Reduction);
    }
  }
  return work;
}

/// Whether the card is done sooner when blocks share the terms of each result. What a block that has a row,
/// or columns, to itself reads in a second was measured on an H200; whoever shares pays a launch and reads
/// the data again for each reduction.
static bool isShared(const FusionGraph &graph, const Group &group, const Target &target) {
  constexpr double kRowBlock = 30e9, kColumnBlock = 1.5e9, kLaunch = 3e-6;
  constexpr double kThreads = 128, kCluster = 8, kRegisters = 64 * 512, kUsefully = 1.25;
  Value x = group.anchor->getOperand(0);
  if (!target.isCuda() || !cast<StructuredOpInterface>(group.anchor).getCombiner() ||
      elementTypeOf(x).isUnsignedInteger())
    return false;
  std::vector<DimExpr> kept, terms;
  for (auto [dim, reduced] : llvm::zip(group.space, group.reduced))
    (reduced ? terms : kept).push_back(dim);
  const double results = graph.count(kept), length = graph.count(terms);
  const double width = std::max(8u, elementTypeOf(x).getIntOrFloatBitWidth()) / 8;
  const double bytes = results * length * width, card = ratesOf(target).bytesPerSecond;
  const RowWork work = workOver(graph, group);
  const double passes = work.reductions + work.whole;
  // Terms that lie apart have no row in one piece: a thread walks those of its result.
  const bool rows = group.reduced.back() && llvm::is_sorted(group.reduced);
  double blocks = rows ? results : results / kThreads;
  bool resident = rows && length <= kRegisters; // the row stays in registers
  // A cluster keeps a row in its registers that has 64 elements for each of its threads.
  if (rows && target.hasClusters() && !work.wide && length > kRegisters && length <= kCluster * kRegisters &&
      llvm::isPowerOf2_64(uint64_t(length))) {
    blocks *= length / kRegisters;
    resident = true;
  }
  const double moved = bytes * (resident ? 1 : passes);
  const double alone = moved / std::min(card, std::max(1.0, blocks) * (rows ? kRowBlock : kColumnBlock));
  const double shared = (passes - 1) * kLaunch + passes * bytes / card + kLaunch;
  return alone > kUsefully * shared;
}

void growReductions(FusionGraph &graph, const Target &target) {
  for (Operation *op : graph.ops()) {
    if (!graph.isFree(op) || !isClass(op, OpClass::Reduction))
      continue;
    Group &group = graph.create(op, RegionKind::Reduction);
    group.space = dimsOf(op->getOperand(0));
    group.reduced = reducedDims(op);
    if (group.reduced.empty())
      continue;
    group.shared = isShared(graph, group, target);
    grow(graph, group);
    if (group.shared)
      passedRemark(op->getLoc(), "SharedReduction") << "few results of many terms: all blocks share them";
  }
}

} // namespace lathe::fuse
