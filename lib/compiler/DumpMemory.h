//===- DumpMemory.h - the memory problem of a program as CSV ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_LIB_COMPILER_DUMPMEMORY_H
#define LATHE_LIB_COMPILER_DUMPMEMORY_H

#include "lathe/ir/Exec.h"
#include "lathe/support/Status.h"

#include <string>

namespace lathe {

/// The arena buffers of a planned program at the sizes that memory is planned for, in the
/// format of ProblemCsv.h. `alignment` in bytes. An error when a size has no value there.
Result<std::string> memoryProblem(exec::ProgramOp program, int64_t alignment);

} // namespace lathe

#endif // LATHE_LIB_COMPILER_DUMPMEMORY_H
