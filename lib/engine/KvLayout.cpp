//===- KvLayout.cpp - how keys and values lie in blocks ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "lathe/engine/KvLayout.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace lathe::engine {
namespace {

int64_t alignTo(int64_t n, int64_t alignment) { return (n + alignment - 1) / alignment * alignment; }

/// Scales of one part (keys or values) whose heads have `size` elements.
int64_t scaleCount(const KvLayout &layout, int64_t heads, int64_t size) {
  int64_t count = 0;
  switch (layout.scales) {
  case KvScales::None:
    break;
  case KvScales::HeadBlock:
    count = heads;
    break;
  case KvScales::HeadToken:
    count = heads * layout.blockTokens;
    break;
  case KvScales::Group:
    count = heads * layout.blockTokens * (size / layout.scaleGroup);
    break;
  }
  return size == 0 ? 0 : layout.zeroPoints ? 2 * count : count;
}

std::string at(size_t group) { return "KV group " + std::to_string(group); }

/// The bytes of one block of a group on one shard.
Result<int64_t> groupBytes(const KvGroup &group, uint32_t shards) {
  if (group.kind == KvGroupKind::Shared)
    return int64_t(0);
  if (group.kind == KvGroupKind::State)
    return alignTo(group.stateBytes, group.layout.alignment) * group.layers;
  Result<KvOffsets> offsets = kvOffsets(group.layout, shards);
  if (!offsets)
    return offsets.status();
  return offsets->bytes * group.layers;
}

} // namespace

Status validate(const KvLayout &l) {
  if (!std::has_single_bit(l.blockTokens) || l.blockTokens < 8 || l.blockTokens > 1024)
    return usageError("a block has " + std::to_string(l.blockTokens) +
                      " tokens: it must be a power of two from 8 to 1024");
  if (!std::has_single_bit(l.alignment) || l.alignment < 16)
    return usageError("the alignment of a block is " + std::to_string(l.alignment) +
                      " bytes: it must be a power of two, 16 at least");
  if (l.heads == 0 || l.heads > 65536 || l.headSizeK == 0 || l.headSizeK > 65536 ||
      l.headSizeV > 65536)
    return usageError("a block needs heads and a head size of keys, from 1 to 65536");
  if (bitWidth(l.dtype) == 0 || (l.scales != KvScales::None && bitWidth(l.scaleDType) == 0))
    return usageError("a block cannot hold elements of type " + std::string(name(l.dtype)));
  if (bitWidth(l.dtype) * l.headSizeK % 8 || bitWidth(l.dtype) * l.headSizeV % 8)
    return usageError("the head of a token must be whole bytes");
  if (l.scales == KvScales::Group &&
      (l.scaleGroup == 0 || l.headSizeK % l.scaleGroup || l.headSizeV % l.scaleGroup))
    return usageError("scaleGroup " + std::to_string(l.scaleGroup) +
                      " does not divide the head sizes");
  if (l.scales == KvScales::None && l.zeroPoints)
    return usageError("zero points need scales");
  return okStatus();
}

Result<KvOffsets> kvOffsets(const KvLayout &l, uint32_t shards) {
  LATHE_RETURN_IF_ERROR(validate(l));
  if (shards == 0 || (l.heads % shards && shards % l.heads))
    return usageError(std::to_string(l.heads) + " heads cannot be divided among " +
                      std::to_string(shards) + " shards");
  int64_t heads = std::max(1u, l.heads / shards);
  int64_t tokens = l.blockTokens;
  KvOffsets o;
  o.values = alignTo(byteSize(l.dtype, heads * tokens * l.headSizeK), 16);
  o.keyScales = alignTo(o.values + byteSize(l.dtype, heads * tokens * l.headSizeV), 16);
  o.valueScales =
      alignTo(o.keyScales + byteSize(l.scaleDType, scaleCount(l, heads, l.headSizeK)), 16);
  o.bytes = alignTo(o.valueScales + byteSize(l.scaleDType, scaleCount(l, heads, l.headSizeV)),
                    l.alignment);
  return o;
}

