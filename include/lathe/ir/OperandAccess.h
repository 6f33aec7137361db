//===- OperandAccess.h - how an op reads an operand -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Answers of StructuredOpInterface that say more than an access map, and questions
// that generic passes ask with them instead of naming ops.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_IR_OPERANDACCESS_H
#define LATHE_IR_OPERANDACCESS_H

#include "lathe/support/DimExpr.h"

#include "mlir/IR/AffineMap.h"
#include "mlir/IR/Value.h"

#include <optional>
#include <string>
#include <vector>

namespace lathe {

/// How an op reads one of its operands.
struct OperandAccess {
  enum class Kind {
    Affine,  ///< one element for a point of the iteration space, at `map`
    InOrder, ///< the elements in row-major order under other sizes (reshape)
    Piece,   ///< a box of the result, from `starts` on; elsewhere nothing (concat, pad)
    Rows,    ///< whole along `dims`, elsewhere as the result is indexed (softmax, norms, scans)
    Data,    ///< where the values of another operand say (gathers, scatters)
    Whole,   ///< all of it, whatever the point: nothing finer is promised
  };
  Kind kind = Kind::Whole;
  mlir::AffineMap map;             ///< Affine: from the iteration space
  std::vector<DimExpr> starts;     ///< Piece: the operand's first element in the result
  llvm::SmallVector<int64_t> dims; ///< Rows: dimensions of the operand

  static OperandAccess rows(llvm::ArrayRef<int64_t> dims) { return {Kind::Rows, {}, {}, llvm::to_vector(dims)}; }
};

/// A condition that an op puts on sizes beside those of its iterators, which plan turns into a guard:
/// lhs == rhs, or lhs <= rhs. `message` says what is wrong where it does not hold.
struct SizeRule {
  enum class Kind { Equal, LessEqual } kind;
  DimExpr lhs, rhs;
  std::string message;
};

/// From the access map; Data of gathers and scatters and Whole of others where there is none.
OperandAccess defaultAccess(mlir::Operation *op, unsigned operand);

/// Movement of one operand that permutes its dimensions: of each dimension of the result the operand's.
std::optional<llvm::SmallVector<int64_t>> permutationOf(mlir::Operation *op);
/// Whether such a permutation leaves the last dimension where it is.
bool keepsLastDim(llvm::ArrayRef<int64_t> permutation);

/// Movement of one operand that takes a box of it whose place is known: first elements and steps.
struct Box {
  llvm::SmallVector<int64_t> starts, steps;
};
std::optional<Box> boxOf(mlir::Operation *op);

/// Movement of one operand that keeps its elements in order (OperandAccess::InOrder).
bool keepsOrder(mlir::Operation *op);

/// Whether the host needs what is read here (HostOperandsInterface).
bool isHostOperand(mlir::OpOperand &use);

/// Whether the op gives its operand's elements in another type.
bool isConversion(mlir::Operation *op);

} // namespace lathe

#endif // LATHE_IR_OPERANDACCESS_H
