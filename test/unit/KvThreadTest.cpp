//===- KvThreadTest.cpp - readers beside the owner of a KV cache -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Built with the thread sanitizer: one thread works, others read counters and events.
//
//===----------------------------------------------------------------------===//

#include "lathe/runtime/KvCache.h"

#include <gtest/gtest.h>
#include <thread>

using namespace lathe::kv;

namespace {

TEST(KvThread, ReadersSeeWholeCountersAndEvents) {
  Config c;
  c.groups[0].layout.blockTokens = 8;
  c.blocks = 64;
  c.maxSequences = 4;
  c.maxSequenceTokens = 128;
  c.eventCapacity = 64; // small: readers are overtaken
  auto made = Cache::create(c);
  ASSERT_TRUE(made) << made.status().str();
  Cache *cache = made->get();
  std::atomic<bool> stop = false, begun = false;
  std::atomic<uint64_t> torn = 0, outOfOrder = 0, readEvents = 0, looks = 0;

  auto countersReader = [&] {
    Counters before;
    while (!stop) {
      Counters now = cache->counters();
      uint64_t blocks = now.freeBlocks + now.evictableBlocks + now.reservedBlocks +
                        now.committedBlocks;
      torn += blocks != c.blocks || now.sequenceTokens > now.sequenceSlots ||
              now.hitTokens > now.queryTokens;
      outOfOrder += now.steps < before.steps || now.events < before.events;
      before = now;
      ++looks;
      begun = true;
    }
  };
  auto eventsReader = [&] {
    std::vector<Event> events(16);
    uint64_t at = 0, lost = 0;
    while (!stop) {
      size_t n = cache->events().read(at, events, lost);
      for (size_t i = 0; i < n; ++i) {
        outOfOrder += events[i].number != at + lost + i;
        torn += events[i].tokens == 0 || events[i].tokens % 8 || events[i].group != 0 ||
                events[i].kind > EventKind::Hit;
      }
      at += lost + n;
      readEvents += n;
    }
  };
  std::thread threads[] = {std::thread(countersReader), std::thread(countersReader),
                           std::thread(eventsReader), std::thread(eventsReader)};
  while (!begun)
    std::this_thread::yield();

  std::vector<Token> prompt(100);
  for (uint32_t round = 0; round < 3000; ++round) {
    for (uint32_t i = 0; i < prompt.size(); ++i)
      prompt[i] = i < 40 ? i : i * (round % 7);
    SeqId s;
    uint32_t hit;
    ASSERT_TRUE(cache->open({}, s).ok());
    ASSERT_TRUE(cache->begin().ok());
    ASSERT_TRUE(cache->attach(s, prompt, hit).ok());
    Append rest{s, uint32_t(prompt.size()) - hit, 0};
    ASSERT_TRUE(cache->reserve({&rest, 1}, std::span(prompt).subspan(hit)).ok());
    ASSERT_TRUE((round % 5 ? cache->commit() : cache->rollback()).ok());
    ASSERT_TRUE(cache->close(s).ok());
  }
  while (readEvents == 0)
    std::this_thread::yield();
  stop = true;
  for (std::thread &t : threads)
    t.join();
  EXPECT_EQ(torn, 0u);
  EXPECT_EQ(outOfOrder, 0u);
  EXPECT_GT(looks, 0u);
  EXPECT_GT(readEvents, 0u);
}

} // namespace
