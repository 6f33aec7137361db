//===- Core.h - the state of a KV cache -------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a Cache owns and how its parts meet: sequences (Core.cpp), the step with its log
// (Step.cpp), taking over prefixes (Attach.cpp), giving up blocks and tokens (Yield.cpp), the tree
// of prefixes (Index.cpp), and the state as a snapshot (Snapshot.cpp).
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_MEMORY_KV_CORE_H
#define LATHE_RUNTIME_MEMORY_KV_CORE_H

#include "PrefixTree.h"
#include "Published.h"
#include "Spaces.h"
#include "lathe/runtime/KvCache.h"

namespace lathe::kv {

/// A group with what follows from its rule.
struct Group {
  uint32_t number;
  engine::KvGroupKind kind;
  uint32_t offset = 0; ///< of its entries in a sequence's row
  uint32_t width = 0;  ///< entries
  uint32_t window = 0, slack = 0, sinkBlocks = 0, ringBlocks = 0;
  uint32_t checkpoint = 0;

  bool isFull() const { return kind == engine::KvGroupKind::Full; }
  bool isWindow() const { return kind == engine::KvGroupKind::Window; }
  bool isState() const { return kind == engine::KvGroupKind::State; }
  /// Where block `b` of a sequence stands in the row.
  uint32_t at(uint32_t b) const {
    return offset + (isFull() || b < sinkBlocks ? b : sinkBlocks + (b - sinkBlocks) % ringBlocks);
  }
  /// First block that a query at position `length` sees (sinks apart).
  uint32_t firstSeen(uint32_t length, uint32_t blockTokens) const {
    return length >= window ? (length - window + 1) / blockTokens : 0;
  }
};

class Core {
public:
  explicit Core(const Config &config);

  Outcome openSpace(std::span<const std::string_view> parts, SpaceId &space);
  Outcome open(const SequenceOptions &options, SeqId &sequence);
  Outcome fork(SeqId parent, SeqId &child);
  Outcome truncate(SeqId sequence, uint32_t length);
  Outcome provide(SeqId sequence, Token token);
  Outcome close(SeqId sequence);
  Outcome preempt(SeqId sequence, Preempt how);
  Outcome begin();
  Outcome attach(SeqId sequence, std::span<const Token> prompt, uint32_t &hit);
  Outcome resume(SeqId sequence);
  Outcome reserve(std::span<const Append> requests, std::span<const Token> tokens,
                  const Slots &slots);
  Outcome drop(SeqId sequence, std::span<const uint32_t> kept);
  Outcome commit();
  Outcome rollback();
  Transfers transfers() const;
  void clearTransfers();
  uint32_t peek(SpaceId space, std::span<const Token> prompt) const;
  uint32_t neededBlocks(std::span<const Append> requests) const;
  Outcome pin(SpaceId space, std::span<const Token> prompt, PinId &pin, uint32_t &pinned);
  Outcome unpin(PinId pin);
  void clearCache();
  uint32_t writePositions(uint32_t s, std::span<uint32_t> out) const;
  Fragmentation fragmentation() const;
  Snapshot snapshot() const;

  /// What the step path touches of a sequence, in half a cache line.
  struct Hot {
    SeqId id = kNoSequence; ///< kNoSequence: closed
    uint32_t slot = 0;      ///< of the next token, when room > 0
    /// Slots of the tail block that may be written without looking: no other sequence has the
    /// block, it is not indexed, no draft waits. 0 when that must be found out.
    uint32_t room = 0;
    uint32_t pending = 0; ///< tokens reserved in the open step
    uint32_t stored = 0;  ///< tokens committed
    uint32_t draft = 0, nextDraft = 0;
    uint32_t flags = 0;
  };
  enum Flags : uint32_t {
    kSwapped = 1,
    kDoomed = 2,    ///< closed in this step: ends with it
    kCompacted = 4, ///< tokens were dropped
    kCaches = 8,    ///< indexes its blocks
    kTouched = 16,  ///< the step's log has more than reservations of it
    kPreempted = 32,
    kMayCache = 64, ///< what the options say
    kEndsUnknown = 128, ///< it caches, and its last token is still to be provided
  };

  /// The index of an open sequence, or maxSequences.
  uint32_t find(SeqId id) const {
    uint32_t s = id & 0xffff;
    return s < config.maxSequences && id != kNoSequence && hot[s].id == id ? s
                                                                          : config.maxSequences;
  }
  uint32_t length(uint32_t s) const { return hot[s].stored + dropped[s]; }
  BlockId *row(uint32_t s) const { return rows.get() + (2 * size_t(s) + side[s]) * rowStride; }
  BlockId &entry(uint32_t s, const Group &g, uint32_t b) const { return row(s)[g.at(b)]; }
  uint32_t &first(uint32_t s, const Group &g) const { return firsts[s * kMaxGroups + g.number]; }
  uint32_t &count(uint32_t s, const Group &g) const { return counts[s * kMaxGroups + g.number]; }
  /// The group whose blocks `group` has: itself, unless it is Shared.
  const Group &storage(uint32_t group) const { return groups[targets[group]]; }
  uint32_t entries(uint32_t s, const Group &g) const;

