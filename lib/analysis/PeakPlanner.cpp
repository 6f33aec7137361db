//===- PeakPlanner.cpp - exact search on the peaks alone -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The sections that set the height are few in a long problem. Their buffers are packed
// exactly below a target, and then are obstacles to greedy placement of all others.
//
//===----------------------------------------------------------------------===//
#include "Planners.h"

#include <algorithm>

namespace lathe::analysis {
namespace {

constexpr size_t kMaxItems = 5000; ///< that are searched exactly

/// Items alive at a time when at least `least` bytes are.
std::vector<int> itemsOfPeaks(const std::vector<Item> &items, int64_t least) {
  struct Event {
    int64_t time;
    bool starts;
    int item;
  };
  std::vector<Event> events;
  for (int i = 0; i < static_cast<int>(items.size()); ++i)
    if (items[i].size > 0 && items[i].begin < items[i].end) {
      events.push_back({items[i].begin, true, i});
      events.push_back({items[i].end, false, i});
    }
  std::sort(events.begin(), events.end(), [](const Event &a, const Event &b) {
    return std::tuple(a.time, a.starts, a.item) < std::tuple(b.time, b.starts, b.item);
  });
  std::vector<char> chosen(items.size(), 0);
  std::vector<int> live;
  int64_t load = 0;
  for (const Event &e : events) {
    load += e.starts ? items[e.item].size : -items[e.item].size;
    if (!e.starts) {
      live.erase(std::find(live.begin(), live.end(), e.item));
      continue;
    }
    live.push_back(e.item);
    if (load >= least)
      for (int i : live)
        chosen[i] = 1;
  }
  std::vector<int> result;
  for (int i = 0; i < static_cast<int>(items.size()); ++i)
    if (chosen[i])
      result.push_back(i);
  return result;
}

} // namespace

void improvePeaks(const Problem &problem, const std::vector<Item> &items,
                  const PlanOptions &options, ItemPlan &plan) {
  // What is packed must not meet what is fixed and not packed with it.
  auto isFixed = [](const Item &item) { return item.offset.has_value(); };
  if (problem.conflicts || std::any_of(items.begin(), items.end(), isFixed))
    return;
  int64_t end = plan.nodes + options.nodes;
  PlanOptions now = options;
  now.firstFit = true;
  now.nodes = std::max<int64_t>(options.nodes / 8, 1);
  // Packs some items below the target; false when it cannot.
  auto pack = [&](const std::vector<int> &chosen, int64_t target, std::vector<Item> &pinned) {
    std::vector<int> buffers;
    for (int i : chosen)
      buffers.insert(buffers.end(), items[i].buffers.begin(), items[i].buffers.end());
    Problem part = selectBuffers(problem, buffers);
    part.capacity = target;
    std::vector<Item> partItems = makeItems(part);
    ItemPlan low = planGreedily(partItems, target, 0);
    low.lowerBound = heightLowerBound(part);
    if (low.height > target && chosen.size() <= kMaxItems && plan.nodes < end)
      improveExactly(part, partItems, now, low);
    plan.nodes += low.nodes;
    for (size_t k = 0; k < chosen.size(); ++k)
      pinned[chosen[k]].offset = low.offsets[k];
    return low.height <= target;
  };
  auto byBegin = [&](int a, int b) {
    return std::pair(items[a].begin, a) < std::pair(items[b].begin, b);
  };

  // From the bound up; from few sections to many.
  for (int step = 0; step < 4; ++step)
    for (int percent : {95, 85, 70, 50}) {
      int64_t target = plan.lowerBound + (plan.height - plan.lowerBound) * step / 5;
      if (plan.height <= target || plan.nodes >= end)
        return;
      std::vector<int> chosen = itemsOfPeaks(items, target / 100 * percent);
      if (chosen.empty() || chosen.size() == items.size())
        continue;
      std::sort(chosen.begin(), chosen.end(), byBegin);
      std::vector<Item> pinned = items;
      bool packed = true;
      for (size_t first = 0; first < chosen.size() && packed;) {
        // As many as lifetimes tie together.
        size_t last = first;
        int64_t until = items[chosen[first]].end;
        while (last < chosen.size() && (last == first || items[chosen[last]].begin < until))
          until = std::max(until, items[chosen[last++]].end);
        packed = pack(std::vector<int>(chosen.begin() + static_cast<int64_t>(first),
                                       chosen.begin() + static_cast<int64_t>(last)),
                      target, pinned);
        first = last;
      }
      if (!packed)
        break; // more sections are harder still
      ItemPlan all = planGreedily(pinned, target, 0);
      if (all.height < plan.height) {
        plan.height = all.height;
        plan.offsets = std::move(all.offsets);
        plan.method = "peaks, " + all.method;
      }
      if (all.height <= target)
        return;
    }
}

} // namespace lathe::analysis
