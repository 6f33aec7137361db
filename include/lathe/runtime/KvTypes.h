//===- KvTypes.h - plain types of the KV cache ------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Configuration, requests, refusals, transfers and counters of kv::Cache (KvCache.h). Plain structs
// of the standard library.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_KVTYPES_H
#define LATHE_RUNTIME_KVTYPES_H

#include "lathe/engine/KvLayout.h"

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lathe::kv {

/// A token, or a key that stands for one (Cache::internKey): those have the top bit set.
using Token = uint32_t;
/// A token that a device still works out: Cache::provide() says what it is. The last of a sequence alone.
inline constexpr Token kUnknownToken = ~0u;
/// A block of the pool, 0 .. blocks-1. Its memory starts at pool + block * blockBytes.
using BlockId = uint32_t;
inline constexpr BlockId kNoBlock = ~0u;
/// A sequence: index and generation, so that a handle of a closed sequence is refused. Never 0.
using SeqId = uint32_t;
inline constexpr SeqId kNoSequence = 0;
/// The root of a prefix tree: sequences of different spaces never share blocks.
using SpaceId = uint32_t;
/// A pinned prefix.
using PinId = uint32_t;
inline constexpr uint32_t kMaxGroups = engine::kMostKvGroups;

/// Why a call was refused. A refused call changes nothing.
enum class Code : uint8_t {
  Ok = 0,
  NoBlocks,       ///< too few free and evictable blocks; preempt or close a sequence
  NoHostBlocks,   ///< the host tier is full
  NoSequences,    ///< maxSequences are open
  NoSpaces,       ///< maxSpaces or maxPins are in use
  BadSequence,    ///< no such sequence, closed, or preempted where it must not be
  BadArgument,    ///< e.g. no tokens, a length beyond the end, an unknown space
  TooLong,        ///< beyond maxSequenceTokens or maxStepTokens
  Busy,           ///< the sequence has a reservation in the open step
  StepOpen,       ///< the call needs that no step is open
  NoStep,         ///< the call needs an open step
  TransfersPending, ///< clearTransfers() was not called since the last step
  OutOfWindow,    ///< the truncation needs tokens or a state that were given up
  Unsupported,    ///< the groups of this model do not allow it
  Injected,       ///< a failure injected by a test
};
const char *toString(Code code);

/// The answer of every call on the step path; no heap behind it.
struct [[nodiscard]] Outcome {
  Code code = Code::Ok;
  SeqId sequence = kNoSequence; ///< the one that was refused, when one can be named
  uint32_t needed = 0;          ///< NoBlocks, NoHostBlocks, TooLong: what was asked for
  uint32_t available = 0;       ///< and what there is
  bool ok() const { return code == Code::Ok; }
  explicit operator bool() const { return ok(); }
};
/// The same as an error with a message, for people.
Status toStatus(const Outcome &outcome);

enum class Eviction : uint8_t {
  Lru = 0,  ///< the block whose last user left first
  Lfu = 1,  ///< fewest hits first (up to 127 count), then Lru
  Priority = 2, ///< lowest priority first, then Lru; a prefix is worth as much as the dearest
                ///< block that was ever cached behind it, so that leaves go first
};

enum class HashKind : uint8_t {
  Keyed128 = 0, ///< keyed multiply-mix of 128 bits; fast, not cryptographic
  Sha256 = 1,   ///< the first 128 bits of SHA-256
};

struct Config {
  std::vector<engine::KvGroup> groups{engine::KvGroup{}};
  uint32_t blocks = 0;              ///< of the pool (engine::kvCapacity)
  uint32_t hostBlocks = 0;          ///< of the host tier; 0: none
  uint32_t maxSequences = 256;      ///< open at once, 65535 at most
  uint32_t maxSequenceTokens = 32768;
  uint32_t maxStepTokens = 8192;    ///< of one sequence in one step
  uint32_t maxSpaces = 1024;
  uint32_t maxKeys = 65536;         ///< interned image keys; beyond, the oldest are forgotten
  bool prefixCache = true;
  Eviction eviction = Eviction::Lru;
  HashKind hash = HashKind::Keyed128;
  /// Secret of the hashes. Give random bits where tenants must not probe each other's prompts;
  /// the same on all replicas that a router compares.
  std::array<uint64_t, 2> hashKey{0x9e3779b97f4a7c15, 0xd1b54a32d192ed03};
  uint32_t eventCapacity = 1 << 16; ///< events kept for readers; a power of two, 0: none
};

/// Options of a sequence.
struct SequenceOptions {
  SpaceId space = 0;      ///< 0: the space without adapter, tenant or salt
  uint8_t priority = 35;  ///< 0 .. 100, of its blocks once they are cached
  bool cache = true;      ///< false: neither looks up nor stores
};

/// Tokens to append to one sequence in a step: their keys and values are computed in that step.
struct Append {
  SeqId sequence = kNoSequence;
  uint32_t tokens = 0; ///< taken from the flat array of the call, one request after another
  uint32_t draft = 0;  ///< the last `draft` of them may be truncated again: they are not cached
                       ///< before the next append or truncation accepts them
};

/// Copies that the device makes before the kernels of the step, in the order of Transfers.
struct BlockCopy {
  BlockId from, to;
  uint32_t group;
  uint32_t tokens; ///< the first ones of the block are in use
  bool operator==(const BlockCopy &) const = default;
};
struct SwapCopy {
  BlockId device, host;
  uint32_t group;
  bool operator==(const SwapCopy &) const = default;
};
/// One token's keys and values: slot = block * blockTokens + offset.
struct SlotCopy {
  uint32_t from, to, group;
  bool operator==(const SlotCopy &) const = default;
};

/// What the device must do before the kernels of the step, list after list.
struct Transfers {
  std::span<const SwapCopy> swapOuts; ///< device to host
  std::span<const SwapCopy> swapIns;  ///< host to device
  std::span<const BlockCopy> copies;
  std::span<const SlotCopy> moves;
  bool empty() const {
    return swapOuts.empty() && swapIns.empty() && copies.empty() && moves.empty();
  }
};

/// Destination of slot mappings: for each group a pointer to as many int32 as the call has tokens,
/// or null. Token i of the flat array goes to slot slots[group][i]. Window groups have slots of the
/// ring's blocks, State and Shared groups none (a Shared group has those of its target).
struct Slots {
  std::array<int32_t *, kMaxGroups> slots{};
};

enum class Preempt : uint8_t {
  Recompute = 0, ///< blocks are given up; attach() and reserve() again
  Swap = 1,      ///< blocks go to the host tier; resume()
};

/// Everything that is counted. Monotone counts since creation, except where "now" is said.
struct Counters {
  uint64_t steps = 0, rollbacks = 0;
  uint64_t appendedTokens = 0;   ///< committed
  uint64_t queryTokens = 0;      ///< tokens of prompts given to attach()
  uint64_t hitTokens = 0;        ///< of them found; at most prompt-1 of each prompt
  uint64_t hostHitTokens = 0;    ///< of the hits, those that came from the host tier
  uint64_t rehitTokens = 0;      ///< hits of preempted sequences; not in hitTokens
  uint64_t rehitQueryTokens = 0; ///< their prompts; not in queryTokens
  uint64_t storedBlocks = 0, mergedBlocks = 0, evictedBlocks = 0;
  uint64_t offloadedBlocks = 0, restoredBlocks = 0, hostEvictedBlocks = 0;
  uint64_t copiedBlocks = 0;     ///< copy-on-write
  uint64_t droppedTokens = 0;    ///< by Cache::drop
  uint64_t preemptions = 0, refusals = 0;
  uint64_t events = 0;
  // Now:
  uint64_t freeBlocks = 0;       ///< hold nothing
  uint64_t evictableBlocks = 0;  ///< nobody's, with cached content
  uint64_t reservedBlocks = 0;
  uint64_t committedBlocks = 0;
  uint64_t freeHostBlocks = 0, cachedHostBlocks = 0, swappedHostBlocks = 0;
  uint64_t sequences = 0;
  uint64_t sequenceSlots = 0;    ///< slots of the blocks of all sequences, shared ones each time
  uint64_t sequenceTokens = 0;   ///< of those, slots that hold a token of their sequence
  uint64_t cachedNodes = 0;
  bool operator==(const Counters &) const = default;

  /// Share of the slots of sequences that hold nothing, 0 .. 1.
  double waste() const {
    return sequenceSlots ? 1.0 - double(sequenceTokens) / double(sequenceSlots) : 0.0;
  }
  /// Share of the prompts' tokens that were found, 0 .. 1.
  double hitRate() const { return queryTokens ? double(hitTokens) / double(queryTokens) : 0.0; }
};

/// How scattered the block tables are.
struct Fragmentation {
  uint64_t neighbours = 0; ///< pairs of consecutive blocks of one table
  uint64_t contiguous = 0; ///< of those, pairs that are neighbours in memory too
  double share() const {
    return neighbours ? 1.0 - double(contiguous) / double(neighbours) : 0.0;
  }
};

} // namespace lathe::kv

#endif // LATHE_RUNTIME_KVTYPES_H
