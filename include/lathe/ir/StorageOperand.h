//===- StorageOperand.h - weights in the form in which they are stored -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Codes of few bits with what makes numbers of them (scales, zero points, a scale of
// scales, a codebook) are one operand: what a lathe.dequantize says, if some format of
// the table in lib/ir/StorageOperand.cpp has it. A product may read such an operand as
// it lies in memory and dequantize it in registers. The format is asked for here alone;
// passes, select and code generation need no more than the members below.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_IR_STORAGEOPERAND_H
#define LATHE_IR_STORAGEOPERAND_H

#include "lathe/ir/Lathe.h"

#include <optional>
#include <span>
#include <string>

namespace lathe {

/// One way to store numbers: of which types codes and scales are, and what comes beside them.
struct StorageFormat {
  enum class Has { No, Maybe, Yes };
  llvm::StringLiteral name;
  std::span<const DType> codes, scales;
  /// Codes that share a scale along one dimension; 0: any number, all of them included.
  int64_t block = 0;
  Has zero = Has::No, outer = Has::No, codebook = Has::No;
};
std::span<const StorageFormat> storageFormats();

/// A matrix of weights [N, K] or [K, N] as it is stored: a constant, or an argument of the kernel.
struct StorageOperand {
  DequantizeOp op;
  const StorageFormat *format;

  mlir::Value data() { return op.getData(); }
  /// Bits of a code.
  int64_t bits() { return elementTypeOf(op.getData()).getIntOrFloatBitWidth(); }
  /// Whether all parameters are the same for each `piece` of elements along dimension `depth`.
  bool isEvenAlong(int64_t depth, int64_t piece);
  /// The scale that sums over `depth` may take instead of the elements: the same for all of them. Null
  /// where there is none, or where the elements might leave the range of f16 without it.
  mlir::Value scaleOfSums(int64_t depth);
  /// Whether nothing but that scale comes to the codes.
  bool isBare(int64_t depth);
  /// How many elements along `depth` share a scale and a zero point, where codes are bare bytes or integers of
  /// 4 bits and zero points, if any, are integers between -8 and 15; 0: all of them, and scaleOfSums is the
  /// scale. -1 where that is not so.
  int64_t integerGroup(int64_t depth);
};

/// What the operand `weights` of a product is made of. None where it is no matrix of numbers in a
/// known format; `why` then says what it lacks.
std::optional<StorageOperand> storageOperand(mlir::Value weights, std::string *why = nullptr);

} // namespace lathe

#endif // LATHE_IR_STORAGEOPERAND_H
