//===- SamplerTest.cpp - tokens from logits: which, and how often ---------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The oracle here sorts: it knows nothing of digits and pivots. Frequencies are judged by Pearson's chi-squared
// test over all settings, whose least p-value times their number (Bonferroni) is at least 1e-3.
// LATHE_SAMPLER_DRAWS=1000000 for the long run, whose log is results/sampler-statistics.log.
//
//===----------------------------------------------------------------------===//
#include "../../runtime/serve/Sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <random>

namespace lathe::serve {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();

Sampling sampling(float temperature, uint32_t topK = 0, float topP = 1, float minP = 0) {
  Sampling s;
  s.temperature = temperature;
  s.topK = topK;
  s.topP = topP;
  s.minP = minP;
  return s;
}

/// Tokens that may be drawn and their weights, in order of likelihood, by sorting. `Weight` is a number of
/// probability: an integer as the sampler has it, or a real one.
template <typename Weight, typename Exp>
std::vector<std::pair<uint32_t, Weight>> candidates(const std::vector<float> &logits, const Sampling &s, Weight one,
                                                    Exp exponential) {
  std::vector<uint32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0u);
  auto number = [&](uint32_t i) { return std::isnan(logits[i]) ? -kInfinity : logits[i]; };
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const bool x = std::isnan(logits[a]), y = std::isnan(logits[b]);
    return x != y ? y : number(a) != number(b) ? number(a) > number(b) : a < b;
  });
  if (s.topK && s.topK < order.size())
    order.resize(s.topK);
  std::vector<std::pair<uint32_t, Weight>> kept;
  Weight total = 0;
  for (uint32_t i : order) {
    const double below = double(number(i)) - double(number(order[0]));
    kept.push_back({i, number(i) == number(order[0]) ? one : exponential(below, s.temperature)});
    total += kept.back().second;
  }
  if (s.topP < 1) {
    Weight sum = 0;
    size_t n = 0;
    const double share = double(s.topP) * double(total);
    while (n < kept.size() && double(sum) < (std::is_integral_v<Weight> ? std::ceil(share) : share))
      sum += kept[n++].second;
    kept.resize(std::max<size_t>(n, 1));
  }
  std::erase_if(kept, [&](const auto &entry) { return double(entry.second) < double(s.minP) * double(one); });
  return kept;
}

uint64_t weightOf(double below, float temperature) { return fixedExp2(below * scaleOf(temperature)); }

TEST(Sampler, TakesTheGreatestAndTheLowerOfTwo) {
  EXPECT_EQ(argmax(std::vector<float>{1, 3, 3, 2}), 1u);
  EXPECT_EQ(argmax(std::vector<float>{kNan, -5, kNan, -4}), 3u);
  SampleScratch scratch;
  EXPECT_EQ(sampleToken(std::vector<float>{1, 3, 3, 2}, sampling(0, 2, 0.5f), 0, scratch), 1u);
  EXPECT_EQ(sampleToken(std::vector<float>{1, 3, 3, 2}, sampling(9, 1), 5, scratch), 1u);
  EXPECT_EQ(sampleToken(std::vector<float>{kNan, -kInfinity}, sampling(0), 0, scratch), std::nullopt);
  EXPECT_EQ(sampleToken(std::vector<float>{kNan, -kInfinity}, sampling(1), 0, scratch), std::nullopt);
  EXPECT_EQ(sampleToken(std::vector<float>{kInfinity, 5, kNan}, sampling(1), 0, scratch), 0u);
}

