//===- KvLayout.h - how keys and values lie in blocks -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One description of a block of keys and values, shared by the compiler, the kernels and the
// allocator, and the way from bytes of memory to a number of blocks.
//
// A block of one layer is, in this order: keys, values, scales of the keys, scales of the values;
// each part starts at a multiple of 16 bytes, the block at a multiple of `alignment`. A block of a
// group is the blocks of its layers one after another.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_ENGINE_KVLAYOUT_H
#define LATHE_ENGINE_KVLAYOUT_H

#include "lathe/support/DType.h"
#include "lathe/support/Status.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace lathe::engine {

/// Order of the dimensions of keys and of values in a block, outermost first.
enum class KvOrder : uint8_t {
  HeadTokenDim = 0, ///< [heads][blockTokens][headSize]
  TokenHeadDim = 1, ///< [blockTokens][heads][headSize]
};

/// What one scale covers in a quantized block.
enum class KvScales : uint8_t {
  None = 0,      ///< not quantized, or the scale is a constant of the layer
  HeadBlock = 1, ///< one for a head in a block
  HeadToken = 2, ///< one for a head of a token
  Group = 3,     ///< one for `scaleGroup` neighbours of a head of a token
};

struct KvLayout {
  DType dtype = DType::BF16;
  uint32_t blockTokens = 16; ///< a power of two, 8 at least
  uint32_t heads = 8;        ///< KV heads of one layer, before sharding
  uint32_t headSizeK = 128;  ///< elements
  uint32_t headSizeV = 128;  ///< 0: values are a part of the keys (latent attention)
  KvOrder order = KvOrder::HeadTokenDim;
  KvScales scales = KvScales::None;
  DType scaleDType = DType::F32;
  uint32_t scaleGroup = 0;   ///< for KvScales::Group; divides both head sizes
  bool zeroPoints = false;   ///< each scale has a zero point of the same type beside it
  uint32_t alignment = 256;  ///< of a block, in bytes; a power of two, 16 at least

  bool operator==(const KvLayout &) const = default;
};

/// Where the parts of one layer's block lie, in bytes from its start, on one shard.
struct KvOffsets {
  int64_t keys = 0, values = 0, keyScales = 0, valueScales = 0;
  int64_t bytes = 0; ///< of the whole block, a multiple of the alignment
};

/// Usage error when a field is out of range or the combination has no meaning.
Status validate(const KvLayout &layout);

/// Offsets in the block of one layer on one of `shards` shards. Heads are divided evenly; with more
/// shards than heads each has one (replicated). The layout is valid and `shards` divides the heads
/// or is a multiple of them, otherwise a Usage error.
Result<KvOffsets> kvOffsets(const KvLayout &layout, uint32_t shards = 1);

/// Groups of layers that one model can have.
inline constexpr size_t kMostKvGroups = 8;

/// The rule by which a group of layers keeps tokens.
enum class KvGroupKind : uint8_t {
  Full = 0,   ///< all tokens
  Window = 1, ///< the last `window` tokens, and the first `sinks`
  State = 2,  ///< one state of fixed size a sequence (state-space, linear attention)
  Shared = 3, ///< the blocks of another group (layers that read another layer's cache)
};

/// Layers with one rule: they have one block table.
struct KvGroup {
  KvGroupKind kind = KvGroupKind::Full;
  uint32_t layers = 1;
  KvLayout layout;           ///< all groups have the same blockTokens
  uint32_t window = 0;       ///< Window: tokens that a query sees, itself included
  uint32_t sinks = 0;        ///< Window: first tokens that stay (attention sinks)
  uint32_t slack = 0;        ///< Window: tokens beyond the window kept for a truncation
  int64_t stateBytes = 0;    ///< State: of one layer on one shard
  uint32_t checkpoint = 0;   ///< State: tokens between states kept for reuse, a multiple of
                             ///< blockTokens; 0: none, and so no prefix is ever reused
  uint32_t sharesWith = 0;   ///< Shared: index of the group, which is not Shared itself
};

/// What a pool can hold.
struct KvCapacity {
  int64_t blockBytes = 0;        ///< of one block of the pool: the largest group's
  int64_t paddingBytes = 0;      ///< of those, unused by the smallest group
  uint32_t blocks = 0;           ///< in `bytes`
  uint32_t blocksPerSequence = 0; ///< of one sequence of maxSequenceTokens, over all groups
  uint32_t sequences = 0;        ///< of that length, that fit at once
};

/// Blocks that a group needs for one sequence of `tokens` that grows by at most `stepTokens` a
/// step. Full: ceil(tokens / blockTokens); Window: sinks and ring; State: 2; Shared: 0.
uint32_t kvBlocksPerSequence(const KvGroup &group, uint32_t tokens, uint32_t stepTokens);

/// Entries of a ring of a Window group, without the blocks of the sinks.
uint32_t kvRingBlocks(const KvGroup &group, uint32_t stepTokens);

/// From bytes of one shard to blocks: a block of the pool serves any group, so that its bytes are
/// the largest of layers * bytes of a layer's block; blocks = bytes / that. Usage error when a
/// group is invalid; Unsupported, with the figures, when one sequence of `sequenceTokens` does not
/// fit.
Result<KvCapacity> kvCapacity(int64_t bytes, std::span<const KvGroup> groups, uint32_t shards,
                              uint32_t sequenceTokens, uint32_t stepTokens);

/// The checks of kvCapacity on groups alone.
Status validate(std::span<const KvGroup> groups);

} // namespace lathe::engine

#endif // LATHE_ENGINE_KVLAYOUT_H
