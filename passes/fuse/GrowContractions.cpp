//===- GrowContractions.cpp - epilogues -----------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A contraction computes its result tile by tile in registers: pointwise ops
// over the same sizes cost nothing there, and a result that is only split and
// permuted afterwards can be stored where it belongs at once.
//
//   %m = matmul %x, %w                       kernel gemm {
//   %a = add %m, %residual              =>     matmul, add, reshape, transpose
//   %t = transpose (reshape %a)              }
//
//===----------------------------------------------------------------------===//
#include "FusionGraph.h"

using namespace mlir;

namespace lathe::fuse {

/// Adds the pointwise ops after the heart, as long as one value leaves the group.
static void growEpilogue(FusionGraph &graph, Group &group) {
  SmallVector<Operation *> taken;
  bool started = false;
  for (Operation *op : graph.ops()) {
    if (op == group.heart) {
      started = true;
      continue;
    }
    if (!started || !graph.isFree(op) || !isClass(op, OpClass::Pointwise) ||
        llvm::none_of(op->getOperands(), [&](Value operand) {
          Operation *producer = operand.getDefiningOp();
          return producer && graph.ownerOf(producer) == &group;
        }))
      continue;
    if (!hasDims(op->getResult(0), group.space)) {
      missedRemark(op->getLoc(), "Epilogue")
          << "not fused into the contraction before it: its result has other sizes";
      continue;
    }
    if (!graph.mayOwn(op, group)) {
      missedRemark(op->getLoc(), "Epilogue")
          << "not fused into the contraction before it: an operand depends on its result "
             "through another kernel";
      continue;
    }
    graph.own(op, group);
    taken.push_back(op);
  }
  // One store per point: the longest prefix after which a single value is left.
  while (!taken.empty() && graph.outputs(group).size() != 1) {
    missedRemark(taken.back()->getLoc(), "Epilogue")
        << "not fused into the contraction before it: more than one value would leave the kernel";
    graph.release(taken.pop_back_val(), group);
  }
  for (Operation *op : taken)
    passedRemark(op->getLoc(), "Epilogue") << "fused into the contraction before it";
}

/// Whether every reader needs the value in memory as it is.
static bool wantsMemory(Value value) {
  return llvm::all_of(value.getUsers(), [](Operation *user) {
    std::optional<OpClass> kind = classOf(user);
    if (!kind || *kind == OpClass::Gemm || *kind == OpClass::Attention || *kind == OpClass::Conv)
      return true;
    return isView(user) && wantsMemory(user->getResult(0));
  });
}

/// Whether `to` is `from` with dimensions split into several, none merged; sizes of 1 come
/// and go.
static bool onlySplits(ArrayRef<DimExpr> from, ArrayRef<DimExpr> to) {
  size_t t = 0;
  for (const DimExpr &dim : from) {
    if (dim == DimExpr(1))
      continue;
    DimExpr part = 1;
    do {
      if (t == to.size())
        return false;
      part = part * to[t++];
    } while (part != dim);
  }
  return product(std::vector<DimExpr>(to.begin() + t, to.end())) == DimExpr(1);
}

/// The chain of views and permutations behind the group's one output, up to the last
/// that changes how the result lies in memory.
static void growOutputMap(FusionGraph &graph, Group &group) {
  SmallVector<Value> outputs = graph.outputs(group);
  if (outputs.size() != 1)
    return;
  SmallVector<Operation *> chain;
  size_t taken = 0;
  for (Value value = outputs[0]; value.hasOneUse();) {
    Operation *next = *value.user_begin();
    if (!graph.isFree(next))
      break;
    bool view = isView(next) && onlySplits(dimsOf(value), dimsOf(next->getResult(0)));
    if (!view && !isPermutation(next))
      break;
    value = next->getResult(0);
    chain.push_back(next);
    bool appended = value.hasOneUse() && isa<StateAppendOp>(*value.user_begin());
    if (appended || (!view && wantsMemory(value)))
      taken = chain.size();
  }
  for (Operation *op : ArrayRef(chain).take_front(taken)) {
    graph.own(op, group);
    passedRemark(op->getLoc(), "OutputMap") << "the kernel before stores its result in this order";
  }
}

static std::optional<RegionKind> contractionKind(Operation *op) {
  std::optional<OpClass> kind = classOf(op);
  if (kind == OpClass::Gemm)
    return RegionKind::Gemm;
  if (kind == OpClass::Conv)
    return RegionKind::Conv;
  if (kind == OpClass::Attention)
    return RegionKind::Attention;
  return std::nullopt;
}

void growContractions(FusionGraph &graph) {
  // All hearts first: an epilogue may then see which operands other kernels make.
  SmallVector<Group *> groups;
  for (Operation *op : graph.ops())
    if (std::optional<RegionKind> kind = contractionKind(op))
      groups.push_back(&graph.create(op, *kind));
  for (Group *group : groups) {
    growEpilogue(graph, *group);
    growOutputMap(graph, *group);
  }
}

void growWindows(FusionGraph &graph) {
  for (Operation *op : graph.ops()) {
    if (!graph.isFree(op))
      continue;
    OpClass kind = *classOf(op);
    if (kind == OpClass::Window)
      growEpilogue(graph, graph.create(op, RegionKind::Pointwise));
    else if (kind == OpClass::Scan)
      graph.create(op, RegionKind::Scan);
    else if (kind == OpClass::Scatter)
      graph.create(op, RegionKind::Copy);
  }
}

} // namespace lathe::fuse
