//===- CudaDevice.h - runs kernels through the CUDA driver ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_RUNTIME_DEVICE_CUDADEVICE_H
#define LATHE_RUNTIME_DEVICE_CUDADEVICE_H

#include "CudaDriver.h"
#include "Device.h"
#include "Spares.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace lathe::runtime {

/// A stream on a GPU. The same code runs on the fake driver's table.
class CudaDevice final : public Device {
public:
  /// `name`: "cuda" or "fake", for memoryName().
  static Result<std::unique_ptr<Device>> open(const cuda::Driver &driver, const std::string &name,
                                              int ordinal, void *callersStream);
  ~CudaDevice() override;

  bool isHost() const override { return false; }
  std::string memoryName() const override { return memory; }
  int suitability(const engine::Plan &plan) const override;
  Result<void *> allocate(size_t bytes) override;
  void free(void *memory) override;
  Result<void *> allocateResult(size_t bytes) override;
  void freeResult(void *memory) override;
  Result<void *> allocateHost(size_t bytes) override;
  void freeHost(void *memory) override;
  Result<std::unique_ptr<Module>> load(std::string_view image) override;
  Status copy(void *to, const void *from, size_t bytes, CopyKind kind) override;
  Status zero(void *memory, size_t bytes) override;
  Status launch(const LaunchCommand &command) override;
  size_t freeBytes() override;
  Status sync() override;
  Result<MarkHandle> makeMark() override;
  void destroyMark(MarkHandle mark) override;
  Status setMark(MarkHandle mark) override;
  Result<bool> reached(MarkHandle mark) override;
  Status waitForEvent(void *event) override;
  Status recordEvent(void *event) override;
  Result<void *> inputStream() override;
  Status waitForStream(void *callers) override;
  Status awaitInputs() override;
  Status useStream(int stream) override;
  Status signal(int number) override;
  Status await(int number) override;
  bool supportsGraphs() const override { return true; }
  Status beginCapture() override;
  size_t capturedNodes() const override { return nodes.size(); }
  Result<GraphHandle> endCapture(GraphHandle reuse) override;
  void abandonCapture() override;
  bool updatesNodes() const override { return driver.cuStreamGetCaptureInfo != nullptr; }
  Status updateLaunch(GraphHandle graph, size_t node, const LaunchCommand &command) override;
  Status updateCopy(GraphHandle graph, size_t node, void *to, const void *from, size_t bytes,
                    CopyKind kind) override;
  Status launchGraph(GraphHandle graph) override;
  void destroyGraph(GraphHandle graph) override;
  void abandon() override { *abandoned = true; }
  void enter() override;
  void leave() override;
  /// Whether the CUDA context is current on this thread already.
  bool isEntered() const {
    return user.load(std::memory_order_relaxed) == std::this_thread::get_id();
  }
  Status beginTiming() override;
  Result<double> endTiming() override;

  int capability() const { return computeCapability; } ///< 90 for 9.0

private:
  CudaDevice(const cuda::Driver &driver) : driver(driver) {}
  Status check(cuda::CUresult result, const char *call) const;
  Status encodeTensorMaps(const LaunchCommand &c);
  /// Shared memory and cluster of the function, its tensor maps, and `parameters`: addresses
  /// within the command and this device.
  Status prepareLaunch(const LaunchCommand &c);
  Result<cuda::CUevent> makeEvent();
  Status noteNode(); ///< of what was just captured
  Status pollEvent(cuda::CUevent event, const char *what);
  bool freeSpares(); ///< whether there were any

  const cuda::Driver &driver;
  std::string memory;
  cuda::CUdevice device = -1;
  cuda::CUcontext context = nullptr;
  /// The first is where steps begin and end; the others are made when a plan wants them.
  std::vector<cuda::CUstream> streams;
  cuda::CUstream stream = nullptr; ///< that of `streams` in use
  bool ownsStream = false;
  /// Made when it is first asked for, which may be while another thread runs a step: a step that
  /// captures a graph must not be joined by foreign work, so this is never one of `streams`.
  std::mutex inputsMutex;
  std::atomic<cuda::CUstream> inputs = nullptr;
  cuda::CUevent inputsReady = nullptr, callersPoint = nullptr;
  std::vector<cuda::CUevent> signals; ///< by number of the plan
  std::vector<cuda::CUevent> ends;    ///< of sync(), one a stream
  cuda::CUevent startEvent = nullptr, endEvent = nullptr;
  std::atomic<std::thread::id> user; ///< the thread that has entered, or none
  bool capturing = false;
  std::vector<cuda::CUgraphNode> nodes; ///< launches and copies of the capture
  int computeCapability = 0;
  int64_t maxGrid[3] = {0, 0, 0};
  /// Set by an error after which the CUDA context is unusable; later calls repeat it.
  mutable Status lost;
  std::vector<cuda::CUtensorMap> tensorMaps; ///< of the current launch
  std::vector<void *> parameters;            ///< of the current launch
  void *statusParameter = nullptr;
  /// Memory of results: cuMemAlloc and cuMemFree take longer than small engines do.
  Spares spares;
  /// Shared with modules: they are not unloaded either.
  std::shared_ptr<std::atomic<bool>> abandoned = std::make_shared<std::atomic<bool>>(false);
};

} // namespace lathe::runtime

#endif // LATHE_RUNTIME_DEVICE_CUDADEVICE_H