TEST(Sampler, ExponentialsAreTheSameEverywhere) {
  EXPECT_EQ(fixedExp2(0), 1ull << 40);
  EXPECT_EQ(fixedExp2(-100), 0u);
  EXPECT_EQ(fixedExp2(-double(kInfinity)), 0u);
  EXPECT_EQ(fixedExp2(std::numeric_limits<double>::quiet_NaN()), 0u);
  for (size_t i = 0; i < kSamplePowers; ++i)
    EXPECT_NEAR(powersOfTwo()[i], std::exp2(double(i) / kSamplePowers), 0x1p-50);
  uint64_t hash = 0, before = 1ull << 40;
  for (int i = 0; i <= 420000; ++i) {
    const double x = -i * 0x1p-13 * 0.8;
    const uint64_t found = fixedExp2(x);
    EXPECT_NEAR(double(found), std::exp2(x) * 0x1p40, 1.01) << x; // rounded down
    EXPECT_LE(found, before) << x;
    before = found;
    hash = (hash ^ found) * 0x9E3779B97F4A7C15ull;
  }
  EXPECT_EQ(hash, 9030080871201511621u); // of all of them
}

/// Against sorting, with ties, infinities and NaN, in settings that cut among equal logits.
TEST(Sampler, SelectsAsSortingDoes) {
  std::mt19937 random(3);
  SampleScratch scratch;
  for (int round = 0; round < 4000; ++round) {
    std::vector<float> logits(1 + random() % 60);
    const int levels = 1 + int(random() % 12);
    for (float &logit : logits) {
      logit = float(int(random() % uint32_t(levels))) * 0.75f - 3;
      if (random() % 20 == 0)
        logit = random() % 2 ? kNan : -kInfinity;
      if (random() % 40 == 0)
        logit = random() % 2 ? -0.0f : 0.0f;
    }
    Sampling s = sampling(0.25f + float(random() % 8) / 4, random() % 3 ? uint32_t(random() % (logits.size() + 2)) : 0,
                          random() % 3 ? float(1 + random() % 100) / 100 : 1, random() % 3 ? 0 : float(random() % 100) / 100);
    s.seed = random();
    auto kept = candidates<uint64_t>(logits, s, 1ull << 40, weightOf);
    std::erase_if(kept, [](const auto &entry) { return entry.second == 0; });
    if (std::all_of(logits.begin(), logits.end(), [](float logit) { return !(logit > -kInfinity); })) {
      EXPECT_EQ(sampleToken(logits, s, 0, scratch), std::nullopt);
      continue;
    }
    std::vector<int> count(logits.size(), 0);
    for (uint64_t index = 0; index < 100; ++index)
      ++count[*sampleToken(logits, s, index, scratch)];
    for (uint32_t token = 0; token < logits.size(); ++token) {
      bool in = std::any_of(kept.begin(), kept.end(), [&](const auto &entry) { return entry.first == token; });
      EXPECT_TRUE(in || !count[token]) << "round " << round << " token " << token;
      // All that may come and has a fair share does: 100 draws miss a share of 1/3 with 2e-18.
      uint64_t total = 0, mine = 0;
      for (const auto &[other, weight] : kept)
        total += weight, mine += other == token ? weight : 0;
      EXPECT_TRUE(mine * 3 < total || count[token]) << "round " << round << " token " << token;
    }
  }
}

TEST(Sampler, TopPTakesTheTokenThatReachesTheShare) {
  // Four equally likely tokens: half of the probability is two of them, the lower ones.
  const std::vector<float> logits{2, 2, -kInfinity, 2, 2};
  SampleScratch scratch;
  for (auto [share, last] : {std::pair(0.25f, 0u), {0.26f, 1u}, {0.5f, 1u}, {0.51f, 3u}, {0.75f, 3u}, {0.76f, 4u}}) {
    uint32_t greatest = 0;
    for (uint64_t i = 0; i < 300; ++i)
      greatest = std::max(greatest, *sampleToken(logits, sampling(1, 0, share), i, scratch));
    EXPECT_EQ(greatest, last) << share;
  }
}

