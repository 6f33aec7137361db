//===- Collective.h - what ranks exchange -----------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_IR_COLLECTIVE_H
#define LATHE_IR_COLLECTIVE_H

#include "lathe/ir/Lathe.h"
#include "lathe/support/RandomWeights.h"

#define GET_OP_CLASSES
#include "lathe/ir/LatheCollectiveOps.h.inc"

namespace lathe {

class WeightStore;

/// Attribute of a module: what an ONNX model says of how it is divided, texts as `--shard` takes them with the
/// number of parts behind: "W=dim:1/2".
inline constexpr const char *kShardingsAttr = "onnx.shardings";
/// Attribute of a module: where it stands, the shard phase fills it with how values of the first entry lie on the ranks
/// (passes/shard/TellShardings.h).
inline constexpr const char *kFoundShardingsAttr = "lathe.shardings";
/// In `lathe.options` of a module: a list of one text, the bytes that a rank has.
inline constexpr const char *kRankMemoryOption = "rank-memory";

/// A collective without its op: what plan and engine know of it.
struct Collective {
  std::string name; ///< "all_reduce", "all_gather", "reduce_scatter"
  ReduceKind kind = ReduceKind::Sum; ///< of those that reduce
  int64_t dim = 0;                   ///< of those that join or cut
};
std::optional<Collective> collectiveOf(mlir::Operation *op);

/// The reduction that an elementwise op of two operands makes of them: a sum of an add. It may be done before or
/// after ranks reduce its operands by it.
std::optional<ReduceKind> combinerOf(mlir::Operation *op);

/// How many elements of a block each of `parts` ranks has: a share, where the last ranks may have less and
/// padding; or one, where there are fewer elements than ranks and as many ranks for each.
int64_t shardSize(int64_t block, int64_t parts);
/// The first of them. Only shares are apart from each other.
int64_t shardBegin(int64_t block, int64_t parts, int64_t rank);
inline bool isShared(int64_t block, int64_t parts) { return block > 0 && block < parts && parts % block == 0; }

/// Bytes of the part of a constant that `rank` has, zeros where it is padded. An error for elements that
/// do not fill bytes, and of the constant.
Result<std::vector<std::byte>> shardBytes(ShardedAttr sharded, int64_t rank, WeightStore &store);

/// Ranks that each have another part of the constant, a sharded one or joined ones; 0: all have the same.
int64_t shardsOf(mlir::Attribute constant);
/// Its bytes on a rank.
Result<std::vector<std::byte>> bytesOnRank(mlir::Attribute constant, int64_t rank, WeightStore &store);
/// What a rank has of a constant whose elements are all random: parts of it, and zeros elsewhere. Empty where bytes
/// of it are known.
std::vector<RandomPart> randomPartsOf(mlir::Attribute constant, int64_t rank);

} // namespace lathe

#endif // LATHE_IR_COLLECTIVE_H
