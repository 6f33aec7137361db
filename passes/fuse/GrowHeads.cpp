//===- GrowHeads.cpp - products whose columns are heads -------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A product of queries, keys and values has columns that go to different places: queries, rotated by
// their positions, to attention, keys and values into states. Its kernel holds a column of a head
// and the one half a head further in one thread, so that it rotates them and stores each where it
// belongs: nothing is written to be read by a kernel of copies. Where neighbours are rotated
// together, it holds the two of them as it is; that may be a part of a head, with another part that
// stays.
//
//   %y = matmul %x, %w                          %q, %k, %v = kernel gemm {
//   %h = transpose (reshape %y)                   matmul, reshape, transpose,
//   %q = rope (slice %h heads 0..), ..      =>    slices, ropes
//   %k = rope (slice %h heads 32..), ..         }
//   %v = slice %h heads 40..
//
//===----------------------------------------------------------------------===//
#include "FusionGraph.h"

#include "lathe/ir/HeadPairs.h"
#include "lathe/ir/UnitDims.h"

using namespace mlir;

namespace lathe::fuse {

namespace {

/// What becomes of some heads.
struct Branch {
  Value start, end;
  SmallVector<Operation *> ops; ///< between the two, in program order
  bool rotated = false, appended = false;
};

/// Slices of whole heads alone.
bool takesHeads(SliceOp slice, int64_t axis) {
  std::vector<DimExpr> from = dimsOf(slice.getX()), to = dimsOf(slice.getY());
  for (size_t d = 0; d < from.size(); ++d)
    if (slice.getSteps()[d] != 1 || !cast<DimAttr>(slice.getStarts()[d]).expr().constant() ||
        (int64_t(d) != axis && from[d] != to[d]))
      return false;
  return true;
}

class HeadGrower {
public:
  HeadGrower(FusionGraph &graph, Group &group) : graph(graph), group(group) {}

  bool run() {
    std::optional<HeadPairs> found = headPairs(cast<MatmulOp>(group.anchor));
    // A thread of a tile has 32 columns of both halves.
    constexpr int64_t kChunk = 32;
    if (!found || found->size % (2 * kChunk))
      return false;
    heads = *found;
    size = heads.size;
    auto rotated = [](Branch &b) { return b.rotated; };
    if (!matchBranches())
      return false;
    if (llvm::any_of(branches, rotated))
      return take();
    SmallVector<Branch> plain = std::move(branches);
    neighbours = true; // instead of halves
    if (matchBranches() && llvm::any_of(branches, rotated))
      return take();
    branches = std::move(plain);
    return llvm::any_of(branches, [](Branch &b) { return b.appended; }) && take();
  }

private:
  bool matchBranches() {
    int64_t axis = heads.axis;
    branches.clear();
    if (heads.transposed)
      axis = llvm::find(heads.transposed.getPerm(), axis) - heads.transposed.getPerm().begin();
    for (Operation *user : heads.result().getUsers()) {
      auto slice = dyn_cast<SliceOp>(user);
      if (!slice || !graph.isFree(slice) || !takesHeads(slice, axis))
        return false;
      Branch branch;
      branch.start = slice.getY();
      follow(branch);
      branches.push_back(std::move(branch));
    }
    return true;
  }

  /// Whether an op that reads whole heads, `inside`, can follow in the kernel.
  bool follows(Operation *op, const llvm::DenseSet<Value> &inside) const {
    if (auto rope = dyn_cast<RopeOp>(op)) {
      bool angles = inside.contains(rope.getCos()) || (rope.getSin() && inside.contains(rope.getSin()));
      return !angles && rope.getInterleaved() == neighbours &&
             (neighbours || int64_t(rope.getRotary()) == size);
    }
    if (auto permutation = permutationOf(op))
      return keepsLastDim(*permutation);
    if (keepsOrder(op)) {
      std::vector<DimExpr> from = dimsOf(op->getOperand(0)), to = dimsOf(op->getResult(0));
      return neighbours && !to.empty() && to.back() == from.back() &&
             unitMap(ArrayRef(from).drop_back(), ArrayRef(to).drop_back());
    }
    return isClass(op, OpClass::Pointwise) && llvm::all_of(op->getOperands(), [&](Value v) {
             return !inside.contains(v) || dimsOf(v) == dimsOf(op->getResult(0));
           });
  }

