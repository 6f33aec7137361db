//===- KvRanks.h - many pools that follow one decision ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// With a model on several ranks each rank has a pool of its own, and block b means the same tokens
// on all of them. One rank has the Cache and decides; after reserve() it writes what the others need
// for the step, the rest of the ranks apply it: transfers, changes of the tables, slots. All pools
// have as many blocks as the smallest one can hold.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_KVRANKS_H
#define LATHE_RUNTIME_KVRANKS_H

#include "lathe/runtime/KvCache.h"

namespace lathe::kv {

/// Blocks that every rank can hold; 0 without ranks.
uint32_t commonBlocks(std::span<const engine::KvCapacity> ranks);

/// On the rank that decides.
class DecisionWriter {
public:
  /// For batches of at most `rows` sequences and steps of at most `tokens` tokens.
  DecisionWriter(const Cache &cache, uint32_t rows, uint32_t tokens);

  /// The step as bytes, valid until the next call: the cache's transfers, what changed in the tables
  /// of `batch` since the last call, and `slots`, as many of each group as `tokens` says. Call it
  /// once a step, between reserve() and clearTransfers(), also when the step then rolls back.
  std::span<const uint8_t> write(std::span<const SeqId> batch, const Slots &slots, uint32_t tokens);

private:
  const Cache &cache;
  std::vector<std::vector<int32_t>> tables;
  std::vector<TableWriter> writers;
  std::vector<TableEntry> changes;
  std::vector<uint8_t> bytes;
  uint64_t step = 0;
};

/// Moves bytes in the pool of one rank; called in the order that the device must keep.
class BlockMover {
public:
  virtual ~BlockMover() = default;
  virtual Status swapOut(const SwapCopy &copy) = 0;
  virtual Status swapIn(const SwapCopy &copy) = 0;
  virtual Status copy(const BlockCopy &copy) = 0;
  virtual Status move(const SlotCopy &copy) = 0;
};

/// On every rank, that of the writer included if it likes.
class RankFollower {
public:
  /// `config` is the one of the Cache.
  RankFollower(const Config &config, uint32_t rows, BlockMover &mover);

  /// Checks all of a decision, then performs it. Invalid error, with nothing done, for bytes that
  /// are damaged, out of order, or not meant for this configuration; an error of the mover ends the
  /// rank's part of the step and is returned.
  Status apply(std::span<const uint8_t> decision);

  /// Row i of a group's tables, tableWidth entries.
  std::span<const int32_t> table(uint32_t group, uint32_t row) const;
  /// Slots of the step's tokens.
  std::span<const int32_t> slots(uint32_t group) const { return slotsOf[group]; }
  uint64_t steps() const { return step; }

private:
  const Config config;
  BlockMover &mover;
  uint32_t rows;
  std::vector<uint32_t> widths;
  std::vector<std::vector<int32_t>> tables, slotsOf;
  uint64_t step = 0;
};

} // namespace lathe::kv

#endif // LATHE_RUNTIME_KVRANKS_H
