//===- KvModel.h - a KV cache against a naive model -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Drives kv::Cache by random calls beside a model that is too simple to be wrong: a sequence is its
// list of tokens, and the memory of the blocks holds for each token a fingerprint of the whole prefix
// up to it. Transfers are performed as a device would. Wrong sharing, a forgotten copy or a stale
// block shows as a wrong fingerprint; everything else is the validator's.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_TEST_UNIT_KVMODEL_H
#define LATHE_TEST_UNIT_KVMODEL_H

#include "lathe/runtime/KvCache.h"
#include "lathe/runtime/KvSnapshot.h"

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace lathe::kv {

class Model {
public:
  Model(const Config &config, uint64_t seed);

  /// `operations` random calls, everything checked after every `every`-th; injects failures when
  /// asked. Empty, or the first thing that was wrong.
  std::string run(long operations, int every, bool inject);
  long done() const { return operations; }
  const Counters &counters() const { return last; }

private:
  struct Sequence {
    SeqId id = kNoSequence;
    int space = 0;
    bool cache = true, swapped = false, preempted = false, compacted = false;
    std::vector<Token> tokens;           ///< by position
    std::vector<uint64_t> prints;        ///< of each prefix
    std::vector<uint32_t> kept;          ///< positions stored
    uint32_t draft = 0;
    size_t attached = 0, longest = 0;    ///< by attach(); ever
    std::vector<Token> todo;             ///< rest of a prompt
    // In the open step:
    bool touched = false, closing = false;
    std::vector<Token> pending;
    uint32_t nextDraft = 0;
    std::vector<int32_t> slots[kMaxGroups];
    std::shared_ptr<Sequence> before;    ///< as it was before the step
  };
  struct Pin {
    PinId id;
    int space;
    std::vector<Token> prompt;
    uint32_t pinned;
  };

  // The calls.
  void open();
  void close();
  void fork();
  void truncate();
  void preempt();
  void attach();
  void resume();
  void reserve();
  void drop();
  void pin();
  void misuse();
  void finish(bool commit);

  // What is checked.
  void check(bool thorough);
  void checkContent(const Snapshot &s);
  void checkTree(const Snapshot &s);
  void checkEvents(const Snapshot &s);
  void checkTables();
  void checkEvictions(const Snapshot &before);
  void refused(const char *call, const Outcome &o, const Snapshot &before);
  uint32_t expectedHit(const Snapshot &s, const Sequence &q, const std::vector<Token> &prompt);
  uint32_t neededBlocks(const Snapshot &s, const std::vector<Append> &requests);

  // The device.
  void perform();
  void runKernels(bool garbage);
  uint64_t print(const Sequence &q, uint32_t group, uint32_t position) const {
    return q.prints[position] + 0x1000003 * (group + 1);
  }

  bool fails(const char *what, uint64_t got, uint64_t want);
  void fail(const std::string &what);
  uint32_t below(uint32_t n) { return n ? uint32_t(random() % n) : 0; }
  bool chance(uint32_t percent) { return below(100) < percent; }
  template <typename Fn> Sequence *pick(Fn fits);
  void touch(Sequence &q);
  void extend(Sequence &q, const Token *t, size_t n);
  static uint64_t next(uint64_t print, Token t);
  std::vector<Token> somePrompt();
  Token someToken() { return below(3); }
  std::vector<Token> blockOf(const std::vector<Token> &tokens, uint32_t b) const {
    return {tokens.begin() + b * blockTokens, tokens.begin() + (b + 1) * blockTokens};
  }

  Config config;
  uint32_t blockTokens;
  std::unique_ptr<Cache> cache;
  std::mt19937_64 random;
  std::vector<std::unique_ptr<Sequence>> sequences;
  std::vector<Pin> pins;
  std::vector<SpaceId> spaces;
  std::vector<std::vector<Token>> prompts;
  std::vector<uint64_t> memory, hostMemory;
  std::vector<std::vector<int32_t>> tableMemory;
  std::vector<TableWriter> writers;
  std::vector<SeqId> tableRows;
  bool stepIsOpen = false, injecting = false;
  long operations = 0;
  uint64_t queries = 0, hits = 0, requeries = 0, rehits = 0, appended = 0;
  uint64_t stepQueries = 0, stepHits = 0, stepRequeries = 0, stepRehits = 0;
  EventView view;
  uint64_t seen = 0;
  Counters last;
  std::string failure;
};

} // namespace lathe::kv

#endif // LATHE_TEST_UNIT_KVMODEL_H
