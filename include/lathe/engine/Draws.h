//===- Draws.h - where random numbers come from -----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A plan with ops that draw has an input behind those of its callers, i64 [2]: the context's seed
// and the number of the run, which the runtime gives. Everything random is a function of them.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_ENGINE_DRAWS_H
#define LATHE_ENGINE_DRAWS_H

#include "lathe/engine/Plan.h"
#include "lathe/support/Philox.h"

namespace lathe::engine {

inline bool draws(const Plan &plan) {
  return !plan.inputs.empty() && plan.inputs.back().name == kDrawsInput;
}
/// How many inputs callers give.
inline size_t givenInputs(const Plan &plan) { return plan.inputs.size() - draws(plan); }

} // namespace lathe::engine

#endif // LATHE_ENGINE_DRAWS_H