  const Config config;
  const uint32_t blockTokens;
  std::vector<Group> groups; ///< all, by number; Shared ones have no entries
  std::vector<Group> stores; ///< those that have blocks
  std::array<uint32_t, kMaxGroups> targets{};
  BlockPool pool, hostPool;
  EventLog events;
  Published published;
  bool stepIsOpen = false;
  std::unique_ptr<Spaces> spaces;
  const Hasher hasher;
  Array<Hot> hot;

  /// When a block that a table already had was replaced, and the first such block (TableWriter).
  struct Rewrite {
    uint64_t epoch = 0, before = 0;
    uint32_t from = 0;
  };
  Array<Rewrite> rewrites;
  /// Replacements of one tick share an epoch.
  mutable uint64_t tick = 1;

private:
  //===--- The log of a step -----------------------------------------------===//
  struct Entry {
    enum Kind : uint8_t { NewBlock, NewState, Cow, Restore, Offload, Attach, Resume, Drop } kind;
    uint8_t group;
    uint8_t flags;
    uint32_t s; ///< sequence, or node
    uint32_t a, b, c, d;
  };
  /// Flags of Resume: the sequence came back; this block did, rather than being found in the tree;
  /// and the tree has it from now on.
  enum : uint8_t { kResumed = 1, kCameBack = 2, kAdopted = 4 };
  struct Mark {
    uint32_t log, touched;
    size_t copies, swapIns, moves;
  };
  Mark mark() const { return {logged, reservations, copies.size(), swapIns.size(), moves.size()}; }
  void log(Entry entry) { steps[logged++] = entry; }
  void undoTo(const Mark &mark);
  void undo(const Entry &entry);
  void keep(const Entry &entry);
  void endStep();

  size_t reserveUsual(std::span<const Append> requests, const Token *next, int32_t *out,
                      uint32_t mark);
  bool mayBegin(SeqId sequence) const;
  /// The tail of a sequence becomes a new block; false when its allocation fails.
  bool beginBlock(uint32_t s);
  Outcome reserveOne(const Append &request, const Token *tokens, const Slots &slots, size_t at);
  Outcome plan(std::span<const Append> requests, std::span<const Token> flat);
  bool extend(uint32_t s, const Group &g, uint32_t tokens);
  void writeSlots(uint32_t s, const Group &g, uint32_t tokens, int32_t *out) const;
  void commitOne(uint32_t s);
  uint32_t needed(const Append &request) const;
  void hold(BlockId block, uint32_t used);

  //===--- Blocks ----------------------------------------------------------===//
  /// A reserved block, evicting one when none is free; kNoBlock when there is none.
  BlockId allocate();
  /// Up to `n` blocks that are free without eviction; returns how many. 0: try allocate().
  uint32_t allocateFree(BlockId *out, uint32_t n);
  BlockId allocateHost();
  void evict(BlockId block, bool toHost);
  void offload(uint32_t node, uint32_t group, BlockId block);
  /// What an open step holds of a block that its sequences gave up: they come back to it, with its
  /// first `used` tokens, when the step rolls back.
  struct Held {
    uint32_t references = 0, used = 0;
  };
  /// Whether a sequence that has the first `used` tokens of a block may write the next: the block is
  /// not indexed, and nobody else has it, apart from those who left it in this step (`held`, and
  /// those who would leave it by the plan at hand) and have no more of it.
  bool isWritable(BlockId b, uint32_t used, const Held &left) const {
    return pool.nodeOf(b) == kNoNode && pool.references(b) - left.references == 1 &&
           left.used <= used;
  }

