//===- KvModel.cpp - a KV cache against a naive model -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "KvModel.h"

#include "../../runtime/memory/kv/Faults.h"

#include <algorithm>
#include <map>

namespace lathe::kv {

using engine::KvGroupKind;

Model::Model(const Config &c, uint64_t seed)
    : config(c), blockTokens(c.groups[0].layout.blockTokens), random(seed) {
  Result<std::unique_ptr<Cache>> made = Cache::create(c);
  if (!made) {
    failure = made.status().str();
    return;
  }
  cache = std::move(*made);
  memory.assign(size_t(c.blocks) * blockTokens, 0);
  hostMemory.assign(size_t(c.hostBlocks) * blockTokens, 0);
  const std::string_view parts[][2] = {{"adapter", "a"}, {"adaptera", ""}};
  spaces.push_back(0);
  for (const auto &p : parts) {
    SpaceId space = 0;
    if (!cache->openSpace(p, space).ok())
      fail("openSpace");
    spaces.push_back(space);
  }
  // Prompts that share beginnings, one with a key in it.
  Token key = 0;
  if (!cache->internKey("an image", key).ok())
    fail("internKey");
  for (int i = 0; i < 6; ++i) {
    std::vector<Token> p;
    if (i) {
      const std::vector<Token> &from = prompts[below(uint32_t(i))];
      p.assign(from.begin(), from.begin() + below(uint32_t(from.size())));
    }
    while (p.size() < c.maxSequenceTokens)
      p.push_back(chance(2) ? key : someToken());
    prompts.push_back(std::move(p));
  }
  tableRows.resize(c.maxSequences, kNoSequence);
  tableMemory.resize(c.groups.size());
  for (uint32_t g = 0; g < c.groups.size(); ++g) {
    uint32_t stride = cache->tableWidth(g) + 1;
    tableMemory[g].assign(size_t(stride) * c.maxSequences, -7);
    writers.emplace_back(*cache, g, tableMemory[g].data(), c.maxSequences, stride);
  }
}

void Model::fail(const std::string &what) {
  if (failure.empty())
    failure = "operation " + std::to_string(operations) + ": " + what;
}

bool Model::fails(const char *what, uint64_t got, uint64_t want) {
  if (got != want)
    fail(std::string(what) + ": " + std::to_string(got) + ", not " + std::to_string(want));
  return got != want;
}

uint64_t Model::next(uint64_t print, Token t) {
  uint64_t x = (print ^ t) * 0x9e3779b97f4a7c15 + 0x632be59bd9b4e019;
  x ^= x >> 29;
  return x * 0xbf58476d1ce4e5b9 ^ x >> 32;
}

void Model::extend(Sequence &q, const Token *t, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    q.prints.push_back(next(q.prints.empty() ? uint64_t(q.space + 1) : q.prints.back(), t[i]));
    q.kept.push_back(uint32_t(q.tokens.size()));
    q.tokens.push_back(t[i]);
  }
  q.longest = std::max(q.longest, q.tokens.size());
}

std::vector<Token> Model::somePrompt() {
  std::vector<Token> p = prompts[below(uint32_t(prompts.size()))];
  p.resize(1 + below(uint32_t(p.size()) - 1));
  for (uint32_t i = below(6); i-- > 0 && p.size() < config.maxSequenceTokens;)
    p.push_back(someToken());
  return p;
}

template <typename Fn> Model::Sequence *Model::pick(Fn fits) {
  std::vector<Sequence *> found;
  for (auto &q : sequences)
    if (fits(*q))
      found.push_back(q.get());
  return found.empty() ? nullptr : found[below(uint32_t(found.size()))];
}

void Model::touch(Sequence &q) {
  if (!q.before)
    q.before = std::make_shared<Sequence>(q);
}

//===--- The device -------------------------------------------------------===//

