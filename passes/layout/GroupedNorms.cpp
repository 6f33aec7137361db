//===- GroupedNorms.cpp - norms over groups of channels -------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A group norm is exported as an instance norm of an image whose groups are rows. Such a row merges channels and pixels,
// which lie apart where channels are last: the image would be transposed to be normalized, and back.
//
//   %r = reshape %x [N, C, H, W] -> [N, G, C/G H W]       %r = reshape %x -> [N, G, C/G, H, W]
//   %s = reduce %r {axes 2}                          =>   %s = reduce %r {axes 2, 3, 4}
//   %y = mul %r, ..                                       %y = mul %r, ..
//   %z = reshape %y -> [N, C, H, W]                       %z = reshape %y -> [N, C, H, W]
//
// The whole between the two reshapes is rewritten, or nothing.
//
//===----------------------------------------------------------------------===//
#include "GroupedNorms.h"

#include <numeric>

using namespace mlir;

namespace lathe {
namespace {

class GroupedRows {
public:
  /// The norm that begins at this reshape; nothing when it is none.
  static std::optional<GroupedRows> of(ReshapeOp begin) {
    std::vector<DimExpr> image = dimsOf(begin.getX()), rows = dimsOf(begin.getY());
    if (image.size() < 3 || rows.size() != 3 || image[0] != rows[0])
      return {};
    std::optional<int64_t> channels = image[1].constant(), groups = rows[1].constant();
    if (!channels || !groups || *groups < 1 || *channels % *groups || *channels == *groups)
      return {};
    GroupedRows found(begin, *channels / *groups);
    return found.collect() ? std::optional(std::move(found)) : std::nullopt;
  }

  void rewrite() {
    OpBuilder b(begin);
    IRMapping to;
    to.map(begin.getY(), reshaped(b, begin.getX(), split(rows)));
    for (Operation *op : between) {
      b.setInsertionPoint(op);
      if (auto end = dyn_cast<ReshapeOp>(op)) {
        end.getXMutable().assign(to.lookup(end.getX()));
        continue;
      }
      if (auto reduce = dyn_cast<ReduceOp>(op)) {
        SmallVector<int64_t> axes(split(rows).size() - 2);
        std::iota(axes.begin(), axes.end(), 2);
        to.map(reduce.getY(), ReduceOp::create(b, op->getLoc(), to.lookup(reduce.getX()), reduce.getKind(), axes,
                                               /*keepdims=*/true).getY());
        continue;
      }
      for (Value operand : op->getOperands())
        if (!to.contains(operand))
          to.map(operand, reshaped(b, operand, split(dimsOf(operand))));
      Operation *clone = b.clone(*op, to);
      clone->getResult(0).setType(tensorType(elementTypeOf(op->getResult(0)), split(dimsOf(op->getResult(0)))));
    }
    for (Operation *op : llvm::reverse(between))
      if (!isa<ReshapeOp>(op))
        op->erase();
  }

private:
  GroupedRows(ReshapeOp begin, int64_t channels)
      : begin(begin), rows(dimsOf(begin.getY())), channels(channels) {}

  /// All that is computed of the rows, in order; false when some of it is no norm.
  bool collect() {
    llvm::SetVector<Operation *> users;
    SmallVector<Value> todo{begin.getY()};
    bool reduces = false;
    while (!todo.empty()) {
      for (Operation *op : todo.pop_back_val().getUsers()) {
        if (op->getBlock() != begin->getBlock() || op->getNumResults() != 1)
          return false;
        if (!users.insert(op) || isEnd(op))
          continue;
        reduces |= isa<ReduceOp>(op);
        if (!isRowReduction(op) && !isPointwise(op))
          return false;
        todo.push_back(op->getResult(0));
      }
    }
    between.assign(users.begin(), users.end());
    llvm::sort(between, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
    return reduces && llvm::any_of(between, [this](Operation *op) { return isEnd(op); });
  }

  bool isEnd(Operation *op) {
    auto end = dyn_cast<ReshapeOp>(op);
    return end && dimsOf(end.getX()) == rows && dimsOf(end.getY()) == dimsOf(begin.getX());
  }
  static bool isRowReduction(Operation *op) {
    auto reduce = dyn_cast<ReduceOp>(op);
    return reduce && reduce.getKeepdims() && reduce.getAxes() == ArrayRef<int64_t>{2};
  }
  /// Pointwise over the rows, or a value for each of them.
  bool isPointwise(Operation *op) const {
    return isClass(op, OpClass::Pointwise) && isOfRows(dimsOf(op->getResult(0))) &&
           llvm::all_of(op->getOperands(), [this](Value v) { return isOfRows(dimsOf(v)); });
  }
  bool isOfRows(const std::vector<DimExpr> &dims) const {
    return dims.empty() || (dims.size() == 3 && (dims[2] == rows[2] || dims[2] == DimExpr(1)));
  }

  /// [a, b, row] -> [a, b, C / G, pixels..], and ones for a value a row.
  std::vector<DimExpr> split(std::vector<DimExpr> dims) {
    if (dims.empty())
      return dims;
    std::vector<DimExpr> image = dimsOf(begin.getX());
    const bool whole = dims.back() == rows[2];
    dims.back() = whole ? DimExpr(channels) : DimExpr(1);
    for (size_t d = 2; d < image.size(); ++d)
      dims.push_back(whole ? image[d] : DimExpr(1));
    return dims;
  }
  static Value reshaped(OpBuilder &b, Value x, const std::vector<DimExpr> &dims) {
    return dims == dimsOf(x) ? x : ReshapeOp::create(b, x.getLoc(), tensorType(elementTypeOf(x), dims), x).getY();
  }

  ReshapeOp begin;
  std::vector<DimExpr> rows; ///< [N, G, C / G pixels]
  int64_t channels;          ///< of a group
  SmallVector<Operation *> between;
};

} // namespace

void splitGroupedRows(ModuleOp module) {
  SmallVector<ReshapeOp> reshapes;
  module.walk([&](ReshapeOp op) { reshapes.push_back(op); });
  for (ReshapeOp op : reshapes)
    if (std::optional<GroupedRows> norm = GroupedRows::of(op))
      norm->rewrite();
}

} // namespace lathe
