//===- Collective.h - what ranks exchange -----------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_IR_COLLECTIVE_H
#define LATHE_IR_COLLECTIVE_H

#include "lathe/ir/Lathe.h"

#define GET_OP_CLASSES
#include "lathe/ir/LatheCollectiveOps.h.inc"

namespace lathe {

class WeightStore;

/// A collective without its op: what plan and engine know of it.
struct Collective {
  std::string name; ///< "all_reduce", "all_gather", "reduce_scatter"
  ReduceKind kind = ReduceKind::Sum; ///< of those that reduce
  int64_t dim = 0;                   ///< of those that join or cut
};
std::optional<Collective> collectiveOf(mlir::Operation *op);

/// Bytes of the part of a constant that `rank` has, zeros where it is padded. An error for elements that
/// do not fill bytes, and of the constant.
Result<std::vector<std::byte>> shardBytes(ShardedAttr sharded, int64_t rank, WeightStore &store);

} // namespace lathe

#endif // LATHE_IR_COLLECTIVE_H