void Model::perform() {
  Transfers t = cache->transfers();
  auto copy = [&](uint64_t *to, const uint64_t *from, uint32_t n) { std::copy_n(from, n, to); };
  for (const SwapCopy &c : t.swapOuts)
    copy(&hostMemory[c.host * blockTokens], &memory[c.device * blockTokens], blockTokens);
  for (const SwapCopy &c : t.swapIns)
    copy(&memory[c.device * blockTokens], &hostMemory[c.host * blockTokens], blockTokens);
  for (const BlockCopy &c : t.copies) {
    std::fill_n(&memory[c.to * blockTokens], blockTokens, 0xbad);
    copy(&memory[c.to * blockTokens], &memory[c.from * blockTokens], c.tokens);
  }
  for (const SlotCopy &c : t.moves)
    memory[c.to] = memory[c.from];
  cache->clearTransfers();
}

/// Each sequence of the step writes its new tokens where the slots say.
void Model::runKernels(bool garbage) {
  for (auto &q : sequences) {
    if (q->pending.empty())
      continue;
    Sequence with = *q;
    extend(with, q->pending.data(), q->pending.size());
    for (uint32_t g = 0; g < config.groups.size(); ++g) {
      if (config.groups[g].kind == KvGroupKind::State) {
        std::span<const BlockId> row = cache->table(q->id, g);
        if (!q->tokens.empty() && memory[row[0] * blockTokens] !=
                                      print(*q, g, uint32_t(q->tokens.size()) - 1))
          return fail("a step reads a wrong state");
        memory[row[1] * blockTokens] =
            garbage ? 0xbad : print(with, g, uint32_t(with.tokens.size()) - 1);
      } else if (config.groups[g].kind != KvGroupKind::Shared) {
        for (size_t i = 0; i < q->pending.size(); ++i)
          memory[uint32_t(q->slots[g][i])] =
              garbage ? 0xbad : print(with, g, uint32_t(q->tokens.size() + i));
      }
    }
  }
}

//===--- Calls ------------------------------------------------------------===//

void Model::open() {
  SequenceOptions o;
  auto q = std::make_unique<Sequence>();
  q->space = int(below(uint32_t(spaces.size())));
  o.space = spaces[size_t(q->space)];
  o.cache = q->cache = !chance(8);
  o.priority = uint8_t(below(5) * 25);
  Outcome outcome = cache->open(o, q->id);
  bool full = sequences.size() == config.maxSequences;
  if (fails("open", uint64_t(outcome.code), uint64_t(full ? Code::NoSequences : Code::Ok)) || full)
    return;
  if (chance(85))
    q->todo = somePrompt();
  sequences.push_back(std::move(q));
}

void Model::close() {
  Sequence *q = pick([](const Sequence &) { return true; });
  if (!q)
    return;
  Outcome o = cache->close(q->id);
  if (q->closing) {
    fails("close twice", uint64_t(o.code), uint64_t(Code::BadSequence));
    return;
  }
  fails("close", uint64_t(o.code), 0);
  if (q->touched || !q->pending.empty()) {
    q->closing = true;
    return;
  }
  std::erase_if(sequences, [&](const auto &x) { return x.get() == q; });
}

void Model::fork() {
  Sequence *q = pick([](const Sequence &) { return true; });
  if (!q)
    return;
  auto child = std::make_unique<Sequence>();
  Snapshot before = cache->snapshot();
  Outcome o = cache->fork(q->id, child->id);
  const Snapshot::Sequence &known = before.sequences[q->id & 0xffff];
  bool waits = known.cache && (known.indexed + 1) * blockTokens <= q->tokens.size();
  Code want = q->closing || q->swapped                     ? Code::BadSequence
              : q->touched || !q->pending.empty() || waits ? Code::Busy
              : sequences.size() == config.maxSequences ? Code::NoSequences
                                                        : Code::Ok;
  if (fails("fork", uint64_t(o.code), uint64_t(want)))
    return;
  if (!o.ok())
    return refused("fork", o, before);
  SeqId id = child->id;
  *child = *q;
  child->id = id;
  child->todo.clear();
  sequences.push_back(std::move(child));
}

