//===- CudaDevice.h - runs kernels through the CUDA driver ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_RUNTIME_DEVICE_CUDADEVICE_H
#define LATHE_RUNTIME_DEVICE_CUDADEVICE_H

#include "CudaDriver.h"
#include "Device.h"

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
  Result<void *> allocateHost(size_t bytes) override;
  void freeHost(void *memory) override;
  Result<std::unique_ptr<Module>> load(std::string_view image) override;
  Status copy(void *to, const void *from, size_t bytes, CopyKind kind) override;
  Status zero(void *memory, size_t bytes) override;
  Status launch(const LaunchCommand &command) override;
  Status sync() override;
  bool supportsGraphs() const override { return true; }
  Status beginCapture() override;
  Result<GraphHandle> endCapture(GraphHandle reuse) override;
  void abandonCapture() override;
  Status launchGraph(GraphHandle graph) override;
  void destroyGraph(GraphHandle graph) override;
  Status beginTiming() override;
  Result<double> endTiming() override;

  int capability() const { return computeCapability; } ///< 90 for 9.0

private:
  CudaDevice(const cuda::Driver &driver) : driver(driver) {}
  Status check(cuda::CUresult result, const char *call) const;
  Status encodeTensorMaps(const LaunchCommand &c);

  const cuda::Driver &driver;
  std::string memory;
  cuda::CUdevice device = -1;
  cuda::CUcontext context = nullptr;
  cuda::CUstream stream = nullptr;
  bool ownsStream = false;
  cuda::CUevent startEvent = nullptr, endEvent = nullptr;
  int computeCapability = 0;
  int64_t maxGrid[3] = {0, 0, 0};
  /// Set by an error after which the CUDA context is unusable; later calls repeat it.
  mutable Status lost;
  std::vector<cuda::CUtensorMap> tensorMaps; ///< of the current launch
};

} // namespace lathe::runtime

#endif // LATHE_RUNTIME_DEVICE_CUDADEVICE_H
