//===- SchedulerTest.cpp - requests over a model that is a function -------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The model of these tests writes a number for each token into its slot and answers with a number made of
// all that a token's table names, so that a wrong slot, table, position or block gives another answer than
// the function that knows the tokens alone. Its clock moves by what a step costs.
//
//===----------------------------------------------------------------------===//
#include "../../runtime/serve/Scheduler.h"
#include "lathe/runtime/KvSnapshot.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace lathe::serve {
namespace {

constexpr uint32_t kVocabulary = 97, kBlockTokens = 8;

uint64_t mix(uint64_t h, uint64_t x) {
  h = (h ^ x) * 0x9E3779B97F4A7C15ull;
  return h ^ (h >> 29);
}
uint64_t keyOf(uint64_t token, uint64_t position) { return mix(mix(17, token), position); }

/// The answer by the tokens alone.
std::vector<uint32_t> expected(std::vector<uint32_t> tokens, uint32_t count) {
  std::vector<uint32_t> answer;
  while (answer.size() < count) {
    uint64_t h = 1;
    for (size_t p = 0; p < tokens.size(); ++p)
      h = mix(h, keyOf(tokens[p], p));
    answer.push_back(uint32_t(h % kVocabulary));
    tokens.push_back(answer.back());
  }
  return answer;
}

class FunctionModel : public StepModel {
public:
  explicit FunctionModel(uint32_t blocks) : pool(size_t(blocks) * kBlockTokens, 0) {}

  Status run(const Batch &batch, std::span<float> logits, std::span<int64_t> best) override {
    const size_t tokens = batch.tokens.size(), rows = batch.rows.size();
    EXPECT_LE(tokens, stepTokens);
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
      const size_t t = size_t(batch.rows[r]);
      EXPECT_EQ(batch.requests[t], int64_t(r));
      uint64_t h = 1;
      for (int64_t p = 0; p <= batch.positions[t]; ++p)
        h = mix(h, pool.at(size_t(batch.tables.at(r * size_t(batch.pages) + size_t(p) / kBlockTokens)) * kBlockTokens +
                           size_t(p) % kBlockTokens));
      best[r] = int64_t(h % kVocabulary);
      if (logits.empty())
        continue;
      std::span<float> row = logits.subspan(r * kVocabulary, kVocabulary);
      std::fill(row.begin(), row.end(), 0.0f);
      row[h % kVocabulary] = 1;
    }
    return okStatus();
  }
  Status copyBlock(kv::BlockId from, kv::BlockId to) override {
    std::copy_n(pool.begin() + from * kBlockTokens, kBlockTokens, pool.begin() + to * kBlockTokens);
    return okStatus();
  }

  std::vector<uint64_t> pool;
  uint32_t stepTokens = 0;
  int fails = 0; ///< the run that fails; 0: none
  int64_t now = 0;
};

struct Sizes {
  uint32_t blocks = 64, stepTokens = 16, requests = 8, sequenceTokens = 128;
  bool prefixCache = true;
};

