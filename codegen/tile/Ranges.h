//===- Ranges.h - what a value may be over a box of indices -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Interval arithmetic over the ops of a kernel region: of truth values whether all or any in a box of
// indices are true, of integers the least and the greatest. So a mask of attention is asked once for a
// tile of queries and keys, not score by score: by positions (windows, dilation), by tables of blocks
// that are repeated or gathered, and by numbers in memory (documents). Answers are bounds: `any` may be
// true of a box in which nothing is, never the other way about.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_CODEGEN_TILE_RANGES_H
#define LATHE_CODEGEN_TILE_RANGES_H

#include "Evaluator.h"

namespace lathe::codegen {

/// Indices `first` to `last` of a dimension, both among them; the same Value where there is one.
struct Extent {
  mlir::Value first, last;
  Extent() = default;
  Extent(mlir::Value first, mlir::Value last) : first(first), last(last) {}
  explicit Extent(mlir::Value one) : first(one), last(one) {}
  bool one() const { return first == last; }
};
using Box = llvm::SmallVector<Extent, 6>;

class Ranges {
public:
  /// `keys`: the size of what lies one after another in a box. What has it as its last dimension is not looked at
  /// element by element, unless it is in memory. `most`: larger boxes are not looked at element by element at all; 0: any
  /// is. Boxes show their sizes at run time.
  Ranges(Evaluator &e, const DimExpr &keys, int64_t most = 0) : e(e), ix(e.ix), keys(keys), most(most) {}

  /// Of truth values (i1) in a box.
  struct Truth {
    mlir::Value all, any; ///< i1
  };
  /// A value of i1. What is not understood gives {false, true}, both constant.
  Truth truth(mlir::Value v, const Box &box);
  /// Whether integers of v in a box equal all or any of those of w in another: values of one type.
  Truth equal(mlir::Value v, const Box &box, mlir::Value w, const Box &other);
  /// Both of two conditions; constants fold.
  mlir::Value both(mlir::Value x, mlir::Value y);
  /// The box of an operand that broadcasts to sizes `full`.
  Box broadcast(mlir::Value operand, llvm::ArrayRef<DimExpr> full, const Box &box);

private:
  /// Integers, as an index: of the numbers that lie in memory, or of what arithmetic has made of them as long as that
  /// cannot have overflowed the element type.
  struct Numbers {
    mlir::Value least, most;
    int64_t bound;       ///< of the magnitude; kAnything: none
    mlir::Value within;  ///< i1: whether all this holds; null: it does
  };
  static constexpr int64_t kAnything = std::numeric_limits<int64_t>::max();
  using MaybeNumbers = std::optional<Numbers>;

  MaybeNumbers numbers(mlir::Value v, const Box &box);
  MaybeNumbers arithmetic(mlir::Operation *op, const Box &box);
  Truth compare(CompareOp op, const Box &box);
  Truth equal(const Numbers &x, const Numbers &y);
  Truth whereWithin(Truth is, const Numbers &x, const Numbers &y);
  Truth otherTruth(mlir::Value v, const Box &box);
  MaybeNumbers bounded(MaybeNumbers x, mlir::Value v);
  MaybeNumbers fitted(Numbers x, mlir::Value v);
  std::optional<Box> moved(mlir::Operation *op, const Box &box);
  Box reshaped(ReshapeOp op, const Box &box);
  Box gathered(GatherOp op, const Box &box);
  bool isInMemory(mlir::Value v) const { return llvm::isa<mlir::BlockArgument>(v); }
  Truth truthByElement(mlir::Value v, const Box &box);
  Numbers numbersByElement(mlir::Value v, const Box &box);
  mlir::Value isFew(const Box &box);
  using Places = std::vector<const void *>;
  static Places keyOf(const Box &box);
  llvm::SmallVector<mlir::Value> overBox(mlir::Value v, const Box &box, mlir::ValueRange inits,
                                         llvm::function_ref<llvm::SmallVector<mlir::Value>(mlir::Value, mlir::ValueRange)> body);

  mlir::Value truthOf(bool is) { return ix.constant(e.b.getBoolAttr(is)); }
  Truth unknown() { return {truthOf(false), truthOf(true)}; }
  mlir::Value either(mlir::Value x, mlir::Value y);
  mlir::Value opposite(mlir::Value x);
  Extent whole(const DimExpr &size) { return {ix.cst(0), ix.sub(ix.dim(size), ix.cst(1))}; }

  Evaluator &e;
  IndexMath &ix;
  DimExpr keys;
  int64_t most;
  /// Numbers in memory that were looked at: masks name them more than once. All are asked for in one region.
  std::map<std::pair<const void *, Places>, Numbers> looked;
};

} // namespace lathe::codegen

#endif // LATHE_CODEGEN_TILE_RANGES_H