  /// The value that leaves when `ops` follow `start`; null when several do.
  static Value leaving(Value start, ArrayRef<Operation *> ops) {
    Value one;
    auto visit = [&](Value v) {
      bool leaves = llvm::any_of(v.getUsers(), [&](Operation *user) { return !llvm::is_contained(ops, user); });
      if (leaves && one)
        return false;
      if (leaves)
        one = v;
      return true;
    };
    if (!visit(start))
      return {};
    for (Operation *op : ops)
      if (!visit(op->getResult(0)))
        return {};
    return one;
  }

  void follow(Branch &branch) {
    llvm::DenseSet<Value> inside{branch.start};
    bool started = false;
    for (Operation *op : graph.ops()) {
      started |= op == branch.start.getDefiningOp();
      if (!started || op == branch.start.getDefiningOp() ||
          llvm::none_of(op->getOperands(), [&](Value v) { return inside.contains(v); }) ||
          !graph.isFree(op) || op->getNumResults() != 1 || !follows(op, inside))
        continue;
      branch.ops.push_back(op);
      inside.insert(op->getResult(0));
    }
    auto whole = [&](Value v) {
      return v && dimsOf(v).back() == DimExpr(size) && (!neighbours || headPlace(v, heads));
    };
    branch.end = leaving(branch.start, branch.ops);
    while (!branch.ops.empty() && (!whole(branch.end) || isUpcast(branch.ops.back()))) {
      branch.ops.pop_back();
      branch.end = leaving(branch.start, branch.ops);
    }
    branch.rotated = llvm::any_of(branch.ops, [](Operation *op) { return isa<RopeOp>(op); });
    branch.appended = branch.end.hasOneUse() && isa<StateAppendOp>(*branch.end.user_begin());
  }

  /// All or nothing.
  bool take() {
    SmallVector<Operation *> taken;
    auto own = [&](Operation *op) {
      if (!graph.isFree(op) || !graph.mayOwn(op, group))
        return false;
      graph.own(op, group);
      taken.push_back(op);
      return true;
    };
    bool all = heads.columns == group.anchor->getResult(0) || own(heads.columns.getDefiningOp());
    all = all && own(heads.split) && (!heads.transposed || own(heads.transposed));
    for (Branch &branch : branches) {
      all = all && own(branch.start.getDefiningOp());
      for (Operation *op : branch.ops)
        all = all && own(op);
    }
    if (!all) {
      while (!taken.empty())
        graph.release(taken.pop_back_val(), group);
      missedRemark(group.anchor->getLoc(), "Heads")
          << "heads are not stored by the product: an operand depends on its result through another kernel";
      return false;
    }
    for (Branch &branch : branches) { // what was a view of the product's memory is a value of its own
      Operation *slice = branch.start.getDefiningOp();
      slice->removeAttr(kViewAttr);
      branch.start.setType(tensorType(elementTypeOf(branch.start), dimsOf(branch.start)));
      passedRemark(slice->getLoc(), "Heads")
          << (branch.rotated ? "rotated and stored by the product before it"
                             : "stored by the product before it");
    }
    return true;
  }

  FusionGraph &graph;
  Group &group;
  HeadPairs heads;
  int64_t size = 0;
  bool neighbours = false; ///< are rotated together, not halves
  SmallVector<Branch> branches;
};

} // namespace

bool takeHeads(FusionGraph &graph, Group &group, const Target &target) {
  auto matmul = dyn_cast<MatmulOp>(group.anchor);
  if (!matmul || !hasPairs(matmul, target))
    return false;
  // One row, or so many that one tile's results are made while others multiply: between the two a kernel behind
  // the product is faster (test/perf/gpu/race_heads.py).
  constexpr int64_t kManyRows = 2048;
  std::vector<DimExpr> dims = dimsOf(matmul.getResult());
  auto rows = product({dims.begin(), dims.end() - 1}).constant();
  if (!matmul.getTransposeB() || !rows || (*rows != 1 && *rows < kManyRows))
    return false;
  return HeadGrower(graph, group).run();
}

} // namespace lathe::fuse
