//===- Formulas.h - what several op families compute ------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Null flows through, as in Emitter: the reason is in `e.error`, or reported.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_PASSES_LEGALIZE_FORMULAS_H
#define LATHE_PASSES_LEGALIZE_FORMULAS_H

#include "Node.h"

namespace lathe::legal {

/// x/2 (1 + erf(x / sqrt 2)), or by tanh: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
mlir::Value geluOf(Emitter &e, mlir::Value x, bool byTanh = false);
/// ln(1 + e^x), without overflow.
mlir::Value softplusOf(Emitter &e, mlir::Value x);
/// An activation by its ONNX name in any case, as recurrent cells and fused ops state it; without
/// parameters, those that the ONNX op has by default.
mlir::Value activationOf(Emitter &e, llvm::StringRef name, mlir::Value x,
                         std::optional<double> alpha = {}, std::optional<double> beta = {});

/// numpy's matmul: vectors become matrices of one row or column, and the added dimension is
/// dropped from the result.
mlir::Value matmulOf(Node &n, mlir::Value a, mlir::Value b);
/// alpha * A B + beta * C of operands 0, 1 and, where present, 2, with the node's attributes.
mlir::Value gemmOf(Node &n);

/// From opset 13 softmax works along one axis; before, over all dimensions from axis on, as one row.
mlir::Value softmaxOf(Node &n, mlir::Value x, int64_t axis, bool log = false);
/// (x - mean) / sqrt(variance + epsilon) over axes, and the two statistics, which keep their
/// dimensions.
struct Normalized {
  mlir::Value y, mean, inverse;
};
Normalized normalize(Emitter &e, mlir::Value x, llvm::ArrayRef<int64_t> axes, double epsilon);
/// The layer norm of x over its dimensions from axis on; bias may be null.
mlir::Value layerNormOf(Emitter &e, mlir::Value x, mlir::Value scale, mlir::Value bias,
                        int64_t axis, double epsilon);
/// x / sqrt(mean of squares + epsilon) * scale, over the dimensions from axis on.
mlir::Value rmsNormOf(Emitter &e, mlir::Value x, mlir::Value scale, int64_t axis, double epsilon);
/// The greatest (Max) or least (Min) element over axes; bools are compared as bytes.
mlir::Value minOrMax(Emitter &e, mlir::Value x, ReduceKind kind, llvm::ArrayRef<int64_t> axes,
                     bool keepdims);
/// The elements of an attribute that is a tensor of numbers; empty where it is absent or none.
std::vector<double> numbersOf(Node &n, llvm::StringRef name);
/// The axes first, first + 1, ... rank - 1.
Ints axesFrom(int64_t first, int64_t rank);

/// An axis that the run names: the product of the sizes before it, its own, and the product of those behind it, as symbols;
/// `named`: 1 for its dimension, else 0. The last `apart` dimensions are in none of the three, and must not be named.
struct RunTimeAxis {
  DimExpr before, along, after;
  Dims named;
};
RunTimeAxis runTimeAxis(Node &n, const DimExpr &axis, const Dims &dims, size_t apart = 0);

/// Images with channels last as ONNX has them, and back.
mlir::Value channelsFirst(Emitter &e, mlir::Value x);
mlir::Value channelsLast(Emitter &e, mlir::Value x);

/// x as ui8 by a scale and zero point of its own least and greatest element, 0 among them, as
/// DynamicQuantizeLinear of ONNX.
struct DynamicCodes {
  mlir::Value codes, scale, zero;
};
DynamicCodes dynamicCodes(Emitter &e, mlir::Value x);

/// [B, S, H * D] -> [B, H, S, D]
mlir::Value splitHeads(Emitter &e, mlir::Value x, int64_t heads);
/// [B, H, S, D] -> [B, S, H * D]
mlir::Value joinHeads(Emitter &e, mlir::Value x);

} // namespace lathe::legal

#endif // LATHE_PASSES_LEGALIZE_FORMULAS_H
