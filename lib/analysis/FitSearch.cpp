//===- FitSearch.cpp - asking whether items fit below a height -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Restarts over a portfolio of orders with growing node budgets.
//
//===----------------------------------------------------------------------===//
#include "FitSearch.h"

#include <algorithm>
#include <iterator>
#include <thread>

namespace lathe::analysis {
namespace {

constexpr int64_t kFirstRun = 1000; ///< nodes
using SectionOrder = SearchOrder::Section;
using ItemOrder = SearchOrder::Item;
constexpr SectionOrder kSectionOrders[] = {SectionOrder::BranchesLow, SectionOrder::LowBranches,
                                           SectionOrder::Branches, SectionOrder::LowTight,
                                           SectionOrder::Tight};
constexpr ItemOrder kItemOrders[] = {ItemOrder::Width,        ItemOrder::Area,
                                     ItemOrder::Size,         ItemOrder::WeightedArea,
                                     ItemOrder::WeightedSize, ItemOrder::Weight};
constexpr int kOrders = static_cast<int>(std::size(kSectionOrders) * std::size(kItemOrders));

SearchOrder orderOf(int run, int firstOrder) {
  run = (run + firstOrder) % kOrders;
  int n = static_cast<int>(std::size(kSectionOrders));
  return {kSectionOrders[run % n], kItemOrders[run / n % std::size(kItemOrders)]};
}

/// Doubles with each round of the portfolio.
int64_t nodesOf(int run) { return kFirstRun << std::min(run / kOrders, 30); }

} // namespace

Outcome FitSearch::run(int32_t capacity, int64_t nodes) {
  if (capacity != current) {
    current = capacity;
    if (lanes[0])
      weights = lanes[0]->weights;
    for (std::unique_ptr<PackSearch> &lane : lanes)
      lane.reset();
  }
  // The second lane costs as much to set up as the first, and often is not needed.
  auto laneOf = [&](int i) -> PackSearch & {
    if (!lanes[i]) {
      lanes[i] = std::make_unique<PackSearch>(problem, capacity, options.rules);
      if (!weights.empty())
        lanes[i]->weights = weights;
    }
    return *lanes[i];
  };
  int &run = runs[capacity];
  int64_t end = used + nodes;
  if (!options.rules.restarts) {
    Outcome outcome = laneOf(0).run(orderOf(0, firstOrder), nodes);
    used += laneOf(0).nodesUsed();
    found = laneOf(0).offsets();
    return outcome;
  }
  while (used < end) {
    Outcome outcomes[2] = {Outcome::OutOfNodes, Outcome::OutOfNodes};
    int64_t budget = nodesOf(run);
    int count = used + budget < end ? 2 : 1;
    std::atomic<bool> decided = false;
    if (options.threads > 1 && count == 2) {
      PackSearch &first = laneOf(0), &other = laneOf(1);
      std::thread second([&] { outcomes[1] = other.run(orderOf(run + 1, firstOrder), budget, &decided); });
      outcomes[0] = first.run(orderOf(run, firstOrder), budget);
      decided = outcomes[0] != Outcome::OutOfNodes;
      second.join();
    } else {
      outcomes[0] = laneOf(0).run(orderOf(run, firstOrder), budget);
      if (outcomes[0] == Outcome::OutOfNodes && count == 2)
        outcomes[1] = laneOf(1).run(orderOf(run + 1, firstOrder), budget);
    }
    for (int lane = 0; lane < count; ++lane) {
      if (!lanes[lane])
        continue;
      used += lanes[lane]->nodesUsed();
      if (outcomes[lane] == Outcome::OutOfNodes)
        continue;
      found = lanes[lane]->offsets();
      if (outcomes[lane] == Outcome::Found)
        lastOrder = (run + lane + firstOrder) % kOrders;
      return outcomes[lane];
    }
    run += 2;
  }
  return Outcome::OutOfNodes;
}

} // namespace lathe::analysis
