//===- PlanFromIR.h - exec.program as engine::Plan --------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_COMPILER_PLANFROMIR_H
#define LATHE_COMPILER_PLANFROMIR_H

#include "lathe/codegen/Target.h"
#include "lathe/engine/EngineFile.h"
#include "lathe/engine/Plan.h"
#include "lathe/ir/Exec.h"
#include "lathe/ir/WeightStore.h"

namespace lathe {

/// The plan of one entry. Weights are packed as their recipes say and added to the
/// writer. Errors: Internal for IR that no pass makes, Invalid for missing weights.
Result<engine::Plan> planFromIR(exec::ProgramOp program, const Target &target, WeightStore &weights,
                                engine::EngineWriter &writer);

} // namespace lathe

#endif // LATHE_COMPILER_PLANFROMIR_H