TEST(Sampler, ProcessesInTheOrderThatItsHeaderSays) {
  Sampling s;
  s.repetitionPenalty = 2;
  s.presencePenalty = 0.5f;
  s.frequencyPenalty = 0.25f;
  s.bias = {{1, 3}, {4, -kInfinity}};
  s.allowed = {0b1111111};
  s.minTokens = 2;
  TokenCounts counts;
  const std::vector<uint32_t> prompt{0, 1, 0}, stops{6, 900};
  counts.addPrompt(prompt, 3);
  for (uint32_t token : {2u, 2u, 3u})
    counts.addAnswer(token);
  std::vector<float> logits{4, -1, -4, 8, 1, 5, 6, 7};
  processLogits(logits, s, counts, stops, 1);
  // Token 1: (-1 + 3) / 2; 2: -4 * 2 - 2 * 0.25 - 0.5; 3: 8 / 2 - 0.25 - 0.5; 6 stops too early; 7 is not allowed.
  EXPECT_EQ(logits, (std::vector<float>{2, 1, -9, 3.25f, -kInfinity, 5, -kInfinity, -kInfinity}));
  std::vector<float> later{4, -1, -4, 8, 1, 5, 6, 7};
  processLogits(later, s, counts, stops, 2);
  EXPECT_EQ(later[6], 6);
}

TEST(Sampler, RefusesWhatHasNoMeaning) {
  auto refused = [](auto change) {
    Sampling s;
    change(s);
    return checkSampling(s, 40).message();
  };
  EXPECT_EQ(refused([](Sampling &) {}), "");
  EXPECT_NE(refused([](Sampling &s) { s.temperature = -1; }).find("temperature is -1"), std::string::npos);
  EXPECT_NE(refused([](Sampling &s) { s.temperature = kNan; }), "");
  EXPECT_NE(refused([](Sampling &s) { s.temperature = kInfinity; }), "");
  EXPECT_NE(refused([](Sampling &s) { s.topP = 1.5f; }), "");
  EXPECT_NE(refused([](Sampling &s) { s.topP = 0; }), "");
  EXPECT_NE(refused([](Sampling &s) { s.minP = -0.1f; }), "");
  EXPECT_NE(refused([](Sampling &s) { s.repetitionPenalty = 0; }), "");
  EXPECT_NE(refused([](Sampling &s) { s.presencePenalty = kNan; }), "");
  EXPECT_NE(refused([](Sampling &s) { s.frequencyPenalty = kInfinity; }), "");
  EXPECT_NE(refused([](Sampling &s) { s.bias = {{40, 1}}; }).find("token 40"), std::string::npos);
  EXPECT_NE(refused([](Sampling &s) { s.bias = {{4, kInfinity}}; }), "");
  EXPECT_NE(refused([](Sampling &s) { s.allowed = {1, 0, 0}; }).find("3 words"), std::string::npos);
  EXPECT_NE(refused([](Sampling &s) { s.allowed = {0, 1u << 8}; }).find("no token"), std::string::npos);
  EXPECT_EQ(refused([](Sampling &s) { s.allowed = {0, 1u << 7}; }), "");
}

TEST(Sampler, Logprobs) {
  const std::vector<float> logits{1, 3, kNan, 3, -kInfinity, 2};
  const double sum = std::log(2 * std::exp(3.) + std::exp(2.) + std::exp(1.));
  Logprobs found = logprobsOf(logits, 3, 4);
  EXPECT_FLOAT_EQ(found.logprob, float(3 - sum));
  EXPECT_EQ(found.rank, 2u);
  ASSERT_EQ(found.top.size(), 4u);
  const uint32_t order[] = {1, 3, 5, 0};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(found.top[i].token, order[i]);
    EXPECT_FLOAT_EQ(found.top[i].logprob, float(logits[order[i]] - sum));
  }
  EXPECT_TRUE(logprobsOf(logits, 0, 0).top.empty());
  EXPECT_EQ(logprobsOf(logits, 4, 20).top.size(), 6u);
}

//===----------------------------------------------------------------------===//
// How often
//===----------------------------------------------------------------------===//

