//===- KvBench.cpp - speed of the KV cache's host side ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Google Benchmark over the public interface of kv::Cache, and the same work
// for NanoAllocator where it has such work. 16 tokens a block. Only the calls
// under test are timed, each step or prompt by itself; the user counters are
// taken from the median of these times, so that one in which the machine did
// something else does not count, and reading the clock (about 30 ns) does.
//
//===----------------------------------------------------------------------===//

#include "NanoAllocator.h"
#include "lathe/runtime/KvCache.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

using namespace lathe;
using namespace lathe::kvperf;

namespace {

constexpr uint32_t blockTokens = 16;
using Clock = std::chrono::steady_clock;

/// Times stretches of a benchmark.
class Stopwatch {
public:
  explicit Stopwatch(benchmark::State &state) : state(state) {}

  template <typename Work> void time(Work work) {
    Clock::time_point start = Clock::now();
    work();
    double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    state.SetIterationTime(seconds);
    stretches.push_back(seconds);
  }
  /// Seconds of the median stretch; call it once, at the end.
  double median() {
    auto middle = stretches.begin() + ptrdiff_t(stretches.size() / 2);
    std::nth_element(stretches.begin(), middle, stretches.end());
    return *middle;
  }
  void reportBlocks(double blocksOfAStretch) {
    double seconds = median();
    state.counters["blocks/s"] = blocksOfAStretch / seconds;
    state.counters["ns/block"] = seconds / blocksOfAStretch * 1e9;
  }
  void reportMicroseconds(const char *name, double count) {
    state.counters[name] = median() / count * 1e6;
  }

private:
  benchmark::State &state;
  std::vector<double> stretches;
};

/// A benchmark of calls that are refused measures nothing.
void need(const kv::Outcome &outcome) {
  if (outcome.ok())
    return;
  std::fprintf(stderr, "%s\n", toStatus(outcome).str().c_str());
  std::exit(1);
}

std::vector<kv::Token> randomTokens(size_t count, uint64_t seed) {
  std::vector<kv::Token> tokens(count);
  for (size_t i = 0; i < count; ++i)
    tokens[i] = mix(seed * 0x10001 + i) % 128000;
  return tokens;
}

kv::Config configOf(uint32_t blocks, uint32_t longest, uint32_t sequences = 4) {
  kv::Config config;
  config.groups[0].layout.blockTokens = blockTokens;
  config.blocks = blocks;
  config.maxSequences = sequences;
  config.maxSequenceTokens = config.maxStepTokens = longest;
  return config;
}

std::unique_ptr<kv::Cache> makeCache(const kv::Config &config) {
  auto cache = kv::Cache::create(config);
  if (cache.ok())
    return std::move(*cache);
  std::fprintf(stderr, "%s\n", cache.status().str().c_str());
  std::exit(1);
}

/// One step that appends `tokens` to a sequence.
void append(kv::Cache &cache, kv::SeqId sequence, std::span<const kv::Token> tokens) {
  kv::Append request{sequence, uint32_t(tokens.size())};
  need(cache.begin());
  need(cache.reserve({&request, 1}, tokens));
  cache.clearTransfers();
  need(cache.commit());
}

/// Blocks are taken for a long prompt and given back; nothing is cached.
void allocateFree(benchmark::State &state) {
  constexpr uint32_t tokens = 32768;
  kv::Config config = configOf(4 * tokens / blockTokens, tokens);
  config.prefixCache = false;
  auto cache = makeCache(config);
  std::vector<kv::Token> prompt = randomTokens(tokens, 1);
  kv::SeqId sequence;
  need(cache->open({.cache = false}, sequence));
  Stopwatch watch(state);
  for (auto _ : state)
    watch.time([&] {
      append(*cache, sequence, prompt);
      need(cache->truncate(sequence, 0));
    });
  watch.reportBlocks(tokens / blockTokens);
}
BENCHMARK(allocateFree)->UseManualTime();

void allocateFreeNano(benchmark::State &state) {
  constexpr uint32_t tokens = 32768;
  NanoAllocator allocator(4 * tokens / blockTokens, blockTokens);
  NanoAllocator::Sequence sequence;
  sequence.tokens = randomTokens(tokens, 1);
  Stopwatch watch(state);
  for (auto _ : state) {
    // Another first token, or the whole prompt would be found.
    sequence.tokens[0] += 1;
    watch.time([&] {
      allocator.allocate(sequence);
      allocator.release(sequence);
    });
  }
  watch.reportBlocks(tokens / blockTokens);
}
BENCHMARK(allocateFreeNano)->UseManualTime();

/// Prompts of 2,048 tokens that nobody has seen, in a pool full of cached blocks: each block
/// is looked up, evicts another, is hashed, indexed and released.
void evictingPrompt(benchmark::State &state) {
  constexpr uint32_t tokens = 2048, prompts = 64;
  kv::Config config = configOf(uint32_t(state.range(0)), tokens);
  config.hash = kv::HashKind(state.range(1));
  auto cache = makeCache(config);
  std::vector<std::vector<kv::Token>> texts;
  for (uint32_t i = 0; i < prompts; ++i)
    texts.push_back(randomTokens(tokens, i));
  uint32_t round = 0;
  auto serve = [&](std::vector<kv::Token> &text) {
    kv::SeqId sequence;
    uint32_t hit;
    need(cache->open({}, sequence));
    need(cache->begin());
    need(cache->attach(sequence, text, hit));
    kv::Append request{sequence, tokens - hit};
    need(cache->reserve({&request, 1}, std::span<const kv::Token>(text).subspan(hit)));
    cache->clearTransfers();
    need(cache->commit());
    need(cache->close(sequence));
  };
  // The first token makes the whole chain new.
  auto renew = [&](uint32_t i) -> std::vector<kv::Token> & {
    texts[i % prompts][0] = i;
    return texts[i % prompts];
  };
  while (cache->counters().freeBlocks)
    serve(renew(round++));
  kv::Counters before = cache->counters();
  Stopwatch watch(state);
  for (auto _ : state) {
    std::vector<kv::Token> &text = renew(round++);
    watch.time([&] { serve(text); });
  }
  kv::Counters after = cache->counters();
  if (after.evictedBlocks - before.evictedBlocks !=
          uint64_t(state.iterations()) * (tokens / blockTokens) ||
      after.hitTokens != before.hitTokens)
    state.SkipWithError("not every block evicted another");
  watch.reportBlocks(tokens / blockTokens);
}
BENCHMARK(evictingPrompt)
    ->ArgNames({"pool", "sha256"})
    ->Args({16384, 0})
    ->Args({65536, 0})
    ->Args({16384, 1})
    ->UseManualTime();

void evictingPromptNano(benchmark::State &state) {
  constexpr uint32_t tokens = 2048, blocks = 16384;
  NanoAllocator allocator(blocks, blockTokens);
  NanoAllocator::Sequence sequence;
  sequence.tokens = randomTokens(tokens, 1);
  uint32_t round = 0;
  auto serve = [&] {
    sequence.tokens[0] = round++;
    allocator.allocate(sequence);
    allocator.release(sequence);
  };
  while (round < blocks / (tokens / blockTokens))
    serve();
  Stopwatch watch(state);
  for (auto _ : state)
    watch.time(serve);
  watch.reportBlocks(tokens / blockTokens);
}
BENCHMARK(evictingPromptNano)->UseManualTime();

/// A prompt of 32,768 tokens that is cached: found, held, released.
void longHit(benchmark::State &state) {
  constexpr uint32_t tokens = 32768;
  kv::Config config = configOf(2 * tokens / blockTokens, tokens);
  config.hash = kv::HashKind(state.range(0));
  auto cache = makeCache(config);
  std::vector<kv::Token> prompt = randomTokens(tokens, 1);
  kv::SeqId sequence;
  need(cache->open({}, sequence));
  append(*cache, sequence, prompt);
  need(cache->close(sequence));
  uint32_t hit = 0;
  Stopwatch watch(state);
  for (auto _ : state)
    watch.time([&] {
      need(cache->open({}, sequence));
      need(cache->begin());
      need(cache->attach(sequence, prompt, hit));
      need(cache->commit());
      need(cache->close(sequence));
    });
  if (hit != tokens - blockTokens)
    state.SkipWithError("a hit of another length");
  state.counters["hit"] = hit;
  watch.reportMicroseconds("us", 1);
}
BENCHMARK(longHit)->ArgName("sha256")->Arg(0)->Arg(1)->UseManualTime();

void longHitNano(benchmark::State &state) {
  constexpr uint32_t tokens = 32768;
  NanoAllocator allocator(2 * tokens / blockTokens, blockTokens);
  NanoAllocator::Sequence sequence;
  sequence.tokens = randomTokens(tokens, 1);
  Stopwatch watch(state);
  for (auto _ : state)
    watch.time([&] {
      allocator.allocate(sequence);
      allocator.release(sequence);
    });
  watch.reportMicroseconds("us", 1);
}
BENCHMARK(longHitNano)->UseManualTime();

/// What a step of decoding tells the cache and gets from it. Staggered sequences are in all phases
/// of a block, so that in each step a sixteenth of them starts a new one.
class Decoding {
public:
  static constexpr uint32_t prompt = 512, longest = 2048;

