//===- Aten.h - the aten dialect --------------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_IR_ATEN_H
#define LATHE_IR_ATEN_H

#include "mlir/IR/Dialect.h"
#include "mlir/IR/Operation.h"

#include "lathe/ir/AtenDialect.h.inc"

#endif // LATHE_IR_ATEN_H