Status validate(std::span<const KvGroup> groups) {
  if (groups.empty() || groups.size() > kMostKvGroups)
    return usageError("a KV cache has 1 to " + std::to_string(kMostKvGroups) + " groups of layers, not " +
                      std::to_string(groups.size()));
  bool stores = false;
  for (size_t i = 0; i < groups.size(); ++i) {
    const KvGroup &g = groups[i];
    uint32_t blockTokens = g.layout.blockTokens;
    Status layout = validate(g.layout);
    if (!layout.ok())
      return usageError(layout.message(), at(i));
    if (blockTokens != groups[0].layout.blockTokens)
      return usageError("its blocks have " + std::to_string(blockTokens) + " tokens, those of " +
                            "group 0 " + std::to_string(groups[0].layout.blockTokens),
                        at(i));
    if (g.layers == 0)
      return usageError("no layers", at(i));
    switch (g.kind) {
    case KvGroupKind::Full:
      stores = true;
      break;
    case KvGroupKind::Window:
      stores = true;
      if (g.window == 0 || g.window > (1u << 30) || g.sinks > (1u << 30) || g.slack > (1u << 30))
        return usageError("a window has 1 to 2^30 tokens", at(i));
      break;
    case KvGroupKind::State:
      stores = true;
      if (g.stateBytes <= 0)
        return usageError("a state has " + std::to_string(g.stateBytes) + " bytes", at(i));
      if (g.checkpoint % blockTokens)
        return usageError("checkpoints every " + std::to_string(g.checkpoint) +
                              " tokens: not a multiple of the block's " +
                              std::to_string(blockTokens),
                          at(i));
      break;
    case KvGroupKind::Shared:
      if (g.sharesWith >= groups.size() || groups[g.sharesWith].kind == KvGroupKind::Shared)
        return usageError("shares the blocks of group " + std::to_string(g.sharesWith) +
                              ", which has none of its own",
                          at(i));
      break;
    }
  }
  if (!stores)
    return usageError("no group of layers stores anything");
  return okStatus();
}

uint32_t kvRingBlocks(const KvGroup &g, uint32_t stepTokens) {
  // The first query of a step sees window-1 tokens before it; `slack` more stay for a truncation.
  // They and the step's own tokens may begin in the middle of a block.
  uint32_t live = g.window - 1 + g.slack + stepTokens;
  return (live + g.layout.blockTokens - 2) / g.layout.blockTokens + 1;
}

uint32_t kvBlocksPerSequence(const KvGroup &g, uint32_t tokens, uint32_t stepTokens) {
  uint32_t all = (tokens + g.layout.blockTokens - 1) / g.layout.blockTokens;
  switch (g.kind) {
  case KvGroupKind::Full:
    return all;
  case KvGroupKind::Window: {
    uint32_t sinks = (g.sinks + g.layout.blockTokens - 1) / g.layout.blockTokens;
    return std::min(all, sinks + kvRingBlocks(g, std::min(stepTokens, tokens)));
  }
  case KvGroupKind::State:
    return 2;
  case KvGroupKind::Shared:
    return 0;
  }
  return 0;
}

Result<KvCapacity> kvCapacity(int64_t bytes, std::span<const KvGroup> groups, uint32_t shards,
                              uint32_t sequenceTokens, uint32_t stepTokens) {
  LATHE_RETURN_IF_ERROR(validate(groups));
  KvCapacity c;
  int64_t smallest = std::numeric_limits<int64_t>::max();
  uint64_t needed = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    Result<int64_t> own = groupBytes(groups[i], shards);
    if (!own)
      return usageError(own.status().message(), at(i));
    if (groups[i].kind == KvGroupKind::Shared)
      continue;
    c.blockBytes = std::max(c.blockBytes, *own);
    smallest = std::min(smallest, *own);
    needed += kvBlocksPerSequence(groups[i], sequenceTokens, stepTokens);
  }
  c.paddingBytes = c.blockBytes - smallest;
  // The last number is kNoBlock of the tables, which are int32 on the device.
  c.blocks = uint32_t(std::clamp<int64_t>(bytes / c.blockBytes, 0, (1u << 31) - 1));
  c.blocksPerSequence = uint32_t(needed);
  c.sequences = needed ? uint32_t(c.blocks / needed) : 0;
  if (needed > c.blocks)
    return unsupportedError(
        "a sequence of " + std::to_string(sequenceTokens) + " tokens needs " +
        std::to_string(needed) + " blocks of " + std::to_string(c.blockBytes) + " bytes = " +
        std::to_string(int64_t(needed) * c.blockBytes) + " bytes; there are " +
        std::to_string(bytes) + " bytes = " + std::to_string(c.blocks) +
        " blocks: give more memory, or a smaller maximal length");
  return c;
}

} // namespace lathe::engine
