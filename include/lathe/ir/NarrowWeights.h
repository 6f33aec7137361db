//===- NarrowWeights.h - weights that a product widens as it reads -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What layout, fusion, select and code generation must agree on about weights of
// 8 bits beside activations of 16: which products read them as they lie and
// dequantize them in registers.
//
//   %f = cast %q : i8 -> f32        per-column scales [1, N] or [N, 1], or one for
//   %s = mul (sub %f, %zero), %s    each block of k, widened to the sizes of the weights
//   %w = cast %s : f32 -> bf16
//   %y = matmul %x, %w
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_IR_NARROWWEIGHTS_H
#define LATHE_IR_NARROWWEIGHTS_H

#include "lathe/codegen/Target.h"
#include "lathe/ir/Lathe.h"

namespace lathe {

/// The 8-bit integers or floats that `weights` (f16 or bf16, rank 2) are made of by casts, zero
/// points and scales alone: a constant or an argument of the same sizes. Null when they are not.
mlir::Value narrowWeights(mlir::Value weights);

/// Such weights as the product may take them: `scale`, where each column has one (or all have), is
/// left to the sums, and what remains is rounded instead. `bare`: nothing but the codes remains.
struct NarrowFactors {
  mlir::Value multiplied; ///< before it is rounded
  mlir::Value scale;      ///< [N, 1] or one number; null: none
  bool bare = false;
};
/// `turned`: of weights [K, N] that will be stored as [N, K].
NarrowFactors narrowFactors(mlir::Value weights, bool turned = false);

/// Of an op of that chain, the operand that the chain goes through; null for another op.
mlir::Value narrowOperand(mlir::Operation *op);

/// Whether a product on this target should take such weights: rows of activations as they lie, few
/// of them, weights in rows of whole 16-byte pieces of k. Where weights may be the operand of the
/// matrix units that stands in registers few means some hundred at the sizes that are optimised for:
/// as long as that is faster than a kernel ahead that writes 16 bits. Else at most 16 ever. `turned`: when the weights will be stored with contiguous k.
bool takesNarrowWeights(MatmulOp product, const Target &target,
                        const std::map<std::string, DimRange> &symbols,
                        const std::map<std::string, int64_t> &optima, bool turned = false);

} // namespace lathe

#endif // LATHE_IR_NARROWWEIGHTS_H
