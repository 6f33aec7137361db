//===- ServingFixture.h - requests over a model that is a function --------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The model writes a number for each token into its slot and answers with logits made of all that a token's table
// names, so that a wrong slot, table, position or block gives another answer than the function that knows the tokens
// alone. Its clock moves by what a step costs. It may draw by itself, as kernels do, and take a step before the one
// ahead is waited for: its results come with the wait alone, which may fail.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_TEST_SERVINGFIXTURE_H
#define LATHE_TEST_SERVINGFIXTURE_H

#include "../../runtime/serve/Scheduler.h"
#include "lathe/runtime/KvSnapshot.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
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

/// The keys that a token sees in a group of layers: all, or the last `window` and beside them the first `sinks`.
struct Sight {
  uint32_t window = 0, sinks = 0; ///< a window of 0: all
  bool sees(size_t key, size_t count) const { return !window || key < sinks || key + window >= count; }
};
using Sights = std::vector<Sight>;
inline const Sights kSeesAll(1);

/// Of the keys that a token sees, group after group.
inline uint64_t mixSeen(std::span<const uint64_t> keys, const Sights &sights = kSeesAll) {
  uint64_t h = 1;
  for (const Sight &sight : sights)
    for (size_t k = 0; k < keys.size(); ++k)
      if (sight.sees(k, keys.size()))
        h = mix(h, keys[k]);
  return h;
}

