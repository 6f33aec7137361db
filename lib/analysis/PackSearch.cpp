//===- PackSearch.cpp - do items fit below a height? -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A state is the set of unplaced items with the lowest offset of each. A decision is
// about one section: which of the items that could stand on its floor does, or none.
// The decided section is a local minimum of floors, so that the offset of the placed
// item is final.
//
//===----------------------------------------------------------------------===//
#include "PackSearch.h"

#include <algorithm>
#include <array>
#include <limits>
#include <tuple>

namespace lathe::analysis {
namespace {

constexpr int32_t kImpossible = int32_t(1) << 29; ///< above every capacity
constexpr int32_t kNone = std::numeric_limits<int32_t>::max();

uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

} // namespace

/// The lowest offset from `at` on that fits between fixed items.
int32_t PackSearch::fit(int item, int32_t at) const {
  const PackItem &it = problem.items[item];
  if (it.fixed >= 0)
    return at <= it.fixed ? it.fixed : kImpossible;
  auto align = [&](int32_t v) { return (v + it.alignment - 1) / it.alignment * it.alignment; };
  if (it.alignment > 1)
    at = align(at);
  for (size_t k = 0; k < obstacles[item].size(); ++k) {
    const Neighbour &n = obstacles[item][k];
    int32_t low = problem.items[n.item].fixed;
    if (!placed[n.item] && at < low + n.theirs && low < at + n.own) {
      at = align(low + n.theirs);
      k = static_cast<size_t>(-1); // again from the first
    }
  }
  return at;
}

PackSearch::Key PackSearch::keyOf(int item, int32_t at) {
  uint64_t word = static_cast<uint64_t>(item) << 32 | static_cast<uint32_t>(at);
  return {mix(word), mix(word ^ 0x5851f42d4c957f2d)};
}

/// Of the unplaced items in a range of sections that nothing crosses.
PackSearch::Key PackSearch::keyOfRange(int low, int high) const {
  Key sum;
  for (int s = low; s < high; ++s)
    for (int k = slotBegin[s]; k < slotBegin[s] + count[s]; ++k)
      if (int i = slotItem[k]; cellSection[cellBegin[i]] == s) {
        Key key = keyOf(i, minimum[i]);
        sum.a += key.a;
        sum.b += key.b;
      }
  return sum;
}

/// The sections of an item have changed.
void PackSearch::touch(int item) {
  for (int c = cellBegin[item]; c < cellBegin[item + 1]; ++c)
    if (int s = cellSection[c]; !isChanged[s]) {
      isChanged[s] = 1;
      changed.push_back(s);
    }
}

void PackSearch::raise(int item, int32_t to) {
  to = fit(item, to);
  if (to <= minimum[item])
    return;
  trail.push_back({Undo::Minimum, item, minimum[item], 0, 0});
  Key before = keyOf(item, minimum[item]), after = keyOf(item, to);
  total.a += after.a - before.a;
  total.b += after.b - before.b;
  minimum[item] = to;
  for (int c = cellBegin[item]; c < cellBegin[item + 1]; ++c)
    slotMinimum[cellSlot[c]] = to;
  touch(item);
}

void PackSearch::place(int item) {
  int32_t at = minimum[item];
  offset[item] = at;
  placed[item] = 1;
  trail.push_back({Undo::Place, item, 0, 0, 0});
  Key key = keyOf(item, at);
  total.a -= key.a;
  total.b -= key.b;
  for (int c = cellBegin[item]; c < cellBegin[item + 1]; ++c) {
    int s = cellSection[c];
    int last = --count[s], from = cellSlot[c], to = slotBegin[s] + last;
    std::swap(cellSlot[c], cellSlot[slotCell[to]]);
    std::swap(slotItem[from], slotItem[to]);
    std::swap(slotCell[from], slotCell[to]);
    std::swap(slotMinimum[from], slotMinimum[to]);
    std::swap(slotHeight[from], slotHeight[to]);
    std::swap(slotPadding[from], slotPadding[to]);
    load[s] -= slotHeight[to];
  }
  touch(item);
  for (int s = cellSection[cellBegin[item]] + 1; s <= cellSection[cellBegin[item + 1] - 1]; ++s)
    --crossing[s];
  for (const Neighbour &n : neighbours[item]) {
    if (placed[n.item])
      continue;
    int32_t top = at + n.own;
    if (support[n.item] < top) {
      trail.push_back({Undo::Support, n.item, support[n.item], 0, 0});
      support[n.item] = fit(n.item, top);
    }
    if (minimum[n.item] < top)
      raise(n.item, top);
  }
}

void PackSearch::undo(size_t to) {
  while (trail.size() > to) {
    Undo u = trail.back();
    trail.pop_back();
    int i = u.index;
    switch (u.kind) {
    case Undo::Minimum: {
      Key before = keyOf(i, minimum[i]), after = keyOf(i, u.old);
      total.a += after.a - before.a;
      total.b += after.b - before.b;
      minimum[i] = u.old;
      for (int c = cellBegin[i]; c < cellBegin[i + 1]; ++c)
        slotMinimum[cellSlot[c]] = u.old;
      break;
    }
    case Undo::Support:
      support[i] = u.old;
      break;
    case Undo::Place: {
      placed[i] = 0;
      Key key = keyOf(i, minimum[i]);
      total.a += key.a;
      total.b += key.b;
      for (int c = cellBegin[i]; c < cellBegin[i + 1]; ++c) {
        ++count[cellSection[c]];
        load[cellSection[c]] += slotHeight[cellSlot[c]];
      }
      for (int s = cellSection[cellBegin[i]] + 1; s <= cellSection[cellBegin[i + 1] - 1]; ++s)
        ++crossing[s];
      break;
    }
    case Undo::Section:
      floor[i] = u.old;
      slack[i] = u.oldSlack;
      lowest[i] = u.oldLowest;
      break;
    }
  }
}

/// How high the unplaced of a section reach at least: stacked by rising minimum.
int32_t PackSearch::stackTop(int section, int32_t lowestMinimum, int32_t highestMinimum,
                             int32_t limit) const {
  const int32_t *at = &slotMinimum[slotBegin[section]], *height = &slotHeight[slotBegin[section]];
  int n = count[section];
  int32_t all = static_cast<int32_t>(load[section]);
  if (!rules.stackBound)
    return lowestMinimum + all;
  // `gaps`: bytes that must stay empty; `seen`: minimums up to here are stacked.
  int32_t gaps = lowestMinimum, seen = lowestMinimum;
  while (gaps + all <= limit && seen < highestMinimum) {
    int32_t sum = 0, next = kNone;
    for (int k = 0; k < n; ++k) { // without branches, so that it becomes vector code
      int32_t stacked = at[k] <= seen ? -1 : 0;
      sum += height[k] & stacked;
      next = std::min(next, at[k] | (stacked & kNone));
    }
    int32_t top = gaps + sum;
    if (next > top) {
      gaps += next - top;
      top = next;
    }
    seen = top;
  }
  return gaps + all;
}

/// Updates changed sections. False when one cannot hold its items any more.
bool PackSearch::settle() {
  int failed = -1;
  for (int s : changed) {
    isChanged[s] = 0;
    if (failed >= 0 || count[s] == 0)
      continue;
    const int32_t *at = &slotMinimum[slotBegin[s]];
    int n = count[s];
    int32_t low = kNone, high = 0;
    for (int k = 0; k < n; ++k) {
      low = std::min(low, at[k]);
      high = std::max(high, at[k]);
    }
    int equal = 0;
    for (int k = 0; k < n; ++k)
      equal += at[k] == low;
    int32_t limit = capacity;
    if (padded)
      limit += *std::max_element(&slotPadding[slotBegin[s]], &slotPadding[slotBegin[s]] + n);
    int32_t left = limit - stackTop(s, low, high, limit);
    if (left < 0) {
      failed = s;
      continue;
    }
    if (floor[s] != low || slack[s] != left || lowest[s] != equal) {
      trail.push_back({Undo::Section, s, floor[s], slack[s], lowest[s]});
      floor[s] = low;
      slack[s] = left;
      lowest[s] = equal;
    }
  }
  changed.clear();
  if (failed >= 0 && rules.learning)
    for (int k = slotBegin[failed]; k < slotBegin[failed] + count[failed]; ++k)
      weights[slotItem[k]] += 1;
  return failed < 0;
}

/// Nothing stands on the floor of a section: raises its candidates to where they
/// could stand instead. False when that leaves no solution.
bool PackSearch::leaveEmpty(int section) {
  int32_t at = floor[section], next = kNone;
  ++stamp;
  int begin = slotBegin[section], end = begin + count[section];
  for (int k = begin; k < end; ++k)
    mark[slotItem[k]] = stamp;
  for (int k = begin; k < end; ++k) {
    int i = slotItem[k];
    rise[i] = minimum[i];
    if (minimum[i] == at) {
      rise[i] = rules.propagation ? kImpossible : at + 1;
      // It will stand on an item that is not of this section.
      if (rules.propagation)
        for (const Neighbour &n : neighbours[i])
          if (!placed[n.item] && mark[n.item] != stamp)
            rise[i] = std::min(rise[i], minimum[n.item] + n.theirs);
    }
    next = std::min(next, rise[i]);
  }
  if (next - at > room(section))
    return false;
  std::vector<int> raised;
  for (int k = begin; k < end; ++k)
    if (minimum[slotItem[k]] == at)
      raised.push_back(slotItem[k]);
  for (int i : raised) {
    // Or on one of this section, which stands above its floor too.
    int32_t to = rise[i];
    if (rules.propagation) {
      int32_t other = kImpossible;
      for (const Neighbour &n : neighbours[i])
        if (!placed[n.item] && mark[n.item] == stamp)
          other = std::min(other, std::max(minimum[n.item], next) + n.theirs);
      to = std::min(to, other);
    }
    raise(i, to);
  }
  return settle();
}

/// Whether an item could stand lower, on the placed ones alone, without touching
/// where any unplaced one can come: an earlier alternative had that.
bool PackSearch::isDominated(int low, int high) const {
  for (int s = low; s < high; ++s)
    for (int k = slotBegin[s]; k < slotBegin[s] + count[s]; ++k) {
      int i = slotItem[k];
      if (cellSection[cellBegin[i]] != s || minimum[i] == support[i])
        continue;
      bool blocked = false;
      for (int c = cellBegin[i]; c < cellBegin[i + 1] && !blocked; ++c) {
        int32_t top = support[i] + cellHeight[c];
        int q = cellSection[c];
        for (int j = slotBegin[q]; j < slotBegin[q] + count[q] && !blocked; ++j)
          blocked = slotItem[j] != i && slotMinimum[j] < top;
      }
      if (!blocked)
        return true;
    }
  return false;
}

/// The next sections with lower floors, on both sides of each.
void PackSearch::findLower(int low, int high) {
  stack.clear();
  for (int s = low; s < high; ++s) {
    while (!stack.empty() && floor[stack.back()] > floor[s]) {
      lowerRight[stack.back()] = s;
      stack.pop_back();
    }
    // Those of the same floor are still in the stack; what is lower is behind them.
    lowerLeft[s] = stack.empty()                      ? low - 1
                   : floor[stack.back()] < floor[s] ? stack.back()
                                                      : lowerLeft[stack.back()];
    stack.push_back(s);
  }
  for (int s : stack)
    lowerRight[s] = high;
}

/// Whether no section of a candidate has a lower floor. After findLower.
bool PackSearch::isLowest(int section) const {
  for (int k = slotBegin[section]; k < slotBegin[section] + count[section]; ++k) {
    if (slotMinimum[k] != floor[section])
      continue;
    int first = cellBegin[slotItem[k]], last = cellBegin[slotItem[k] + 1] - 1;
    if (lowerLeft[section] < cellSection[first] && cellSection[last] < lowerRight[section])
      continue;
    if (cellSection[last] - cellSection[first] == last - first)
      return false;
    for (int c = first; c <= last; ++c)
      if (floor[cellSection[c]] < floor[section])
        return false;
  }
  return true;
}

int PackSearch::chooseSection(int low, int high) {
  findLower(low, high);
  using Rank = std::array<int64_t, 3>;
  Rank best{INT64_MAX, 0, 0};
  int chosen = -1;
  for (int s = low; s < high; ++s) {
    if (count[s] == 0)
      continue;
    int64_t empty = room(s) > 0;
    Rank rank;
    switch (order.section) {
    case SearchOrder::Section::Branches:
      rank = {lowest[s] + empty, slack[s], floor[s]};
      break;
    case SearchOrder::Section::BranchesLow:
      rank = {lowest[s] + 2 * empty, floor[s], slack[s]};
      break;
    case SearchOrder::Section::LowBranches:
      rank = {floor[s], lowest[s] + empty, slack[s]};
      break;
    case SearchOrder::Section::LowTight:
      rank = {floor[s], slack[s], lowest[s]};
      break;
    case SearchOrder::Section::Tight:
      rank = {slack[s], lowest[s], floor[s]};
      break;
    }
    if (rank < best && isLowest(s)) {
      best = rank;
      chosen = s;
    }
  }
  return chosen;
}

void PackSearch::splitParts(int low, int high) {
  size_t first = parts.size();
  for (int begin = low; begin < high;) {
    int end = begin + 1;
    bool any = count[begin] > 0;
    while (end < high && (crossing[end] > 0 || !rules.decomposition))
      any |= count[end++] > 0;
    if (any)
      parts.push_back({begin, end});
    begin = end;
  }
  auto effort = [&](std::pair<int, int> part) {
    int64_t cells = 0, least = INT64_MAX;
    for (int s = part.first; s < part.second; ++s)
      if (count[s] > 0) {
        cells += count[s];
        least = std::min<int64_t>(least, slack[s]);
      }
    return std::tuple(cells, least, part.first);
  };
  std::sort(parts.begin() + first, parts.end(),
            [&](auto a, auto b) { return effort(a) < effort(b); });
}

void PackSearch::openFrame(int section, int low, int high, Key key, Key rest) {
  Frame frame{};
  frame.section = section;
  frame.low = low;
  frame.high = high;
  frame.key = key;
  frame.rest = rest;
  frame.trail = trail.size();
  frame.first = frame.next = static_cast<int>(candidates.size());
  for (int k = slotBegin[section]; k < slotBegin[section] + count[section]; ++k) {
    if (slotMinimum[k] != floor[section])
      continue;
    int i = slotItem[k];
    auto sameKind = [&](int j) { return problem.items[j].kind == problem.items[i].kind; };
    if (rules.symmetry) {
      auto twin = std::find_if(candidates.begin() + frame.first, candidates.end(), sameKind);
      if (twin != candidates.end()) {
        *twin = std::min(*twin, i);
        continue;
      }
    }
    candidates.push_back(i);
  }
  std::sort(candidates.begin() + frame.first, candidates.end(), [&](int a, int b) {
    return priority[a] != priority[b] ? priority[a] > priority[b] : a < b;
  });
  if (rules.hatless)
    for (size_t k = frame.first; k < candidates.size() && !frame.closed; ++k) {
      int i = candidates[k];
      bool alone = true;
      for (int c = cellBegin[i]; c < cellBegin[i + 1] && alone; ++c)
        alone = count[cellSection[c]] == 1;
      if (alone) {
        candidates.resize(frame.first);
        candidates.push_back(i);
        frame.closed = true;
      }
    }
  frame.last = static_cast<int>(candidates.size());
  frames.push_back(frame);
}

/// Takes the next alternative of the last frame. False when there is none left.
bool PackSearch::tryNext() {
  Frame &frame = frames.back();
  while (frame.next < frame.last) {
    place(candidates[frame.next++]);
    if (settle())
      return true;
    undo(frame.trail);
  }
  if (frame.next == frame.last) {
    ++frame.next;
    if (!frame.closed && room(frame.section) > 0) {
      if (leaveEmpty(frame.section) &&
          !(rules.dominance && isDominated(frame.low, frame.high)))
        return true;
      undo(frame.trail);
    }
  }
  return false;
}

bool PackSearch::known(Key key) const {
  if (table.empty())
    return false;
  const Key &entry = table[key.a & (table.size() - 1)];
  return entry.a == key.a && entry.b == key.b;
}

void PackSearch::remember(Key key) {
  constexpr size_t kSmall = size_t(1) << 10, kLarge = size_t(1) << 20;
  if (table.empty() || (tableUsed * 2 > table.size() && table.size() < kLarge)) {
    std::vector<Key> old(table.empty() ? kSmall : table.size() * 4);
    old.swap(table);
    tableUsed = 0;
    for (const Key &k : old)
      if (k.a | k.b)
        remember(k);
  }
  Key &entry = table[key.a & (table.size() - 1)];
  tableUsed += (entry.a | entry.b) == 0;
  entry = key;
}

void PackSearch::orderItems(SearchOrder::Item by) {
  for (int i = 0; i < numItems; ++i) {
    double width = cellBegin[i + 1] - cellBegin[i], size = problem.items[i].height, area = 0;
    for (int c = cellBegin[i]; c < cellBegin[i + 1]; ++c)
      area += cellHeight[c];
    switch (by) {
    case SearchOrder::Item::Width:
      priority[i] = width * kImpossible + size;
      break;
    case SearchOrder::Item::Area:
      priority[i] = area;
      break;
    case SearchOrder::Item::Size:
      priority[i] = size;
      break;
    case SearchOrder::Item::WeightedArea:
      priority[i] = weights[i] * area;
      break;
    case SearchOrder::Item::Weight:
      priority[i] = weights[i];
      break;
    case SearchOrder::Item::WeightedSize:
      priority[i] = weights[i] * size;
      break;
    }
  }
}

Outcome PackSearch::run(SearchOrder searchOrder, int64_t nodes, const std::atomic<bool> *stop) {
  used = 0;
  if (hopeless)
    return Outcome::None;
  undo(0);
  frames.clear();
  candidates.clear();
  parts.clear();
  order = searchOrder;
  orderItems(order.item);

  auto minus = [](Key a, Key b) { return Key{a.a - b.a, a.b - b.b}; };
  int low = 0, high = numSections;
  Key rest; // key of what is unplaced elsewhere
  enum { Split, Branch, Next, Solved, Failed } step = Split;
  for (;;) {
    switch (step) {
    case Split: {
      size_t first = parts.size();
      splitParts(low, high);
      size_t found = parts.size() - first;
      if (found == 0) {
        step = Solved;
        break;
      }
      std::tie(low, high) = parts[first];
      step = Branch;
      if (found == 1) {
        parts.resize(first);
        break;
      }
      Frame frame{};
      frame.section = -1;
      frame.first = static_cast<int>(first);
      frame.next = static_cast<int>(first) + 1;
      frame.last = static_cast<int>(parts.size());
      frames.push_back(frame);
      rest = minus(total, keyOfRange(low, high));
      break;
    }
    case Branch: {
      if (++used > nodes || (stop && stop->load(std::memory_order_relaxed)))
        return Outcome::OutOfNodes;
      Key key = minus(total, rest);
      if (rules.memo && known(key)) {
        step = Failed;
        break;
      }
      openFrame(chooseSection(low, high), low, high, key, rest);
      step = Next;
      break;
    }
    case Next: {
      Frame &frame = frames.back();
      if (tryNext()) {
        low = frame.low;
        high = frame.high;
        rest = frame.rest;
        step = Split;
        break;
      }
      if (rules.memo)
        remember(frame.key);
      candidates.resize(frame.first);
      frames.pop_back();
      step = Failed;
      break;
    }
    case Solved: {
      if (frames.empty())
        return Outcome::Found;
      Frame &frame = frames.back();
      if (frame.section < 0 && frame.next < frame.last) {
        std::tie(low, high) = parts[frame.next++];
        rest = minus(total, keyOfRange(low, high));
        step = Branch;
        break;
      }
      (frame.section < 0 ? parts.resize(frame.first) : candidates.resize(frame.first));
      frames.pop_back();
      break;
    }
    case Failed: {
      if (frames.empty())
        return Outcome::None;
      Frame &frame = frames.back();
      if (frame.section >= 0) {
        undo(frame.trail);
        step = Next;
        break;
      }
      parts.resize(frame.first);
      frames.pop_back();
      break;
    }
    }
  }
}

} // namespace lathe::analysis
