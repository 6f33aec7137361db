//===- MeshSimulator.h - a program on many ranks, in time -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All ranks run the steps of one program in order. Steps of a stream follow each other, and a step waits for the
// events that it names. Ranks meet at collectives, one after another: each has the network to itself. What a step
// takes of a rank is its seconds over the rank's speed; kernels of several streams do not slow each other down.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_ANALYSIS_MESHSIMULATOR_H
#define LATHE_ANALYSIS_MESHSIMULATOR_H

#include "lathe/analysis/CollectiveTimes.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace lathe::analysis {

struct MeshStep {
  std::string name, nodes; ///< for people
  double seconds = 0;      ///< of a kernel on a rank of speed 1
  std::map<int64_t, double> more; ///< of a kernel: seconds that a rank takes beside that, by rank
  std::optional<CollectiveCall> collective; ///< instead of a kernel
  int stream = 0;
  std::vector<int> waits; ///< events of earlier steps
  int signal = -1;        ///< the event that its end is, or -1
};

struct MeshTimeline {
  int64_t ranks = 0;   ///< of all copies
  int64_t members = 0; ///< of one copy, which meet each other
  std::vector<MeshStep> steps;
  /// Seconds, by step and rank: [step * ranks + rank]. A collective begins when its rank comes.
  std::vector<double> begin, end;
  double seconds = 0; ///< until the last rank has ended

  double beginOf(size_t step, int64_t rank) const { return begin[step * size_t(ranks) + size_t(rank)]; }
  /// When the last of those has come that a rank meets.
  double lastBeginOf(size_t step, int64_t rank) const {
    const int64_t first = rank / members * members;
    const auto from = begin.begin() + std::ptrdiff_t(step * size_t(ranks)) + first;
    return *std::max_element(from, from + members);
  }
  double endOf(size_t step, int64_t rank) const { return end[step * size_t(ranks) + size_t(rank)]; }
};

/// `copies` of the program's ranks run side by side, one behind another on the topology, and meet nobody but their own.
/// Usage error for more ranks than the topology has GPUs, or fewer than one; Unsupported where copies would share the
/// port of a host; Invalid, with the step, for an event that no earlier step is; those of collectiveTimes() with the step.
Result<MeshTimeline> simulateMesh(const MeshTopology &topology, std::vector<MeshStep> steps, int64_t ranks,
                                  int64_t copies = 1);

/// One SVG document: time from left to right, a lane for ranks whose times are the same, at most `lanes` of them.
/// Kernels, waiting for others, and exchanging have a colour each; under the pointer are name, times and nodes.
std::string drawTimeline(const MeshTimeline &timeline, const std::string &title, int lanes = 16);

} // namespace lathe::analysis

#endif // LATHE_ANALYSIS_MESHSIMULATOR_H
