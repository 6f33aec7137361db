//===- CodeGroups.h - rows of bytes for products of integers ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of integers (tile.dot) take neighbours of the depth in groups, each of which fills
// the 32 bits of a lane of sums:
//
//   two    16-bit integers: a code less its zero point, exactly
//   four   unsigned bytes: the codes themselves, signed ones 128 more. What the zero point would have
//          taken from a sum is taken from all sums of a column at once (`ofColumnSums`).
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_CODEGEN_TILE_CODEGROUPS_H
#define LATHE_CODEGEN_TILE_CODEGROUPS_H

#include "Evaluator.h"

namespace lathe::codegen {

struct CodeGroups {
  Evaluator &e;
  int64_t each;     ///< codes of a group: 2 or 4
  mlir::Type from;  ///< i8 or ui8
  mlir::Value zero; ///< the zero point, an i32; null: 0

  /// Whether bytes in memory are groups as they lie.
  bool asTheyLie() const { return each == 4 && from.isUnsignedInteger(); }
  /// A group of elements that are all as large as the zero point: what stands outside of an image.
  mlir::Value outside();
  /// So many times the sum of a column of weights is what sums begin with; null: they begin with 0.
  mlir::Value ofColumnSums();
  /// vector<n * each x i8> as vector<n x i32>.
  mlir::Value pack(mlir::Value codes);
  /// The group (or lanes of them) whose first `members` codes begin at k; the others are 0.
  mlir::Value group(llvm::function_ref<mlir::Value(const Index &k)> code, const Index &k, int64_t members);
  /// A row of `count` codes, filled up to a whole group, to `scratch` (of i32) from `at` on: in `memory` the
  /// row's bytes begin at `offset`; with a null memory `code` computes one.
  void write(int64_t count, mlir::Value memory, mlir::Value offset,
             llvm::function_ref<mlir::Value(const Index &k)> code, mlir::Value scratch, mlir::Value at);
  /// So many groups that lie in memory from a byte on, a run-time number of them.
  void copy(const DimExpr &groups, mlir::Value memory, mlir::Value offset, mlir::Value scratch, mlir::Value at);

private:
  mlir::Type i32() { return e.b.getI32Type(); }
  mlir::Type part() { return e.b.getIntegerType(32 / each); }
  mlir::Value splatOf(mlir::Value scalar, int64_t lanes);
  mlir::Value atByte(mlir::Value memory, mlir::Value offset, int64_t groups);
};

} // namespace lathe::codegen

#endif // LATHE_CODEGEN_TILE_CODEGROUPS_H
