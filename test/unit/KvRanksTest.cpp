//===- KvRanksTest.cpp - ranks that follow one decision ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "lathe/runtime/KvRanks.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <random>

using namespace lathe;
using namespace lathe::kv;
using testing::HasSubstr;

namespace {

constexpr uint32_t kBlockTokens = 8;

/// A rank's memory: one number for each slot, different on each rank.
struct Pool : BlockMover {
  std::vector<uint64_t> device, host;
  long moved = 0;
  explicit Pool(const Config &c)
      : device(c.blocks * kBlockTokens), host(c.hostBlocks * kBlockTokens) {}
  Status swapOut(const SwapCopy &s) override {
    std::copy_n(&device[s.device * kBlockTokens], kBlockTokens, &host[s.host * kBlockTokens]);
    return done();
  }
  Status swapIn(const SwapCopy &s) override {
    std::copy_n(&host[s.host * kBlockTokens], kBlockTokens, &device[s.device * kBlockTokens]);
    return done();
  }
  Status copy(const BlockCopy &b) override {
    std::copy_n(&device[b.from * kBlockTokens], b.tokens, &device[b.to * kBlockTokens]);
    return done();
  }
  Status move(const SlotCopy &s) override {
    device[s.to] = device[s.from];
    return done();
  }
  Status done() {
    ++moved;
    return okStatus();
  }
};

Config config() {
  Config c;
  c.groups[0].layout.blockTokens = kBlockTokens;
  c.blocks = 48;
  c.hostBlocks = 24;
  c.maxSequences = 8;
  c.maxSequenceTokens = 160;
  c.maxStepTokens = 64;
  return c;
}

uint64_t content(const std::vector<Token> &tokens, size_t position, uint64_t rank) {
  uint64_t h = rank + 1;
  for (size_t i = 0; i <= position; ++i)
    h = (h ^ tokens[i]) * 0x9e3779b97f4a7c15 + (h >> 31);
  return h;
}

TEST(KvRanks, PoolsFollowOneDecision) {
  Config c = config();
  auto made = Cache::create(c);
  ASSERT_TRUE(made) << made.status().str();
  Cache &cache = **made;
  DecisionWriter writer(cache, 8, 512);
  Pool pools[3] = {Pool(c), Pool(c), Pool(c)};
  std::vector<std::unique_ptr<RankFollower>> ranks;
  for (Pool &p : pools)
    ranks.push_back(std::make_unique<RankFollower>(c, 8, p));

  std::mt19937 random(3);
  std::vector<SeqId> running;
  std::map<SeqId, std::vector<Token>> texts;
  long committed = 0;
  for (int round = 0; round < 1500; ++round) {
    if (running.size() < 6) {
      SeqId s;
      ASSERT_TRUE(cache.open({}, s).ok());
      running.push_back(s);
      texts[s] = {};
    }
    if (random() % 10 == 0) {
      size_t i = random() % running.size();
      ASSERT_TRUE(cache.close(running[i]).ok());
      running.erase(running.begin() + ptrdiff_t(i));
    }
    SeqId child;
    if (running.size() < 6 && !running.empty() && random() % 4 == 0 &&
        cache.fork(running[0], child).ok()) {
      running.push_back(child);
      texts[child] = texts[running[0]];
    }
    ASSERT_TRUE(cache.begin().ok());
    std::vector<Append> requests;
    std::vector<Token> tokens;
    std::vector<SeqId> batch;
    std::map<SeqId, std::vector<Token>> after;
    for (SeqId s : running) {
      after[s] = texts[s];
      if (cache.isSwapped(s) && !cache.resume(s).ok())
        continue;
      if (after[s].empty()) {
        std::vector<Token> prompt(9 + random() % 50);
        uint32_t kind = uint32_t(random() % 3);
        for (size_t i = 0; i < prompt.size(); ++i)
          prompt[i] = uint32_t(i) * (kind + 1);
        uint32_t hit = 0;
        ASSERT_TRUE(cache.attach(s, prompt, hit).ok());
        after[s].assign(prompt.begin(), prompt.begin() + hit);
      }
      uint32_t n = uint32_t(1 + random() % 12);
      if (after[s].size() + n > c.maxSequenceTokens)
        continue;
      requests.push_back({s, n, 0});
      batch.push_back(s);
      for (uint32_t i = 0; i < n; ++i)
        tokens.push_back(uint32_t(random() % 3));
    }
    std::vector<int32_t> slots(tokens.size());
    Slots out;
    out.slots[0] = slots.data();
    if (!cache.reserve(requests, tokens, out).ok()) {
      ASSERT_TRUE(cache.rollback().ok());
      cache.clearTransfers();
      ASSERT_TRUE(cache.preempt(running.back(), Preempt::Recompute).ok());
      texts[running.back()].clear();
      continue;
    }
    std::vector<uint8_t> decision;
    {
      auto bytes = writer.write(batch, out, uint32_t(tokens.size()));
      decision.assign(bytes.begin(), bytes.end());
    }
    for (size_t r = 0; r < ranks.size(); ++r) {
      Status status = ranks[r]->apply(decision);
      ASSERT_TRUE(status.ok()) << status.str();
      ASSERT_TRUE(std::equal(slots.begin(), slots.end(), ranks[r]->slots(0).begin()));
      size_t at = 0;
      for (size_t i = 0; i < batch.size(); ++i) {
        std::span<const BlockId> row = cache.table(batch[i], 0);
        std::span<const int32_t> own = ranks[r]->table(0, uint32_t(i));
        ASSERT_TRUE(std::equal(row.begin(), row.end(), own.begin(),
                               [](BlockId a, int32_t b) { return int32_t(a) == b; }));
        std::vector<Token> whole = after[batch[i]];
        for (uint32_t j = 0; j < requests[i].tokens; ++j, ++at) {
          whole.push_back(tokens[at]);
          pools[r].device[size_t(ranks[r]->slots(0)[at])] =
              content(whole, whole.size() - 1, r);
        }
        for (size_t p = 0; p < whole.size(); ++p)
          ASSERT_EQ(pools[r].device[size_t(own[p / kBlockTokens]) * kBlockTokens +
                                    p % kBlockTokens],
                    content(whole, p, r))
              << "rank " << r << ", position " << p << ", round " << round;
      }
    }
    cache.clearTransfers();
    if (random() % 5 == 0) {
      ASSERT_TRUE(cache.rollback().ok());
      continue;
    }
    ASSERT_TRUE(cache.commit().ok());
    ++committed;
    size_t at = 0;
    for (size_t i = 0; i < batch.size(); ++i)
      for (uint32_t j = 0; j < requests[i].tokens; ++j)
        after[batch[i]].push_back(tokens[at++]);
    for (SeqId s : running)
      if (!cache.isSwapped(s))
        texts[s] = after[s];
    // A swap between the steps is in the next decision.
    size_t victim = random() % running.size();
    if (random() % 6 == 0 && running.size() > 2 && cache.length(running[victim])) {
      if (cache.preempt(running[victim], Preempt::Swap).ok()) {
        auto bytes = writer.write({}, {}, 0);
        for (auto &rank : ranks)
          ASSERT_TRUE(rank->apply(bytes).ok());
        cache.clearTransfers();
      }
    }
  }
  EXPECT_GT(committed, 200);
  EXPECT_GT(pools[0].moved, 50);
  EXPECT_GT(cache.counters().rehitQueryTokens + cache.counters().offloadedBlocks, 0u);
}

TEST(KvRanks, DamagedDecisionsDoNothing) {
  Config c = config();
  auto made = Cache::create(c);
  ASSERT_TRUE(made);
  Cache &cache = **made;
  SeqId s;
  ASSERT_TRUE(cache.open({}, s).ok());
  Append a{s, 20, 0};
  std::vector<Token> t(20, 1);
  int32_t slots[20];
  Slots out;
  out.slots[0] = slots;
  ASSERT_TRUE(cache.begin().ok());
  ASSERT_TRUE(cache.reserve({&a, 1}, t, out).ok());
  DecisionWriter writer(cache, 8, 64);
  auto bytes = writer.write({&s, 1}, out, 20);
  std::vector<uint8_t> good(bytes.begin(), bytes.end());
  Pool pool(c);
  RankFollower rank(c, 8, pool);
  for (size_t i = 0; i < good.size(); ++i) {
    std::vector<uint8_t> bad = good;
    bad[i] ^= 1 << i % 8;
    EXPECT_FALSE(rank.apply(bad).ok());
    EXPECT_FALSE(rank.apply(std::span(good).first(i)).ok());
  }
  EXPECT_EQ(rank.steps(), 0u);
  EXPECT_EQ(rank.table(0, 0)[0], int32_t(kNoBlock));
  ASSERT_TRUE(rank.apply(good).ok());
  EXPECT_EQ(rank.table(0, 0)[2], int32_t(cache.table(s, 0)[2]));
  EXPECT_THAT(rank.apply(good).str(), HasSubstr("applied before"));

  // A rank with a smaller pool than was agreed on refuses.
  Config less = c;
  less.blocks = 2;
  RankFollower poor(less, 8, pool);
  EXPECT_THAT(poor.apply(good).str(), HasSubstr("does not have"));
}

TEST(KvRanks, TheSmallestPoolCounts) {
  engine::KvCapacity ranks[3];
  ranks[0].blocks = 100;
  ranks[1].blocks = 80;
  ranks[2].blocks = 90;
  EXPECT_EQ(commonBlocks(ranks), 80u);
  EXPECT_EQ(commonBlocks({}), 0u);
}

} // namespace
