//===- ScheduleSearch.h - orders with a low peak ----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Private to lib/analysis.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_LIB_ANALYSIS_SCHEDULESEARCH_H
#define LATHE_LIB_ANALYSIS_SCHEDULESEARCH_H

#include "lathe/analysis/Schedule.h"

namespace lathe::analysis {

struct FoundOrder {
  std::vector<int> order;
  bool exact = false; ///< no order has a lower peak
};

/// Searches each part of the graph between two steps that every other one comes before
/// or after. Parts that do not set the peak keep the given order.
FoundOrder searchOrder(const ScheduleGraph &graph, const ScheduleOptions &options);

} // namespace lathe::analysis

#endif // LATHE_LIB_ANALYSIS_SCHEDULESEARCH_H
