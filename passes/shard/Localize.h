//===- Localize.h - an entry as each rank runs it ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_PASSES_SHARD_LOCALIZE_H
#define LATHE_PASSES_SHARD_LOCALIZE_H

#include "Choose.h"

namespace lathe::shard {

/// Gives ops local types and puts collectives where a reader wants another layout. Inputs and
/// outputs stay whole.
void localize(mlir::func::FuncOp func, int64_t ranks, const Strategies &chosen);

} // namespace lathe::shard

#endif // LATHE_PASSES_SHARD_LOCALIZE_H
