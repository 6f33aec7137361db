//===- StreamConflicts.h - conflicts of buffers that streams share -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where steps run on several streams a lifetime is no interval: buffers may share
// bytes only where waits order all that touches them. Plain C++.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_ANALYSIS_STREAMCONFLICTS_H
#define LATHE_ANALYSIS_STREAMCONFLICTS_H

#include "lathe/analysis/MemoryPlan.h"

namespace lathe::analysis {

struct StreamStep {
  int stream = 0;           ///< >= 0; steps of one stream run one after another
  std::vector<int> waits;   ///< earlier steps that have ended before this one begins
  std::vector<int> touches; ///< buffers it reads or writes
};

/// Conflicts for `Problem::conflicts`, sorted pairs of buffers 0 .. buffers-1. Steps stand in
/// the order of their launches. One happens before another if its stream runs it earlier or
/// waits lead from it there (Lamport, "Time, clocks, and the ordering of events", 1978); two
/// buffers conflict unless every step that touches one happens before every step that touches
/// the other. A buffer that no step touches conflicts with none. Time: buffers^2 * streams.
/// Invalid, with the step, for a negative stream, a buffer that does not exist, or a wait for
/// a step that is not earlier.
Result<ConflictList> conflictsOfStreams(const std::vector<StreamStep> &steps, int buffers);

} // namespace lathe::analysis

#endif // LATHE_ANALYSIS_STREAMCONFLICTS_H
