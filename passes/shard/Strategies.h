//===- Strategies.h - the ways to run an op on several ranks ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_PASSES_SHARD_STRATEGIES_H
#define LATHE_PASSES_SHARD_STRATEGIES_H

#include "Layouts.h"

#include <map>
#include <set>

namespace lathe::shard {

/// One way: what a rank needs of each operand, and has of each result then.
struct Strategy {
  std::vector<Layout> operands, results;
  bool divided = false; ///< each rank does its part of the work; otherwise each does all
  bool operator==(const Strategy &) const = default;
};

/// Parts other than equal ones of whole dimensions that values may have, by dimension: where queries, keys and
/// values are columns of one product, parts are taken of each; where heads are no multiple of the ranks, or fewer
/// keys than ranks, they are of whole heads.
using BlockTable = llvm::DenseMap<mlir::Value, std::set<std::pair<int64_t, Parts>>>;

/// The state that an op reads or extends; empty: none.
llvm::StringRef stateOf(mlir::Operation *op);

/// Parts that slices, reshapes and attention in this block of ops ask for, and all values that they are carried to.
BlockTable findBlocks(mlir::Block &block, int64_t ranks);

/// The ways of an op, the first of which is that every rank does everything. They follow from iterators
/// and access maps: an iterator is a factor, split on all operands and results that it indexes, and where it
/// is a reduction, results are partial. Rules of their own have reshape (compound dimensions), slices of
/// whole blocks, gathers (all dimensions but the one that data index) and attention (batch, heads, and queries: Queries.h).
std::vector<Strategy> strategiesOf(mlir::Operation *op, int64_t ranks, const BlockTable &blocks);

/// The reductions that values may be partial results of.
using PartialTable = llvm::DenseMap<mlir::Value, std::set<ReduceKind>>;

/// Adds the ways of an op that leave partial results partial, which ranks then reduce further on, once for several:
/// movements, and what combines two elements as the reduction does (two sums that are added). `partials` has those
/// of the operands, and gets those of the results.
void keepPartial(mlir::Operation *op, std::vector<Strategy> &ways, PartialTable &partials);

} // namespace lathe::shard

#endif // LATHE_PASSES_SHARD_STRATEGIES_H
