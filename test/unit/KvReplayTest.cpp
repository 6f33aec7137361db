//===- KvReplayTest.cpp - traces, their optimum, and the KV cache -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Replays small traces of each workload through kv::Cache. Judges are the
// books that the replay keeps, the library's validator, the event log and a
// clairvoyant bound, which is itself judged by trying every choice.
//
//===----------------------------------------------------------------------===//

#include "Optimum.h"
#include "Replay.h"
#include "Workload.h"

#include <gtest/gtest.h>

namespace lathe::kvperf {
namespace {

constexpr kv::Eviction evictions[] = {kv::Eviction::Lru, kv::Eviction::Lfu,
                                      kv::Eviction::Priority};

Trace workload(std::string_view name, uint32_t requests) {
  auto trace = makeWorkload(name, requests, 7);
  EXPECT_TRUE(trace.ok());
  return std::move(*trace);
}

/// A few requests of a few tokens, out of a small stock of segments.
Trace tinyTrace(uint64_t seed) {
  uint64_t state = seed * 7919;
  auto below = [&](uint32_t bound) { return uint32_t(mix(state++) % bound); };
  Trace trace;
  trace.seed = seed;
  std::vector<uint32_t> live;
  for (uint32_t id = 0; id < 6; ++id) {
    Request request;
    for (uint32_t i = 0, count = 1 + below(3); i < count; ++i)
      request.prompt.push_back({i * 4 + below(2), 1 + below(3)});
    request.output = {100 + below(3), below(4)};
    trace.events.push_back({Event::Kind::Begin, id});
    if (request.output.tokens)
      trace.events.push_back({Event::Kind::Append, id, request.output.tokens});
    trace.requests.push_back(std::move(request));
    live.push_back(id);
    while (live.size() > 1 || (id == 5 && !live.empty())) {
      uint32_t i = below(uint32_t(live.size()));
      trace.events.push_back({Event::Kind::Finish, live[i]});
      live.erase(live.begin() + i);
    }
  }
  return trace;
}

TEST(KvReplay, TextOfATraceReadsBack) {
  for (std::string_view name : workloadNames) {
    std::string text = toText(workload(name, 50));
    auto back = parseTrace(text);
    ASSERT_TRUE(back.ok()) << back.status().str();
    EXPECT_EQ(toText(*back), text);
  }
}

TEST(KvReplay, DamagedTracesAreLocatedErrors) {
  const std::string head = "lathe-kv-trace\t1\tx\t1\n", first = "B\t0\t0\t0\t1:4,2:3\t3:5\n";
  for (std::string body : {"B\t1\t0\t0\t1:4\t3:5\n", "B\t0\t0\t0\t\t3:5\n", "B\t0\t0\t0\t1:0\t3:5\n",
                           "A\t0\t1\n", "X\t0\n", "B\t0\t0\t0\t1:4\n", "B\t0\t0\t0\t1:-4\t3:5\n"}) {
    auto trace = parseTrace(head + body);
    ASSERT_FALSE(trace.ok()) << body;
    EXPECT_EQ(trace.status().location(), "line 2") << body;
  }
  for (std::string body : {"A\t0\t6\n", "A\t0\t0\n", "F\t0\nF\t0\n", "F\t0\nA\t0\t1\n"})
    EXPECT_FALSE(parseTrace(head + first + body).ok()) << body;
  EXPECT_FALSE(parseTrace("").ok());
  EXPECT_FALSE(parseTrace("lathe-kv-trace\t2\tx\t1\n").ok());
}

TEST(KvReplay, ClairvoyantIsTheBestOfAllChoices) {
  int worse = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Trace trace = tinyTrace(seed);
    BlockTrace blocks(trace, 2);
    EXPECT_FALSE(idealScore(blocks, blocks.peakHeld - 1, Rule::Clairvoyant).feasible);
    for (uint32_t room = blocks.peakHeld; room < blocks.peakHeld + 4; ++room) {
      Score best = idealScore(blocks, room, Rule::Clairvoyant);
      ASSERT_TRUE(best.feasible);
      EXPECT_EQ(best.hitTokens, exhaustiveHitTokens(blocks, room)) << "seed " << seed;
      uint64_t lru = idealScore(blocks, room, Rule::Lru).hitTokens;
      EXPECT_LE(lru, best.hitTokens);
      worse += lru < best.hitTokens;
    }
  }
  EXPECT_GT(worse, 0) << "traces on which any choice is the best one judge nothing";
}

class KvReplayOf : public testing::TestWithParam<std::string_view> {};

TEST_P(KvReplayOf, NoPolicyBeatsTheOptimumAndCountersEqualRecounts) {
  Trace trace = workload(GetParam(), 100);
  BlockTrace blocks(trace, 16);
  for (double factor : {1.1, 2.0}) {
    ReplayOptions options;
    options.blocks = uint32_t(blocks.peakHeld * factor) + 8;
    options.recountEvery = 400;
    options.validate = true;
    uint64_t best = idealScore(blocks, options.blocks, Rule::Clairvoyant).hitTokens;
    for (kv::Eviction eviction : evictions) {
      options.eviction = eviction;
      auto outcome = replay(trace, options);
      ASSERT_TRUE(outcome.ok()) << outcome.status().str();
      EXPECT_LE(outcome->hitTokens, best);
      EXPECT_EQ(outcome->queryTokens, blocks.queriedTokens);
      EXPECT_GT(outcome->recounts, 1u);
    }
  }
}

TEST_P(KvReplayOf, WithRoomForAllEveryPolicyIsOptimal) {
  Trace trace = workload(GetParam(), 100);
  BlockTrace blocks(trace, 16);
  uint64_t best = idealScore(blocks, UINT32_MAX, Rule::Clairvoyant).hitTokens;
  EXPECT_GT(best, blocks.queriedTokens / 4);
  ReplayOptions options;
  options.blocks = blocks.nodeCount + blocks.peakHeld;
  for (kv::Eviction eviction : evictions) {
    options.eviction = eviction;
    auto outcome = replay(trace, options);
    ASSERT_TRUE(outcome.ok()) << outcome.status().str();
    EXPECT_EQ(outcome->hitTokens, best);
    EXPECT_EQ(outcome->counters.evictedBlocks, 0u);
  }
  auto nano = replayNano(trace, options.blocks, 16);
  ASSERT_TRUE(nano.ok()) << nano.status().str();
  EXPECT_EQ(nano->hitTokens, best);
}

TEST_P(KvReplayOf, TheSameTraceGivesTheSameEvents) {
  Trace trace = workload(GetParam(), 100);
  BlockTrace blocks(trace, 16);
  std::vector<uint8_t> first, second;
  for (std::vector<uint8_t> *events : {&first, &second}) {
    ReplayOptions options;
    options.blocks = blocks.peakHeld + blocks.peakHeld / 4;
    options.events = events;
    auto outcome = replay(trace, options);
    ASSERT_TRUE(outcome.ok()) << outcome.status().str();
    EXPECT_GT(outcome->counters.evictedBlocks, 0u);
    auto read = kv::parseEvents(*events);
    ASSERT_TRUE(read.ok()) << read.status().str();
    EXPECT_EQ(read->size(), outcome->counters.events);
  }
  EXPECT_EQ(first, second);
}

INSTANTIATE_TEST_SUITE_P(Workloads, KvReplayOf, testing::ValuesIn(workloadNames),
                         [](const auto &info) { return std::string(info.param); });

TEST(KvReplay, ChatLengthsWasteLittle) {
  Trace trace = workload("lengths", 1000);
  ReplayOptions options;
  options.blocks = BlockTrace(trace, 16).peakHeld * 2;
  options.recountEvery = 200;
  auto outcome = replay(trace, options);
  ASSERT_TRUE(outcome.ok()) << outcome.status().str();
  EXPECT_LE(outcome->waste(), 0.02);
  EXPECT_GT(outcome->waste(), 0.005) << "tails of half a block cannot vanish";
}

TEST(KvReplay, APoolSmallerThanWhatIsLiveIsARefusal) {
  Trace trace = workload("thrash", 60);
  ReplayOptions options;
  options.blocks = BlockTrace(trace, 16).peakHeld - 1;
  auto outcome = replay(trace, options);
  ASSERT_FALSE(outcome.ok());
  EXPECT_NE(outcome.status().code(), ErrorCode::Internal) << outcome.status().str();
}

} // namespace
} // namespace lathe::kvperf
