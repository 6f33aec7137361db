//===- PrefixTree.h - which prefix lies in which block ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A tree of full blocks of tokens. A node is one block of tokens behind its parent, and names the
// block of each group that holds it, on the device and on the host. Children are found through one
// hash table with open addressing and linear probing; an entry is a node with 32 bits of its hash,
// which also give its place, so that deletion moves entries back without looking at nodes.
//
// A hit compares parent and tokens: no hash decides what is equal. The first nodes are roots, one
// for each space. A node lives as long as something links to it: a child, a block, a sequence's
// tail.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_MEMORY_KV_PREFIXTREE_H
#define LATHE_RUNTIME_MEMORY_KV_PREFIXTREE_H

#include "BlockPool.h"
#include "Hash.h"

#include <cstring>

namespace lathe::kv {

class PrefixTree {
public:
  PrefixTree(uint32_t roots, uint32_t nodes, uint32_t blockTokens, uint32_t groups);

  uint32_t liveNodes() const { return capacity - roots - unused; }
  uint32_t parent(uint32_t n) const { return parents[n]; }
  uint32_t depth(uint32_t n) const { return depths[n]; }
  const Hash128 &hash(uint32_t n) const { return hashes[n]; }
  const Token *tokens(uint32_t n) const { return words.get() + size_t(n) * blockTokens; }
  BlockId &block(uint32_t n, uint32_t g) { return blocks[size_t(n) * groups + g]; }
  BlockId block(uint32_t n, uint32_t g) const { return blocks[size_t(n) * groups + g]; }
  BlockId &host(uint32_t n, uint32_t g) { return hosts[size_t(n) * groups + g]; }
  BlockId host(uint32_t n, uint32_t g) const { return hosts[size_t(n) * groups + g]; }
  uint8_t &hits(uint32_t n) { return hitCounts[n]; }
  uint8_t hits(uint32_t n) const { return hitCounts[n]; }

  void makeRoot(uint32_t n, const Hash128 &hash);
  /// The child of `parent` with these tokens, or kNoNode.
  uint32_t find(uint32_t parent, const Hash128 &hash, const Token *tokens) const {
    uint64_t tag = hash.low >> 32;
    for (uint64_t at = tag >> shift;; at = (at + 1) & mask) {
      uint64_t entry = table[at];
      if (entry == kEmpty)
        return kNoNode;
      if (entry >> 32 == tag) {
        uint32_t n = uint32_t(entry);
        if ((parents[n] == parent || planted(Fault::ParentIgnored)) && equal(n, tokens))
          return n;
      }
    }
  }
  const Hash128 &prefetch(const Hash128 &hash) const {
    __builtin_prefetch(&table[hash.low >> 32 >> shift]);
    return hash;
  }
  void prefetchNode(uint32_t n) const {
    __builtin_prefetch(&hashes[n]);
    __builtin_prefetch(&parents[n]);
    __builtin_prefetch(&links[n]);
    __builtin_prefetch(&depths[n]);
    __builtin_prefetch(&blocks[size_t(n) * groups]);
  }
  /// A new child without links, or kNoNode when all nodes are in use.
  uint32_t insert(uint32_t parent, const Hash128 &hash, const Token *tokens);
  void link(uint32_t n) { ++links[n]; }
  /// One link less; a node without links goes, and its parent's link with it.
  void unlink(uint32_t n) {
    if (--links[n] == 0 && n >= roots)
      remove(n);
  }

  void snapshot(Snapshot &snapshot, uint32_t openRoots) const;

private:
  static constexpr uint64_t kEmpty = ~uint64_t(0);

  bool equal(uint32_t n, const Token *t) const {
    if (planted(Fault::TokensNotCompared))
      return true;
    const Token *own = tokens(n);
    // A count that is known is faster.
    if (blockTokens == 16 && !planted(Fault::LastTokenNotCompared))
      return std::memcmp(own, t, 16 * sizeof(Token)) == 0;
    uint64_t differs = 0;
    uint32_t compared = blockTokens - (planted(Fault::LastTokenNotCompared) ? 1 : 0);
    for (uint32_t i = 0; i < compared; ++i)
      differs |= own[i] ^ t[i];
    return differs == 0;
  }
  void remove(uint32_t n);

  uint32_t roots, capacity, blockTokens, groups, unused;
  uint32_t shift;
  uint64_t mask;
  Array<uint32_t> parents, links, depths, freeNodes;
  Array<Hash128> hashes;
  Array<uint8_t> hitCounts;
  Array<Token> words;
  Array<BlockId> blocks, hosts;
  Array<uint64_t> table;
};

} // namespace lathe::kv

#endif // LATHE_RUNTIME_MEMORY_KV_PREFIXTREE_H
