//===- Depthwise.h - depthwise convolutions, alone and ahead ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The schedule of a depthwise convolution (DepthwiseSchedule.cpp) row by row,
// for kernels that go on with its results while they are in cache.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_CODEGEN_TILE_DEPTHWISE_H
#define LATHE_CODEGEN_TILE_DEPTHWISE_H

#include "Evaluator.h"

#include "lathe/codegen/Config.h"

namespace lathe::codegen {

/// Computes row `row` of image `image` of a channels-last convolution over images whose groups fit
/// lanes (groupsFitLanes), and hands a vector of channels of a pixel after the other to `consume`.
void depthwiseRow(Evaluator &e, ConvOp op, mlir::Value image, mlir::Value row,
                  std::function<void(const Indices &, mlir::Value)> consume);

/// A kernel of a depthwise convolution, pointwise ops, and the convolution with windows of one pixel
/// that alone reads what they give. False, with nothing emitted, for any other kernel.
bool scheduleDepthwiseProduct(Evaluator &e, const KernelConfig &config);

} // namespace lathe::codegen

#endif // LATHE_CODEGEN_TILE_DEPTHWISE_H
