//===- KernelRoles.h - what is what in a kernel region ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Who plays which part in a kernel: the op that it is built around, where that
// op's operands come from, what happens to its result. Fuse writes it once
// (passes/fuse/AssignRoles.cpp) as `#lathe.roles<...>` on lathe.kernel; select
// and code generation read it and match nothing. Numbers alone, so that the
// attribute needs no care when regions are cloned: ops by their position in the
// body, inputs and outputs by their place in the kernel's lists.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_IR_KERNELROLES_H
#define LATHE_IR_KERNELROLES_H

#include "llvm/ADT/Hashing.h"

#include <cstdint>
#include <vector>

namespace lathe {

/// Where an operand of the anchor comes from.
struct OperandRole {
  enum class Storage {
    Computed,    ///< a prologue in the kernel makes it, element by element
    Buffer,      ///< an input, as it lies
    TokensFirst, ///< attention: an input [B, tokens, heads, size] that is read as [B, heads, tokens, size]
    Planes,      ///< conv: an input with channels first that is read as channels last
    Half,        ///< product on a CPU: an input of 16 bits that becomes f32 on the way
    Codes,       ///< product: an input of codes of the same sizes, dequantized on the way (StorageOperand.h)
  };
  Storage storage = Storage::Computed;
  int64_t input = -1;  ///< of the kernel; -1 where it is computed
  bool weight = false; ///< all that it is made of are constants
  bool bare = false;   ///< Codes: bytes, and a scale a column is all that comes to them
  /// Attention, computed: the input that rows are gathered from, whose sixteen neighbours lie a
  /// stride apart, and the dimension that they are neighbours in; -1: not so.
  int64_t pages = -1, pagesDim = -1;

  bool operator==(const OperandRole &) const = default;
};

/// An output that has some of the heads that a product's columns are.
struct HeadOutput {
  int64_t first = 0, count = 0;
  /// Of each of its dimensions the one of the split columns, -1 of size 1.
  std::vector<int64_t> dims;

  bool operator==(const HeadOutput &) const = default;
};

struct KernelRoles {
  int64_t anchor = -1; ///< the op that the kernel is built around; -1: none
  std::vector<OperandRole> operands; ///< of the anchor, in order

  /// Product: rows of all batches are one matrix, for the other operand is one.
  bool foldedRows = false;
  /// Product: a result follows from two columns of sums, which are
  enum class Pair {
    None,
    Halves,     ///< half of the columns apart: a gate and what it lets through
    HeadHalves, ///< half a head apart
    Neighbours, ///< next to each other in a head
  } pair = Pair::None;
  /// With heads: their size, how many there are, the reshape that splits the columns, the dimension of
  /// heads in its result, and where each output has its heads (none where an output is not made of heads
  /// whose columns stay last).
  int64_t headSize = 0, heads = 0, split = -1, headAxis = -1;
  std::vector<HeadOutput> headOutputs;

  /// Product, conv: the input of 16-bit floats that comes to the result point by point; -1: none.
  int64_t residual = -1;
  /// Product: the output with the greatest (or least) elements of blocks of the first; -1: none.
  int64_t amax = -1;
  bool inPlace = false;         ///< the only result has the anchor's elements in their order
  bool bare = false;            ///< results are the anchor's elements, moved or rounded
  bool headsTransposed = false; ///< the only result is [B, heads, tokens, size] of rows [B, tokens]

  int64_t depthwise = -1; ///< conv: the depthwise convolution that makes its operand; -1: none
  /// Attention: keys, values and all that says how many count come from outside the program.
  bool keysFromOutside = false;
  /// Attention: what comes to the scores is likely to hide whole tiles of keys; it is the same for all
  /// queries (padding of keys), beside a scale > 0 alone, and no log-sum-exp is asked for.
  bool maskHides = false, keyMask = false;
  /// Reduction, alone in its kernel: how many dimensions lie behind what is reduced.
  int64_t columns = 0;
  /// Pointwise, copy: the transpose of the output's sizes that moves the last dimension; -1: none.
  int64_t transpose = -1;

  bool operator==(const KernelRoles &) const = default;
  bool hasHeads() const { return headSize > 0; }
};

inline llvm::hash_code hash_value(const KernelRoles &roles) {
  llvm::hash_code hash = llvm::hash_combine(
      roles.anchor, roles.foldedRows, int(roles.pair), roles.headSize, roles.heads, roles.residual,
      roles.amax, roles.inPlace, roles.bare, roles.headsTransposed, roles.maskHides, roles.keyMask, roles.depthwise, roles.columns,
      roles.transpose, roles.headOutputs.size());
  for (const OperandRole &operand : roles.operands)
    hash = llvm::hash_combine(hash, int(operand.storage), operand.input, operand.weight, operand.pages);
  return hash;
}

} // namespace lathe

#endif // LATHE_IR_KERNELROLES_H
