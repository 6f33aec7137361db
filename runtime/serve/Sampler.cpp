//===- Sampler.cpp - the next token from logits -----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Sampler.h"

#include "lathe/support/Philox.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace lathe::serve {

namespace {

constexpr uint64_t kUnit = 1ull << 40; ///< weight of the likeliest token
constexpr float kOut = -std::numeric_limits<float>::infinity();
/// Digits of a logit's 32 bits, the highest first, by which a pivot is found.
constexpr unsigned kShifts[] = {21, 10, 0}, kWidths[] = {11, 11, 10};

/// Numbers in the order of logits, NaN below all.
uint32_t orderOf(float logit) {
  if (std::isnan(logit))
    return 0;
  const uint32_t bits = std::bit_cast<uint32_t>(logit + 0.0f); // -0 is 0
  return bits >> 31 ? ~bits : bits | 1u << 31;
}

/// The greatest elements of a row: all above `key`, and of those equal to it the first `ties`.
struct Pivot {
  uint32_t key = 0;
  uint64_t ties = 0;
};

/// The fewest greatest elements whose measures sum to `target` at least, by a histogram for each digit. Equal elements
/// have equal measures, or 0 behind those; all of them together reach the target, which is not 0.
template <typename Sum, typename Measure>
Pivot findPivot(std::span<const float> logits, uint64_t target, std::vector<Sum> &histogram, Measure measure) {
  Pivot pivot;
  uint64_t above = 0;
  for (int digit = 0; digit < 3; ++digit) {
    const unsigned shift = kShifts[digit], top = shift + kWidths[digit];
    const uint32_t mask = (1u << kWidths[digit]) - 1;
    histogram.assign(mask + 1, 0);
    for (size_t i = 0; i < logits.size(); ++i)
      if (uint32_t key = orderOf(logits[i]); top == 32 || key >> top == pivot.key >> top)
        histogram[key >> shift & mask] += Sum(measure(i));
    uint32_t d = mask;
    while (above + histogram[d] < target)
      above += histogram[d--];
    pivot.key |= d << shift;
  }
  uint64_t one = 1; // measure of those equal to the key, but for some at the end that are out already
  for (size_t i = 0; i < logits.size(); ++i)
    if (orderOf(logits[i]) == pivot.key)
      one = std::max<uint64_t>(one, measure(i));
  pivot.ties = (target - above + one - 1) / one;
  return pivot;
}

/// Sets the weights of all that the pivot leaves out to 0, and gives the sum of the others.
uint64_t keep(std::span<const float> logits, Pivot pivot, std::vector<uint64_t> &weights) {
  uint64_t total = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const uint32_t key = orderOf(logits[i]);
    if (key < pivot.key || (key == pivot.key && pivot.ties == 0))
      weights[i] = 0;
    else if (key == pivot.key)
      --pivot.ties;
    total += weights[i];
  }
  return total;
}

constexpr double kLn2 = 0.69314718055994530942, kLog2E = 1.4426950408889634074;

/// 2^(i/128), by the Taylor series of e^(i ln(2)/128).
constexpr std::array<double, kSamplePowers> kPowers = [] {
  std::array<double, kSamplePowers> powers;
  for (size_t i = 0; i < powers.size(); ++i) {
    double sum = 1;
    for (int k = 20; k > 0; --k)
      sum = 1 + sum * (double(i) * (kLn2 / 128)) / k;
    powers[i] = sum;
  }
  return powers;
}();

bool isOn(const std::vector<uint32_t> &mask, uint32_t token) {
  return token / 32 < mask.size() && mask[token / 32] >> (token % 32) & 1;
}

} // namespace

const std::array<double, kSamplePowers> &powersOfTwo() { return kPowers; }

