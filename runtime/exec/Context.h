//===- Context.h - runs entries on one device -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What lives between runs: device, states, arenas, staging, outputs, kept layouts and
// graphs, counters. Run.h does one run with it. One thread at a time.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_EXEC_CONTEXT_H
#define LATHE_RUNTIME_EXEC_CONTEXT_H

#include "Engine.h"
#include "Layout.h"
#include "lathe/runtime/lathe.h"

#include <atomic>
#include <map>
#include <memory>

namespace lathe::runtime {

/// Memory and sizes of one input or output that the context holds for an entry.
struct PortMemory {
  Block device, host;
  std::vector<int64_t> dims, strides; ///< of the last result
};

struct Graph {
  std::vector<uint64_t> key; ///< symbols and addresses that are baked in
  GraphHandle handle = nullptr;
  uint64_t launches = 0;
  uint64_t lastUse = 0;
};

struct ProfileEntry {
  uint64_t calls = 0;
  double seconds = 0, flops = 0, bytes = 0;
  std::string name, config;
};

/// What a context keeps for one entry.
struct EntryMemory {
  std::vector<PortMemory> inputs, outputs;
  std::map<std::vector<int64_t>, Layout> layouts;
  std::vector<Graph> graphs;
  std::map<const CompiledStep *, ProfileEntry> profile;
};

struct CustomCall {
  lathe_call_function function = nullptr;
  void *user = nullptr;
};

class Context {
public:
  struct Options {
    DeviceOptions device;
    std::string target;
    bool graphs = true, overlap = true;
  };
  static Result<std::unique_ptr<Context>> create(std::shared_ptr<const Engine> engine,
                                                 const std::string &device,
                                                 const Options &options);
  ~Context();

  /// As lathe_run(); `entry` empty: the first.
  Status run(const std::string &entry, std::span<const lathe_tensor> inputs,
             std::span<lathe_tensor> outputs);

  Result<int64_t> stateLength(const std::string &name);
  Result<int64_t> stateCapacity(const std::string &name);
  Status truncateState(const std::string &name, int64_t length);
  Status resetStates(const std::string &name); ///< empty: all
  Status registerCall(const std::string &name, CustomCall call);
  void setTap(lathe_tap_function function, void *user);
  void setProfiling(bool on);
  void timeGraphs(bool on) { timingGraphs = on; }
  const std::vector<lathe_profile_row> &profileRows();
  lathe_counters counters() const;
  void resetCounters();

  const std::string &target() const { return targetName; }
  /// A copy of the tensor's values in new memory of the same kind; row-major.
  Result<void *> copyOut(const lathe_tensor &tensor, size_t bytes);
  const std::shared_ptr<Device> &deviceHandle() const { return device; }

private:
  Context() = default;
  friend class Run;

  std::shared_ptr<const Engine> engine;
  std::shared_ptr<Device> device; ///< outlives everything below
  std::shared_ptr<const DeviceImage> image;
  std::string targetName;
  bool graphsWanted = true, overlapWanted = true;
  std::unique_ptr<StateStore> states;
  std::vector<Block> arenas, hostArenas; ///< by number of the plan's arena
  Block status, statusOnHost;
  std::map<const Program *, EntryMemory> entries;
  std::map<std::string, CustomCall> calls;
  lathe_tap_function tap = nullptr;
  void *tapUser = nullptr;
  bool profiling = false;
  bool timingGraphs = false;
  std::vector<lathe_profile_row> rows;
  mutable lathe_counters sums{};
  uint64_t clock = 0; ///< counts runs, for the age of graphs
  std::atomic_flag busy = ATOMIC_FLAG_INIT;
};

} // namespace lathe::runtime

#endif // LATHE_RUNTIME_EXEC_CONTEXT_H
