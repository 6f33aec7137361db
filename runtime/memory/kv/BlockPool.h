//===- BlockPool.h - who holds which block ----------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The records of all blocks of one tier, made once, structure of arrays. A block is free, reserved
// (an open step holds it) or committed, and has a count of references. Free blocks without content
// are a stack; free blocks whose content is indexed are in eviction lists, one for each rank, linked
// through arrays, oldest first, so that every operation takes constant time.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_MEMORY_KV_BLOCKPOOL_H
#define LATHE_RUNTIME_MEMORY_KV_BLOCKPOOL_H

#include "Faults.h"
#include "lathe/runtime/KvSnapshot.h"

#include <bit>
#include <memory>

namespace lathe::kv {

/// An array that is made once. Values are not set: large ones cost address space until used.
template <typename T> using Array = std::unique_ptr<T[]>;
template <typename T> Array<T> makeArray(size_t n) { return std::make_unique_for_overwrite<T[]>(n); }

class BlockPool {
public:
  static constexpr uint32_t kRanks = 128;

  explicit BlockPool(uint32_t blocks);

  uint32_t size() const { return count; }
  uint32_t freeBlocks() const { return stacked; }
  uint32_t evictableBlocks() const { return listed; }
  uint32_t reservedBlocks() const { return reserved; }
  uint32_t availableBlocks() const { return stacked + listed; }

  BlockState state(BlockId b) const { return BlockState(owner[b] >> kStateShift); }
  uint32_t references(BlockId b) const { return owner[b] & kReferences; }
  uint32_t nodeOf(BlockId b) const { return node[b]; }
  uint32_t groupOf(BlockId b) const { return group[b]; }
  uint8_t rankOf(BlockId b) const { return rank[b]; }
  bool isExclusive(BlockId b) const { return references(b) == 1 && node[b] == kNoNode; }

  /// A block from the stack, reserved, with one reference. The stack is not empty.
  BlockId take() {
    BlockId b = stack[--stacked];
    owner[b] = kReserved | 1;
    ++reserved;
    return b;
  }
  /// `n` blocks at once, as take() gives them; n <= freeBlocks().
  void take(BlockId *out, uint32_t n) {
    const BlockId *top = stack.get() + stacked;
    for (uint32_t i = 0; i < n; ++i) {
      BlockId b = *--top;
      owner[b] = kReserved | 1;
      out[i] = b;
    }
    stacked -= n;
    reserved += n;
  }
  /// The block that goes first. There is one.
  BlockId victim() const {
    uint32_t r = mask[0] ? std::countr_zero(mask[0]) : 64 + std::countr_zero(mask[1]);
    return planted(Fault::EvictsYoungest) ? lists[r].last : lists[r].first;
  }
  /// The one behind it in its list, or kNoBlock.
  BlockId behind(BlockId b) const { return after[b]; }
  /// Takes an evictable block from its list: reserved, with one reference, without content.
  void claim(BlockId b) {
    unlist(b);
    node[b] = kNoNode;
    owner[b] = kReserved | 1;
    ++reserved;
  }
  void commit(BlockId b) {
    reserved -= owner[b] >> kStateShift == uint32_t(BlockState::Reserved);
    owner[b] = kCommitted | (owner[b] & kReferences);
  }
  void commit(const BlockId *blocks, uint32_t n) {
    uint32_t were = 0;
    for (uint32_t i = 0; i < n; ++i) {
      uint32_t &o = owner[blocks[i]];
      were += o >> kStateShift == uint32_t(BlockState::Reserved);
      o = kCommitted | (o & kReferences);
    }
    reserved -= were;
  }
  /// One reference more; a free block with content leaves its list and is committed.
  void acquire(BlockId b) {
    if (owner[b] == 0) {
      unlist(b);
      owner[b] = kCommitted;
    }
    ++owner[b];
  }
  /// One reference less; the last one frees the block: with content to the end of the list of its
  /// rank, otherwise onto the stack.
  void release(BlockId b) {
    if ((--owner[b] & kReferences) == 0)
      freed(b);
  }

  /// The content of `b`, which somebody holds, is indexed from now on.
  void setContent(BlockId b, uint32_t itsNode, uint32_t itsGroup, uint8_t itsRank) {
    node[b] = itsNode;
    group[b] = uint8_t(itsGroup);
    rank[b] = itsRank;
  }
  /// The content is not indexed any more; a free block goes onto the stack.
  void clearContent(BlockId b) {
    if (owner[b] == 0) {
      unlist(b);
      stack[stacked++] = b;
    }
    node[b] = kNoNode;
  }
  /// The rank of a block that somebody holds.
  void setRank(BlockId b, uint8_t itsRank) { rank[b] = itsRank; }
  /// A block on a list becomes the youngest of its rank.
  void touch(BlockId b) {
    unlist(b);
    list(b);
  }

  void snapshot(std::vector<Snapshot::Block> &blocks, std::vector<BlockId> &freeList,
                std::vector<BlockId> &evictable) const;

private:
  static constexpr uint32_t kStateShift = 30, kReferences = (1u << 30) - 1;
  static constexpr uint32_t kReserved = uint32_t(BlockState::Reserved) << kStateShift;
  static constexpr uint32_t kCommitted = uint32_t(BlockState::Committed) << kStateShift;
  struct List {
    BlockId first = kNoBlock, last = kNoBlock;
  };

  void freed(BlockId b) {
    reserved -= owner[b] >> kStateShift == uint32_t(BlockState::Reserved);
    owner[b] = 0;
    if (node[b] == kNoNode)
      stack[stacked++] = b;
    else
      list(b);
  }
  uint32_t listOf(BlockId b) const { return planted(Fault::RanksIgnored) ? 0 : rank[b]; }
  void list(BlockId b) {
    uint32_t r = listOf(b);
    List &l = lists[r];
    before[b] = l.last;
    after[b] = kNoBlock;
    if (l.last == kNoBlock) {
      l.first = b;
      mask[r / 64] |= uint64_t(1) << r % 64;
    } else {
      after[l.last] = b;
    }
    l.last = b;
    ++listed;
  }
  void unlist(BlockId b) {
    uint32_t r = listOf(b);
    List &l = lists[r];
    BlockId x = before[b], y = after[b];
    (x == kNoBlock ? l.first : after[x]) = y;
    (y == kNoBlock ? l.last : before[y]) = x;
    if (l.first == kNoBlock)
      mask[r / 64] &= ~(uint64_t(1) << r % 64);
    --listed;
  }

  uint32_t count, stacked = 0, listed = 0, reserved = 0;
  Array<uint32_t> owner; ///< state in the two top bits, references below; 0: free
  Array<uint32_t> node;  ///< of the prefix tree, or kNoNode
  Array<BlockId> before, after;
  Array<uint8_t> group, rank;
  Array<BlockId> stack;
  List lists[kRanks];
  uint64_t mask[kRanks / 64] = {}; ///< ranks whose list is not empty
};

} // namespace lathe::kv

#endif // LATHE_RUNTIME_MEMORY_KV_BLOCKPOOL_H
