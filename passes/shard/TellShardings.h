//===- TellShardings.h - the found division by names ------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_PASSES_SHARD_TELLSHARDINGS_H
#define LATHE_PASSES_SHARD_TELLSHARDINGS_H

#include "Choose.h"

namespace lathe::shard {

/// How constants, and the results of nodes, lie on the ranks, by the names that hints have for them: dictionaries of
/// "name", "dims" (-1: symbolic), "dim" where it is divided evenly along one, and "cannot" where it lies otherwise. What is
/// different from reader to reader, and sums that ranks have yet to add, are left out. Before localize().
mlir::ArrayAttr tellShardings(mlir::func::FuncOp func, int64_t ranks, const Strategies &chosen);

} // namespace lathe::shard

#endif // LATHE_PASSES_SHARD_TELLSHARDINGS_H