/// The share of a chi-squared distribution above `chi`: the regularized upper incomplete gamma function, by its series
/// or its continued fraction (Press et al., "Numerical Recipes", section 6.2).
double pValue(double chi, int degrees) {
  const double a = degrees / 2.0, x = chi / 2;
  if (x <= 0 || degrees <= 0)
    return 1;
  const double scale = std::exp(a * std::log(x) - x - std::lgamma(a));
  if (x < a + 1) {
    double term = 1 / a, sum = term;
    for (int n = 1; n < 10000 && term > sum * 1e-15; ++n)
      sum += term *= x / (a + n);
    return 1 - scale * sum;
  }
  double b = x + 1 - a, c = 1e300, d = 1 / b, h = d;
  for (int n = 1; n < 10000; ++n) {
    const double an = -n * (n - a);
    b += 2;
    d = 1 / (an * d + b);
    c = b + an / c;
    h *= c * d;
    if (std::abs(c * d - 1) < 1e-15)
      break;
  }
  return scale * h;
}

/// Pearson's test; cells that are expected fewer than five times are counted together. 0 where something came that
/// never should.
double judge(const std::vector<uint64_t> &count, const std::vector<double> &share) {
  const double draws = double(std::accumulate(count.begin(), count.end(), uint64_t(0)));
  double chi = 0, rare = 0, rareCount = 0;
  int cells = 0;
  auto add = [&](double wanted, double found) {
    chi += (found - wanted) * (found - wanted) / wanted;
    ++cells;
  };
  for (size_t i = 0; i < share.size(); ++i) {
    if (share[i] == 0 && count[i])
      return 0;
    if (const double wanted = share[i] * draws; wanted >= 5)
      add(wanted, double(count[i]));
    else
      rare += wanted, rareCount += double(count[i]);
  }
  if (rare >= 5)
    add(rare, rareCount);
  return pValue(chi, cells - 1);
}

uint64_t drawsOfASetting() {
  const char *text = std::getenv("LATHE_SAMPLER_DRAWS");
  return text ? std::strtoull(text, nullptr, 10) : 20000;
}

struct Setting {
  const char *name;
  std::vector<float> logits;
  Sampling sampling;
  enum { ByIndex, BySeed, BySample } by = ByIndex;
};

std::vector<Setting> settings() {
  std::mt19937 random(11);
  auto normal = [&](size_t size, float deviation) {
    std::normal_distribution<float> draw(0, deviation);
    std::vector<float> logits(size);
    for (float &logit : logits)
      logit = draw(random);
    return logits;
  };
  std::vector<float> ties(64), holes = normal(200, 2);
  for (size_t i = 0; i < ties.size(); ++i)
    ties[i] = float(i % 5);
  for (size_t i = 0; i < holes.size(); i += 3)
    holes[i] = i % 2 ? kNan : -kInfinity;
  std::vector<Setting> all{
      {"temperature 1", normal(50, 1), sampling(1)},
      {"temperature 0.3", normal(50, 1), sampling(0.3f)},
      {"temperature 3", normal(50, 2), sampling(3)},
      {"two tokens", {0, 1}, sampling(1)},
      {"uniform 257", std::vector<float>(257, 1), sampling(1)},
      {"top-k 2", normal(50, 1), sampling(1, 2)},
      {"top-k 40 of 2000", normal(2000, 2), sampling(1, 40)},
      {"top-k in ties", ties, sampling(1, 20)},
      {"top-p 0.1", normal(50, 1), sampling(1, 0, 0.1f)},
      {"top-p 0.9", normal(500, 2), sampling(1, 0, 0.9f)},
      {"top-p in ties", ties, sampling(1.5f, 0, 0.7f)},
      {"min-p 0.05", normal(500, 2), sampling(1, 0, 1, 0.05f)},
      {"min-p 1", ties, sampling(1, 0, 1, 1)},
      {"top-k, top-p, min-p", normal(1000, 2), sampling(0.8f, 50, 0.95f, 0.02f)},
      {"NaN and infinities", holes, sampling(1)},
      {"6,000 tokens", normal(6000, 1.5f), sampling(1, 0, 0.5f)},
      {"by seeds", normal(50, 1), sampling(1), Setting::BySeed},
      {"by samples", normal(50, 1), sampling(1), Setting::BySample},
  };
  return all;
}

