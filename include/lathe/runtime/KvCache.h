//===- KvCache.h - blocks of keys and values, with reuse --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Decides which block holds which tokens of which sequence; the memory of the blocks is the
// device's business. One thread owns a Cache; counters() and events() may be read by any thread.
//
//   auto cache = *kv::Cache::create(config);
//   kv::SeqId seq;
//   cache->open({}, seq);
//   cache->begin();                               // a step
//   uint32_t hit;
//   cache->attach(seq, prompt, hit);              // takes over cached blocks of the prompt
//   kv::Append rest{seq, prompt.size() - hit};
//   kv::Outcome o = cache->reserve({&rest, 1}, prompt.subspan(hit), slots);
//   ... write the tables, perform transfers(), run the kernels ...
//   cache->clearTransfers();
//   o.ok() ? cache->commit() : cache->rollback(); // all of the step, or nothing of it
//
// The way of a block and the invariants are in runtime/memory/README.md. Nothing between begin()
// and commit() allocates memory.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_KVCACHE_H
#define LATHE_RUNTIME_KVCACHE_H

#include "lathe/runtime/KvEvents.h"
#include "lathe/runtime/KvTypes.h"

#include <memory>
#include <string_view>

namespace lathe::kv {

struct Snapshot;
class Core;

class Cache {
public:
  /// Usage error for a configuration out of range; Unsupported, with the figures, when one
  /// sequence of maxSequenceTokens does not fit into `blocks`.
  static Result<std::unique_ptr<Cache>> create(const Config &config);
  ~Cache();
  Cache(const Cache &) = delete;
  Cache &operator=(const Cache &) = delete;

  const Config &config() const;

  //===--- Spaces and keys (may allocate; not on the step path) ------------===//

  /// The space of these parts (adapter, tenant, salt, ...), the same for the same parts in the same
  /// order. Stays as long as the Cache. NoSpaces beyond maxSpaces.
  Outcome openSpace(std::span<const std::string_view> parts, SpaceId &space);
  /// A token that stands for `content`, e.g. the digest of an image: put it at each position that
  /// the image covers. The same content gives the same token until maxKeys younger contents came;
  /// hashes depend on the content, not on the token. NoSpaces after 2^31 contents.
  Outcome internKey(std::string_view content, Token &token);

  //===--- Sequences (at any time) ----------------------------------------===//

  /// An empty sequence.
  Outcome open(const SequenceOptions &options, SeqId &sequence);
  /// A second sequence with the same tokens that shares all blocks (beams, parallel samples). Busy
  /// when `parent` has a reservation, or drafts that fill a block: truncate() decides those first.
  Outcome fork(SeqId parent, SeqId &child);
  /// Gives up the tokens from `length` on (rejected drafts). With State groups only the present
  /// length is possible, with Window groups `slack` less than the sequence ever had, and not into
  /// what attach() found: otherwise OutOfWindow. All tokens that stay count as accepted.
  Outcome truncate(SeqId sequence, uint32_t length);
  /// Ends a sequence; its full blocks stay cached until they are evicted. With a reservation in the
  /// open step it ends with the step, whichever way that ends.
  Outcome close(SeqId sequence);
  /// Takes all blocks from a sequence, with Recompute also those on the host. Swap lists the copies in transfers(), which must be made even
  /// if an open step rolls back; NoHostBlocks changes nothing. Busy with a reservation.
  Outcome preempt(SeqId sequence, Preempt how);

  //===--- A step: reserve, then commit or roll back ----------------------===//

  /// StepOpen, or TransfersPending.
  Outcome begin();
  /// Lets an empty sequence take over the longest cached prefix of `prompt`, in whole blocks and
  /// at most prompt-1 tokens; `hit` is how many. Blocks of the host tier are listed in swapIns; the
  /// hit ends where no block is left for them.
  Outcome attach(SeqId sequence, std::span<const Token> prompt, uint32_t &hit);
  /// Brings a sequence preempted by Swap back: all its blocks, or NoBlocks.
  Outcome resume(SeqId sequence);
  /// Room for the tokens of all requests, or for none. `tokens` holds the requests' tokens one
  /// after another. The last one of a request may be kUnknownToken; anywhere else that is BadArgument, as is, in a
  /// sequence that caches, a token behind one that was not provided. A sequence may be named once a step. Shared tails are copied (copies). A State
  /// group reads entry 0 of its row (kNoBlock: the zero state) and writes entry 1; with one, drafts
  /// are Unsupported.
  Outcome reserve(std::span<const Append> requests, std::span<const Token> tokens,
                  const Slots &slots = {});
  /// Keeps only the stored tokens whose indices are in `kept`, ascending, at least one. The sequence
  /// moves to private blocks out of the prefix index (moves lists the copy of each token); from then
  /// on a token's index and its position differ: writePositions(). Unsupported with Window or State
  /// groups, BadArgument while drafts are not accepted, Busy after another call in this step.
  Outcome drop(SeqId sequence, std::span<const uint32_t> kept);
  /// Makes the step's reservations the sequences' own and indexes blocks that are full.
  Outcome commit();
  /// What the last token of a sequence is, where it was reserved as kUnknownToken: before the next one is reserved,
  /// and with no step open. A block that it fills is indexed now. BadArgument where the last one is known.
  Outcome provide(SeqId sequence, Token token);
  /// Undoes attach, resume, reserve and drop of the step. Cached content that the step evicted
  /// stays evicted.
  Outcome rollback();
  bool stepIsOpen() const;