uint64_t fixedExp2(double y) {
  // 2^(n/128) from the table, times e^z by the Taylor series, whose first left-out term is below 2^-49, as |z| is at
  // most ln(2)/256. Adding a large number rounds to an integer, which is then in the low bits.
#pragma clang fp contract(off)
  constexpr double kRounds = 0x1.8p52;
  if (!(y > -41)) // below 2^-40
    return 0;
  const double steps = y * 128, shifted = steps + kRounds;
  const auto n = int32_t(uint32_t(std::bit_cast<uint64_t>(shifted)));
  const double z = (steps - (shifted - kRounds)) * (kLn2 / 128);
  const double series = (((1. / 24 * z + 1. / 6) * z + 0.5) * z + 1) * z + 1;
  const auto scaled = uint64_t(series * kPowers[size_t(n & 127)] * 0x1p52);
  return std::min(scaled >> (12 - (n >> 7)), kUnit);
}

Status checkSampling(const Sampling &s, uint32_t vocabulary) {
  auto wrong = [](const char *name, double value, const char *wanted) {
    return usageError(std::string(name) + " is " + std::to_string(value) + ", not " + wanted);
  };
  if (!(s.temperature >= 0) || std::isinf(s.temperature))
    return wrong("temperature", s.temperature, "a number from 0 on");
  if (!(s.topP > 0 && s.topP <= 1))
    return wrong("top_p", s.topP, "above 0 and at most 1");
  if (!(s.minP >= 0 && s.minP <= 1))
    return wrong("min_p", s.minP, "from 0 to 1");
  if (!(s.repetitionPenalty > 0) || std::isinf(s.repetitionPenalty))
    return wrong("repetition_penalty", s.repetitionPenalty, "a number above 0");
  if (!std::isfinite(s.presencePenalty))
    return wrong("presence_penalty", s.presencePenalty, "a number");
  if (!std::isfinite(s.frequencyPenalty))
    return wrong("frequency_penalty", s.frequencyPenalty, "a number");
  for (const TokenBias &one : s.bias) {
    if (one.token >= vocabulary)
      return usageError("a bias is for token " + std::to_string(one.token) + ", which is not below the vocabulary's " +
                        std::to_string(vocabulary));
    if (std::isnan(one.bias) || one.bias == -kOut)
      return wrong("a bias", one.bias, "a number, or -infinity");
  }
  if (s.allowed.empty())
    return okStatus();
  const size_t words = (size_t(vocabulary) + 31) / 32;
  if (s.allowed.size() > words)
    return usageError("the mask of allowed tokens has " + std::to_string(s.allowed.size()) + " words, more than the " +
                      std::to_string(words) + " of a vocabulary of " + std::to_string(vocabulary));
  for (uint32_t token = 0; token < vocabulary; ++token)
    if (isOn(s.allowed, token))
      return okStatus();
  return usageError("the mask allows no token");
}

void TokenCounts::addPrompt(std::span<const uint32_t> tokens, uint32_t more) {
  entries.reserve(tokens.size() + more);
  for (uint32_t token : tokens)
    (void)at(token);
}

TokenCounts::Entry &TokenCounts::at(uint32_t token) {
  auto it = std::lower_bound(entries.begin(), entries.end(), token,
                             [](const Entry &entry, uint32_t wanted) { return entry.token < wanted; });
  if (it == entries.end() || it->token != token)
    it = entries.insert(it, {token, 0});
  return *it;
}

bool penalizes(const Sampling &s) {
  return s.repetitionPenalty != 1 || s.presencePenalty != 0 || s.frequencyPenalty != 0;
}

bool takesGreatest(const Sampling &s, uint64_t index) {
  return (s.temperature == 0 || s.topK == 1) && !penalizes(s) && s.bias.empty() && s.allowed.empty() &&
         index >= s.minTokens;
}

uint32_t argmax(std::span<const float> logits) {
  uint32_t best = 0;
  for (uint32_t i = 1; i < logits.size(); ++i)
    if (logits[i] > logits[best] || (std::isnan(logits[best]) && !std::isnan(logits[i])))
      best = i;
  return best;
}

uint64_t leastWeightOf(float minP) { return uint64_t(std::ceil(double(minP) * double(kUnit))); }

double scaleOf(float temperature) { return temperature == 0 ? 0 : kLog2E / double(temperature); }

