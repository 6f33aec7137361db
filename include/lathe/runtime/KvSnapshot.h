//===- KvSnapshot.h - the state of a Cache, and who checks it ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A snapshot is a plain copy of everything a Cache knows. validate() recomputes from it what must
// hold; it shares no code with the Cache. The numbers are those of runtime/memory/README.md.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_KVSNAPSHOT_H
#define LATHE_RUNTIME_KVSNAPSHOT_H

#include "lathe/runtime/KvEvents.h"
#include "lathe/runtime/KvTypes.h"

#include <string>
#include <vector>

namespace lathe::kv {

enum class BlockState : uint8_t { Free = 0, Reserved = 1, Committed = 2 };
inline constexpr uint32_t kNoNode = ~0u;

/// A snapshot has one element per block, node, sequence, ... in the order of their numbers.
struct Snapshot {
  Config config;
  bool stepOpen = false;
  uint32_t ringBlocks[kMaxGroups] = {}, sinkBlocks[kMaxGroups] = {};

  struct Block {
    BlockState state = BlockState::Free;
    uint32_t references = 0;
    uint32_t node = kNoNode; ///< of the prefix tree, when its content is indexed
    uint32_t group = 0;      ///< of the node's entry
    uint8_t rank = 0;        ///< eviction class: the lowest goes first
    bool operator==(const Block &) const = default;
  };
  std::vector<Block> blocks, hostBlocks; ///< host: rank unused, Reserved unused
  std::vector<BlockId> freeList, hostFreeList;
  /// Evictable blocks, first to go first, of all ranks; host: one list.
  std::vector<BlockId> evictable, hostEvictable;

  struct Node {
    bool live = false;
    bool root = false;
    uint32_t parent = kNoNode;
    uint32_t depth = 0; ///< blocks up to and including this one; 0 for a root
    uint32_t links = 0; ///< children + blocks + host blocks + tails of sequences
    Hash128 hash;
    BlockId blocks[kMaxGroups], host[kMaxGroups];
  };
  std::vector<Node> nodes;
  std::vector<Token> tokens; ///< of all nodes, one after another
  std::span<const Token> tokensOf(uint32_t node) const {
    size_t n = tokens.size() / nodes.size();
    return std::span(tokens).subspan(node * n, n);
  }
  std::vector<uint32_t> freeNodes;
  std::vector<uint32_t> index; ///< nodes in the hash table, kNoNode for empty entries

  struct Sequence {
    SeqId id = kNoSequence; ///< kNoSequence: closed
    bool swapped = false, doomed = false, compacted = false, cache = false;
    SpaceId space = 0;
    uint8_t priority = 0;
    uint32_t length = 0;    ///< committed positions
    uint32_t stored = 0;    ///< committed stored tokens
    uint32_t pending = 0;   ///< reserved tokens
    uint32_t draft = 0;     ///< of the stored ones, not accepted yet
    uint32_t room = 0;      ///< slots of the tail that may be written without a look
    uint32_t slot = 0;      ///< of the next token, when room > 0
    uint32_t tail = kNoNode; ///< node of the last indexed block
    uint32_t indexed = 0;    ///< blocks indexed
    struct Group {
      uint32_t first = 0, count = 0; ///< blocks [first, count) are held, and [0, sinks)
      std::vector<BlockId> table;    ///< the row, tableEntries long
    };
    std::vector<Group> groups;
    std::vector<BlockId> hostBlocks; ///< when swapped
    std::vector<uint32_t> positions; ///< when compacted
  };
  std::vector<Sequence> sequences;
  std::vector<std::vector<BlockId>> pins; ///< blocks of each pin
  /// Old blocks that an open step still holds (copied tails, dropped blocks).
  struct Held {
    BlockId block;
    uint32_t used;  ///< tokens of it that come back when the step rolls back
    bool isTail;    ///< not full
  };
  std::vector<Held> heldByStep;
  std::vector<BlockId> newStates; ///< blocks that State groups write in the open step
  std::vector<BlockId> hostHeldByStep; ///< sources and destinations of its swaps
  Counters counters;
};

struct Violation {
  int invariant; ///< its number in runtime/memory/README.md
  std::string what;
};

/// All violations, or none.
std::vector<Violation> validate(const Snapshot &snapshot);

} // namespace lathe::kv

#endif // LATHE_RUNTIME_KVSNAPSHOT_H