void Model::truncate() {
  Sequence *q = pick([](const Sequence &x) { return !x.tokens.empty(); });
  if (!q)
    return;
  uint32_t length = uint32_t(q->tokens.size());
  uint32_t to = chance(60) ? length - std::min(length, below(5)) : below(length + 2);
  Snapshot before = cache->snapshot();
  Outcome o = cache->truncate(q->id, to);
  if (o.code == Code::OutOfWindow) {
    // Only where tokens were given up: never within the slack, never with Full groups alone.
    bool may = false;
    for (const engine::KvGroup &g : config.groups)
      may |= (g.kind == KvGroupKind::Window && (to + g.slack < q->longest || to < q->attached)) ||
             (g.kind == KvGroupKind::State && to != length);
    if (!may)
      fail("truncate lost tokens of the window");
    return refused("truncate", o, before);
  }
  Code want = q->closing || q->swapped            ? Code::BadSequence
              : q->touched || !q->pending.empty() ? Code::Busy
              : to > length                       ? Code::BadArgument
                                                  : Code::Ok;
  if (fails("truncate", uint64_t(o.code), uint64_t(want)))
    return;
  if (!o.ok())
    return refused("truncate", o, before);
  q->tokens.resize(to);
  q->prints.resize(to);
  while (!q->kept.empty() && q->kept.back() >= to)
    q->kept.pop_back();
  q->draft = 0;
  q->todo.clear();
}

void Model::preempt() {
  Sequence *q = pick([](const Sequence &) { return true; });
  if (!q)
    return;
  Preempt how = config.hostBlocks && chance(60) ? Preempt::Swap : Preempt::Recompute;
  Snapshot before = cache->snapshot();
  Outcome o = cache->preempt(q->id, how);
  if (how == Preempt::Swap && (o.code == Code::NoHostBlocks || o.code == Code::TransfersPending)) {
    if (o.code == Code::NoHostBlocks && o.needed <= o.available)
      fail("preempt refused without need");
    return refused("preempt", o, before);
  }
  bool gone = q->closing || (q->swapped && how == Preempt::Swap);
  Code want = gone                                ? Code::BadSequence
              : q->touched || !q->pending.empty() ? Code::Busy
                                                  : Code::Ok;
  if (fails("preempt", uint64_t(o.code), uint64_t(want)))
    return;
  if (!o.ok())
    return refused("preempt", o, before);
  if (how == Preempt::Swap) {
    q->swapped = true;
    return;
  }
  q->todo = q->tokens;
  if (q->todo.empty())
    q->todo = somePrompt();
  q->tokens.clear();
  q->prints.clear();
  q->kept.clear();
  q->compacted = q->swapped = false;
  q->draft = 0;
  q->attached = q->longest = 0;
  q->preempted = true;
}

void Model::attach() {
  Sequence *q = pick([](const Sequence &x) { return x.tokens.empty() && !x.todo.empty(); });
  if (!q)
    return;
  std::vector<Token> prompt = q->todo;
  uint32_t hit = 0;
  Snapshot before = cache->snapshot();
  uint32_t want = q->closing || q->swapped || q->touched || !q->pending.empty() || !q->cache
                      ? 0
                      : expectedHit(before, *q, prompt);
  Outcome o = cache->attach(q->id, prompt, hit);
  if (o.code != Code::Injected)
    checkEvictions(before);
  if (o.code == Code::Injected)
    return refused("attach", o, before);
  Code code = q->closing || q->swapped            ? Code::BadSequence
              : q->touched || !q->pending.empty() ? Code::Busy
                                                  : Code::Ok;
  if (fails("attach", uint64_t(o.code), uint64_t(code)))
    return;
  if (!o.ok())
    return refused("attach", o, before);
  if (hit >= prompt.size())
    return fail("a hit of the whole prompt");
  if (fails("hit", hit, want))
    return;
  touch(*q);
  q->touched = true;
  (q->preempted ? stepRequeries : stepQueries) += prompt.size();
  (q->preempted ? stepRehits : stepHits) += hit;
  q->preempted = false;
  extend(*q, prompt.data(), hit);
  q->attached = q->longest = hit;
  q->todo.erase(q->todo.begin(), q->todo.begin() + hit);
}

