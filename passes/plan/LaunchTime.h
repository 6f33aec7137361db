//===- LaunchTime.h - how long a launch takes by estimate -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_PASSES_PLAN_LAUNCHTIME_H
#define LATHE_PASSES_PLAN_LAUNCHTIME_H

#include "ProgramBuilder.h"

#include "lathe/codegen/TargetRates.h"
#include "lathe/ir/KernelVariants.h"

namespace lathe::plan {

/// Values of a program's sizes.
using Point = std::map<std::string, int64_t>;
/// None where the value is not to be had at that point.
std::optional<int64_t> valueAt(const DimExpr &expr, const Point &point);

/// Of one launch on a GPU, by what it computes and moves and by the grid of the variant that these sizes choose.
LaunchTime launchTime(exec::LaunchOp launch, exec::KernelOp kernel, llvm::ArrayRef<KernelVariant> variants,
                      const Target &target, const TargetRates &rates, const Point &point);

} // namespace lathe::plan

#endif // LATHE_PASSES_PLAN_LAUNCHTIME_H
