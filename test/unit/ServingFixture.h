//===- ServingFixture.h - requests over a model that is a function --------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The model writes a number for each token into its slot and answers with logits made of all that a token's table
// names, so that a wrong slot, table, position or block gives another answer than the function that knows the tokens
// alone. Its clock moves by what a step costs.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_TEST_SERVINGFIXTURE_H
#define LATHE_TEST_SERVINGFIXTURE_H

#include "../../runtime/serve/Scheduler.h"
#include "lathe/runtime/KvSnapshot.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <random>
#include <set>

namespace lathe::serve {

constexpr uint32_t kVocabulary = 97, kBlockTokens = 8;

inline uint64_t mix(uint64_t h, uint64_t x) {
  h = (h ^ x) * 0x9E3779B97F4A7C15ull;
  return h ^ (h >> 29);
}
inline uint64_t keyOf(uint64_t token, uint64_t position) { return mix(mix(17, token), position); }

/// Logits behind the tokens whose keys are mixed to `h`; some rows are all NaN, and their greatest is token 0.
inline std::array<float, kVocabulary> logitsOf(uint64_t h) {
  std::array<float, kVocabulary> row;
  const bool bad = h % 401 == 0;
  for (uint32_t i = 0; i < kVocabulary; ++i)
    row[i] = bad ? std::numeric_limits<float>::quiet_NaN() : float(h >> (i % 58) & 31) * 0.25f + (i == h % kVocabulary);
  return row;
}

/// What a request comes to by its tokens alone.
struct Expected {
  std::vector<uint32_t> answer;
  Finish finish = Finish::Length;
  std::vector<Logprobs> logprobs, promptLogprobs;
};
inline Expected expect(const RequestOptions &options, uint32_t sample = 0) {
  Expected result;
  Sampling sampling = options.sampling;
  sampling.sample += sample;
  TokenCounts counts;
  counts.addPrompt(options.prompt, options.maxTokens);
  SampleScratch scratch;
  uint64_t h = 1;
  for (size_t p = 0; p < options.prompt.size(); ++p) {
    h = mix(h, keyOf(options.prompt[p], p));
    if (options.promptLogprobs && sample == 0 && p + 1 < options.prompt.size())
      result.promptLogprobs.push_back(logprobsOf(logitsOf(h), options.prompt[p + 1], *options.promptLogprobs));
  }
  while (result.answer.size() < options.maxTokens) {
    const std::array<float, kVocabulary> given = logitsOf(h);
    std::array<float, kVocabulary> row = given;
    const uint64_t index = result.answer.size();
    std::optional<uint32_t> token = argmax(row);
    if (!takesGreatest(sampling, index)) {
      processLogits(row, sampling, counts, options.stopTokens, index);
      token = sampleToken(row, sampling, index, scratch);
    }
    if (!token) {
      result.finish = Finish::Failed;
      return result;
    }
    if (options.logprobs)
      result.logprobs.push_back(logprobsOf(given, *token, *options.logprobs));
    h = mix(h, keyOf(*token, options.prompt.size() + index));
    result.answer.push_back(*token);
    counts.addAnswer(*token);
    if (std::find(options.stopTokens.begin(), options.stopTokens.end(), *token) != options.stopTokens.end()) {
      result.finish = Finish::Stop;
      return result;
    }
  }
  return result;
}
/// The most likely tokens.
inline std::vector<uint32_t> expected(std::vector<uint32_t> prompt, uint32_t count) {
  RequestOptions options;
  options.prompt = std::move(prompt);
  options.maxTokens = count;
  return expect(options).answer;
}

class FunctionModel : public StepModel {
public:
  FunctionModel(uint32_t blocks, uint32_t hostBlocks)
      : pool(size_t(blocks) * kBlockTokens, 0), hostPool(size_t(hostBlocks) * kBlockTokens, 0) {}

