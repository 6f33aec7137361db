//===- TargetRates.h - how fast a target is ---------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What estimates of time go by, beside what a target can do (Target.h).
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_CODEGEN_TARGETRATES_H
#define LATHE_CODEGEN_TARGETRATES_H

#include "lathe/codegen/Target.h"

namespace lathe {

/// Of the card whose figures the target has. All are 0 for a CPU.
struct TargetRates {
  double bytesPerSecond = 0;     ///< of device memory, by its data sheet
  double fmaFlops = 0;           ///< a second, f32, by its data sheet
  double tensorCoreFlops = 0;    ///< a second, bf16 with sums in f32, dense, by its data sheet
  /// From the end of a kernel to the begin of one that waits for it by an event. Measured on an
  /// H200 (test/perf/gpu/results/submit-h200.log: between the last kernel of a step and the first of
  /// the next, 1.664 us), and taken for the other cards too.
  double eventSeconds = 0;
  /// From the other cards of a host while it reduces what comes. Measured over NVLink, of 16 MB on two H200 and on four
  /// H100 (test/perf/gpu/results/ranks: collectives-h200.log, collectives-four-h100.log), and taken for the other cards too.
  double exchangedBytesPerSecond = 0;
  std::string_view card = {};    ///< "H200"
};

TargetRates ratesOf(const Target &target);

/// What a launch does.
struct LaunchWork {
  double blocks = 1; ///< of its grid
  double flops = 0, bytes = 0;
};
struct LaunchTime {
  double seconds = 0; ///< alone on the device
  double share = 1;   ///< of the device that it takes while it runs, in (0, 1]
};
/// By a roofline at these rates of the whole device. Blocks go to idle multiprocessors first, and compute on as many.
/// What they draw from memory is taken as if half of the multiprocessors drew all that there is. On a CPU a launch has
/// the whole.
LaunchTime launchTime(const Target &target, const LaunchWork &work, double flopsPerSecond, double bytesPerSecond);

/// Operations a second that a kernel of this configuration can do at most: of tensor cores, in the type
/// that it gives them, where it uses these, else f32 FMAs. 0 for a CPU.
double peakFlops(const Target &target, std::string_view config);

/// Whether a kernel of this configuration feeds tensor cores tile by tile through shared memory, which takes a time to
/// begin and to end: not those that stream the weights of a few rows.
bool goesThroughTiles(std::string_view config);

} // namespace lathe

#endif // LATHE_CODEGEN_TARGETRATES_H
