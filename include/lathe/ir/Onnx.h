//===- Onnx.h - the onnx dialect --------------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_IR_ONNX_H
#define LATHE_IR_ONNX_H

#include "mlir/IR/Dialect.h"
#include "mlir/IR/Operation.h"
#include "mlir/IR/Types.h"

#include "lathe/ir/OnnxDialect.h.inc"

namespace lathe::onnxir {

/// The element type of tensors of strings, `!onnx.string`. Behind legalize such a tensor holds the numbers
/// of its strings (passes/legalize/Strings.cpp).
class StringType : public mlir::Type::TypeBase<StringType, mlir::Type, mlir::TypeStorage> {
public:
  using Base::Base;
  static constexpr llvm::StringLiteral name = "onnx.string";
};

/// Whether it is a tensor of strings.
bool isStrings(mlir::Type type);

} // namespace lathe::onnxir

MLIR_DECLARE_EXPLICIT_TYPE_ID(lathe::onnxir::StringType)

#endif // LATHE_IR_ONNX_H
