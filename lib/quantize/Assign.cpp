//===- Assign.cpp - which layer gets which format -------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/quantize/Assign.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace lathe::quantize {

namespace {

/// An assignment of the layers so far.
struct Label {
  double loss, cost;
  size_t last; ///< number of its last choice among those of all labels
};

/// A choice, and the one before it.
struct Taken {
  size_t choice, before;
};

/// Keeps what nothing else beats, by growing cost and falling loss; in equal steps of cost where that is too long.
void prune(std::vector<Label> &front, size_t longest) {
  std::sort(front.begin(), front.end(), [](const Label &a, const Label &b) {
    return a.cost != b.cost ? a.cost < b.cost : a.loss != b.loss ? a.loss < b.loss : a.last < b.last;
  });
  std::vector<Label> kept;
  for (const Label &label : front)
    if (kept.empty() || label.loss < kept.back().loss)
      kept.push_back(label);
  if (kept.size() > longest) {
    const double lowest = kept.front().cost, step = (kept.back().cost - lowest) / double(longest);
    std::vector<Label> thinned;
    size_t present = 0;
    for (const Label &label : kept) { // the last of a step has its least loss
      const auto place = size_t((label.cost - lowest) / step);
      if (!thinned.empty() && place == present)
        thinned.back() = label;
      else
        thinned.push_back(label);
      present = place;
    }
    if (thinned.front().cost > lowest)
      thinned.insert(thinned.begin(), kept.front()); // the cheapest of all stays
    kept = std::move(thinned);
  }
  front = std::move(kept);
}

} // namespace

Result<std::vector<Assignment>> paretoFront(const std::vector<std::vector<Choice>> &layers,
                                            const std::vector<PairCost> &pairs, size_t longest) {
  constexpr size_t kMostFronts = 4096;
  std::vector<std::vector<const PairCost *>> back(layers.size()); // by the second layer
  std::vector<size_t> until(layers.size());                       // the last layer that each has a pair with
  for (size_t layer = 0; layer < layers.size(); ++layer)
    until[layer] = layer;
  for (const PairCost &pair : pairs) {
    back[pair.second].push_back(&pair);
    until[pair.first] = std::max(until[pair.first], pair.second);
  }
  constexpr size_t kNone = size_t(-1);
  std::vector<Taken> taken;
  std::vector<size_t> open; // layers whose choices tell fronts apart
  std::map<std::vector<size_t>, std::vector<Label>> fronts{{{}, {{0, 0, kNone}}}};
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    std::vector<size_t> after;
    for (size_t i = 0; i < open.size(); ++i)
      if (until[open[i]] > layer)
        after.push_back(i);
    std::map<std::vector<size_t>, std::vector<Label>> next;
    for (const auto &[state, front] : fronts)
      for (size_t choice = 0; choice < layers[layer].size(); ++choice) {
        const Choice &own = layers[layer][choice];
        if (!std::isfinite(own.loss))
          continue;
        double cost = own.cost;
        for (const PairCost *pair : back[layer])
          cost += pair->cost[state[size_t(std::find(open.begin(), open.end(), pair->first) - open.begin())]][choice];
        std::vector<size_t> key;
        for (size_t i : after)
          key.push_back(state[i]);
        if (until[layer] > layer)
          key.push_back(choice);
        std::vector<Label> &into = next[key];
        for (const Label &label : front) {
          into.push_back({label.loss + own.loss, label.cost + cost, taken.size()});
          taken.push_back({choice, label.last});
        }
      }
    if (next.size() > kMostFronts)
      return usageError("pairs of layers leave " + std::to_string(next.size()) + " combinations open", "--budget");
    std::vector<size_t> left;
    for (size_t i : after)
      left.push_back(open[i]);
    if (until[layer] > layer)
      left.push_back(layer);
    open = std::move(left);
    for (auto &[state, front] : next)
      prune(front, longest);
    fronts = std::move(next);
  }
  std::vector<Assignment> all;
  for (const auto &[state, front] : fronts)
    for (const Label &label : front) {
      Assignment &made = all.emplace_back(Assignment{std::vector<size_t>(layers.size()), label.loss, label.cost});
      size_t at = label.last;
      for (size_t layer = layers.size(); layer-- > 0; at = taken[at].before)
        made.choices[layer] = taken[at].choice;
    }
  return all;
}

} // namespace lathe::quantize