struct Serving {
  explicit Serving(const Sizes &sizes) : model(sizes.blocks) {
    kv::Config config;
    engine::KvGroup group;
    group.layout.blockTokens = kBlockTokens;
    config.groups = {group};
    config.blocks = sizes.blocks;
    config.maxSequences = sizes.requests;
    config.maxSequenceTokens = sizes.sequenceTokens;
    config.maxStepTokens = sizes.stepTokens;
    config.prefixCache = sizes.prefixCache;
    auto cache = kv::Cache::create(config);
    EXPECT_TRUE(cache.ok()) << cache.status().str();
    model.stepTokens = sizes.stepTokens;
    auto made = Scheduler::create(std::move(*cache), model,
                                  {sizes.stepTokens, sizes.requests, sizes.sequenceTokens, kVocabulary},
                                  [this] { return model.now; });
    EXPECT_TRUE(made.ok()) << made.status().str();
    scheduler = std::move(*made);
  }
  /// All blocks are free or cached, and the cache is in order.
  void expectNoLeaks() {
    kv::Counters c = scheduler->blocks().counters();
    EXPECT_EQ(c.committedBlocks + c.reservedBlocks, 0u);
    EXPECT_EQ(c.freeBlocks + c.evictableBlocks, scheduler->blocks().config().blocks);
    EXPECT_EQ(c.sequences, 0u);
    EXPECT_TRUE(kv::validate(scheduler->blocks().snapshot()).empty());
  }
  uint64_t submit(std::vector<uint32_t> prompt, uint32_t count, float temperature = 0) {
    RequestOptions options;
    options.sampling.temperature = temperature;
    options.prompt = std::move(prompt);
    options.maxTokens = count;
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

std::vector<uint32_t> randomPrompt(std::mt19937 &random, uint32_t most) {
  std::vector<uint32_t> prompt(1 + random() % most);
  // Few beginnings, so that many share theirs.
  uint32_t family = random() % 3;
  for (size_t i = 0; i < prompt.size(); ++i)
    prompt[i] = i < 20 ? uint32_t(family * 7 + i) % kVocabulary : uint32_t(random() % kVocabulary);
  return prompt;
}

TEST(Scheduler, AnswersAreTheSameInAnyCompany) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    Sizes sizes;
    sizes.blocks = 16 + random() % 40; // one sequence of 128 takes 16
    sizes.stepTokens = 2 + random() % 40;
    sizes.requests = 1 + random() % std::min(sizes.stepTokens, 12u);
    sizes.prefixCache = random() % 2;
    Serving serving(sizes);
    std::map<uint64_t, std::vector<uint32_t>> wanted;
    for (int round = 0; round < 300 || serving.scheduler->unfinished(); ++round) {
      ASSERT_LT(round, 20000) << "seed " << seed;
      if (round < 300 && random() % 8 == 0) {
        std::vector<uint32_t> prompt = randomPrompt(random, 90);
        uint32_t count = 1 + random() % 30;
        std::vector<uint32_t> answer = expected(prompt, count);
        // So cold that a draw is sure.
        const float temperature = seed % 3 == 0 && random() % 2 ? 1e-3f : 0;
        wanted.emplace(serving.submit(std::move(prompt), count, temperature), std::move(answer));
      }
      Status status = serving.scheduler->step();
      ASSERT_TRUE(status.ok()) << status.str();
    }
    for (auto &[id, answer] : wanted) {
      EXPECT_EQ(serving.answerOf(id), answer) << "seed " << seed << " request " << id;
      EXPECT_TRUE(serving.scheduler->release(id));
    }
    serving.expectNoLeaks();
  }
}

TEST(Scheduler, PreemptsTheYoungestAndComputesItAgain) {
  Sizes sizes;
  sizes.blocks = 16;
  sizes.prefixCache = false;
  Serving serving(sizes);
  std::vector<uint64_t> ids;
  for (uint32_t i = 0; i < 4; ++i) // four of them grow to 40 tokens each, five blocks: twenty of sixteen
    ids.push_back(serving.submit({i, i + 1, i + 2}, 37));
  while (serving.scheduler->unfinished())
    ASSERT_TRUE(serving.scheduler->step().ok());
  EXPECT_GT(serving.scheduler->counters().preemptions, 0u);
  EXPECT_GT(serving.scheduler->counters().computedTokens, 4u * 39);
  for (uint32_t i = 0; i < 4; ++i)
    EXPECT_EQ(serving.answerOf(ids[i]), expected({i, i + 1, i + 2}, 37));
  // The oldest never waits for the others.
  EXPECT_LT(serving.scheduler->find(ids[0])->lastToken, serving.scheduler->find(ids[3])->lastToken);
}

/// While long prompts arrive without end, those that generate get a token a step, and prompts begin in the
/// order in which they came.
TEST(Scheduler, NobodyStarves) {
  Sizes sizes;
  sizes.blocks = 400;
  Serving serving(sizes);
  std::mt19937 random(7);
  uint64_t first = serving.submit({1, 2, 3}, 60);
  std::vector<uint64_t> ids;
  size_t tokens = 0;
  for (int round = 0; serving.scheduler->find(first)->finish == Finish::None; ++round) {
    ids.push_back(serving.submit(std::vector<uint32_t>(60, uint32_t(random() % kVocabulary)), 5));
    ASSERT_TRUE(serving.scheduler->step().ok());
    EXPECT_EQ(serving.answerOf(first).size(), ++tokens) << "after " << round << " steps";
  }
  while (serving.scheduler->unfinished())
    ASSERT_TRUE(serving.scheduler->step().ok());
  int64_t before = 0;
  for (uint64_t id : ids) {
    int64_t begun = serving.scheduler->find(id)->firstToken;
    EXPECT_GE(begun, before);
    before = begun;
  }
  // Steps are full while there is work: 61 prompts of 60 tokens and their answers, in steps of 16.
  EXPECT_LE(serving.scheduler->counters().steps, (ids.size() * 65 + 62) / 10);
}

