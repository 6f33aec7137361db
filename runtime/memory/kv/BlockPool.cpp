//===- BlockPool.cpp - who holds which block --------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "BlockPool.h"

#include <algorithm>

namespace lathe::kv {

BlockPool::BlockPool(uint32_t blocks)
    : count(blocks), stacked(blocks), owner(std::make_unique<uint32_t[]>(blocks)),
      node(makeArray<uint32_t>(blocks)), before(makeArray<BlockId>(blocks)),
      after(makeArray<BlockId>(blocks)), group(std::make_unique<uint8_t[]>(blocks)),
      rank(std::make_unique<uint8_t[]>(blocks)), stack(makeArray<BlockId>(blocks)) {
  std::fill_n(node.get(), blocks, kNoNode);
  // The first ones taken are 0, 1, 2, ...
  for (uint32_t i = 0; i < blocks; ++i)
    stack[i] = blocks - 1 - i;
}

void BlockPool::snapshot(std::vector<Snapshot::Block> &blocks, std::vector<BlockId> &freeList,
                         std::vector<BlockId> &evictable) const {
  blocks.resize(count);
  for (BlockId b = 0; b < count; ++b)
    blocks[b] = {state(b), references(b), node[b], group[b], rank[b]};
  freeList.assign(stack.get(), stack.get() + stacked);
  evictable.clear();
  for (const List &l : lists)
    for (BlockId b = l.first; b != kNoBlock && evictable.size() <= count; b = after[b])
      evictable.push_back(b);
}

} // namespace lathe::kv