  Status run(const Batch &batch, std::span<float> logits, std::span<int64_t> best) override {
    const size_t tokens = batch.tokens.size(), rows = batch.rows.size();
    EXPECT_LE(tokens, stepTokens);
    EXPECT_LE(rows, tokens);
    EXPECT_EQ(batch.tables.size(), rows * size_t(batch.pages));
    EXPECT_EQ(best.size(), rows);
    EXPECT_TRUE(logits.empty() || logits.size() == rows * kVocabulary); // nobody wants them, or somebody
    EXPECT_EQ(std::set<int64_t>(batch.slots.begin(), batch.slots.end()).size(), tokens);
    now += 100 + int64_t(tokens);
    if (fails && --fails == 0)
      return runtimeError("planted");
    for (size_t t = 0; t < tokens; ++t)
      pool.at(size_t(batch.slots[t])) = keyOf(uint64_t(batch.tokens[t]), uint64_t(batch.positions[t]));
    for (size_t r = 0; r < rows; ++r) {
      const size_t t = size_t(batch.rows[r]), table = size_t(batch.requests[t]) * size_t(batch.pages);
      EXPECT_TRUE(r == 0 || batch.rows[r] > batch.rows[r - 1]);
      uint64_t h = 1;
      for (int64_t p = 0; p <= batch.positions[t]; ++p)
        h = mix(h, pool.at(size_t(batch.tables.at(table + size_t(p) / kBlockTokens)) * kBlockTokens +
                           size_t(p) % kBlockTokens));
      const std::array<float, kVocabulary> row = logitsOf(h);
      best[r] = argmax(row);
      if (!logits.empty())
        std::copy(row.begin(), row.end(), logits.begin() + int64_t(r) * kVocabulary);
    }
    return okStatus();
  }
  Status copyBlock(kv::BlockId from, kv::BlockId to) override {
    if (copyFails && --copyFails == 0)
      return runtimeError("planted");
    std::copy_n(pool.begin() + from * kBlockTokens, kBlockTokens, pool.begin() + to * kBlockTokens);
    return okStatus();
  }
  Status swapBlock(kv::BlockId device, kv::BlockId host, SwapWay way) override {
    now += swapCost;
    if (swapFails && --swapFails == 0)
      return runtimeError("planted");
    auto there = pool.begin() + device * kBlockTokens, here = hostPool.begin() + host * kBlockTokens;
    way == SwapWay::ToHost ? std::copy_n(there, kBlockTokens, here) : std::copy_n(here, kBlockTokens, there);
    return okStatus();
  }

  std::vector<uint64_t> pool, hostPool;
  uint32_t stepTokens = 0;
  int fails = 0, copyFails = 0, swapFails = 0; ///< the run, or copy, that fails; 0: none
  int64_t now = 0, swapCost = 1;               ///< ns; of a block
};

struct Sizes {
  uint32_t blocks = 64, stepTokens = 16, requests = 8, sequenceTokens = 128;
  bool prefixCache = true;
  double watermark = 0.05;
  uint32_t hostBlocks = 0;
  Swap swap = Swap::ByCost;
};

struct Serving {
  explicit Serving(const Sizes &sizes) : model(sizes.blocks, sizes.hostBlocks) {
    kv::Config config;
    engine::KvGroup group;
    group.layout.blockTokens = kBlockTokens;
    config.groups = {group};
    config.blocks = sizes.blocks;
    config.hostBlocks = sizes.hostBlocks;
    config.maxSequences = sizes.requests * (sizes.hostBlocks ? 2 : 1);
    config.maxSequenceTokens = sizes.sequenceTokens;
    config.maxStepTokens = sizes.stepTokens;
    config.prefixCache = sizes.prefixCache;
    auto cache = kv::Cache::create(config);
    EXPECT_TRUE(cache.ok()) << cache.status().str();
    model.stepTokens = sizes.stepTokens;
    auto made = Scheduler::create(std::move(*cache), model,
                                  {sizes.stepTokens, sizes.requests, sizes.sequenceTokens, kVocabulary, sizes.watermark,
                                   sizes.swap},
                                  [this] { return model.now; });
    EXPECT_TRUE(made.ok()) << made.status().str();
    scheduler = std::move(*made);
  }
  /// All blocks are free or cached, and the cache is in order.
  void expectNoLeaks() {
    kv::Counters c = scheduler->blocks().counters();
    EXPECT_EQ(c.committedBlocks + c.reservedBlocks, 0u);
    EXPECT_EQ(c.freeBlocks + c.evictableBlocks, scheduler->blocks().config().blocks);
    EXPECT_EQ(c.swappedHostBlocks, 0u);
    EXPECT_EQ(c.sequences, 0u);
    EXPECT_TRUE(kv::validate(scheduler->blocks().snapshot()).empty());
  }
  uint64_t submit(std::vector<uint32_t> prompt, uint32_t count) {
    RequestOptions options;
    options.prompt = std::move(prompt);
    options.maxTokens = count;
    return submit(std::move(options));
  }
  uint64_t submit(RequestOptions options) {
    Result<uint64_t> id = scheduler->submit(std::move(options));
    EXPECT_TRUE(id.ok()) << id.status().str();
    return id.ok() ? *id : 0;
  }
  std::vector<uint32_t> answerOf(uint64_t id) {
    std::span<const uint32_t> answer = scheduler->find(id)->answer();
    return {answer.begin(), answer.end()};
  }

  FunctionModel model;
  std::unique_ptr<Scheduler> scheduler;
};

inline std::vector<uint32_t> randomPrompt(std::mt19937 &random, uint32_t most) {
  std::vector<uint32_t> prompt(1 + random() % most);
  // Few beginnings, so that many share theirs.
  uint32_t family = random() % 3;
  for (size_t i = 0; i < prompt.size(); ++i)
    prompt[i] = i < 20 ? uint32_t(family * 7 + i) % kVocabulary : uint32_t(random() % kVocabulary);
  return prompt;
}

} // namespace lathe::serve

#endif // LATHE_TEST_SERVINGFIXTURE_H
