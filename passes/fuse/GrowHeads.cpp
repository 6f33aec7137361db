//===- GrowHeads.cpp - products whose columns are heads -------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A product of queries, keys and values has columns that go to different places: queries, turned by
// their positions, to attention, keys and values into states. Its kernel holds a column of a head
// and the one half a head further in one thread, so that it turns them and stores each where it
// belongs: nothing is written to be read by a kernel of copies. Where neighbours are turned
// together, it holds the two of them as it is; that may be a part of a head, with another part that
// stays.
//
//   %y = matmul %x, %w                          %q, %k, %v = kernel gemm {
//   %h = transpose (reshape %y)                   matmul, reshape, transpose,
//   %q = rotated (slice %h heads 0..)       =>    slices, rotations
//   %k = rotated (slice %h heads 32..)          }
//   %v = slice %h heads 40..
//
// Rotated: slices of halves, pointwise ops and a concat; or of neighbours
//
//   %a = slice %q [0.. step 2]   %b = slice %q [1.. step 2]
//   reshape (concat (%a * cos - %b * sin), (%a * sin + %b * cos)) of [.., D/2, 1] each
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

/// Half of each head.
bool takesHalf(SliceOp slice) {
  std::vector<DimExpr> from = dimsOf(slice.getX()), to = dimsOf(slice.getY());
  for (size_t d = 0; d < from.size(); ++d) {
    bool last = d + 1 == from.size();
    auto first = cast<DimAttr>(slice.getStarts()[d]).expr().constant();
    if (slice.getSteps()[d] != 1 || !first)
      return false;
    if (last ? (to[d] * DimExpr(2) != from[d] || (*first && DimExpr(*first) != to[d]))
             : from[d] != to[d])
      return false;
  }
  return true;
}

/// Columns of a head that a value has an element or two for: from `first` on, in this form.
struct Columns {
  int64_t first = 0, count = 0;
  enum Form {
    Each,
    OfTwo,
    Stacked
  } form = Each; ///< sizes: count; count / 2, perhaps by 1; count / 2 by 2

  bool operator==(const Columns &) const = default;
  size_t dims(ArrayRef<DimExpr> of) const {
    return form == Stacked || (form == OfTwo && of.back() == DimExpr(1)) ? 2 : 1;
  }
};
using ColumnsOf = llvm::DenseMap<Value, Columns>;

/// Which columns a slice of whole columns has; of each two neighbours both or one.
std::optional<Columns> columnsOfSlice(SliceOp slice, Columns in) {
  std::vector<DimExpr> from = dimsOf(slice.getX()), to = dimsOf(slice.getY());
  for (size_t d = 0; d + 1 < from.size(); ++d)
    if (slice.getSteps()[d] != 1 || from[d] != to[d])
      return std::nullopt;
  auto first = cast<DimAttr>(slice.getStarts()[from.size() - 1]).expr().constant();
  auto count = to.back().constant();
  if (in.form != Columns::Each || !first || !count)
    return std::nullopt;
  if (takesEverySecond(slice))
    return *first < 2 && 2 * *count == in.count
               ? std::optional(Columns{in.first, in.count, Columns::OfTwo})
               : std::nullopt;
  constexpr int64_t kLeast = 4; // what is less might be two that are stacked
  if (slice.getSteps().back() != 1 || *first % 2 || *count % 2 || *count < kLeast)
    return std::nullopt;
  return Columns{in.first + *first, *count, Columns::Each};
}

/// Sizes of 1 may come and go, and two that are stacked become columns.
std::optional<Columns> columnsOfReshape(ReshapeOp reshape, Columns in) {
  std::vector<DimExpr> from = dimsOf(reshape.getX()), to = dimsOf(reshape.getY());
  Columns out = in;
  if (in.form == Columns::Stacked && to.back() == DimExpr(in.count))
    out.form = Columns::Each;
  const size_t before = in.dims(from), after = out.dims(to);
  int64_t inner = 1;
  if (to.size() < after)
    return std::nullopt;
  for (const DimExpr &dim : ArrayRef(to).take_back(after))
    inner *= dim.constant().value_or(0);
  bool same = inner == (out.form == Columns::OfTwo ? out.count / 2 : out.count) &&
              unitMap(ArrayRef(from).drop_back(before), ArrayRef(to).drop_back(after));
  return same ? std::optional(out) : std::nullopt;
}

/// Those of neighbours that are stacked, or of parts of a head, in order.
std::optional<Columns> columnsOfConcat(ConcatOp concat, const ColumnsOf &inside) {
  std::optional<Columns> out;
  bool ones = dimsOf(concat.getInputs().front()).back() == DimExpr(1);
  if (int64_t(concat.getAxis()) + 1 != int64_t(dimsOf(concat.getResult()).size()) ||
      (ones && concat.getInputs().size() != 2))
    return std::nullopt;
  for (Value v : concat.getInputs()) {
    auto it = inside.find(v);
    if (it == inside.end() || it->second.form != (ones ? Columns::OfTwo : Columns::Each))
      return std::nullopt;
    if (!out)
      out = it->second;
    else if (ones ? *out != it->second : out->first + out->count != it->second.first)
      return std::nullopt;
    else if (!ones)
      out->count += it->second.count;
  }
  if (ones)
    out->form = Columns::Stacked;
  return out;
}

