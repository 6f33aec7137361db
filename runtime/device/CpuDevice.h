//===- CpuDevice.h - runs kernels on this machine's cores -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_RUNTIME_DEVICE_CPUDEVICE_H
#define LATHE_RUNTIME_DEVICE_CPUDEVICE_H

#include "Device.h"
#include "Team.h"

#include <chrono>
#include <map>
#include <vector>

namespace lathe::runtime {

class CpuDevice final : public Device {
public:
  CpuDevice(int threads, bool pin, bool prefault = false);
  ~CpuDevice() override;

  bool isHost() const override { return true; }
  std::string memoryName() const override { return "cpu"; }
  int suitability(const engine::Plan &plan) const override;
  Result<void *> allocate(size_t bytes) override;
  void free(void *memory) override;
  Result<void *> allocateHost(size_t bytes) override { return allocate(bytes); }
  void freeHost(void *memory) override { free(memory); }
  void setPrefault(bool on) override { prefault = on; }
  Status prepareScratch(int64_t scratchBytes) override {
    return scratchBytes > 0 ? reserveScratch(static_cast<size_t>(scratchBytes)) : okStatus();
  }
  Result<std::unique_ptr<Module>> load(std::string_view image) override;
  Status copy(void *to, const void *from, size_t bytes, CopyKind kind) override;
  Status zero(void *memory, size_t bytes) override;
  Status launch(const LaunchCommand &command) override;
  Status sync() override { return okStatus(); }
  Status beginTiming() override;
  Result<double> endTiming() override;

  int threads() const { return pool.size(); }

private:
  struct Scratch {
    void *memory = nullptr;
    size_t bytes = 0;
  };
  Status reserveScratch(size_t bytes);
  struct Call;
  void runInTeams(Call &call, int64_t blocks, int64_t members);

  ThreadPool pool;
  std::vector<Scratch> scratch; ///< one per worker
  std::vector<MeetingPoint> meetings; ///< one per team
  std::vector<void *> buffers;  ///< arguments of the current launch
  std::vector<int64_t> symbols;
  std::chrono::steady_clock::time_point start;
  bool prefault;
};

} // namespace lathe::runtime

#endif // LATHE_RUNTIME_DEVICE_CPUDEVICE_H
