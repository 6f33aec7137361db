//===- FakeDriver.h - a CUDA driver without a GPU ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The driver table over host memory, so that tests reach every line of CudaDevice and
// of the executor's GPU path on any machine. Memory operations really happen; kernels
// are recorded, and run where a test has given them a function. Errors of use that the
// real driver reports (wrong memory, copies outside an allocation, synchronising a
// captured stream) are reported here too.
//
// A kernel image is any bytes. One that starts with "fake\n" lists its functions, a
// line each: name and the sizes of the parameters, "scale 8 8 8"; captured launches
// keep parameters only for those, and so do launches that wait.
//
// Work is done as it is enqueued, or, while `held`, when the device is released: streams
// then have something under way, events are not reached, and calls that would wait for the
// device are counted. With a `seed`, what no event orders is done in an order that follows from it:
// operations of different streams when the device is released, and nodes of a graph that do
// not depend on each other.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_DEVICE_FAKEDRIVER_H
#define LATHE_RUNTIME_DEVICE_FAKEDRIVER_H

#include "CudaDriver.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace lathe::runtime::cuda {

struct FakeLaunch {
  std::string function;
  unsigned grid[3], block[3], cluster[3];
  unsigned sharedBytes = 0;
  bool programmatic = false;
  bool fromGraph = false;
  int stream = 0; ///< number of the stream, by age
};

/// What tests see and set. Process-wide, like the hardware it stands for. Calls of the
/// driver exclude each other; a test touches this only while no other thread makes any.
struct FakeGpu {
  using Kernel = std::function<void(const FakeLaunch &, void **parameters)>;

  std::map<std::string, Kernel> kernels; ///< by function name; others do nothing
  /// Kernels that wait for those of other streams, asked whenever something is enqueued, or an event asked for: false
  /// while they wait. What is behind them on their stream waits with them.
  std::map<std::string, std::function<bool(const FakeLaunch &, void **parameters)>> meetings;
  std::vector<FakeLaunch> launches;
  int capability = 90;
  uint64_t memoryLimit = uint64_t(4) << 30;
  uint64_t graphLaunches = 0, graphInstantiations = 0, graphUpdates = 0, nodeUpdates = 0;
  uint64_t functionsLoaded = 0; ///< on request, before they are launched
  uint64_t graphNodeBytes = 1024; ///< device memory that a node of an executable graph takes
  int devices = 2;
  bool peerAccess = true; ///< of each device to the memory of the others
  /// Enqueued work waits until release(), as behind a kernel that does not end.
  bool held = false;
  uint64_t seed = 0;         ///< of the order; 0: the order in which it was enqueued
  bool forgetsWaits = false; ///< a fault: streams do not wait for events
  uint64_t blockingCalls = 0; ///< calls that a real driver would not return from while held
  /// Calls of this function fail with this result until cleared.
  std::string failingCall;
  CUresult failure = 999;
  int failingAllocation = -1; ///< so many allocations succeed, then one fails

  uint64_t allocatedBytes() const;
  void reset();   ///< settings and records; memory stays
  void release(); ///< not held any more, and all that was enqueued is done
};

FakeGpu &fakeGpu();
const Driver &fakeDriver();

} // namespace lathe::runtime::cuda

#endif // LATHE_RUNTIME_DEVICE_FAKEDRIVER_H
