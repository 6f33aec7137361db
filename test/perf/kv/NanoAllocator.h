//===- NanoAllocator.h - a block manager as nano-vllm has it ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The comparison: the same data structures as nano-vllm's block manager, in
// C++, so that what differs is the design and not the language. A deque of free
// block numbers, a map from a 64-bit chained hash to a block, a copy of its
// tokens in each block; a hit on a free block takes its number out of the middle
// of the deque. The first of the deque is evicted, so the order is that of
// release. Only full blocks are hashed, at once for a prompt, one by one when
// appended tokens fill them.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_TEST_PERF_KV_NANOALLOCATOR_H
#define LATHE_TEST_PERF_KV_NANOALLOCATOR_H

#include "Trace.h"

#include <algorithm>
#include <deque>
#include <span>
#include <unordered_map>
#include <unordered_set>

namespace lathe::kvperf {

class NanoAllocator {
public:
  struct Sequence {
    std::vector<uint32_t> tokens;
    std::vector<uint32_t> table;
    uint32_t hitTokens = 0;
  };

  NanoAllocator(uint32_t blocks, uint32_t blockTokens)
      : blockTokens(blockTokens), blocks(blocks) {
    for (uint32_t i = 0; i < blocks; ++i)
      freeBlocks.push_back(i);
  }

  /// Takes blocks for a prompt; false, with nothing taken, if there may be too few.
  bool allocate(Sequence &sequence) {
    size_t count = (sequence.tokens.size() + blockTokens - 1) / blockTokens;
    if (freeBlocks.size() < count)
      return false;
    bool miss = false;
    uint64_t hash = 0;
    for (size_t i = 0; i < count; ++i) {
      std::span<const uint32_t> tokens = blockOf(sequence, i);
      bool full = tokens.size() == blockTokens;
      hash = hashOf(hash, tokens);
      auto found = full && !miss ? known.find(hash) : known.end();
      miss |= found == known.end() || !std::ranges::equal(blocks[found->second].tokens, tokens);
      uint32_t id;
      if (miss) {
        id = take(freeBlocks.front());
      } else {
        sequence.hitTokens += blockTokens;
        id = found->second;
        if (used.contains(id))
          ++blocks[id].holders;
        else
          take(id);
      }
      if (full)
        publish(id, hash, tokens);
      sequence.table.push_back(id);
    }
    return true;
  }

  /// Adds a token; false if it needs a block and there is none.
  bool append(Sequence &sequence, uint32_t token) {
    if (sequence.tokens.size() % blockTokens == 0) {
      if (freeBlocks.empty())
        return false;
      sequence.table.push_back(take(freeBlocks.front()));
    }
    sequence.tokens.push_back(token);
    if (sequence.tokens.size() % blockTokens == 0) {
      size_t last = sequence.table.size() - 1;
      uint64_t hash = last ? blocks[sequence.table[last - 1]].hash : 0;
      std::span<const uint32_t> tokens = blockOf(sequence, last);
      publish(sequence.table[last], hashOf(hash, tokens), tokens);
    }
    return true;
  }

  void release(Sequence &sequence) {
    for (size_t i = sequence.table.size(); i-- > 0;) {
      uint32_t id = sequence.table[i];
      if (--blocks[id].holders == 0) {
        used.erase(id);
        freeBlocks.push_back(id);
      }
    }
    sequence.table.clear();
  }

private:
  struct Block {
    uint32_t holders = 0;
    uint64_t hash = 0;
    std::vector<uint32_t> tokens;
  };

  std::span<const uint32_t> blockOf(const Sequence &sequence, size_t i) const {
    std::span<const uint32_t> tokens = sequence.tokens;
    return tokens.subspan(i * blockTokens,
                          std::min<size_t>(blockTokens, tokens.size() - i * blockTokens));
  }

  static uint64_t hashOf(uint64_t parent, std::span<const uint32_t> tokens) {
    for (uint32_t token : tokens)
      parent = mix(parent + token);
    return parent;
  }

  uint32_t take(uint32_t id) {
    Block &block = blocks[id];
    if (auto stale = known.find(block.hash); stale != known.end() && stale->second == id)
      known.erase(stale);
    block = {1, 0, {}};
    freeBlocks.erase(std::find(freeBlocks.begin(), freeBlocks.end(), id));
    used.insert(id);
    return id;
  }

  void publish(uint32_t id, uint64_t hash, std::span<const uint32_t> tokens) {
    blocks[id].hash = hash;
    blocks[id].tokens.assign(tokens.begin(), tokens.end());
    known[hash] = id;
  }

  uint32_t blockTokens;
  std::vector<Block> blocks;
  std::deque<uint32_t> freeBlocks;
  std::unordered_set<uint32_t> used;
  std::unordered_map<uint64_t, uint32_t> known;
};

} // namespace lathe::kvperf

#endif // LATHE_TEST_PERF_KV_NANOALLOCATOR_H
