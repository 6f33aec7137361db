//===- EmulatedSamplerTest.cpp - the sampling kernels on the host ---------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Draws, ranks and logprobs of codegen/device/sample.cuh are bit for bit those of runtime/serve/Sampler.cpp, for logits
// with ties, NaN and infinities in f32, f16 and bf16, whatever is asked for, by one block and by clusters.
//
//===----------------------------------------------------------------------===//

#define LATHE_EMULATE
#include "../../codegen/device/emulate.h"

// Blocks of a cluster are threads of the host here, each with its own shared memory.
#undef __shared__
#define __shared__ static thread_local
#include "../../codegen/device/base.cuh"
#include "../../codegen/device/math.cuh"
#include "../../codegen/device/reduce.cuh"
#include "../../codegen/device/sample.cuh"

#include "../../runtime/serve/Draws.h"

#include <gtest/gtest.h>

#include <barrier>
#include <limits>
#include <numeric>
#include <random>
#include <thread>

namespace {

namespace serve = lathe::serve;
namespace engine = lathe::engine;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();

static_assert(sizeof(SampleDraw) == sizeof(engine::SampleDraw) && sizeof(RankDraw) == sizeof(engine::RankDraw) &&
              sizeof(RankResult) == sizeof(engine::RankResult) && offsetof(SampleDraw, masked) == offsetof(engine::SampleDraw, masked) &&
              offsetof(SampleDraw, bias) == offsetof(engine::SampleDraw, bias) &&
              offsetof(RankResult, top) == offsetof(engine::RankResult, top));

constexpr int kThreads = 128;

/// N blocks that run at the same time and read each other's dynamic shared memory.
template <int N> struct EmulatedCluster {
  static constexpr int BLOCKS = N;
  static inline std::unique_ptr<std::barrier<>> meeting;
  static inline unsigned char *memory[N];
  static u32 rank() { return blockIdx.x % N; }
  static void sync() {
    __syncthreads();
    if (threadIdx.x == 0)
      meeting->arrive_and_wait();
    __syncthreads();
  }
  template <class Value> static Value load(const Value *of, u32 rank) {
    auto offset = reinterpret_cast<const unsigned char *>(of) - lathe_emu::block->dynamicShared;
    return *reinterpret_cast<const Value *>(memory[rank] + offset);
  }
};

template <class Peers, class... Params, class... Args>
std::string runCluster(unsigned clusters, size_t shared, void (*kernel)(Params...), Args... args) {
  if constexpr (Peers::BLOCKS == 1)
    return run_emulated(kernel, clusters, kThreads, shared, args...);
  else {
    std::string errors[Peers::BLOCKS];
    for (unsigned c = 0; c < clusters; ++c) {
      Peers::meeting = std::make_unique<std::barrier<>>(Peers::BLOCKS);
      std::vector<std::thread> threads;
      for (unsigned r = 0; r < Peers::BLOCKS; ++r)
        threads.emplace_back([&, r] {
          errors[r] += lathe_emu::launch(1, kThreads, shared, [&] {
            lathe_emu::block->index.x = c * Peers::BLOCKS + r;
            Peers::memory[r] = lathe_emu::block->dynamicShared;
            kernel(args...);
          });
        });
      for (std::thread &thread : threads)
        thread.join();
    }
    return std::accumulate(std::begin(errors), std::end(errors), std::string());
  }
}

template <class Peers, class T>
void sampleKernel(const T *logits, const SampleDraw *draws, const u32 *words, const f64 *powers, u32 *spare,
                  i64 *tokens, i64 vocabulary, i64 inShared) {
  LATHE_DYNAMIC_SHARED(memory);
  sampleTokens<Peers, kThreads>(logits, draws, words, powers, memory, spare, tokens, vocabulary, inShared);
}
template <class Peers, class T>
void rankKernel(const T *logits, const RankDraw *draws, const f64 *powers, u32 *spare, const i64 *tokens,
                RankResult *results, i64 vocabulary, i64 inShared) {
  LATHE_DYNAMIC_SHARED(memory);
  rankTokens<Peers, kThreads>(logits, draws, powers, memory, spare, tokens, results, vocabulary, inShared);
}

std::vector<float> logitsOf(std::mt19937 &random, uint32_t vocabulary) {
  std::normal_distribution<float> normal(0, 0.5f + float(random() % 8));
  const int kind = int(random() % 4);
  std::vector<float> all(vocabulary);
  for (float &logit : all) {
    logit = normal(random);
    if (kind == 1)
      logit = std::floor(logit * 2) / 2; // ties
    if (kind == 2 && random() % 8 == 0)
      logit = random() % 3 == 0 ? kNan : random() % 2 ? -kInfinity : 0.0f * (random() % 2 ? -1 : 1);
    if (kind == 3)
      logit *= random() % 50 ? 1e-3f : 1e3f;
  }
  if (random() % 40 == 0)
    all[random() % vocabulary] = kInfinity;
  if (random() % 40 == 0)
    all.assign(vocabulary, random() % 2 ? kNan : -kInfinity);
  if (random() % 8 == 0) // more than are collected are equal, and a draw shows each that is kept too much
    all.assign(vocabulary, 1);
  return all;
}

serve::Sampling samplingOf(std::mt19937 &random, uint32_t vocabulary) {
  auto sometimes = [&](auto usual, auto other) { return random() % 2 ? usual : decltype(usual)(other); };
  serve::Sampling s;
  s.temperature = random() % 10 ? 0.1f + float(random() % 30) / 10 : random() % 2 ? 0 : 1e-30f;
  s.topK = sometimes(0u, random() % (vocabulary + 4));
  if (random() % 4 == 0)
    s.topK = 1 + random() % 8;
  s.topP = sometimes(1.0f, float(1 + random() % 100) / 100);
  s.minP = random() % 3 ? 0 : float(random() % 100) / 200;
  s.seed = uint64_t(random()) << 32 | random();
  s.sample = random() % 4;
  if (random() % 3 == 0) {
    s.repetitionPenalty = 0.5f + float(random() % 20) / 10;
    s.presencePenalty = float(random() % 20) / 10 - 1;
    s.frequencyPenalty = float(random() % 20) / 10 - 1;
  }
  if (random() % 3 == 0)
    for (int i = int(random() % 9); i > 0; --i)
      s.bias.push_back({uint32_t(random() % vocabulary % 7), random() % 5 ? float(random() % 100) / 10 - 5 : -kInfinity});
  if (random() % 3 == 0) {
    for (uint32_t word = 0; word < (vocabulary + 31) / 32 - random() % 2; ++word)
      s.allowed.push_back(random() & random());
  }
  s.minTokens = random() % 3 ? 0 : 3;
  return s;
}

float asLogit(f32 x) { return x; }
template <class T> float asLogit(T x) { return toF32(x); }

/// Rows of logits and draws from them, several a row, by kernels and by the twin.
template <class Peers, class T> void check(uint32_t seed, uint32_t vocabulary, bool inShared) {
  std::mt19937 random(seed);
  constexpr uint32_t kRows = 3, kDraws = 5;
  std::vector<T> logits;
  std::vector<std::vector<float>> rows;
  for (uint32_t r = 0; r < kRows; ++r) {
    rows.emplace_back();
    for (float logit : logitsOf(random, vocabulary)) {
      logits.push_back(convert<T>(logit));
      rows.back().push_back(asLogit(logits.back()));
    }
  }
  std::vector<serve::Sampling> samplings(kDraws);
  std::vector<serve::TokenCounts> counts(kDraws);
  std::vector<std::vector<uint32_t>> stops(kDraws);
  serve::DrawList list;
  std::vector<uint64_t> indices;
  for (uint32_t n = 0; n < kDraws; ++n) {
    samplings[n] = samplingOf(random, vocabulary);
    std::vector<uint32_t> prompt;
    for (int i = 0; i < 40; ++i)
      prompt.push_back(random() % vocabulary);
    counts[n].addPrompt(prompt, 8);
    for (int i = 0; i < 8; ++i)
      counts[n].addAnswer(i % 2 ? prompt[random() % 40] : random() % vocabulary);
    stops[n] = {uint32_t(random() % vocabulary), vocabulary + 3};
    indices.push_back(random() % 6);
    list.add(serve::Draw{n % kRows, &samplings[n], &counts[n], stops[n], indices[n], /*ranked=*/n != 3, n * 5});
  }
  list.addRanked(1, vocabulary / 2, 7); // as of a prompt
  // Memory as a GPU gives it.
  auto aligned = [](const auto &values) {
    using Value = std::remove_cvref_t<decltype(values[0])>;
    const size_t bytes = values.size() * sizeof(Value);
    std::shared_ptr<Value> memory(static_cast<Value *>(aligned_alloc(256, (bytes + 511) / 256 * 256)), free);
    std::memcpy(static_cast<void *>(memory.get()), values.data(), bytes);
    return memory;
  };
  auto memory = aligned(logits);
  std::vector<u32> spare(size_t(vocabulary) * 16);
  std::vector<i64> tokens(kDraws, -7);
  std::vector<engine::RankResult> ranked(list.ranks().size());
  const size_t shared =
      engine::kSampleFixedBytes + (inShared ? size_t(engine::samplePart(vocabulary, Peers::BLOCKS)) * 4 : 0);
  const f64 *powers = serve::powersOfTwo().data();
  const auto *draws = reinterpret_cast<const SampleDraw *>(list.draws().data());
  const auto *ranks = reinterpret_cast<const RankDraw *>(list.ranks().data());
  ASSERT_EQ(runCluster<Peers>(kDraws, shared, sampleKernel<Peers, T>, memory.get(), draws, list.words().data(), powers,
                              spare.data(), tokens.data(), i64(vocabulary), i64(inShared)),
            "");
  ASSERT_EQ(runCluster<Peers>(ranks ? unsigned(list.ranks().size()) : 0, shared, rankKernel<Peers, T>, memory.get(), ranks,
                              powers, spare.data(), tokens.data(), reinterpret_cast<RankResult *>(ranked.data()),
                              i64(vocabulary), i64(inShared)),
            "");
  serve::SampleScratch scratch;
  size_t rank = 0;
  auto same = [&](const std::vector<float> &row, uint32_t token, uint32_t top, const std::string &where) {
    const serve::Logprobs wanted = serve::logprobsOf(row, token, top), found = serve::logprobsOf(ranked[rank++]);
    auto bits = [](float x) { return x != x ? 0x7fc00000u : f32ToBits(x); };
    EXPECT_EQ(bits(found.logprob), bits(wanted.logprob)) << where;
    EXPECT_EQ(found.rank, wanted.rank) << where;
    ASSERT_EQ(found.top.size(), wanted.top.size()) << where;
    for (size_t i = 0; i < wanted.top.size(); ++i) {
      EXPECT_EQ(found.top[i].token, wanted.top[i].token) << where << " top " << i;
      EXPECT_EQ(bits(found.top[i].logprob), bits(wanted.top[i].logprob)) << where << " top " << i;
    }
  };
  for (uint32_t n = 0; n < kDraws; ++n) {
    const std::string where = "seed " + std::to_string(seed) + " draw " + std::to_string(n);
    std::vector<float> row = rows[n % kRows];
    serve::processLogits(row, samplings[n], counts[n], stops[n], indices[n]);
    std::optional<uint32_t> wanted = serve::sampleToken(row, samplings[n], indices[n], scratch);
    ASSERT_EQ(tokens[n], wanted ? i64(*wanted) : -1) << where;
    if (n != 3 && !wanted)
      ++rank;
    else if (n != 3)
      same(rows[n % kRows], *wanted, std::min(n * 5, serve::kMostLogprobs), where);
  }
  same(rows[1], vocabulary / 2, 7, "seed " + std::to_string(seed) + " of a prompt");
}

TEST(EmulatedSampler, DrawsAsItsTwin) {
  for (uint32_t seed = 0; seed < 120; ++seed) {
    const uint32_t vocabulary = seed % 4 == 0 ? 1 + seed : seed % 4 == 1 ? 997 : 1024 + 8 * seed;
    if (seed % 3 == 0)
      check<OneBlock, f32>(seed, vocabulary, seed % 2);
    else if (seed % 3 == 1)
      check<OneBlock, bf16>(seed, vocabulary, seed % 2);
    else
      check<OneBlock, f16>(seed, vocabulary, seed % 2);
    if (HasFatalFailure())
      return;
  }
}

TEST(EmulatedSampler, ClustersDrawAsItsTwin) {
  for (uint32_t seed = 200; seed < 232; ++seed) {
    const uint32_t vocabulary = seed % 4 == 0 ? 1 + (seed - 200) * 3 : seed % 4 == 1 ? 997 : 1024 + 8 * seed;
    if (seed % 3 == 0)
      check<EmulatedCluster<4>, f32>(seed, vocabulary, seed % 2);
    else if (seed % 3 == 1)
      check<EmulatedCluster<8>, bf16>(seed, vocabulary, true);
    else
      check<EmulatedCluster<8>, f16>(seed, vocabulary, seed % 2);
    if (HasFatalFailure())
      return;
  }
}

} // namespace
