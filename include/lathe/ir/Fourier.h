//===- Fourier.h - Fourier transforms ---------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// lathe.dft, and what choosers of its kernels ask of it.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_IR_FOURIER_H
#define LATHE_IR_FOURIER_H

#include "lathe/ir/Lathe.h"

#define GET_OP_CLASSES
#include "lathe/ir/LatheFourierOps.h.inc"

namespace lathe {

/// The transforms of an op: so many rows, each by itself.
struct TransformSizes {
  DimExpr rows;
  int64_t length;
  bool complexRows;  ///< neither real nor half of a spectrum
  int64_t realBytes; ///< of what is computed with
};
/// Of the op that a kernel's body is built around; none where it is another.
std::optional<TransformSizes> transformOf(mlir::Block &body);

} // namespace lathe

#endif // LATHE_IR_FOURIER_H
