//===- SkylinePlanner.cpp - plans without a list of conflicts --*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The height over time is kept in a tree of segments; an item goes on top of the highest
// place of its lifetime. Nested lifetimes, as those of a network that is trained, lose
// nothing when the longest come first.
//
//===----------------------------------------------------------------------===//
#include "Planners.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace lathe::analysis {
namespace {

/// Heights over segments [0, size) that only grow.
class Skyline {
public:
  explicit Skyline(size_t size) : size(size), highest(4 * size, 0), whole(4 * size, 0) {}

  /// Of segments [begin, end).
  int64_t top(size_t begin, size_t end) const { return top(1, 0, size, begin, end); }
  void raise(size_t begin, size_t end, int64_t to) { raise(1, 0, size, begin, end, to); }

private:
  int64_t top(size_t node, size_t low, size_t high, size_t begin, size_t end) const {
    if (begin >= high || end <= low)
      return 0;
    if (begin <= low && high <= end)
      return highest[node];
    size_t middle = (low + high) / 2;
    return std::max({whole[node], top(2 * node, low, middle, begin, end),
                     top(2 * node + 1, middle, high, begin, end)});
  }

  void raise(size_t node, size_t low, size_t high, size_t begin, size_t end, int64_t to) {
    if (begin >= high || end <= low)
      return;
    highest[node] = std::max(highest[node], to);
    if (begin <= low && high <= end) {
      whole[node] = std::max(whole[node], to);
      return;
    }
    size_t middle = (low + high) / 2;
    raise(2 * node, low, middle, begin, end, to);
    raise(2 * node + 1, middle, high, begin, end, to);
  }

  size_t size;
  std::vector<int64_t> highest; ///< in the segments of a node
  std::vector<int64_t> whole;   ///< all segments of a node are at least this high
};

} // namespace

ItemPlan planSkyline(const std::vector<Item> &items, int64_t enough) {
  std::vector<int64_t> times;
  for (const Item &item : items)
    times.push_back(item.begin);
  std::sort(times.begin(), times.end());
  times.erase(std::unique(times.begin(), times.end()), times.end());
  auto indexOf = [&](int64_t time) {
    return static_cast<size_t>(std::lower_bound(times.begin(), times.end(), time) -
                               times.begin());
  };
  struct Key {
    const char *name;
    double (*of)(const Item &);
  };
  auto duration = [](const Item &i) { return double(i.end) - double(i.begin); };
  auto area = [](const Item &i) { return (double(i.end) - double(i.begin)) * double(i.size); };
  auto size = [](const Item &i) { return double(i.size); };
  ItemPlan best;
  best.height = std::numeric_limits<int64_t>::max();
  for (Key key : {Key{"duration", duration}, Key{"area", area}, Key{"size", size}}) {
    std::vector<int> order(items.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int a, int b) {
      double x = key.of(items[a]), y = key.of(items[b]);
      if (x != y)
        return x > y;
      return items[a].size != items[b].size ? items[a].size > items[b].size : a < b;
    });
    Skyline skyline(times.size());
    ItemPlan plan;
    plan.method = std::string(key.name) + "/skyline";
    plan.offsets.assign(items.size(), 0);
    for (int i : order) {
      const Item &item = items[i];
      size_t begin = indexOf(item.begin), end = indexOf(item.end);
      if (item.size > 0 && begin < end) {
        int64_t at = skyline.top(begin, end);
        plan.offsets[i] = (at + item.alignment - 1) / item.alignment * item.alignment;
        skyline.raise(begin, end, plan.offsets[i] + item.size);
      }
      plan.height = std::max(plan.height, plan.offsets[i] + item.size);
    }
    if (plan.height < best.height)
      best = std::move(plan);
    if (best.height <= enough)
      break;
  }
  return best;
}

} // namespace lathe::analysis
