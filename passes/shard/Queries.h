//===- Queries.h - attention whose queries ranks share ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_PASSES_SHARD_QUERIES_H
#define LATHE_PASSES_SHARD_QUERIES_H

#include "Strategies.h"

namespace lathe::shard {

/// Whether ranks may have parts of the queries, each seeing all keys: what a query sees must not depend on its place, or
/// the place of the first one be known as a constant or as integers of at least 32 signed bits.
bool mayDivideQueries(AttentionOp op);
/// And these parts: where places count, each block is an attention of its own, and there are two at most.
bool mayDivideQueries(AttentionOp op, const Parts &parts);

/// Whether q, which lies so, is divided by queries.
bool isOfQueries(const Layout &layout);

/// Two blocks of which a rank has a part of the first and the mirrored part of the second, so that ranks see
/// equally many keys where later queries see more; none where all queries see as many, or are too few.
std::optional<Parts> zigzagQueries(AttentionOp op, int64_t ranks);

/// How many attentions a rank runs in the place of one.
int64_t piecesOf(AttentionOp op, const Layout &queries);

/// Of all the work of an attention the share of the rank that has most of it, of 1.
double largestShare(AttentionOp op, const Layout &queries, int64_t ranks);

/// Attention as a rank runs it: `operands` of `op` lie as `layouts` say, queries divided. Returns the results for
/// this rank's queries, in the order of their places.
llvm::SmallVector<mlir::Value> attendToParts(mlir::OpBuilder &builder, AttentionOp op, mlir::ValueRange operands,
                                             llvm::ArrayRef<Layout> layouts, int64_t ranks);

} // namespace lathe::shard

#endif // LATHE_PASSES_SHARD_QUERIES_H