  /// Copies to make before the kernels of the step; valid until the next call that is not const.
  Transfers transfers() const;
  /// All transfers were handed to the device (in the order of its stream).
  void clearTransfers();

  //===--- Looking --------------------------------------------------------===//

  /// Tokens of `prompt` that attach() would find now; changes nothing.
  uint32_t peek(SpaceId space, std::span<const Token> prompt) const;
  /// Positions of a sequence: committed and reserved tokens. 0 for a bad handle.
  uint32_t length(SeqId sequence) const;
  uint32_t committedLength(SeqId sequence) const;
  /// Tokens that are stored, reserved ones included: less than length() after drop().
  uint32_t storedTokens(SeqId sequence) const;
  /// The position of each stored token, committed and reserved, ascending; token i lies in slot
  /// table[i / blockTokens] * blockTokens + i % blockTokens. Writes at most out.size() of them,
  /// returns storedTokens(). Without drop() the position of token i is i.
  uint32_t writePositions(SeqId sequence, std::span<uint32_t> out) const;
  bool isSwapped(SeqId sequence) const;
  /// Blocks that can be had without preempting: free and evictable.
  uint32_t availableBlocks() const;
  /// Blocks that reserve() would take for these requests, copies of tails included.
  uint32_t neededBlocks(std::span<const Append> requests) const;

  /// Entries in a row of `group`'s table: Full ceil(maxSequenceTokens / blockTokens), Window
  /// sinks and ring, State 2 (the block to read, the block to write), Shared those of its target.
  uint32_t tableWidth(uint32_t group) const;
  /// Valid entries of a sequence's row. Window: block b of the sequence is entry b when it holds a
  /// sink, otherwise sinkBlocks + (b - sinkBlocks) % ringBlocks.
  uint32_t tableEntries(SeqId sequence, uint32_t group) const;
  /// The row itself (reserved blocks included); kNoBlock where a ring has given its block up. Valid
  /// until the next call that is not const.
  std::span<const BlockId> table(SeqId sequence, uint32_t group) const;

  //===--- Pins ------------------------------------------------------------===//

  /// Keeps the cached whole blocks of `prompt` on the device from eviction; `pinned` is their
  /// tokens. May allocate. 0 tokens found: no pin is made, and Ok. StepOpen during a step.
  Outcome pin(SpaceId space, std::span<const Token> prompt, PinId &pin, uint32_t &pinned);
  Outcome unpin(PinId pin);
  /// Evicts all that is cached and nobody's, on both tiers.
  void clearCache();

  //===--- For other threads, tests and people ----------------------------===//

  /// A consistent copy, as of the last call that was not begin, attach, resume, reserve or drop. Any
  /// thread.
  Counters counters() const;
  const EventLog &events() const;
  /// Walks all tables.
  Fragmentation fragmentation() const;
  /// Everything, for validate() in KvSnapshot.h. Not while a call is in progress.
  Snapshot snapshot() const;

private:
  friend class TableWriter;
  explicit Cache(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core;
};

/// The indices, ascending, of the tokens to keep out of `scores`: the first `sinks`, the last
/// `recent` and those with the largest scores, `budget` in all (ties: the younger). `out` has room
/// for `budget`; returns how many, min(budget, scores.size()). `scratch` has room for scores.size().
uint32_t selectTokens(std::span<const float> scores, uint32_t budget, uint32_t sinks,
                      uint32_t recent, std::span<uint32_t> scratch, std::span<uint32_t> out);

/// An entry that was written: block tables[row][entry] = block.
struct TableEntry {
  uint32_t row, entry;
  int32_t block;
};

/// Writes block tables into the caller's memory (pinned host memory, say), only what changed since
/// this writer's last call. One writer for each group and each copy of the memory.
class TableWriter {
public:
  /// `rows` rows of `stride` entries at `memory` (stride >= tableWidth(group)), which belongs to
  /// the caller and lives longer than the writer. Entries beyond tableEntries are left as they are.
  TableWriter(const Cache &cache, uint32_t group, int32_t *memory, uint32_t rows, uint32_t stride);

  /// Row i becomes the table of batch[i]; returns the count of entries written. Rows beyond the
  /// batch, and those of handles that are closed, stay as they are. `changes` gets each of them.
  uint64_t update(std::span<const SeqId> batch, std::vector<TableEntry> *changes = nullptr);
  /// Forgets what was written: the next update writes everything.
  void reset();

private:
  struct Row {
    SeqId sequence = kNoSequence;
    uint32_t written = 0; ///< blocks of the sequence, not entries
    uint64_t epoch = 0;
  };
  const Core *core;
  uint32_t group;
  int32_t *memory;
  uint32_t stride;
  std::vector<Row> rows;
};

} // namespace lathe::kv

#endif // LATHE_RUNTIME_KVCACHE_H
