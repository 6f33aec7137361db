//===- Conflicts.h - which buffers may not overlap -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Private to the planners. Alias groups become items that are placed as one; each
// item has parts of different sizes and lifetimes at one offset.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_LIB_ANALYSIS_CONFLICTS_H
#define LATHE_LIB_ANALYSIS_CONFLICTS_H

#include "lathe/analysis/MemoryPlan.h"

namespace lathe::analysis {

/// Parts of two items that conflict, bytes from the items' offsets.
struct Edge {
  int otherItem;
  int64_t ownLow, ownHigh;
  int64_t otherLow, otherHigh;
};

struct Item {
  std::vector<int> buffers;
  int64_t size = 0;      ///< the highest end of a part
  int64_t alignment = 1; ///< least common multiple of the parts'
  int64_t begin = 0, end = 0;
  int space = 0;
  std::optional<int64_t> offset;
  std::vector<Edge> edges; ///< each conflict stands in both items
};

/// Items in the order of their first buffer. Buffers that conflict with nothing
/// (no bytes, no lifetime) are items without edges; so are all when `withEdges` is off.
std::vector<Item> makeItems(const Problem &problem, bool withEdges = true);

/// How many conflicts there are; at most, where buffers meet several times.
int64_t countConflicts(const Problem &problem);

/// The buffers `chosen` of a problem, in that order, as a problem of their own.
Problem selectBuffers(const Problem &problem, const std::vector<int> &chosen);

/// The buffers of one space, as a problem of their own with its capacity; `members`
/// are their indices here.
Problem extractSpace(const Problem &problem, int space, std::vector<int> &members);

/// Whether a buffer takes part in conflicts at all.
bool occupiesMemory(const Problem &problem, int buffer);

/// [begin, end) without the gaps, rising.
std::vector<Interval> liveParts(const Buffer &buffer);

/// All conflicting pairs of buffers (smaller index first, sorted, unique), without
/// pairs of one alias group.
ConflictList conflictPairs(const Problem &problem);

} // namespace lathe::analysis

#endif // LATHE_LIB_ANALYSIS_CONFLICTS_H