TEST(Scheduler, FailedStepChangesNothing) {
  for (int at = 1; at <= 20; ++at) {
    Sizes sizes;
    sizes.blocks = 18;
    Serving serving(sizes);
    serving.model.fails = at;
    std::mt19937 random(5);
    std::map<uint64_t, std::vector<uint32_t>> wanted;
    for (int i = 0; i < 5; ++i) {
      std::vector<uint32_t> prompt = randomPrompt(random, 40);
      std::vector<uint32_t> answer = expected(prompt, 20);
      wanted.emplace(serving.submit(std::move(prompt), 20), std::move(answer));
    }
    int failures = 0;
    while (serving.scheduler->unfinished())
      failures += !serving.scheduler->step().ok();
    EXPECT_EQ(failures, 1) << at;
    for (auto &[id, answer] : wanted) {
      EXPECT_EQ(serving.answerOf(id), answer) << at;
      serving.scheduler->release(id);
    }
    serving.expectNoLeaks();
  }
}

TEST(Scheduler, ReleasedRequestsLeaveNothing) {
  std::mt19937 random(11);
  Sizes sizes;
  sizes.blocks = 24;
  Serving serving(sizes);
  std::set<uint64_t> ids;
  for (int round = 0; round < 3000; ++round) {
    if (random() % 3 == 0)
      ids.insert(serving.submit(randomPrompt(random, 60), 1 + random() % 40));
    if (!ids.empty() && random() % 3 == 0) {
      auto it = std::next(ids.begin(), int64_t(random() % ids.size()));
      EXPECT_TRUE(serving.scheduler->release(*it));
      EXPECT_EQ(serving.scheduler->find(*it), nullptr);
      ids.erase(it);
    }
    ASSERT_TRUE(serving.scheduler->step().ok());
  }
  for (uint64_t id : ids)
    serving.scheduler->release(id);
  EXPECT_FALSE(serving.scheduler->release(1u << 30));
  serving.expectNoLeaks();
}

TEST(Scheduler, RefusesWhatCanNeverRun) {
  Serving serving(Sizes{});
  auto refused = [&](std::vector<uint32_t> prompt, uint32_t count) {
    RequestOptions options;
    options.prompt = std::move(prompt);
    options.maxTokens = count;
    Result<uint64_t> id = serving.scheduler->submit(std::move(options));
    return id.ok() ? std::string() : id.status().str();
  };
  EXPECT_NE(refused({}, 1), "");
  EXPECT_NE(refused({1}, 0), "");
  EXPECT_NE(refused({kVocabulary}, 1).find("97"), std::string::npos);
  EXPECT_NE(refused(std::vector<uint32_t>(120, 1), 9).find("129, more than the 128"), std::string::npos);
  EXPECT_EQ(refused(std::vector<uint32_t>(120, 1), 8), "");
}

TEST(Scheduler, StopsAtAStopToken) {
  std::vector<uint32_t> answer = expected({5, 6}, 20);
  Serving serving(Sizes{});
  RequestOptions options;
  options.prompt = {5, 6};
  options.maxTokens = 20;
  options.stopTokens = {kVocabulary + 1, answer[6]};
  uint64_t id = *serving.scheduler->submit(options);
  while (serving.scheduler->unfinished())
    ASSERT_TRUE(serving.scheduler->step().ok());
  answer.resize(size_t(std::find(answer.begin(), answer.end(), answer[6]) - answer.begin()) + 1);
  EXPECT_EQ(serving.answerOf(id), answer);
  EXPECT_EQ(serving.scheduler->find(id)->finish, Finish::Stop);
}

} // namespace
} // namespace lathe::serve
