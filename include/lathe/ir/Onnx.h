//===- Onnx.h - the onnx dialect --------------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_IR_ONNX_H
#define LATHE_IR_ONNX_H

#include "mlir/IR/Dialect.h"
#include "mlir/IR/Operation.h"

#include "lathe/ir/OnnxDialect.h.inc"

#endif // LATHE_IR_ONNX_H