void Model::resume() {
  Sequence *q = pick([](const Sequence &x) { return x.swapped; });
  if (!q)
    return;
  Snapshot before = cache->snapshot();
  Outcome o = cache->resume(q->id);
  if (o.code != Code::Injected)
    checkEvictions(before);
  if (o.code == Code::Injected || (o.code == Code::NoBlocks && o.needed > o.available))
    return refused("resume", o, before);
  if (fails("resume", uint64_t(o.code), uint64_t(q->closing ? Code::BadSequence : Code::Ok)))
    return;
  if (!o.ok())
    return refused("resume", o, before);
  touch(*q);
  q->swapped = false;
  q->touched = true;
}

void Model::reserve() {
  std::vector<Append> requests;
  std::vector<Sequence *> named;
  std::vector<Token> tokens;
  bool valid = true;
  bool states = std::any_of(config.groups.begin(), config.groups.end(),
                            [](const auto &g) { return g.kind == KvGroupKind::State; });
  for (uint32_t i = 1 + below(4); i-- > 0;) {
    Sequence *q = pick([&](const Sequence &x) {
      return std::find(named.begin(), named.end(), &x) == named.end() &&
             (x.pending.empty() || chance(2));
    });
    if (!q)
      break;
    uint32_t most = std::min(config.maxStepTokens,
                             config.maxSequenceTokens - uint32_t(q->tokens.size()));
    uint32_t n = chance(60) ? 1 : chance(60) ? 1 + below(12) : 1 + below(config.maxStepTokens);
    if (!q->todo.empty() && chance(70))
      n = uint32_t(q->todo.size());
    n = chance(2) ? n : std::min(n, most);
    if (n == 0 && !chance(5))
      continue;
    Append r{q->id, n, chance(12) ? below(n + 1) : 0};
    if (states && !chance(3))
      r.draft = 0;
    valid &= n > 0 && n <= most && q->pending.empty() && !q->swapped && !q->closing &&
             !(states && r.draft);
    for (uint32_t j = 0; j < n; ++j)
      tokens.push_back(j < q->todo.size() ? q->todo[j] : someToken());
    requests.push_back(r);
    named.push_back(q);
  }
  if (requests.empty())
    return;
  Slots slots;
  std::vector<int32_t> out[kMaxGroups];
  for (uint32_t g = 0; g < config.groups.size(); ++g) {
    out[g].assign(tokens.size(), -1);
    slots.slots[g] = out[g].data();
  }
  Snapshot before = cache->snapshot();
  uint32_t need = neededBlocks(before, requests), have = cache->availableBlocks();
  Outcome o = cache->reserve(requests, tokens, slots);
  if (o.code != Code::Injected)
    checkEvictions(before);
  if (!o.ok()) {
    if (valid && o.code != Code::Injected &&
        (fails("reserve", uint64_t(o.code), uint64_t(Code::NoBlocks)) ||
         fails("reserve needs", o.needed > o.available, 1) || fails("enough", need > have, 1)))
      return;
    return refused("reserve", o, before);
  }
  if (!valid)
    return fail("reserve took an invalid request");
  if (need > have)
    return fail("reserve found more blocks than there are");
  size_t at = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    Sequence &q = *named[i];
    touch(q);
    uint32_t n = requests[i].tokens;
    q.pending.assign(tokens.begin() + ptrdiff_t(at), tokens.begin() + ptrdiff_t(at + n));
    q.nextDraft = requests[i].draft;
    q.todo.erase(q.todo.begin(), q.todo.begin() + std::min<size_t>(n, q.todo.size()));
    for (uint32_t g = 0; g < config.groups.size(); ++g) {
      uint32_t target = config.groups[g].kind == KvGroupKind::Shared ? config.groups[g].sharesWith : g;
      if (config.groups[target].kind == KvGroupKind::State)
        continue;
      q.slots[g].assign(out[g].begin() + ptrdiff_t(at), out[g].begin() + ptrdiff_t(at + n));
      std::span<const BlockId> row = cache->table(q.id, g);
      bool full = config.groups[target].kind == KvGroupKind::Full;
      uint32_t sinks = before.sinkBlocks[target], ring = before.ringBlocks[target];
      for (uint32_t j = 0; j < n; ++j) {
        uint32_t index = uint32_t(full ? q.kept.size() : q.tokens.size()) + j;
        uint32_t b = index / blockTokens;
        uint32_t entry = full || b < sinks ? b : sinks + (b - sinks) % ring;
        if (fails("slot", uint64_t(q.slots[g][j]),
                  entry < row.size() ? row[entry] * blockTokens + index % blockTokens : ~0ull))
          return;
      }
    }
    at += n;
  }
}

