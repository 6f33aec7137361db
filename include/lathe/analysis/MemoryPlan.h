//===- MemoryPlan.h - offsets for buffers that share an arena --*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Packing of buffers into one arena: two that conflict (are alive at once) may not
// overlap. Sizes are bytes, either numbers or formulas over symbols. Plain C++;
// the result depends on the problem and the options alone.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_ANALYSIS_MEMORYPLAN_H
#define LATHE_ANALYSIS_MEMORYPLAN_H

#include "lathe/support/DimExpr.h"
#include "lathe/support/Status.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lathe::analysis {

/// Steps [begin, end).
struct Interval {
  int64_t begin = 0, end = 0;
  bool operator==(const Interval &) const = default;
};

/// One buffer. A buffer of size 0 or with an empty lifetime conflicts with nothing
/// and is placed at 0 (or at its fixed offset).
struct Buffer {
  int64_t size = 0;              ///< bytes, >= 0
  int64_t alignment = 1;         ///< bytes, >= 1: the offset is a multiple of it
  int64_t begin = 0, end = 0;    ///< alive in steps [begin, end)
  std::optional<int64_t> offset; ///< fixed beforehand
  /// Buffers of one group (>= 0; -1: none) stand together and do not conflict with
  /// each other: views, in-place updates, slices of a concatenation.
  int aliasGroup = -1;
  /// The memory it lives in (>= 0). Buffers of different spaces never conflict; a
  /// group is in one space.
  int space = 0;
  /// Bytes (>= 0) between the common offset of the alias group and this member.
  int64_t aliasOffset = 0;
  /// Parts of the lifetime in which the bytes hold nothing that is read later, so
  /// that others may use them: sorted, disjoint, inside [begin, end). Explicit
  /// conflicts replace them together with the lifetime.
  std::vector<Interval> gaps;
};

using ConflictList = std::vector<std::pair<int, int>>;

struct Problem {
  std::vector<Buffer> buffers;
  /// Pairs of buffers that may not overlap, in any order; replaces lifetimes when
  /// present (several streams).
  std::optional<ConflictList> conflicts;
  int64_t capacity = INT64_MAX;    ///< bytes of each space without an entry below
  std::vector<int64_t> capacities; ///< bytes, one a space; may be shorter
};

struct Solution {
  std::vector<int64_t> offsets; ///< bytes from the start of its space, one a buffer
  int64_t height = 0;           ///< bytes of all spaces: sum of each one's highest end
  int64_t lowerBound = 0;       ///< proved: no solution is lower than this
  std::string method;           ///< what found it, for people: "area/best-fit"
  int64_t nodes = 0;            ///< of exact search
  bool optimal() const { return height == lowerBound; }
};

/// Rules of the exact search; each but the last cuts nothing but what cannot hold a better
/// plan, so switching one off changes time alone. `lib/analysis/README.md` explains them.
struct SearchRules {
  bool sections = true;      ///< drop sections whose buffers all stand in another one
  bool decomposition = true; ///< split where no unplaced buffer crosses
  bool propagation = true;   ///< raise floors to what the unplaced can reach
  bool stackBound = true;    ///< bound of a section: stack by earliest offset, not just a sum
  bool dominance = true;     ///< no gap that an unplaced buffer would fit into
  bool hatless = true;       ///< a buffer that blocks no other leaves no alternatives
  bool symmetry = true;      ///< order buffers that are interchangeable
  bool memo = true;          ///< remember states without a solution
  bool restarts = true;      ///< growing node budgets over several orders
  bool learning = true;      ///< buffers of failed sections come earlier after a restart
  bool windows = true;       ///< long problems are packed a window of time at a time
};

struct PlanOptions {
  /// Steps of local improvement beyond the portfolio of greedy orders; counted in
  /// placed buffers times neighbours, so that the result does not depend on time.
  int64_t work = 5'000'000;
  /// Nodes of exact search, for plans above the lower bound; 0 leaves it out, -1 takes
  /// quickNodes, and 30 times as many for a plan within a capacity.
  int64_t nodes = -1;
  /// Stop at the first plan within the capacity instead of looking for the lowest.
  bool firstFit = false;
  /// Used at most; the plan is the same for every number.
  int threads = 1;
  SearchRules rules;
};

/// Nodes that take about a tenth of a second, as they take longer in problems with more
/// conflicts.
int64_t quickNodes(const Problem &problem);

/// Finds offsets. Invalid for a malformed problem (negative size, alignment below
/// 1, fixed offsets that overlap, are misaligned or differ within a group, bad
/// indices or gaps, a group in two spaces, sizes whose sum leaves 63 bits).
/// Unsupported, with both numbers, when the result is above the capacity.
Result<Solution> planMemory(const Problem &problem, const PlanOptions &options = {});

/// Buffers that do not fit into the capacities together.
struct ConflictingSet {
  std::vector<int> buffers; ///< rising
  /// No buffer can be left out; otherwise the node budget ended before that was shown.
  bool minimal = false;
  /// No set of fewer buffers fails to fit; otherwise the search for one did not close.
  bool smallest = false;
};

/// Why a problem does not fit: nothing when it fits, or when neither was shown within
/// the budget. Buffers alive at one time when their sizes alone are too many.
Result<std::optional<ConflictingSet>> findConflictingSet(const Problem &problem,
                                                         const PlanOptions &options = {});

/// The number of spaces: 1 more than the highest named.
int spaceCount(const Problem &problem);
int64_t capacityOf(const Problem &problem, int space);
/// Highest end in a space under given offsets.
int64_t spaceHeight(const Problem &problem, const std::vector<int64_t> &offsets, int space);

/// A height that no solution can be below: of buffers alive at once for lifetimes,
/// of cliques for explicit conflicts. The problem must be well-formed.
int64_t heightLowerBound(const Problem &problem);

/// Checks everything planMemory requires of a problem, except the capacity.
Status checkProblem(const Problem &problem);

//===----------------------------------------------------------------------===//
// Symbolic sizes
//===----------------------------------------------------------------------===//

struct SymbolicBuffer {
  DimExpr size;           ///< bytes; never negative for values in bounds
  int64_t alignment = 64; ///< bytes, >= 1
  int64_t begin = 0, end = 0;
  int aliasGroup = -1;
};

struct SymbolicProblem {
  std::vector<SymbolicBuffer> buffers;
  std::optional<ConflictList> conflicts; ///< as in Problem
  /// Bounds of the symbols; a symbol without them is [0, unbounded].
  std::map<std::string, DimRange> bounds;
  /// Values of all symbols at which the arena shall be small: the upper bounds, or
  /// the optimum where there is none.
  std::map<std::string, int64_t> point;
};

struct SymbolicSolution {
  std::vector<DimExpr> offsets; ///< bytes, valid for every value in bounds
  DimExpr height;
  Solution atPoint; ///< the numeric plan whose order the formulas keep
  /// "chains": a buffer stands on the highest below it, as at the point. "shelves":
  /// that formula grew too long, so buffers stand on shelves as high as the highest
  /// on each.
  std::string method;
};

/// Plans at the point and turns "stands on" into formulas: of two conflicting
/// buffers the one that is lower at the point is lower at every value.
Result<SymbolicSolution> planSymbolic(const SymbolicProblem &problem,
                                      const PlanOptions &options = {});

/// The numeric problem at given values.
Result<Problem> evaluateProblem(const SymbolicProblem &problem,
                                const std::map<std::string, int64_t> &values);

} // namespace lathe::analysis

#endif // LATHE_ANALYSIS_MEMORYPLAN_H
