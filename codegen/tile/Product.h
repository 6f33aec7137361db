//===- Product.h - the register-tiled product of the CPU --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Matrix products and convolutions are one skeleton: rows times columns over a
// depth, in register tiles of m rows x n columns with the whole depth in
// registers. What differs is where a row comes from (it lies in memory, or is
// computed into scratch first: prologues, image windows, half precision) and
// what element of the result (row, column) is.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_CODEGEN_TILE_PRODUCT_H
#define LATHE_CODEGEN_TILE_PRODUCT_H

#include "Schedule.h"

#include "lathe/support/Packing.h"

namespace lathe::codegen {

/// What follows a contraction in its kernel: pushed forward from the
/// accumulator, through pointwise ops, reshapes, transposes and slices, to the stores.
class Epilogue {
public:
  Epilogue(Evaluator &e, mlir::Value root);
  /// False when something else depends on the root: the general form takes over.
  bool supported() const { return ok; }
  /// Whether every result has the root's sizes and may be asked at flat indices
  /// over its dimensions [first, last].
  bool flat(int64_t first, int64_t last) const;
  /// Stores all outputs that follow from the root's value(s) at an index.
  void emit(const Indices &idx, mlir::Value value);
  /// Fetches what `emit` will read and write at an index of the root: the lines that hold the
  /// first element of each vector.
  void prefetch(const Indices &idx);

private:
  Indices moved(mlir::Operation *op, mlir::Value x, const Indices &from);
  mlir::Value inside(SliceOp slice, const Indices &to);
  int64_t splitInto();
  void emitLanes(const Indices &idx, mlir::Value value);
  void storeAll(std::map<void *, Indices> &at);
  IndexMath &ix() { return e.ix; }
  /// Another result of the root's op, which its schedule stores by itself.
  bool isBeside(mlir::Value v) const {
    return v != root && v.getDefiningOp() && v.getDefiningOp() == root.getDefiningOp();
  }
  Evaluator &e;
  mlir::Value root;
  llvm::SmallVector<mlir::Operation *> path; ///< dependents of the root, in order
  bool ok = true, moves = false;
  /// Whether the lanes in work lie in one part of a dimension that is split.
  enum class Lanes { Anywhere, Together, Apart } lanes = Lanes::Anywhere;
};

struct Product {
  Evaluator &e;
  KernelConfig config;
  mlir::Value result;          ///< of the contraction
  mlir::Type accumulator;      ///< f32, f64 or an integer
  DimExpr batches = 1, rows, columns, depth;
  /// Neighbours of K that are multiplied and added at once (tile.dot), of which `depth` counts the
  /// groups: of integers of 8 bits. An element of a row is then one group (CodeGroups.h), in scratch memory
  /// or, with `rowsAreBytes`, in memory as it lies: offsets count groups too. Panels are packed so, of bytes.
  int64_t interleave = 1;
  /// How many sums along K an element is made of: 0: as many as keep the multipliers busy, more where a tile has few rows.
  int64_t sums = 0;
  bool rowsAreBytes = false;
  /// Sums begin with so many times the sum of their column, an i32; null: with 0.
  mlir::Value ofColumnSums;
  /// Index of the result's element.
  std::function<Indices(mlir::Value batch, mlir::Value row, const Index &column)> resultIndex;

  // Left operand: in memory, a row's elements one after another...
  mlir::Value rowBuffer;       ///< null when rows are computed
  mlir::Type rowElement;
  std::function<mlir::Value(mlir::Value batch, mlir::Value row)> rowOffset;
  /// A row may lie in several stretches, each `depth` / `stretches` elements long, which begin
  /// `stretchAt` elements after the row does.
  int64_t stretches = 1;
  std::function<mlir::Value(mlir::Value stretch)> stretchAt;
  /// ... or computed: writes a row's elements to scratch from an offset on.
  std::function<void(mlir::Value batch, mlir::Value row, mlir::Value scratch, mlir::Value at)> fillRow;
  /// ... or `count` rows from one on, [count][depth] elements from the start of scratch: where this is cheaper together.
  std::function<void(mlir::Value batch, mlir::Value firstRow, mlir::Value count, mlir::Value scratch)> fillRows;

  // Right operand: panels in memory...
  mlir::Value columnBuffer;    ///< null when panels are computed
  mlir::Type columnElement;
  std::optional<PanelLayout> packed; ///< else rows of `columns` elements; of Blocks those that are not all zero
  std::function<mlir::Value(mlir::Value batch)> columnOffset; ///< of the batch's first element
  /// ... of codes, lanes of which at (k, column) are these numbers. A tile of one row asks in
  /// registers; others have a whole panel of numbers made in scratch memory first.
  std::function<mlir::Value(mlir::Value k, const Index &column, mlir::Value codes)> columnValue;
  /// ... whose panels begin where the layout says, or elsewhere: element offset.
  std::function<mlir::Value(mlir::Value batch, mlir::Value panel)> panelOffset;
  /// The element offset of the panel that comes after one, to fetch ahead; without, they follow
  /// each other.
  std::function<mlir::Value(mlir::Value batch, mlir::Value panel)> nextPanel;
  /// ... or computed: value at (k, column), lanes along k.
  std::function<mlir::Value(mlir::Value batch, const Index &k, mlir::Value column)> columnAt;
  /// ... or a whole panel at once: [depth][n] elements into scratch from `at` on.
  std::function<void(mlir::Value batch, mlir::Value column, mlir::Value at)> fillPanel;

  /// Whether blocks of zeros are left out of the panels.
  bool inBlocks() const { return packed && packed->order == PanelLayout::Order::Blocks; }
  /// Whether rows of panels that meet a zero stay unread: of one row, by a list of the elements that are not zero.
  bool byList() const { return config.form->product.leavesOutInputs; }
  bool panelsInScratch() const { return !columnBuffer || (columnValue && config.tileM > 1); }

  /// Takes what lies at an index of the result.
  std::function<void(const Indices &, mlir::Value)> consume;
  /// Told before a tile's products which indices it will bring; or null.
  std::function<void(const Indices &)> announce;

  /// Emits all of it, dealt out to blocks. False when the spec's scratch memory
  /// is too small for it.
  bool emit();

  // Parts of larger kernels set their scratch memory and run chunk by chunk.
  mlir::Value scratch;         ///< elements of the accumulator's type
  mlir::Value panelPlace;      ///< offset of the computed panel; with inBlocks() of a number for each row, with byList() of the list
  mlir::Value depthEnd;        ///< the depth, where it depends on the chunk
  std::vector<int64_t> counts; ///< numbers of rows that chunks can have, when they are known
  bool padded = false;         ///< there is room for whole panels of results
  void emitChunk(mlir::Value batch, mlir::Value firstRow, mlir::Value count, mlir::Value panels);
  void emitPanel(mlir::Value batch, mlir::Value firstRow, mlir::Value count, mlir::Value panel);
};

/// The square of W vectors of W lanes, transposed by shuffles.
void transposeSquare(Evaluator &e, llvm::MutableArrayRef<mlir::Value> rows);

} // namespace lathe::codegen

#endif // LATHE_CODEGEN_TILE_PRODUCT_H