/// Counts draws and says how often each token should come.
double pOf(const Setting &setting, uint64_t draws, float factor = 1) {
  Sampling truth = setting.sampling;
  truth.temperature *= factor;
  std::vector<double> share(setting.logits.size(), 0);
  auto kept = candidates<double>(setting.logits, truth, 1.0,
                                 [](double below, float temperature) { return std::exp(below / double(temperature)); });
  double total = 0;
  for (const auto &entry : kept)
    total += entry.second;
  for (const auto &entry : kept)
    share[entry.first] = entry.second / total;
  std::vector<uint64_t> count(setting.logits.size(), 0);
  SampleScratch scratch;
  Sampling s = setting.sampling;
  s.seed = 77;
  for (uint64_t i = 0; i < draws; ++i) {
    if (setting.by == Setting::BySeed)
      s.seed = i;
    else if (setting.by == Setting::BySample)
      s.sample = uint32_t(i);
    ++count[*sampleToken(setting.logits, s, setting.by == Setting::ByIndex ? i : 5, scratch)];
  }
  return judge(count, share);
}

TEST(SamplerStatistics, DrawsAsOftenAsProbable) {
  const uint64_t draws = drawsOfASetting();
  std::vector<Setting> all = settings();
  double least = 1;
  for (const Setting &setting : all) {
    // Many tokens take long: as many draws only in the long run.
    const uint64_t mine = setting.logits.size() > 1000 && draws < 1000000 ? draws / 20 : draws;
    const double p = pOf(setting, mine);
    std::printf("%-22s %8llu draws   p = %.4g\n", setting.name, static_cast<unsigned long long>(mine), p);
    least = std::min(least, p);
  }
  std::printf("least p by Bonferroni of %zu settings: %.4g\n", all.size(), least * double(all.size()));
  EXPECT_GE(least * double(all.size()), 1e-3);
}

/// A temperature that is a tenth off is found out, and so is a token that should never come.
TEST(SamplerStatistics, FindsWrongFrequencies) {
  EXPECT_LT(pOf(settings()[0], 20000, 1.1f), 1e-5);
  EXPECT_EQ(judge({10, 10, 1}, {0.5, 0.5, 0}), 0);
  EXPECT_NEAR(pValue(18.307, 10), 0.05, 1e-4); // of tables
  EXPECT_NEAR(pValue(3.940, 10), 0.95, 1e-4);
}

/// Two draws that follow each other, of indices, seeds and samples, say nothing of each other.
TEST(SamplerStatistics, NeighboursAreIndependent) {
  const std::vector<float> logits{0, 1, 0.5f, -0.5f};
  std::vector<double> one(4);
  double total = 0;
  for (float logit : logits)
    total += std::exp(double(logit));
  for (size_t i = 0; i < 4; ++i)
    one[i] = std::exp(double(logits[i])) / total;
  std::vector<double> share;
  for (double a : one)
    for (double b : one)
      share.push_back(a * b);
  SampleScratch scratch;
  for (int by = 0; by < 3; ++by) {
    std::vector<uint64_t> count(16, 0);
    for (uint64_t i = 0; i < drawsOfASetting(); ++i) {
      uint32_t pair[2];
      for (uint64_t n = 0; n < 2; ++n) {
        Sampling s = sampling(1);
        s.seed = by == 1 ? 2 * i + n : 9;
        s.sample = by == 2 ? uint32_t(2 * i + n) : 0;
        pair[n] = *sampleToken(logits, s, by == 0 ? 2 * i + n : 1, scratch);
      }
      ++count[pair[0] * 4 + pair[1]];
    }
    EXPECT_GE(judge(count, share) * 3, 1e-3) << by;
  }
}

} // namespace
} // namespace lathe::serve
