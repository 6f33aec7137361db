//===- Draws.cpp - what a device is asked to draw ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Draws.h"

#include <algorithm>
#include <bit>

namespace lathe::serve {

void DrawList::clear() {
  drawn.clear();
  ranked.clear();
  lists.clear();
}

void DrawList::add(const Draw &draw) {
  const Sampling &s = *draw.sampling;
  engine::SampleDraw d = {};
  d.row = draw.row;
  d.seed = s.seed;
  d.index = draw.index;
  d.sample = s.sample;
  d.scale = scaleOf(s.temperature);
  d.topP = s.topP;
  d.topK = s.topK;
  d.leastWeight = leastWeightOf(s.minP);
  d.repetition = s.repetitionPenalty;
  d.presence = s.presencePenalty;
  d.frequency = s.frequencyPenalty;
  auto place = [&] { return uint32_t(lists.size()); };
  // Several of one token are added one after another, as they were given.
  sorted.assign(s.bias.begin(), s.bias.end());
  for (size_t i = 1; i < sorted.size(); ++i)
    std::rotate(std::upper_bound(sorted.begin(), sorted.begin() + ptrdiff_t(i), sorted[i],
                                 [](TokenBias a, TokenBias b) { return a.token < b.token; }),
                sorted.begin() + ptrdiff_t(i), sorted.begin() + ptrdiff_t(i) + 1);
  d.bias = place();
  d.biasCount = uint32_t(sorted.size());
  for (TokenBias one : sorted)
    lists.insert(lists.end(), {one.token, std::bit_cast<uint32_t>(one.bias)});
  d.counts = place();
  if (penalizes(s)) {
    d.countsCount = uint32_t(draw.counts->all().size());
    for (const TokenCounts::Entry &entry : draw.counts->all())
      lists.insert(lists.end(), {entry.token, entry.answered});
  }
  d.out = place();
  if (draw.index < s.minTokens) {
    d.outCount = uint32_t(draw.stopTokens.size());
    lists.insert(lists.end(), draw.stopTokens.begin(), draw.stopTokens.end());
  }
  d.mask = place();
  d.masked = !s.allowed.empty();
  d.maskWords = uint32_t(s.allowed.size());
  lists.insert(lists.end(), s.allowed.begin(), s.allowed.end());
  drawn.push_back(d);
  if (draw.ranked)
    ranked.push_back({draw.row, 0, uint32_t(drawn.size()), std::min(draw.top, kMostLogprobs)});
}

void DrawList::addRanked(uint32_t row, uint32_t token, uint32_t top) {
  ranked.push_back({row, token, 0, std::min(top, kMostLogprobs)});
}

Logprobs logprobsOf(const engine::RankResult &ranked) {
  Logprobs result;
  result.logprob = logprobOf(ranked.logit, ranked.greatest, ranked.sum);
  result.rank = ranked.rank;
  for (uint32_t i = 0; i < std::min(ranked.topCount, kMostLogprobs); ++i)
    result.top.push_back({ranked.top[i].token, logprobOf(ranked.top[i].logit, ranked.greatest, ranked.sum)});
  return result;
}

} // namespace lathe::serve