void Model::drop() {
  Sequence *q = pick([](const Sequence &x) { return x.kept.size() > 2; });
  if (!q)
    return;
  // What a policy would do: the first ones, the last ones, and the best of the others.
  std::vector<float> scores(q->kept.size());
  for (float &x : scores)
    x = float(below(10));
  std::vector<uint32_t> scratch(scores.size()), kept(scores.size());
  kept.resize(selectTokens(scores, 1 + below(uint32_t(scores.size())), below(3), below(4), scratch,
                           kept));
  bool full = std::all_of(config.groups.begin(), config.groups.end(), [](const auto &g) {
    return g.kind == KvGroupKind::Full || g.kind == KvGroupKind::Shared;
  });
  Snapshot before = cache->snapshot();
  Outcome o = cache->drop(q->id, kept);
  if (o.code != Code::Injected)
    checkEvictions(before);
  if (o.code == Code::Injected || (o.code == Code::NoBlocks && o.needed > o.available))
    return refused("drop", o, before);
  Code want = q->closing || q->swapped            ? Code::BadSequence
              : q->touched || !q->pending.empty() ? Code::Busy
              : !full                             ? Code::Unsupported
              : q->draft                          ? Code::BadArgument
                                                  : Code::Ok;
  if (fails("drop", uint64_t(o.code), uint64_t(want)))
    return;
  if (!o.ok())
    return refused("drop", o, before);
  touch(*q);
  q->touched = q->compacted = true;
  std::vector<uint32_t> positions;
  for (uint32_t i : kept)
    positions.push_back(q->kept[i]);
  q->kept = std::move(positions);
}

void Model::pin() {
  if (!pins.empty() && chance(50)) {
    size_t i = below(uint32_t(pins.size()));
    fails("unpin", uint64_t(cache->unpin(pins[i].id).code), 0);
    pins.erase(pins.begin() + ptrdiff_t(i));
    return;
  }
  if (pins.size() == 2)
    return;
  Pin p{0, int(below(uint32_t(spaces.size()))), somePrompt(), 0};
  p.prompt.resize(std::min<size_t>(p.prompt.size(), 3 * blockTokens + 1));
  Outcome o = cache->pin(spaces[size_t(p.space)], p.prompt, p.id, p.pinned);
  fails("pin", uint64_t(o.code), uint64_t(stepIsOpen ? Code::StepOpen : Code::Ok));
  if (o.ok() && p.pinned)
    pins.push_back(std::move(p));
}

