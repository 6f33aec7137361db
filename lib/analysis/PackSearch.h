//===- PackSearch.h - do items fit below a height? -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Depth-first branch and bound over stacks that grow from the bottom. The README of
// this folder explains it. Private to the planners.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_LIB_ANALYSIS_PACKSEARCH_H
#define LATHE_LIB_ANALYSIS_PACKSEARCH_H

#include "PackProblem.h"

#include <atomic>

namespace lathe::analysis {

/// Which section is decided next, and which item comes first on it.
struct SearchOrder {
  enum class Section { Branches, BranchesLow, LowBranches, LowTight, Tight } section;
  enum class Item { Width, Area, Size, WeightedArea, Weight, WeightedSize } item;
};

enum class Outcome { Found, None, OutOfNodes };

class PackSearch {
public:
  /// Units; the problem must live as long as the search.
  PackSearch(const PackProblem &problem, int32_t capacity, const SearchRules &rules);

  /// Looks for offsets; states found to be without solution and the weights of items
  /// stay for later calls. Also out of nodes once `stop` is set.
  Outcome run(SearchOrder order, int64_t nodes, const std::atomic<bool> *stop = nullptr);

  int64_t nodesUsed() const { return used; } ///< by the last run
  /// Units, one an item; after Found.
  const std::vector<int32_t> &offsets() const { return offset; }

  /// Raised for the items of a section whenever it fails; starts at 1.
  std::vector<double> weights;

private:
  struct Neighbour {
    int item;
    int32_t own;    ///< height of this item where the two meet
    int32_t theirs; ///< of the other
  };
  struct Key {
    uint64_t a = 0, b = 0;
  };
  /// A decision: which candidate comes next on `section`; the last choice is none.
  /// Or (section < 0) parts that are solved one after another.
  struct Frame {
    int section, first, last; ///< candidates, or parts
    int next;
    bool closed; ///< no need to leave the place empty
    size_t trail;
    Key key, rest;
    int low, high; ///< sections
  };
  struct Undo {
    enum Kind : int32_t { Minimum, Support, Place, Section } kind;
    int index;
    int32_t old, oldSlack, oldLowest;
  };

  void findNeighbours();
  void orderItems(SearchOrder::Item order);
  int32_t fit(int item, int32_t at) const;
  void raise(int item, int32_t to);
  void place(int item);
  void undo(size_t mark);
  bool settle();
  int32_t stackTop(int section, int32_t lowest, int32_t highest, int32_t limit) const;
  void touch(int item);
  /// What may stay empty above the floor. More than the slack, which some gaps have left.
  int64_t room(int section) const {
    return capacity + mostPadding[section] - floor[section] - load[section];
  }
  bool leaveEmpty(int section);
  bool isDominated(int low, int high) const;
  void findLower(int low, int high);
  int chooseSection(int low, int high);
  bool isLowest(int section) const;
  void openFrame(int section, int low, int high, Key key, Key rest);
  bool tryNext();
  void splitParts(int low, int high);
  Key keyOfRange(int low, int high) const;
  static Key keyOf(int item, int32_t at);
  bool known(Key key) const;
  void remember(Key key);

  const PackProblem &problem;
  const SearchRules rules;
  const int32_t capacity;
  int numItems, numSections;

  // Cells of an item: [cellBegin[i], cellBegin[i + 1]).
  std::vector<int> cellBegin, cellSection, cellSlot;
  std::vector<int32_t> cellHeight;
  std::vector<std::vector<Neighbour>> neighbours;
  std::vector<std::vector<Neighbour>> obstacles; ///< neighbours with fixed offsets

  // Unplaced items of a section stand in the first `count` of its slots.
  std::vector<int> slotBegin, slotItem, slotCell, count;
  // Heights of stacked items are rounded up to the common alignment, but for the one on
  // top: its padding may be above the capacity.
  std::vector<int32_t> slotMinimum, slotHeight, slotPadding;
  std::vector<int32_t> mostPadding; ///< of a section
  bool padded = false;

  std::vector<int32_t> minimum; ///< no unplaced item can stand lower
  std::vector<int32_t> support; ///< where the placed ones alone would let it stand
  std::vector<int32_t> offset;
  std::vector<char> placed;
  std::vector<double> priority;
  std::vector<int64_t> load; ///< of the unplaced, by section
  std::vector<int32_t> floor, slack;
  std::vector<int> lowest;   ///< how many of a section could stand on its floor
  std::vector<int> crossing; ///< unplaced items across the boundary below a section

  std::vector<int> lowerLeft, lowerRight; ///< of a section: the next ones with lower floors
  std::vector<int> stack;

  std::vector<Undo> trail;
  std::vector<int> changed; ///< sections that settle has to look at, the first failure decides
  std::vector<char> isChanged;
  std::vector<Frame> frames;
  std::vector<int> candidates;
  std::vector<std::pair<int, int>> parts;
  SearchOrder order{};
  int64_t used = 0;
  Key total; ///< of all unplaced items

  std::vector<Key> table;
  size_t tableUsed = 0;
  bool hopeless = false; ///< fails before the first decision
  std::vector<int> mark;
  std::vector<int32_t> rise;
  int stamp = 0;
};

} // namespace lathe::analysis

#endif // LATHE_LIB_ANALYSIS_PACKSEARCH_H
