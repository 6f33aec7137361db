//===- StreamChoice.h - which steps run beside each other -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels that fill only a part of a GPU leave the rest idle. Where several of them do not
// need each other they are spread over streams, as far as an estimate says that this pays
// for the events which keep the streams in order. Plain C++; the result is a function of
// the steps and the costs.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_ANALYSIS_STREAMCHOICE_H
#define LATHE_ANALYSIS_STREAMCHOICE_H

#include "lathe/support/Status.h"

#include <vector>

namespace lathe::analysis {

/// One step as time sees it.
struct TimedStep {
  double seconds = 0; ///< alone on the device, >= 0
  double share = 1;   ///< of the device that it takes while it runs, in (0, 1]
  std::vector<int> after; ///< earlier steps that have ended before it begins
};

struct StreamCosts {
  double eventSeconds = 0; ///< from the end of a step to the begin of one on another stream
  int streams = 4;         ///< at most; 1: all steps stay on one
  double gain = 1.1;       ///< what a region's time must fall by to be worth its events
};

/// Steps [first, end) that may be spread without regard to the others: what comes before them in
/// the order ends before they begin, and what comes behind them begins when they have ended.
struct StreamRegion {
  int first = 0, end = 0;
  double before = 0, after = 0; ///< estimated seconds on one stream, and on the best number
  int streams = 1;              ///< that number, whether it is used or not
  bool used = false;            ///< before / after reaches the gain that is asked for
};

struct StreamChoice {
  std::vector<int> streams;            ///< of each step; 0 is where the program begins and ends
  std::vector<std::vector<int>> waits; ///< of each step: earlier steps of other streams, rising
  std::vector<StreamRegion> regions;   ///< those in which any two steps are independent, in order
};

/// Spreads the steps of each region over streams in their order, each where it can begin first
/// (list scheduling; Graham, "Bounds on multiprocessing timing anomalies", 1969), and estimates
/// the region's time by letting all that runs at once share the device: at full speed while their
/// shares sum to 1 or less, more slowly in proportion beyond. A used region's streams begin behind
/// the step ahead of it on stream 0, and the next step of stream 0 behind it waits for all of
/// them; behind the last region the runtime does. Time: steps^2 / 64 + steps * streams^2.
/// Invalid, with the step, for a dependence on a step that is not earlier, a negative time or a
/// share outside (0, 1].
Result<StreamChoice> chooseStreams(const std::vector<TimedStep> &steps, const StreamCosts &costs);

/// StreamChoice::waits of steps whose streams are given: the fewest that keep every step behind those of
/// `after`, which are earlier ones.
std::vector<std::vector<int>> waitsOf(const std::vector<TimedStep> &steps, const std::vector<int> &streams);

} // namespace lathe::analysis

#endif // LATHE_ANALYSIS_STREAMCHOICE_H
