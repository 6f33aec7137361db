//===- WindowPlanner.cpp - exact search in windows of time -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A long problem is packed from its first item to its last: a window at a time, exactly,
// below a target, with earlier items that reach into the window as obstacles. The first
// half of a window stays, so that what follows has had a say in it. A window that cannot be
// packed begins earlier. Borders stand where few bytes are alive.
//
//===----------------------------------------------------------------------===//
#include "FitSearch.h"

#include <algorithm>
#include <numeric>

namespace lathe::analysis {
namespace {

constexpr int kWindow = 64;     ///< items
constexpr int kTries = 5;       ///< each begins earlier than the one before
constexpr int64_t kNodes = 1000; ///< of the first try; doubles
constexpr int64_t kManyNodes = 200'000;
constexpr size_t kLong = 5000; ///< items of a problem that is searched in windows alone
constexpr int64_t kSetUp = 32; ///< nodes that take as long as to set up a search
constexpr int64_t kMaxCells = 4'000'000;
constexpr int kStride = 64; ///< items between two lists of the living
/// Items alive together on the average, above which windows have too many obstacles.
constexpr int64_t kMostAlive = 64;

/// Of all windows: a tenth of a second, and as much as windows that are easy need.
int64_t nodesFor(int64_t items) {
  return std::max<int64_t>(20 * items, std::min<int64_t>(60 * items, 60'000));
}

class Windows {
public:
  Windows(const Problem &problem, const std::vector<Item> &items, const PlanOptions &options,
          ItemPlan &plan)
      : problem(problem), items(items), options(options), plan(plan),
        enough(options.firstFit ? std::max(plan.lowerBound, problem.capacity) : plan.lowerBound),
        nodesLeft(nodesFor(static_cast<int64_t>(items.size()))) {
    if (items.size() > kLong)
      nodesLeft = std::max(nodesLeft, options.nodes);
    this->options.firstFit = true;
    for (int i = 0; i < static_cast<int>(items.size()); ++i)
      if (items[i].size > 0 && items[i].begin < items[i].end)
        order.push_back(i);
    std::sort(order.begin(), order.end(), [&](int a, int b) {
      return std::pair(items[a].begin, a) < std::pair(items[b].begin, b);
    });
    std::vector<int> live;
    for (size_t p = 0; p < order.size(); ++p) {
      int64_t now = items[order[p]].begin;
      if (p % kStride == 0) {
        std::erase_if(live, [&](int i) { return items[i].end <= now; });
        alive.push_back(live);
      }
      live.push_back(order[p]);
    }
    sweepLoads();
  }

  /// Lowers the plan towards its bound: from the bound up as far as is needed, then by
  /// bisection. With few nodes first half of the way.
  void run() {
    const int64_t step = plan.lowerBound / 512 + 1;
    int64_t low = enough; ///< of what may be worth a try
    for (int round = nodesLeft < kManyNodes ? 0 : 1; nodesLeft > 0 && plan.height > low; ++round) {
      if (round > 1 && plan.height - low <= step)
        break;
      int64_t target = round == 1 ? low : low + (plan.height - low) / 2;
      bool done = place(target, round == 1 ? step : INT64_MAX);
      if (done)
        accept();
      else if (round != 1)
        low = target + 1;
    }
  }

private:
  int count() const { return static_cast<int>(order.size()); }

  /// Live bytes just before each item begins.
  void sweepLoads() {
    std::vector<std::pair<int64_t, int>> ends;
    for (int i : order)
      ends.emplace_back(items[i].end, i);
    std::sort(ends.begin(), ends.end());
    int64_t live = 0;
    size_t ended = 0;
    for (int i : order) {
      for (; ended < ends.size() && ends[ended].first <= items[i].begin; ++ended)
        live -= items[ends[ended].second].size;
      load.push_back(live);
      live += items[i].size;
    }
  }

  void accept() {
    int64_t height = 0;
    for (size_t i = 0; i < items.size(); ++i)
      height = std::max(height, offsets[i] + items[i].size);
    if (height >= plan.height)
      return;
    plan.height = height;
    plan.offsets = offsets;
  }

  /// Places all items below the target, from the first to the last: a window at a time,
  /// whose first half stays. Where that does not succeed, the target rises by `step`.
  /// False when it reaches the height of the plan, or the nodes end.
  bool place(int64_t target, int64_t step) {
    offsets = plan.offsets;
    for (int done = 0; done < count();) {
      int to = border(done + kWindow, done + kWindow + kWindow / 4);
      while (!extend(done, to, target)) {
        if (nodesLeft <= 0 || step >= plan.height - target)
          return false;
        target += step;
      }
      done = to == count() ? to : border(to - kWindow / 2, to - kWindow / 4);
    }
    return true;
  }

  /// Packs items [done, to); begins earlier and takes more nodes until that succeeds.
  bool extend(int done, int to, int64_t target) {
    for (int tries = 0; tries < kTries && nodesLeft > 0; ++tries) {
      int back = tries == 0 ? 0 : (kWindow / 2) << (tries - 1);
      if (repack(border(done - back, done - back / 2), to, target, kNodes << tries))
        return true;
    }
    return false;
  }

  /// The border between `from` and `to` with least bytes alive.
  int border(int from, int to) const {
    from = std::clamp(from, 0, count());
    to = std::clamp(to, 0, count());
    if (from == 0)
      return 0;
    if (to == count())
      return count();
    int best = from;
    for (int p = from; p <= to; ++p)
      if (load[p] < load[best])
        best = p;
    return best;
  }

  /// Packs items [from, to) anew around those before them.
  bool repack(int from, int to, int64_t target, int64_t nodes) {
    chosen.clear();
    if (from > 0) {
      int64_t begin = items[order[from]].begin;
      for (int i : alive[static_cast<size_t>(from / kStride)])
        if (items[i].end > begin)
          chosen.push_back(i);
      for (int p = from / kStride * kStride; p < from; ++p)
        if (items[order[p]].end > begin)
          chosen.push_back(order[p]);
    }
    size_t fixed = chosen.size();
    chosen.insert(chosen.end(), order.begin() + from, order.begin() + to);
    Problem part;
    part.capacity = target;
    partItems.clear();
    for (size_t k = 0; k < chosen.size(); ++k) {
      Item item;
      item.size = items[chosen[k]].size;
      item.alignment = items[chosen[k]].alignment;
      item.offset = items[chosen[k]].offset;
      if (k < fixed)
        item.offset = offsets[chosen[k]];
      for (int b : items[chosen[k]].buffers) {
        item.buffers.push_back(static_cast<int>(part.buffers.size()));
        part.buffers.push_back(problem.buffers[b]);
      }
      partItems.push_back(std::move(item));
    }
    std::optional<PackProblem> pack =
        makePackProblem(part, partItems, options.rules.sections, kMaxCells);
    if (!pack)
      return false;
    FitSearch search(*pack, options, firstOrder);
    Outcome outcome =
        search.run(static_cast<int32_t>(target / pack->unit), std::min(nodesLeft, nodes));
    nodesLeft -= search.nodesUsed() + kSetUp;
    plan.nodes += search.nodesUsed();
    if (outcome != Outcome::Found)
      return false;
    firstOrder = search.orderOfFound();
    for (size_t k = fixed; k < chosen.size(); ++k)
      offsets[chosen[k]] = search.offsets()[k] * pack->unit;
    return true;
  }

  std::vector<int64_t> offsets; ///< of the plan that is made
  const Problem &problem;
  const std::vector<Item> &items;
  PlanOptions options;
  ItemPlan &plan;
  int64_t enough; ///< no need to go below
  int64_t nodesLeft;
  std::vector<int> order; ///< items by begin
  std::vector<std::vector<int>> alive; ///< at the begin of every kStride-th, those before it
  std::vector<int64_t> load;
  std::vector<int> chosen;
  int firstOrder = 0; ///< that found the last plan
  std::vector<Item> partItems;
};

} // namespace

bool improveWindows(const Problem &problem, const std::vector<Item> &items,
                    const PlanOptions &options, ItemPlan &plan) {
  if (problem.conflicts ||
      countConflicts(problem) > kMostAlive * static_cast<int64_t>(items.size()))
    return false;
  Windows(problem, items, options, plan).run();
  return true;
}

} // namespace lathe::analysis