/// Calls that are wrong whatever the state: refused, and without effect.
void Model::misuse() {
  Snapshot before = cache->snapshot();
  SeqId bad = 0xffff0000u | below(config.maxSequences), child;
  uint32_t hit;
  const Token tokens[2] = {1, 2};
  Append wrong[] = {{bad, 1, 0}};
  Outcome outcomes[] = {cache->close(bad),
                        cache->fork(bad, child),
                        cache->truncate(bad, 0),
                        cache->preempt(bad, Preempt::Recompute),
                        cache->attach(bad, tokens, hit),
                        cache->resume(bad),
                        cache->reserve(wrong, {tokens, 1}),
                        cache->reserve({}, tokens),
                        cache->drop(bad, {}),
                        cache->unpin(12345),
                        cache->open({999, 35, true}, child),
                        stepIsOpen ? cache->begin() : cache->commit()};
  for (const Outcome &o : outcomes)
    if (o.ok())
      return fail("a wrong call was taken");
  refused("misuse", outcomes[0], before);
}

void Model::finish(bool commit) {
  bool reached = commit || chance(50);
  if (reached) {
    perform();
    runKernels(!commit);
  }
  Outcome o = commit ? cache->commit() : cache->rollback();
  stepIsOpen = false;
  if (fails(commit ? "commit" : "rollback", uint64_t(o.code), 0))
    return;
  perform();
  for (auto &q : sequences) {
    if (!commit && q->before) {
      SeqId id = q->id;
      bool closing = q->closing;
      Sequence old = *q->before;
      *q = std::move(old);
      q->id = id;
      q->closing = closing;
    } else if (!q->pending.empty()) {
      extend(*q, q->pending.data(), q->pending.size());
      appended += q->pending.size();
      q->draft = q->nextDraft;
    }
    q->pending.clear();
    q->touched = false;
    q->before.reset();
  }
  if (commit) {
    queries += stepQueries;
    hits += stepHits;
    requeries += stepRequeries;
    rehits += stepRehits;
  }
  stepQueries = stepHits = stepRequeries = stepRehits = 0;
  std::erase_if(sequences, [](const auto &q) { return q->closing; });
}

//===--- The run ----------------------------------------------------------===//

std::string Model::run(long count, int every, bool inject) {
  for (long end = operations + count; operations < end && failure.empty(); ++operations) {
#ifdef LATHE_KV_TEST_HOOKS
    if (inject && stepIsOpen && chance(8))
      failAfter = below(4);
#endif
    uint32_t r = below(100);
    if (!stepIsOpen) {
      if (r < 40) {
        fails("begin", uint64_t(cache->begin().code), 0);
        stepIsOpen = true;
      } else if (r < 55) {
        open();
      } else if (r < 63) {
        close();
      } else if (r < 72) {
        fork();
      } else if (r < 83) {
        truncate();
      } else if (r < 88) {
        preempt();
        perform();
      } else if (r < 97) {
        pin();
      } else if (r < 98) {
        cache->clearCache();
      } else {
        misuse();
      }
    } else {
      if (r < 8)
        open();
      else if (r < 25)
        attach();
      else if (r < 58)
        reserve();
      else if (r < 63)
        resume();
      else if (r < 67)
        drop();
      else if (r < 70)
        close();
      else if (r < 73)
        truncate();
      else if (r < 76)
        fork();
      else if (r < 79)
        preempt();
      else if (r < 81)
        perform();
      else if (r < 82)
        misuse();
      else if (r < 83)
        pin();
      else
        finish(!chance(25));
    }
#ifdef LATHE_KV_TEST_HOOKS
    failAfter = -1;
#endif
    if (failure.empty() && operations % every == 0)
      check(true);
  }
  if (failure.empty() && stepIsOpen)
    finish(true);
  if (failure.empty())
    check(true);
  last = cache ? cache->counters() : Counters{};
  return failure;
}

} // namespace lathe::kv
