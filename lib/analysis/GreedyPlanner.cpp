//===- GreedyPlanner.cpp - a portfolio of greedy placements ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Buffers are placed one after another into a gap that their conflicts leave, in
// several orders and with first and best fit; then the best order is improved by
// placing buffers that reach the top earlier. Stops at the lower bound.
//
//===----------------------------------------------------------------------===//
#include "Planners.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace lathe::analysis {
namespace {

int64_t alignUp(int64_t value, int64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

enum class Fit { First, Best };

/// Places items in a given order, after those with fixed offsets.
class Placer {
public:
  Placer(const std::vector<Item> &items) : items(items), whole(items.size(), 1) {
    size_t edges = 0;
    for (size_t i = 0; i < items.size(); ++i) {
      edges += items[i].edges.size();
      for (const Edge &e : items[i].edges)
        whole[i] &= e.ownLow == 0 && e.otherLow == 0 && e.ownHigh == items[i].size &&
                    e.otherHigh == items[e.otherItem].size;
    }
    // Many conflicts: not those of each item are sorted, but all that is placed.
    sorting = edges > items.size() * kMany;
    if (sorting)
      edgeOf.assign(items.size(), -1);
  }

  /// Offsets by item; `work` counts visited conflicts. Stops above `limit`: the
  /// height is then any number above it.
  int64_t run(const std::vector<int> &order, Fit fit, int64_t limit,
              std::vector<int64_t> &offsets, int64_t &work) {
    offsets.assign(items.size(), -1);
    byOffset.clear();
    int64_t height = 0;
    for (size_t i = 0; i < items.size(); ++i)
      if (items[i].offset) {
        offsets[i] = *items[i].offset;
        height = std::max(height, offsets[i] + items[i].size);
        insert(static_cast<int>(i), offsets[i]);
      }
    for (int i : order) {
      if (items[i].offset)
        continue;
      offsets[i] = place(i, fit, offsets);
      insert(i, offsets[i]);
      height = std::max(height, offsets[i] + items[i].size);
      work += static_cast<int64_t>(items[i].edges.size()) + 1;
      if (height > limit)
        return height;
    }
    return height;
  }

private:
  struct Placed {
    int64_t offset;
    int item;
  };

  void insert(int i, int64_t at) {
    if (!sorting)
      return;
    auto below = [](int64_t value, const Placed &p) { return value < p.offset; };
    byOffset.insert(std::upper_bound(byOffset.begin(), byOffset.end(), at, below), {at, i});
  }

  int64_t place(int i, Fit fit, const std::vector<int64_t> &offsets) {
    const Item &item = items[i];
    int64_t at = 0, best = -1, bestSlack = std::numeric_limits<int64_t>::max();
    // Offsets o with low < o < high would overlap a placed neighbour; by rising low. True
    // when the place is found.
    auto visit = [&](int64_t low, int64_t high) {
      if (low >= at) { // [at, low] is free
        if (fit == Fit::First)
          return true;
        if (low - at < bestSlack) {
          bestSlack = low - at;
          best = at;
        }
      }
      if (high > at)
        at = alignUp(high, item.alignment);
      return false;
    };
    if (sorting && whole[i] && byOffset.size() < kMany * item.edges.size()) {
      for (const Edge &e : item.edges)
        edgeOf[e.otherItem] = i;
      for (const Placed &p : byOffset)
        if (edgeOf[p.item] == i && visit(p.offset - item.size, p.offset + items[p.item].size))
          return at;
      return best >= 0 ? best : at;
    }
    blocked.clear();
    for (const Edge &e : item.edges)
      if (offsets[e.otherItem] >= 0)
        blocked.emplace_back(offsets[e.otherItem] + e.otherLow - e.ownHigh,
                             offsets[e.otherItem] + e.otherHigh - e.ownLow);
    std::sort(blocked.begin(), blocked.end());
    for (auto [low, high] : blocked)
      if (visit(low, high))
        return at;
    return best >= 0 ? best : at;
  }

  static constexpr size_t kMany = 16; ///< conflicts of an item
  const std::vector<Item> &items;
  std::vector<char> whole; ///< of an item: conflicts are of all its bytes and all of the other's
  bool sorting;
  std::vector<Placed> byOffset; ///< what is placed
  std::vector<int> edgeOf;      ///< of an item: the last one that looked at it as a neighbour
  std::vector<std::pair<int64_t, int64_t>> blocked;
};

struct Order {
  const char *name;
  std::vector<int> items;
};

/// Items by falling key; ties by falling size, then by index.
std::vector<int> byKey(const std::vector<Item> &items, const std::vector<double> &key) {
  std::vector<int> order(items.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    if (key[a] != key[b])
      return key[a] > key[b];
    return items[a].size != items[b].size ? items[a].size > items[b].size : a < b;
  });
  return order;
}

std::vector<Order> makeOrders(const std::vector<Item> &items) {
  std::vector<double> size, area, duration, pressure, pull, early, late;
  for (const Item &item : items) {
    double bytes = static_cast<double>(item.size);
    double time = static_cast<double>(item.end) - static_cast<double>(item.begin);
    double load = bytes;
    for (const Edge &e : item.edges)
      load += static_cast<double>(e.otherHigh - e.otherLow);
    size.push_back(bytes);
    area.push_back(bytes * time);
    duration.push_back(time);
    pressure.push_back(load);
    pull.push_back(bytes * static_cast<double>(item.edges.size()));
    early.push_back(-static_cast<double>(item.begin));
    late.push_back(static_cast<double>(item.end));
  }
  return {{"size", byKey(items, size)},         {"area", byKey(items, area)},
          {"duration", byKey(items, duration)}, {"pressure", byKey(items, pressure)},
          {"degree", byKey(items, pull)},       {"begin", byKey(items, early)},
          {"end", byKey(items, late)}};
}

class Search {
public:
  Search(const std::vector<Item> &items, int64_t enough, int64_t workLimit)
      : items(items), placer(items), enough(enough), workLimit(workLimit) {}

