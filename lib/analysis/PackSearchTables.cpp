//===- PackSearchTables.cpp - what a search looks up -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sections by item, items by section, and who meets whom: set up once a search.
//
//===----------------------------------------------------------------------===//
#include "PackSearch.h"

#include <algorithm>

namespace lathe::analysis {

PackSearch::PackSearch(const PackProblem &problem, int32_t capacity, const SearchRules &rules)
    : problem(problem), rules(rules), capacity(capacity),
      numItems(static_cast<int>(problem.items.size())), numSections(problem.sections) {
  count.assign(numSections, 0);
  load.assign(numSections, 0);
  crossing.assign(numSections + 1, 0);
  for (const PackItem &item : problem.items) {
    cellBegin.push_back(static_cast<int>(cellSection.size()));
    for (const PackCell &cell : item.cells) {
      cellSection.push_back(cell.section);
      cellHeight.push_back(cell.height);
      cellSlot.push_back(count[cell.section]++); // of the section; from the first below
    }
    if (!item.cells.empty())
      for (int s = item.cells.front().section + 1; s <= item.cells.back().section; ++s)
        ++crossing[s];
  }
  cellBegin.push_back(static_cast<int>(cellSection.size()));
  slotBegin.assign(numSections + 1, 0);
  for (int s = 0; s < numSections; ++s)
    slotBegin[s + 1] = slotBegin[s] + count[s];
  slotItem.resize(cellSection.size());
  slotCell.resize(cellSection.size());
  slotMinimum.resize(cellSection.size());
  slotHeight.resize(cellSection.size());
  slotPadding.resize(cellSection.size());
  mostPadding.assign(numSections, 0);
  for (int i = 0; i < numItems; ++i)
    for (int c = cellBegin[i]; c < cellBegin[i + 1]; ++c) {
      int slot = cellSlot[c] += slotBegin[cellSection[c]];
      slotItem[slot] = i;
      slotCell[slot] = c;
      int32_t padding = (problem.alignment - cellHeight[c] % problem.alignment) % problem.alignment;
      slotHeight[slot] = cellHeight[c] + padding;
      slotPadding[slot] = padding;
      mostPadding[cellSection[c]] = std::max(mostPadding[cellSection[c]], padding);
      load[cellSection[c]] += slotHeight[slot];
      padded |= padding > 0;
    }

  findNeighbours();

  weights.assign(numItems, 1);
  priority.assign(numItems, 0);
  placed.assign(numItems, 0);
  mark.assign(numItems, 0);
  rise.assign(numItems, 0);
  floor.assign(numSections, 0);
  slack.assign(numSections, 0);
  lowest.assign(numSections, 0);
  isChanged.assign(numSections, 0);
  lowerLeft.assign(numSections, 0);
  lowerRight.assign(numSections, 0);
  minimum.assign(numItems, 0);
  for (int i = 0; i < numItems; ++i) {
    minimum[i] = fit(i, 0);
    Key key = keyOf(i, minimum[i]);
    total.a += key.a;
    total.b += key.b;
    for (int c = cellBegin[i]; c < cellBegin[i + 1]; ++c)
      slotMinimum[cellSlot[c]] = minimum[i];
  }
  support = offset = minimum;
  for (int s = 0; s < numSections; ++s) {
    hopeless |= load[s] > capacity + mostPadding[s];
    isChanged[s] = 1;
    changed.push_back(s);
  }
  hopeless |= !settle();
  trail.clear();
}

/// Who meets whom, and how high both are where they do. An item that goes on from one section
/// to the next meets there only those that begin anew.
void PackSearch::findNeighbours() {
  neighbours.resize(numItems);
  obstacles.resize(numItems);
  std::vector<char> uneven(numItems, 0); // of different heights
  std::vector<int> freshBegin(numSections + 1, 0), fresh;
  auto isFresh = [&](int c) {
    int i = slotItem[cellSlot[c]];
    return c == cellBegin[i] || cellSection[c - 1] != cellSection[c] - 1;
  };
  for (int s = 0; s < numSections; ++s) {
    for (int k = slotBegin[s]; k < slotBegin[s + 1]; ++k)
      if (isFresh(slotCell[k]))
        fresh.push_back(slotItem[k]);
    freshBegin[s + 1] = static_cast<int>(fresh.size());
  }
  for (int i = 0; i < numItems; ++i)
    for (int c = cellBegin[i]; c < cellBegin[i + 1]; ++c)
      uneven[i] |= cellHeight[c] != cellHeight[cellBegin[i]];
  std::vector<int> listed(numItems, -1), own(numSections, -1);
  std::vector<Neighbour> list;
  for (int i = 0; i < numItems; ++i) {
    list.clear();
    listed[i] = i;
    auto meet = [&](int other) {
      if (listed[other] == i)
        return;
      listed[other] = i;
      list.push_back({other, problem.items[i].height, problem.items[other].height});
    };
    for (int c = cellBegin[i]; c < cellBegin[i + 1]; ++c) {
      int s = cellSection[c];
      own[s] = c;
      if (isFresh(c))
        std::for_each(&slotItem[slotBegin[s]], &slotItem[slotBegin[s]] + count[s], meet);
      else
        std::for_each(fresh.data() + freshBegin[s], fresh.data() + freshBegin[s + 1], meet);
    }
    for (Neighbour &n : list) {
      if (uneven[i] || uneven[n.item]) {
        n.own = n.theirs = 0;
        for (int c = cellBegin[n.item]; c < cellBegin[n.item + 1]; ++c)
          if (int mine = own[cellSection[c]]; mine >= cellBegin[i]) {
            n.own = std::max(n.own, cellHeight[mine]);
            n.theirs = std::max(n.theirs, cellHeight[c]);
          }
      }
      if (problem.items[n.item].fixed >= 0)
        obstacles[i].push_back(n);
    }
    neighbours[i].assign(list.begin(), list.end());
  }
}

} // namespace lathe::analysis
