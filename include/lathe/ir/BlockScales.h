//===- BlockScales.h - products whose scales differ along the depth -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Both operands of a product are codes of 8-bit floats with scales for blocks of the depth, as those of
// activations by 1 x 128 and of weights by 128 x 128:
//
//   %a = dequantize %x scale(%s) {block = [1, 128]}      %x: [M, K]   %s: [M, K / 128]
//   %b = dequantize %w scale(%t) {block = [128, 128]}    %w: [N, K]   %t: [N / 128, K / 128]
//   %y = matmul %a, %b {transpose_b}
//
// A kernel may multiply the codes as they are, kDepth of them, and multiply each of these sums by both
// scales (codegen/device/block_scales.cuh).
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_IR_BLOCKSCALES_H
#define LATHE_IR_BLOCKSCALES_H

#include "lathe/ir/Lathe.h"

#include <optional>
#include <string>

namespace lathe {

struct BlockScales {
  /// Elements of the depth, and columns of the right operand, that each have one scale at most.
  static constexpr int64_t kDepth = 128, kColumns = 128;
  DequantizeOp a, b;
};

/// The operands of a product of that form, the depth last in the left one. None where it is another; `why`
/// then says what it lacks, if both operands are dequantized.
std::optional<BlockScales> blockScales(MatmulOp product, std::string *why = nullptr);

} // namespace lathe

#endif // LATHE_IR_BLOCKSCALES_H