void processLogits(std::span<float> logits, const Sampling &s, const TokenCounts &counts,
                   std::span<const uint32_t> stopTokens, uint64_t index) {
#pragma clang fp contract(off) // as the kernel rounds
  for (const TokenBias &one : s.bias)
    logits[one.token] += one.bias;
  if (penalizes(s))
    for (const TokenCounts::Entry &entry : counts.all()) {
      float &logit = logits[entry.token];
      logit = logit > 0 ? logit / s.repetitionPenalty : logit * s.repetitionPenalty;
      logit -= s.frequencyPenalty * float(entry.answered) + (entry.answered ? s.presencePenalty : 0);
    }
  if (!s.allowed.empty())
    for (uint32_t token = 0; token < logits.size(); ++token)
      if (!isOn(s.allowed, token))
        logits[token] = kOut;
  if (index < s.minTokens)
    for (uint32_t token : stopTokens)
      if (token < logits.size())
        logits[token] = kOut;
}

std::optional<uint32_t> sampleToken(std::span<const float> logits, const Sampling &s, uint64_t index,
                                    SampleScratch &scratch) {
  const uint32_t best = argmax(logits);
  if (!(logits[best] > kOut)) // or NaN
    return std::nullopt;
  if (s.temperature == 0 || s.topK == 1)
    return best;
  std::vector<uint64_t> &weights = scratch.weights;
  weights.resize(logits.size());
  uint64_t total = 0;
  const double scale = scaleOf(s.temperature);
  for (size_t i = 0; i < logits.size(); ++i) {
    // The greatest may be infinite.
    weights[i] = logits[i] == logits[best] ? kUnit : fixedExp2((double(logits[i]) - double(logits[best])) * scale);
    total += weights[i];
  }
  if (s.topK && s.topK < logits.size())
    total = keep(logits, findPivot(logits, s.topK, scratch.counts, [](size_t) { return 1u; }), weights);
  if (s.topP < 1) {
    const double share = std::ceil(double(s.topP) * double(total));
    const uint64_t target = std::clamp(uint64_t(share), uint64_t(1), total);
    total = keep(logits, findPivot(logits, target, scratch.sums, [&](size_t i) { return weights[i]; }), weights);
  }
  if (s.minP > 0) {
    const uint64_t least = leastWeightOf(s.minP);
    total = 0;
    for (uint64_t &weight : weights)
      total += weight = weight < least ? 0 : weight;
  }
  // The token in whose part of [0, total) a random number lies, parts in the order of tokens.
  const uint64_t random = philox(index, s.sample, s.seed);
  auto left = uint64_t(static_cast<unsigned __int128>(random) * total >> 64);
  for (uint32_t i = 0;; left -= weights[i++])
    if (left < weights[i])
      return i;
}

float logprobOf(float logit, float greatest, uint64_t sum) {
  return float(double(logit) - (double(greatest) + std::log(double(sum) * 0x1p-40)));
}

Logprobs logprobsOf(std::span<const float> logits, uint32_t token, uint32_t top) {
  Logprobs result;
  const float greatest = logits[argmax(logits)];
  uint64_t sum = 0;
  for (float logit : logits)
    sum += logit == greatest ? kUnit : fixedExp2((double(logit) - double(greatest)) * kLog2E);
  auto logprob = [&](uint32_t i) { return logprobOf(logits[i], greatest, sum); };
  result.logprob = logprob(token);
  auto likelier = [&](uint32_t a, uint32_t b) {
    const uint32_t x = orderOf(logits[a]), y = orderOf(logits[b]);
    return x != y ? x > y : a < b;
  };
  std::vector<uint32_t> first; // the likeliest so far, in order
  for (uint32_t i = 0; i < logits.size(); ++i) {
    result.rank += likelier(i, token);
    if (first.size() < top)
      first.push_back(i);
    else if (top && likelier(i, first.back()))
      first.back() = i;
    else
      continue;
    for (size_t at = first.size() - 1; at && likelier(first[at], first[at - 1]); --at)
      std::swap(first[at], first[at - 1]);
  }
  for (uint32_t i : first)
    result.top.push_back({i, logprob(i)});
  return result;
}

} // namespace lathe::serve