  Decoding(uint32_t count, bool staggered, uint32_t poolBlocks)
      : cache(makeCache(configOf(poolBlocks, longest, count))), staggered(staggered),
        slots(count), memory(size_t(count) * cache->tableWidth(0)),
        writer(*cache, 0, memory.data(), count, cache->tableWidth(0)) {
    for (uint32_t i = 0; i < count; ++i) {
      kv::SeqId sequence;
      need(cache->open({}, sequence));
      append(*cache, sequence, randomTokens(start(i), i));
      batch.push_back(sequence);
      requests.push_back({sequence, 1});
      next.push_back(uint32_t(mix(i)) % 128000);
    }
    writer.update(batch);
  }

  /// Tokens of sequence i before the first step: a block that is full but for 15, or, staggered,
  /// any phase.
  uint32_t start(uint32_t i) const {
    return prompt + (staggered ? 1 + i % blockTokens : 1);
  }

  void step(bool tables) {
    kv::Slots to;
    to.slots[0] = slots.data();
    need(cache->begin());
    need(cache->reserve(requests, next, to));
    if (tables)
      writer.update(batch);
    cache->clearTransfers();
    need(cache->commit());
  }

  /// Back to the first step, with other tokens to come.
  void rewind() {
    for (uint32_t i = 0; i < batch.size(); ++i) {
      need(cache->truncate(batch[i], start(i)));
      next[i] = (next[i] + 1) % 128000;
    }
    // The tails that were cut back are indexed: this step copies them.
    if (staggered)
      step(true);
  }