/// What a request comes to by its tokens alone.
struct Expected {
  std::vector<uint32_t> answer;
  Finish finish = Finish::Length;
  std::vector<Logprobs> logprobs, promptLogprobs;
};
/// `draws`: by a model that draws itself, which finds no token among logits that are no numbers where it looks for the
/// greatest along with its logprobs.
inline Expected expect(const RequestOptions &options, uint32_t sample = 0, const Sights &sights = kSeesAll, bool draws = false) {
  Expected result;
  Sampling sampling = options.sampling;
  sampling.sample += sample;
  TokenCounts counts;
  counts.addPrompt(options.prompt, options.maxTokens);
  SampleScratch scratch;
  std::vector<uint64_t> keys;
  for (size_t p = 0; p < options.prompt.size(); ++p) {
    keys.push_back(keyOf(options.prompt[p], p));
    if (options.promptLogprobs && sample == 0 && p + 1 < options.prompt.size())
      result.promptLogprobs.push_back(
          logprobsOf(logitsOf(mixSeen(keys, sights)), options.prompt[p + 1], *options.promptLogprobs));
  }
  while (result.answer.size() < options.maxTokens) {
    const std::array<float, kVocabulary> given = logitsOf(mixSeen(keys, sights));
    std::array<float, kVocabulary> row = given;
    const uint64_t index = result.answer.size();
    std::optional<uint32_t> token = argmax(row);
    if (!takesGreatest(sampling, index)) {
      processLogits(row, sampling, counts, options.stopTokens, index);
      token = sampleToken(row, sampling, index, scratch);
    } else if (draws && options.logprobs && std::isnan(row[*token])) {
      token.reset();
    }
    if (!token) {
      result.finish = Finish::Failed;
      return result;
    }
    if (options.logprobs)
      result.logprobs.push_back(logprobsOf(given, *token, *options.logprobs));
    keys.push_back(keyOf(*token, options.prompt.size() + index));
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
      : pool(size_t(blocks) * kBlockTokens, 0), hostPool(size_t(hostBlocks) * kBlockTokens, 0) {
    flights.reserve(2);
  }

  Status launch(Batch &batch, StepResults &into) override {
    const size_t tokens = batch.tokens.size(), rows = batch.rows.size();
    EXPECT_LE(tokens, stepTokens);
    EXPECT_LE(rows, tokens);
    EXPECT_EQ(batch.groups.size(), sights.size());
    std::set<int64_t> slots; // those of all groups are of one pool
    for (const Batch::Places &group : batch.groups) {
      EXPECT_EQ(group.tables.size(), rows * size_t(group.pages));
      slots.insert(group.slots.begin(), group.slots.end());
    }
    EXPECT_EQ(slots.size(), tokens * sights.size());
    EXPECT_EQ(into.best.size(), rows);
    EXPECT_TRUE(into.logits.empty() || into.logits.size() == rows * kVocabulary); // nobody wants them, or somebody
    EXPECT_LE(flights.size(), overlapping ? 1u : 0u);
    now += 100 + int64_t(tokens);
    if (fails && --fails == 0)
      return runtimeError("planted");
    Flight flight{&into, {}, {}};
    for (size_t t = 0; t < tokens; ++t) {
      int64_t token = batch.tokens[t];
      if (token < 0) {
        token = ~token < kDrawnTokens ? before.best.at(size_t(~token)) : before.drawn.at(size_t(~token - kDrawnTokens));
        ++fed;
      }
      for (const Batch::Places &group : batch.groups)
        pool.at(size_t(group.slots[t])) = keyOf(uint64_t(token), uint64_t(batch.positions[t]));
    }
    for (size_t r = 0; r < rows; ++r) {
      const auto t = size_t(batch.rows[r]);
      EXPECT_TRUE(r == 0 || batch.rows[r] > batch.rows[r - 1]);
      std::vector<uint64_t> keys; // group after group
      for (size_t g = 0; g < sights.size(); ++g) {
        const Batch::Places &group = batch.groups[g];
        const size_t count = size_t(sights[g].window ? group.places.at(t) : batch.positions[t]) + 1;
        const size_t table = size_t(batch.requests[t]) * size_t(group.pages);
        for (size_t p = 0; p < count; ++p)
          if (sights[g].sees(p, count))
            keys.push_back(pool.at(size_t(group.tables.at(table + p / kBlockTokens)) * kBlockTokens + p % kBlockTokens));
      }
      flight.logits.push_back(logitsOf(mixSeen(keys)));
      flight.results.best.push_back(argmax(flight.logits.back()));
    }
    StepResults results = flight.results;
    flights.push_back(std::move(flight)); // has room
    before = std::move(results);
    return okStatus();
  }
  bool draws() const override { return drawing; }
  Status draw(const DrawList &list) override {
    if (drawFails && --drawFails == 0)
      return runtimeError("planted");
    Flight &flight = flights.back();
    for (const engine::SampleDraw &d : list.draws())
      flight.results.drawn.push_back(drawOf(flight.logits.at(d.row), d, list.words()));
    for (const engine::RankDraw &r : list.ranks()) {
      const auto &row = flight.logits.at(r.row);
      const int64_t token = r.draw ? flight.results.drawn.at(r.draw - 1) : int64_t(r.token);
      engine::RankResult result = {};
      if (token >= 0) {
        const Logprobs all = logprobsOf(row, uint32_t(token), r.top);
        result.greatest = row[argmax(row)];
        result.logit = row[size_t(token)];
        result.rank = all.rank;
        for (float logit : row)
          result.sum += logit == result.greatest ? 1ull << 40
                                                 : fixedExp2((double(logit) - double(result.greatest)) * scaleOf(1));
        for (const TokenLogprob &one : all.top)
          result.top[result.topCount++] = {one.token, row[one.token]};
      }
      flight.results.ranked.push_back(result);
    }
    before = flight.results;
    return okStatus();
  }
  bool overlaps() const override { return overlapping; }
  Status wait() override {
    if (flights.empty())
      return internalError("no step is under way");
    now += waitCost;
    Flight flight = std::move(flights.front());
    flights.erase(flights.begin());
    if (waitFails && --waitFails == 0)
      return runtimeError("planted");
    StepResults &into = *flight.into;
    EXPECT_EQ(into.drawn.size(), flight.results.drawn.size());
    EXPECT_EQ(into.ranked.size(), flight.results.ranked.size());
    for (size_t r = 0; r < flight.logits.size() && !into.logits.empty(); ++r)
      std::copy(flight.logits[r].begin(), flight.logits[r].end(), into.logits.begin() + int64_t(r) * kVocabulary);
    std::copy(flight.results.best.begin(), flight.results.best.end(), into.best.begin());
    std::copy(flight.results.drawn.begin(), flight.results.drawn.end(), into.drawn.begin());
    std::copy(flight.results.ranked.begin(), flight.results.ranked.end(), into.ranked.begin());
    return okStatus();
  }
  /// What a step under way was to write is not there.
  void abandon() override {
    if (overlapping)
      std::fill(pool.begin(), pool.end(), 0);
    flights.clear();
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
  Sights sights; ///< of the groups
  bool drawing = false, overlapping = false;
  uint64_t fed = 0; ///< tokens that came from the step ahead
  int fails = 0, drawFails = 0, waitFails = 0, copyFails = 0, swapFails = 0; ///< the one that fails; 0: none
  int64_t now = 0, swapCost = 1, waitCost = 0; ///< ns; of a block, and for a step to be over

private:
  using Row = std::array<float, kVocabulary>;
  struct Flight {
    StepResults *into;
    StepResults results;
    std::vector<Row> logits;
  };

  static int64_t drawOf(Row row, const engine::SampleDraw &d, std::span<const uint32_t> words) {
    Sampling s;
    s.temperature = d.scale == 0 ? 0 : float(scaleOf(1) / d.scale);
    s.topK = uint32_t(d.topK);
    s.topP = float(d.topP);
    s.seed = d.seed;
    s.sample = uint32_t(d.sample);
    s.repetitionPenalty = d.repetition;
    s.presencePenalty = d.presence;
    s.frequencyPenalty = d.frequency;
    TokenCounts counts;
    for (uint32_t i = 0; i < d.countsCount; ++i) {
      counts.addPrompt(words.subspan(d.counts + 2 * i, 1), 0);
      for (uint32_t n = 0; n < words[d.counts + 2 * i + 1]; ++n)
        counts.addAnswer(words[d.counts + 2 * i]);
    }
    s.minTokens = d.outCount ? uint32_t(d.index) + 1 : 0;
    processLogits(row, s, counts, words.subspan(d.out, d.outCount), d.index);
    SampleScratch scratch;
    std::optional<uint32_t> token = sampleToken(row, s, d.index, scratch);
    return token ? int64_t(*token) : -1;
  }

  std::vector<Flight> flights;
  StepResults before; ///< of the last step
};

struct Sizes {
  uint32_t blocks = 64, stepTokens = 16, requests = 8, sequenceTokens = 128;
  bool prefixCache = true;
  double watermark = 0.05;
  uint32_t hostBlocks = 0;
  Swap swap = Swap::ByCost;
  bool draws = false, overlap = false;
  Sights sights = kSeesAll; ///< a group each

  /// Of one sequence as long as can be.
  uint32_t blocksOfSequence() const {
    uint32_t blocks = 0;
    for (const engine::KvGroup &group : groups())
      blocks += engine::kvBlocksPerSequence(group, sequenceTokens, stepTokens);
    return blocks;
  }
  std::vector<engine::KvGroup> groups() const {
    std::vector<engine::KvGroup> made;
    for (const Sight &sight : sights) {
      engine::KvGroup group;
      group.layout.blockTokens = kBlockTokens;
      if (sight.window)
        group.kind = engine::KvGroupKind::Window, group.window = sight.window, group.sinks = sight.sinks;
      made.push_back(group);
    }
    return made;
  }
};

struct Serving {
  explicit Serving(const Sizes &sizes) : model(sizes.blocks, sizes.hostBlocks) {
    kv::Config config;
    config.groups = sizes.groups();
    model.sights = sizes.sights;
    config.blocks = sizes.blocks;
    config.hostBlocks = sizes.hostBlocks;
    config.maxSequences = sizes.requests * (sizes.hostBlocks ? 2 : 1);
    config.maxSequenceTokens = sizes.sequenceTokens;
    config.maxStepTokens = sizes.stepTokens;
    config.prefixCache = sizes.prefixCache;
    auto cache = kv::Cache::create(config);
    EXPECT_TRUE(cache.ok()) << cache.status().str();
    model.stepTokens = sizes.stepTokens;
    model.drawing = sizes.draws;
    model.overlapping = sizes.overlap;
    auto made = Scheduler::create(std::move(*cache), model,
                                  {sizes.stepTokens, sizes.requests, sizes.sequenceTokens, kVocabulary, sizes.watermark,
                                   sizes.swap, sizes.overlap},
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