/// The columns that an op has an element or two for, if those follow from the same neighbours.
std::optional<Columns> columnsOf(Operation *op, const ColumnsOf &inside) {
  Columns in;
  for (Value v : op->getOperands())
    if (auto it = inside.find(v); it != inside.end())
      in = it->second;
  if (auto slice = dyn_cast<SliceOp>(op))
    return columnsOfSlice(slice, in);
  if (auto reshape = dyn_cast<ReshapeOp>(op))
    return columnsOfReshape(reshape, in);
  if (auto concat = dyn_cast<ConcatOp>(op))
    return columnsOfConcat(concat, inside);
  if (auto turn = dyn_cast<TransposeOp>(op))
    return turn.getPerm().back() + 1 == int64_t(turn.getPerm().size()) &&
                   in.dims(dimsOf(turn.getX())) == 1
               ? std::optional(in)
               : std::nullopt;
  bool together =
      isClass(op, OpClass::Pointwise) && llvm::all_of(op->getOperands(), [&](Value v) {
        auto it = inside.find(v);
        return it == inside.end() || (it->second == in && dimsOf(v) == dimsOf(op->getResult(0)));
      });
  return together ? std::optional(in) : std::nullopt;
}

class HeadGrower {
public:
  HeadGrower(FusionGraph &graph, Group &group) : graph(graph), group(group) {}

  bool run() {
    std::optional<HeadPairs> found = headPairs(cast<MatmulOp>(group.heart));
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
    neighbours = true;
    if (matchBranches() && llvm::any_of(branches, rotated))
      return take();
    branches = std::move(plain);
    return llvm::any_of(branches, [](Branch &b) { return b.appended; }) && take();
  }

private:
  bool matchBranches() {
    int64_t axis = heads.axis;
    branches.clear();
    if (heads.turned)
      axis = llvm::find(heads.turned.getPerm(), axis) - heads.turned.getPerm().begin();
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

  /// Whether an op that reads a head element by element, or its halves, can follow in the kernel.
  bool follows(Operation *op, const ColumnsOf &inside) const {
    std::optional<OpClass> kind = classOf(op);
    if (auto slice = dyn_cast<SliceOp>(op))
      return dimsOf(slice.getX()).back() == DimExpr(size) && takesHalf(slice);
    if (auto turn = dyn_cast<TransposeOp>(op))
      return turn.getPerm().back() + 1 == int64_t(turn.getPerm().size());
    if (auto concat = dyn_cast<ConcatOp>(op))
      return int64_t(concat.getAxis()) + 1 == int64_t(dimsOf(concat.getResult()).size()) &&
             concat.getInputs().size() == 2 && dimsOf(concat.getResult()).back() == DimExpr(size) &&
             llvm::all_of(concat.getInputs(), [&](Value v) {
               return inside.contains(v) && dimsOf(v).back() == DimExpr(size / 2);
             });
    return kind == OpClass::Pointwise && llvm::all_of(op->getOperands(), [&](Value v) {
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
    ColumnsOf inside{{branch.start, {0, size}}};
    bool started = false;
    for (Operation *op : graph.ops()) {
      started |= op == branch.start.getDefiningOp();
      if (!started || op == branch.start.getDefiningOp() ||
          llvm::none_of(op->getOperands(), [&](Value v) { return inside.contains(v); }) ||
          !graph.isFree(op) || op->getNumResults() != 1)
        continue;
      std::optional<Columns> columns = neighbours            ? columnsOf(op, inside)
                                       : follows(op, inside) ? std::optional(Columns())
                                                             : std::nullopt;
      if (!columns)
        continue;
      branch.ops.push_back(op);
      inside[op->getResult(0)] = *columns;
    }
    auto whole = [&](Value v) {
      return v && dimsOf(v).back() == DimExpr(size) &&
             (!neighbours || (inside[v] == Columns{0, size} && headPlace(v, heads)));
    };
    branch.end = leaving(branch.start, branch.ops);
    while (!branch.ops.empty() && (!whole(branch.end) || isWidening(branch.ops.back()))) {
      branch.ops.pop_back();
      branch.end = leaving(branch.start, branch.ops);
    }
    branch.rotated = llvm::any_of(branch.ops, [&](Operation *op) {
      auto slice = dyn_cast<SliceOp>(op);
      return slice && (!neighbours || takesEverySecond(slice));
    });
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
    bool all = heads.columns == group.heart->getResult(0) || own(heads.columns.getDefiningOp());
    all = all && own(heads.split) && (!heads.turned || own(heads.turned));
    for (Branch &branch : branches) {
      all = all && own(branch.start.getDefiningOp());
      for (Operation *op : branch.ops)
        all = all && own(op);
    }
    if (!all) {
      while (!taken.empty())
        graph.release(taken.pop_back_val(), group);
      missedRemark(group.heart->getLoc(), "Heads")
          << "heads are not stored by the product: an operand depends on its result through another kernel";
      return false;
    }
    for (Branch &branch : branches) { // what was a view of the product's memory is a value of its own
      auto slice = cast<SliceOp>(branch.start.getDefiningOp());
      slice->removeAttr(kViewAttr);
      branch.start.setType(tensorType(elementTypeOf(branch.start), dimsOf(branch.start)));
      passedRemark(slice.getLoc(), "Heads")
          << (branch.rotated ? "rotated and stored by the product before it"
                             : "stored by the product before it");
    }
    return true;
  }

  FusionGraph &graph;
  Group &group;
  HeadPairs heads;
  int64_t size = 0;
  bool neighbours = false; ///< are turned together, not halves
  SmallVector<Branch> branches;
};

} // namespace

bool takeHeads(FusionGraph &graph, Group &group, const Target &target) {
  auto matmul = dyn_cast<MatmulOp>(group.heart);
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