  std::unique_ptr<kv::Cache> cache;

private:
  bool staggered;
  std::vector<int32_t> slots, memory;
  kv::TableWriter writer;
  std::vector<kv::SeqId> batch;
  std::vector<kv::Append> requests;
  std::vector<kv::Token> next;
};

/// begin, reserve with slot mapping, commit; and with `tables` the block table of the batch.
void decodeStep(benchmark::State &state) {
  uint32_t count = uint32_t(state.range(0));
  bool crossing = state.range(1), tables = state.range(2), full = state.range(3);
  // Room for all; or just enough, so that the blocks that were decoded before are evicted.
  uint32_t blocks = count * (Decoding::longest / blockTokens) * 2;
  if (full)
    blocks = count * ((Decoding::prompt + 512) / blockTokens + 4);
  Decoding decoding(count, crossing, blocks);
  // Without crossings a sequence has 14 steps until its block is full.
  uint32_t steps = crossing ? 512 : 14;
  Stopwatch watch(state);
  for (auto _ : state) {
    decoding.rewind();
    if (!full) // what was decoded before would fill the pool
      decoding.cache->clearCache();
    for (uint32_t i = 0; i < steps; ++i)
      watch.time([&] { decoding.step(tables); });
  }
  watch.reportMicroseconds("us/step", 1);
}
BENCHMARK(decodeStep)
    ->ArgNames({"sequences", "cross", "tables", "evict"})
    ->Args({64, 0, 0, 0})
    ->Args({64, 0, 1, 0})
    ->Args({256, 0, 0, 0})
    ->Args({256, 0, 1, 0})
    ->Args({256, 1, 0, 0})
    ->Args({256, 1, 1, 0})
    ->Args({256, 1, 1, 1})
    ->Args({1024, 1, 0, 0})
    ->Args({1024, 1, 1, 0})
    ->Args({1024, 1, 1, 1})
    ->UseManualTime();

void decodeStepNano(benchmark::State &state) {
  uint32_t count = uint32_t(state.range(0));
  bool crossing = state.range(1);
  NanoAllocator allocator(count * 256, blockTokens);
  std::vector<NanoAllocator::Sequence> batch(count);
  uint32_t steps = crossing ? 512 : 14;
  uint64_t round = 0;
  Stopwatch watch(state);
  for (auto _ : state) {
    for (uint32_t i = 0; i < count; ++i) {
      batch[i].tokens = randomTokens(513 + (crossing ? i % blockTokens : 0), ++round);
      allocator.allocate(batch[i]);
    }
    for (uint32_t s = 0; s < steps; ++s)
      watch.time([&] {
        for (NanoAllocator::Sequence &sequence : batch)
          allocator.append(sequence, s);
      });
    for (NanoAllocator::Sequence &sequence : batch)
      allocator.release(sequence);
  }
  watch.reportMicroseconds("us/step", 1);
}
BENCHMARK(decodeStepNano)
    ->ArgNames({"sequences", "cross"})
    ->Args({64, 0})
    ->Args({256, 0})
    ->Args({256, 1})
    ->Args({1024, 1})
    ->UseManualTime();

} // namespace

BENCHMARK_MAIN();
