//===- TransposeTile.h - which part of a transpose a block moves -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_CODEGEN_TRANSPOSETILE_H
#define LATHE_CODEGEN_TRANSPOSETILE_H

#include <cstdint>
#include <vector>

namespace lathe {

/// A box of a transpose of known sizes, which is read in runs of memory and written in runs of memory. All vectors go
/// by the dimensions of the result.
struct TransposeTile {
  std::vector<int64_t> sizes;  ///< of the result
  std::vector<int64_t> from;   ///< which dimension of the operand each is
  std::vector<int64_t> extents; ///< of the box

  /// A box of about `elements`, more where runs need it.
  static TransposeTile of(std::vector<int64_t> sizes, std::vector<int64_t> from, int64_t elementBytes, int64_t elements);

  int64_t blocks() const;
  /// The dimensions as the operand has them, outermost first.
  std::vector<int64_t> operandOrder() const;
  /// Elements from a place to the next one in shared memory, which holds the box as the operand does; rows of its last
  /// dimension begin in different banks. And how many elements it has there.
  std::vector<int64_t> sharedStrides(int64_t elementBytes) const;
  int64_t sharedElements(int64_t elementBytes) const;
};

} // namespace lathe

#endif // LATHE_CODEGEN_TRANSPOSETILE_H
