//===- PackProblem.h - buffers as stacks over sections ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The form in which exact search sees a problem. A *section* is a set of items that
// all conflict with each other; two items conflict if and only if a section has both.
// In each section an item has a height; its bottom is the same everywhere. Lengths
// are counted in units, so that they are small numbers. Private to the planners.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_LIB_ANALYSIS_PACKPROBLEM_H
#define LATHE_LIB_ANALYSIS_PACKPROBLEM_H

#include "Conflicts.h"

namespace lathe::analysis {

struct PackCell {
  int section;
  int32_t height;
};

struct PackItem {
  std::vector<PackCell> cells; ///< by rising section; none: conflicts with nothing
  int32_t height = 0;          ///< the highest cell
  int32_t alignment = 1;
  int32_t fixed = -1; ///< offset, -1: free
  int kind = 0;       ///< items of one kind are interchangeable
};

struct PackProblem {
  std::vector<PackItem> items; ///< as makeItems numbers them
  int sections = 0;
  int64_t unit = 1;      ///< bytes
  int32_t alignment = 1; ///< units; every offset is a multiple
  /// No plan of the problem is missing here. False for members of alias groups that
  /// start above their group: they are extended down to it.
  bool complete = true;
};

/// The buffers of one space with their items. Nothing when lengths are above 2^29
/// units or there are more than `maxCells` cells or neighbours.
std::optional<PackProblem> makePackProblem(const Problem &problem, const std::vector<Item> &items,
                                           bool reduceSections, int64_t maxCells);

} // namespace lathe::analysis

#endif // LATHE_LIB_ANALYSIS_PACKPROBLEM_H