  //===--- Sequences -------------------------------------------------------===//
  bool isBusy(uint32_t s) const { return hot[s].pending != 0 || hot[s].flags & kTouched; }
  void end(uint32_t s);
  /// Gives all blocks back, last ones first, so that a block goes before the one that it follows.
  void releaseBlocks(uint32_t s);
  void forget(uint32_t s);
  void releaseRange(uint32_t s, const Group &g, uint32_t from, uint32_t to);
  /// fn(group, block number, entry) for each block held, last ones first.
  template <typename Fn> void forHeld(uint32_t s, Fn fn) const;
  void setTail(uint32_t s, uint32_t node, uint32_t indexed);
  void slideWindows(uint32_t s);
  void rewrite(uint32_t s, uint32_t from);
  /// Adds what a sequence has to the counters of waste, or takes it away.
  void account(uint32_t s, bool add);
  Outcome refuse(Code code, SeqId id = kNoSequence, uint32_t needed = 0, uint32_t available = 0);
  void publish();
  uint32_t &position(const BlockId *row, const Group &g, uint32_t i) const {
    return positions[size_t(row[g.offset + i / blockTokens]) * blockTokens + i % blockTokens];
  }
  uint32_t heldBlocks(uint32_t s) const;
  uint32_t storedBefore(uint32_t s, uint32_t position) const;

  //===--- The tree --------------------------------------------------------===//
  /// `known`, if not null: the hash of the first block that is not indexed yet.
  void index(uint32_t s, const Hash128 *known = nullptr);
  /// Of block `b` of a sequence, whose tokens are recent, behind a block with hash `before`.
  Hash128 hashOf(const Hash128 &before, uint32_t s, uint32_t b) const {
    return hasher.block(before, recent(s, b * blockTokens), spaces->contents());
  }
  void adopt(uint32_t s, const Group &g, uint32_t node, BlockId &entry, uint32_t b);
  uint8_t rankFor(uint32_t s, uint32_t node) const;
  void raise(uint32_t node, uint32_t group, uint8_t rank);
  /// Nodes of the longest chain of `prompt` into `path`, whether a boundary may be a hit into
  /// `usable`; returns the largest such count of blocks.
  uint32_t match(SpaceId space, std::span<const Token> prompt, bool withHost) const;
  /// fn(block number, group) for each block that a hit of `blocks` takes over.
  template <typename Fn> void forHit(uint32_t blocks, Fn fn) const;
  void countHit(const Entry &entry);
  Token *recent(uint32_t s, uint32_t position) const {
    return tokens.get() + size_t(s) * tokenStride + (position & (tokenRing - 1));
  }

  PrefixTree tree;
  bool oneFull;        ///< one group that stores, and it is Full: the fast path
  bool hasStates = false;
  bool mayReuse;       ///< false: a State group without checkpoints
  uint32_t rowWidth = 0;
  uint32_t tokenRing;  ///< a power of two
  uint32_t tokenStride = 0, rowStride = 0; ///< odd counts of lines, or all would share a cache set
  mutable Counters total;
  Array<uint32_t> firsts, counts, dropped, tails, indexed;
  Array<SpaceId> spaceOf;
  Array<uint8_t> priority, side;
  Array<uint16_t> generation;
  Array<uint32_t> freeSequences;
  uint32_t freeSequenceCount;
  Array<BlockId> rows;       ///< two rows a sequence: drop() changes over
  Array<Token> tokens;       ///< the last ones of each sequence, a ring
  Array<uint32_t> positions; ///< of the token in each slot, for compacted sequences
  Array<uint32_t> hostPositions;
  Array<Held> heldByStep;
  mutable Array<Held> planned; ///< heldByStep, had the plan been carried out
  mutable std::vector<BlockId> plannedBlocks;
  Array<uint64_t> plannedIn; ///< the last plan that named the sequence
  uint64_t planNumber = 0;
  mutable Array<uint32_t> path;
  mutable Array<uint8_t> usable;
  Array<Entry> steps;
  uint32_t logged = 0;
  Array<Hash128> fullHashes; ///< of the blocks that commit() indexes
  Array<uint32_t> reserved; ///< sequences with reservations; the top bit: not of the fast path
  uint32_t reservations = 0;
  std::vector<uint32_t> doomed;
  std::vector<SwapCopy> swapOuts, swapIns;
  std::vector<BlockCopy> copies;
  std::vector<SlotCopy> moves;
  std::vector<std::vector<BlockId>> pins;
  /// How much of each list the device has.
  struct {
    size_t swapOuts = 0, swapIns = 0, copies = 0, moves = 0;
  } done;
  bool transfersPending = false;
};

template <typename Fn> void Core::forHeld(uint32_t s, Fn fn) const {
  for (const Group &g : stores) {
    BlockId *r = row(s);
    if (g.isState()) {
      if (r[g.offset] != kNoBlock)
        fn(g, 0u, r[g.offset]);
      continue;
    }
    uint32_t from = first(s, g);
    for (uint32_t b = count(s, g); b-- > from;)
      fn(g, b, r[g.at(b)]);
    for (uint32_t b = std::min(g.sinkBlocks, from); b-- > 0;)
      fn(g, b, r[g.at(b)]);
  }
}

} // namespace lathe::kv

#endif // LATHE_RUNTIME_MEMORY_KV_CORE_H
