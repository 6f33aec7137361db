//===- Schedule.h - the order of steps that needs least memory -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Steps read and write values; the order of steps decides which values are alive
// together. Here that order is chosen, results take the memory of operands that die,
// and cheap values are made again where keeping them sets the peak. Nothing is
// accepted unless the planned height of the arena falls. Plain C++; the result is a
// function of the graph and the options.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_ANALYSIS_SCHEDULE_H
#define LATHE_ANALYSIS_SCHEDULE_H

#include "lathe/analysis/MemoryPlan.h"

namespace lathe::analysis {

struct ScheduleValue {
  int64_t bytes = 0; ///< 0: lives elsewhere (weights, inputs, outputs, states)
  bool kept = false; ///< alive to the end
};

/// `write` may take the memory of `read` when nothing reads that later: the step reads
/// each byte of it before it writes the byte at the same place. Both have equal bytes.
struct InPlace {
  int write = -1, read = -1;
};

struct ScheduleStep {
  std::vector<int> reads, writes; ///< values, each once; a value has at most one writer
  std::vector<int> after;         ///< steps that come before this one for other reasons
  std::vector<InPlace> inPlace;
  int64_t workspace = 0; ///< bytes alive in this step alone
  int64_t traffic = 0;   ///< bytes it moves: what running it again costs
  bool cheap = false;    ///< may run again: depends on its reads alone
};

/// Steps stand in the order of the model, which is a topological one.
struct ScheduleGraph {
  std::vector<ScheduleValue> values;
  std::vector<ScheduleStep> steps;
  int64_t alignment = 64; ///< of every value, bytes
};

struct ScheduleOptions {
  bool reorder = true, inPlace = true, rematerialise = true;
  int beam = 32;           ///< kept states where a segment is too large for all
  int exactStates = 2048;  ///< states of one length up to which a segment is searched whole
  int64_t work = 3'000'000; ///< visited readers and writers in all searches
  double recompute = 0.04; ///< of all traffic, that steps may cause which run again
  /// What such steps must save: a part of the arena, and bytes. A launch is not worth less.
  double recomputeGain = 0.125;
  int64_t recomputeBytes = 1 << 20;
  PlanOptions plan{200'000};
};

/// A step that runs once more, before `before`, which then reads the new value.
struct Recompute {
  int step = -1;   ///< of the graph given
  int value = -1;  ///< what it writes there
  int before = -1; ///< the first step that reads the new value
  std::vector<int> readers; ///< all of them
};

/// The arena after each accepted stage: "written" and then "order", "in place", "recompute".
struct ScheduleStage {
  std::string name;
  int64_t peak = 0;   ///< bytes alive at once
  int64_t height = 0; ///< bytes of the arena as planned
};

struct SchedulePlan {
  /// Steps of the graph in order; n + i is recompute i.
  std::vector<int> order;
  /// For each value, and then each recomputed one: the value whose memory it has.
  std::vector<int> memoryOf;
  std::vector<Recompute> recomputes;
  std::vector<ScheduleStage> stages; ///< the first is the order as given; then what was accepted
  bool exact = false; ///< no order has a lower peak than the accepted one's
};

/// Invalid when an index is out of range, a value has two writers, a read or `after`
/// points forward, or sizes are negative; the message names the step.
Status checkGraph(const ScheduleGraph &graph);

Result<SchedulePlan> planSchedule(const ScheduleGraph &graph, const ScheduleOptions &options = {});

/// The graph with its recomputed steps and values behind the others: what `order` and
/// `memoryOf` are about.
ScheduleGraph extendedGraph(const ScheduleGraph &graph, const std::vector<Recompute> &recomputes);

/// Buffers of an order: first those of the values (of size 0 where it has another's memory),
/// then the workspaces of steps that have one.
Problem scheduleProblem(const ScheduleGraph &graph, const std::vector<int> &order,
                        const std::vector<int> &memoryOf);

/// Bytes alive at once in an order.
int64_t schedulePeak(const ScheduleGraph &graph, const std::vector<int> &order,
                     const std::vector<int> &memoryOf);

/// Whose memory each value takes in this order, of the steps' `inPlace`.
std::vector<int> takeMemory(const ScheduleGraph &graph, const std::vector<int> &order);

} // namespace lathe::analysis

#endif // LATHE_ANALYSIS_SCHEDULE_H
