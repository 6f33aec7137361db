//===- PlanValidator.h - independent check of memory plans -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Judges a plan from the problem's definition alone; shares no code with planners.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_ANALYSIS_PLANVALIDATOR_H
#define LATHE_ANALYSIS_PLANVALIDATOR_H

#include "lathe/analysis/MemoryPlan.h"

namespace lathe::analysis {

/// Ok when every offset is given, not negative, aligned, as fixed and together with its
/// alias group, no two conflicting buffers overlap, and the height is the highest
/// end and within the capacity. Otherwise an Invalid error that names the buffers.
/// O(n log n + explicit conflicts), times the members of an alias group that are alive
/// together.
Status validatePlan(const Problem &problem, const Solution &solution);

} // namespace lathe::analysis

#endif // LATHE_ANALYSIS_PLANVALIDATOR_H