  void run() {
    for (Order &order : makeOrders(items))
      for (Fit fit : {Fit::First, Fit::Best}) {
        if (tryOrder(order.items, fit))
          method = std::string(order.name) + (fit == Fit::First ? "/first-fit" : "/best-fit");
        if (height <= enough)
          return;
      }
    improve();
  }

  int64_t height = std::numeric_limits<int64_t>::max();
  std::vector<int64_t> offsets;
  std::string method;

private:
  /// True when the order gives a lower height. One of equal height is kept too, so
  /// that the search drifts along plateaus.
  bool tryOrder(const std::vector<int> &order, Fit fit) {
    int64_t h = placer.run(order, fit, height, placed, work);
    if (h > height)
      return false;
    bool lower = h < height;
    height = h;
    offsets.swap(placed);
    bestOrder = order;
    bestFit = fit;
    return lower;
  }

  /// Moves an item that reaches the top to the front, or to random earlier places.
  void improve() {
    uint64_t random = 0x9e3779b97f4a7c15;
    auto next = [&](size_t n) {
      random ^= random << 13;
      random ^= random >> 7;
      random ^= random << 17;
      return static_cast<size_t>(random % n);
    };
    bool improved = false;
    while (work < workLimit && height > enough) {
      std::vector<int> order = bestOrder;
      std::vector<size_t> top;
      for (size_t i = 0; i < order.size(); ++i)
        if (!items[order[i]].offset && offsets[order[i]] + items[order[i]].size == height)
          top.push_back(i);
      if (top.empty())
        break; // a fixed item decides the height
      size_t from = top[next(top.size())];
      size_t to = next(3) == 0 ? 0 : next(from + 1);
      std::rotate(order.begin() + to, order.begin() + from, order.begin() + from + 1);
      // A second, blind move lets the search leave a plateau.
      if (next(2)) {
        size_t a = next(order.size()), b = next(order.size());
        std::swap(order[a], order[b]);
      }
      ++work;
      improved |= tryOrder(order, bestFit);
    }
    if (improved)
      method += "+moves";
  }

  const std::vector<Item> &items;
  Placer placer;
  int64_t enough, workLimit, work = 0;
  std::vector<int64_t> placed;
  std::vector<int> bestOrder;
  Fit bestFit = Fit::First;
};

} // namespace

ItemPlan planGreedily(const std::vector<Item> &items, int64_t enough, int64_t moves) {
  Search search(items, enough, moves);
  search.run();
  ItemPlan plan;
  plan.height = search.height;
  plan.offsets = std::move(search.offsets);
  plan.method = std::move(search.method);
  return plan;
}

} // namespace lathe::analysis
