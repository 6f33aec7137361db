//===- PrefixTree.cpp - which prefix lies in which block --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "PrefixTree.h"

#include <algorithm>

namespace lathe::kv {

PrefixTree::PrefixTree(uint32_t roots, uint32_t nodes, uint32_t blockTokens, uint32_t groups)
    : roots(roots), capacity(roots + nodes), blockTokens(blockTokens), groups(groups),
      unused(nodes), parents(makeArray<uint32_t>(capacity)),
      links(std::make_unique<uint32_t[]>(capacity)), depths(std::make_unique<uint32_t[]>(capacity)),
      freeNodes(makeArray<uint32_t>(nodes)), hashes(makeArray<Hash128>(capacity)),
      hitCounts(std::make_unique<uint8_t[]>(capacity)),
      words(std::make_unique<Token[]>(size_t(capacity) * blockTokens)),
      blocks(makeArray<BlockId>(size_t(capacity) * groups)),
      hosts(makeArray<BlockId>(size_t(capacity) * groups)) {
  uint32_t bits = std::max<uint32_t>(4, uint32_t(std::bit_width(nodes - 1)) + 1); // at most half full
  shift = 32 - bits;
  mask = (uint64_t(1) << bits) - 1;
  table = makeArray<uint64_t>(mask + 1);
  std::fill_n(table.get(), mask + 1, kEmpty);
  std::fill_n(parents.get(), capacity, kNoNode);
  std::fill_n(blocks.get(), size_t(capacity) * groups, kNoBlock);
  std::fill_n(hosts.get(), size_t(capacity) * groups, kNoBlock);
  for (uint32_t i = 0; i < nodes; ++i)
    freeNodes[i] = capacity - 1 - i;
}

void PrefixTree::makeRoot(uint32_t n, const Hash128 &hash) {
  hashes[n] = hash;
  links[n] = 1;
}

uint32_t PrefixTree::insert(uint32_t parent, const Hash128 &hash, const Token *t) {
  if (unused == 0)
    return kNoNode;
  uint32_t n = freeNodes[--unused];
  parents[n] = parent;
  ++links[parent];
  links[n] = 0;
  depths[n] = depths[parent] + 1;
  hashes[n] = hash;
  hitCounts[n] = 0;
  std::copy_n(t, blockTokens, words.get() + size_t(n) * blockTokens);
  uint64_t tag = hash.low >> 32, at = tag >> shift;
  while (table[at] != kEmpty)
    at = (at + 1) & mask;
  table[at] = tag << 32 | n;
  return n;
}

void PrefixTree::remove(uint32_t n) {
  for (;;) {
    uint64_t tag = hashes[n].low >> 32, at = tag >> shift;
    while (table[at] != (tag << 32 | n))
      at = (at + 1) & mask;
    // Entries behind move into the gap, unless that is before their own place (Knuth, TAOCP 3,
    // 6.4, algorithm R).
    for (uint64_t next = (at + 1) & mask; table[next] != kEmpty; next = (next + 1) & mask) {
      uint64_t home = table[next] >> 32 >> shift;
      if (((next - home) & mask) >= ((next - at) & mask)) {
        table[at] = table[next];
        at = next;
      }
    }
    table[at] = kEmpty;
    freeNodes[unused++] = n;
    uint32_t up = std::exchange(parents[n], kNoNode);
    if (--links[up] != 0 || up < roots)
      return;
    n = up;
  }
}

void PrefixTree::snapshot(Snapshot &s, uint32_t openRoots) const {
  s.nodes.resize(capacity);
  s.tokens.assign(words.get(), words.get() + size_t(capacity) * blockTokens);
  for (uint32_t n = 0; n < capacity; ++n) {
    Snapshot::Node &node = s.nodes[n];
    node = {};
    node.root = n < roots;
    node.live = node.root ? n < openRoots : parents[n] != kNoNode;
    if (!node.live)
      continue;
    node.parent = parents[n];
    node.depth = depths[n];
    node.links = links[n];
    node.hash = hashes[n];
    for (uint32_t g = 0; g < kMaxGroups; ++g) {
      node.blocks[g] = g < groups ? block(n, g) : kNoBlock;
      node.host[g] = g < groups ? host(n, g) : kNoBlock;
    }
  }
  s.freeNodes.assign(freeNodes.get(), freeNodes.get() + unused);
  s.index.assign(mask + 1, kNoNode);
  for (uint64_t i = 0; i <= mask; ++i)
    if (table[i] != kEmpty)
      s.index[i] = uint32_t(table[i]);
}

} // namespace lathe::kv
