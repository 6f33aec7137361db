//===- HopperGemmTime.h - how long tiles of a product take ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_CODEGEN_SELECT_HOPPERGEMMTIME_H
#define LATHE_CODEGEN_SELECT_HOPPERGEMMTIME_H

#include "lathe/codegen/Config.h"

namespace lathe::select {

/// What a thread of a tile of gemm_hopper.cuh or gemm_split.cuh holds.
int64_t sumsOfThread(const KernelConfig &c);

/// A product as the time of its tiles sees it.
struct ProductSizes {
  int64_t m, n, k, batch;    ///< n: columns of all weights, of a gated pair both halves
  int64_t smCount;           ///< multiprocessors
  int64_t elementBytes = 2;  ///< of the operands
  int64_t rowAlignment = 128; ///< largest power of two, to 128, in the bytes of the operands' rows
  bool bAlongK = true;       ///< k is contiguous in B
  bool bare = true;          ///< results are the sums
  bool beside = false;       ///< results take a tensor of their shape that the copy engine brings
};

/// What ranks tiles: a time in ns.
double timeOfTile(const KernelConfig &c, const ProductSizes &sizes);

} // namespace lathe::select

#endif // LATHE_CODEGEN_SELECT_HOPPERGEMMTIME_H
