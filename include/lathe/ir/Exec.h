//===- Exec.h - the exec dialect --------------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_IR_EXEC_H
#define LATHE_IR_EXEC_H

#include "lathe/ir/Lathe.h"

#include "lathe/ir/ExecDialect.h.inc"
#include "lathe/ir/ExecEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "lathe/ir/ExecAttributes.h.inc"

#define GET_OP_CLASSES
#include "lathe/ir/ExecOps.h.inc"

#endif // LATHE_IR_EXEC_H
