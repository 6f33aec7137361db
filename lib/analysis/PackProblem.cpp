//===- PackProblem.cpp - buffers as stacks over sections -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sections of lifetimes are the sets alive at one time; only those count that no
// other one contains: where a birth is followed by a death. Explicit conflicts are
// covered by cliques, grown greedily around conflicts that no clique has yet.
//
//===----------------------------------------------------------------------===//
#include "PackProblem.h"

#include <algorithm>
#include <numeric>

namespace lathe::analysis {
namespace {

constexpr int64_t kMaxUnits = int64_t(1) << 29;

class Builder {
public:
  Builder(const Problem &problem, const std::vector<Item> &items, bool reduce, int64_t maxCells)
      : problem(problem), items(items), reduce(reduce), maxCells(maxCells),
        itemOf(problem.buffers.size()) {
    for (size_t i = 0; i < items.size(); ++i)
      for (int b : items[i].buffers)
        itemOf[b] = static_cast<int>(i);
  }

  std::optional<PackProblem> run() {
    pack.items.resize(items.size());
    if (!chooseUnit() || !(problem.conflicts ? coverByCliques() : sweep()))
      return std::nullopt;
    for (PackItem &item : pack.items)
      for (const PackCell &cell : item.cells)
        item.height = std::max(item.height, cell.height);
    numberKinds();
    return std::move(pack);
  }

private:
  static int64_t topOf(const Buffer &b) { return b.aliasOffset + b.size; }

  bool chooseUnit() {
    int64_t common = 0, unit = 0, total = 0;
    // Of all buffers, so that every height is a multiple of the unit.
    for (const Buffer &b : problem.buffers) {
      unit = std::gcd(unit, topOf(b));
      total += topOf(b);
      pack.complete &= b.aliasOffset == 0;
    }
    for (const Item &item : items) {
      common = std::gcd(common, item.alignment);
      if (unit % item.alignment != 0)
        unit = std::gcd(unit, item.alignment);
      total += item.alignment;
      if (item.offset) {
        unit = std::gcd(unit, *item.offset);
        total = std::max(total, *item.offset + item.size) + item.size;
      }
    }
    pack.unit = std::max<int64_t>(unit, 1);
    pack.alignment = static_cast<int32_t>(std::max<int64_t>(common / pack.unit, 1));
    if (total / pack.unit >= kMaxUnits)
      return false;
    for (size_t i = 0; i < items.size(); ++i) {
      pack.items[i].alignment =
          static_cast<int32_t>(std::max<int64_t>(1, items[i].alignment / pack.unit));
      if (items[i].offset)
        pack.items[i].fixed = static_cast<int32_t>(*items[i].offset / pack.unit);
    }
    return true;
  }

  /// Adds a section of pairwise conflicting buffers.
  bool addSection(const std::vector<int> &members) {
    for (int b : members) {
      std::vector<PackCell> &cells = pack.items[itemOf[b]].cells;
      int32_t height = static_cast<int32_t>(topOf(problem.buffers[b]) / pack.unit);
      if (!cells.empty() && cells.back().section == pack.sections)
        cells.back().height = std::max(cells.back().height, height);
      else
        cells.push_back({pack.sections, height});
    }
    ++pack.sections;
    numCells += static_cast<int64_t>(members.size());
    return numCells <= maxCells;
  }

  bool sweep() {
    struct Event {
      int64_t time;
      bool starts;
      int buffer;
    };
    std::vector<Event> events;
    for (int i = 0; i < static_cast<int>(problem.buffers.size()); ++i)
      if (occupiesMemory(problem, i))
        for (Interval steps : liveParts(problem.buffers[i])) {
          events.push_back({steps.begin, true, i});
          events.push_back({steps.end, false, i});
        }
    std::sort(events.begin(), events.end(), [](const Event &a, const Event &b) {
      return std::tuple(a.time, a.starts, a.buffer) < std::tuple(b.time, b.starts, b.buffer);
    });
    std::vector<int> live;
    bool grown = false;
    for (size_t i = 0; i < events.size(); ++i) {
      const Event &e = events[i];
      if (e.starts) {
        live.push_back(e.buffer);
        grown = true;
        bool last = i + 1 == events.size() || events[i + 1].time != e.time;
        if (!reduce && last && !addSection(live))
          return false;
        continue;
      }
      if (grown && reduce && !addSection(live))
        return false;
      grown = false;
      live.erase(std::find(live.begin(), live.end(), e.buffer));
    }
    return true;
  }

  bool coverByCliques() {
    ConflictList pairs = conflictPairs(problem);
    size_t n = problem.buffers.size(), words = (n + 63) / 64;
    if (static_cast<int64_t>(n * words) > maxCells)
      return false;
    std::vector<uint64_t> adjacent(n * words), uncovered(n * words);
    auto bit = [&](std::vector<uint64_t> &m, size_t a, size_t b) -> uint64_t & {
      return m[a * words + b / 64];
    };
    for (auto [a, b] : pairs) {
      bit(adjacent, a, b) |= uint64_t(1) << (b % 64);
      bit(adjacent, b, a) |= uint64_t(1) << (a % 64);
    }
    uncovered = adjacent;
    std::vector<uint64_t> common(words);
    for (auto [a, b] : pairs) {
      if (!(bit(uncovered, a, b) >> (b % 64) & 1))
        continue;
      std::vector<int> clique{a, b};
      for (size_t w = 0; w < words; ++w)
        common[w] = adjacent[a * words + w] & adjacent[b * words + w];
      for (;;) {
        // The candidate with most conflicts that would be covered anew.
        int best = -1, bestGain = -1;
        for (size_t w = 0; w < words; ++w)
          for (uint64_t rest = common[w]; rest; rest &= rest - 1) {
            int v = static_cast<int>(w * 64) + __builtin_ctzll(rest);
            int gain = 0;
            for (int c : clique)
              gain += bit(uncovered, v, c) >> (c % 64) & 1;
            if (gain > bestGain) {
              best = v;
              bestGain = gain;
            }
          }
        if (best < 0)
          break;
        clique.push_back(best);
        for (size_t w = 0; w < words; ++w)
          common[w] &= adjacent[best * words + w];
      }
      for (int x : clique)
        for (int y : clique)
          bit(uncovered, x, y) &= ~(uint64_t(1) << (y % 64));
      if (!addSection(clique))
        return false;
    }
    return true;
  }

  void numberKinds() {
    std::map<std::vector<int32_t>, int> kinds;
    for (PackItem &item : pack.items) {
      std::vector<int32_t> shape{item.alignment, item.fixed};
      for (const PackCell &cell : item.cells) {
        shape.push_back(cell.section);
        shape.push_back(cell.height);
      }
      item.kind = kinds.try_emplace(std::move(shape), static_cast<int>(kinds.size())).first->second;
    }
  }

  const Problem &problem;
  const std::vector<Item> &items;
  bool reduce;
  int64_t maxCells, numCells = 0;
  std::vector<int> itemOf;
  PackProblem pack;
};

} // namespace

std::optional<PackProblem> makePackProblem(const Problem &problem, const std::vector<Item> &items,
                                           bool reduceSections, int64_t maxCells) {
  return Builder(problem, items, reduceSections, maxCells).run();
}

} // namespace lathe::analysis
