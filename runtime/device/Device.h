//===- Device.h - what the executor needs of a device -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One Device per context: memory, kernels, copies in stream order, and, where the
// device has them, graphs. Addresses of "device memory" are host addresses on the CPU.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_DEVICE_DEVICE_H
#define LATHE_RUNTIME_DEVICE_DEVICE_H

#include "Deadline.h"
#include "lathe/engine/KernelAbi.h"
#include "lathe/engine/Plan.h"
#include "lathe/support/Status.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace lathe::runtime {

/// A loaded kernel function; owned by its module.
struct Function {
  virtual ~Function() = default;
};

/// The kernels of one target, loaded.
class Module {
public:
  virtual ~Module() = default;
  /// `image`: name in the archive of cubins; ignored on the CPU. The pointer lives as
  /// long as the module. Invalid when the function's parameters are not those of the
  /// launch, where the device can tell.
  virtual Result<Function *> function(const std::string &image, const engine::Launch &launch) = 0;
  /// Brings a function to the device now, and not when it is first launched.
  virtual Status load(Function *) { return okStatus(); }
};

/// One launch with everything evaluated.
struct LaunchCommand {
  Function *function = nullptr;
  const engine::Launch *spec = nullptr; ///< block, cluster, args
  const engine::KernelVariant *variant = nullptr;
  int64_t grid[3] = {1, 1, 1};
  int64_t sharedBytes = 0, scratchBytes = 0;
  bool mayOverlap = true; ///< as the spec says; otherwise never
  std::span<void *const> buffers;      ///< LaunchStep::buffers, as device addresses
  std::span<const DType> dtypes;       ///< of the buffers
  std::span<const int64_t> symbols;    ///< values of Kernel::symbols
  /// Values of all TensorMap dims, then strides, map by map.
  std::span<const int64_t> tensorMapSizes;
  LatheStatusWord *status = nullptr;   ///< device address; may be null
};

enum class CopyKind { HostToDevice, DeviceToHost, DeviceToDevice };

/// A captured graph; made and destroyed by its device.
using GraphHandle = void *;
/// A point in stream order; made and destroyed by its device.
using MarkHandle = void *;

class Device {
public:
  virtual ~Device() = default;

  /// True: device memory is host memory and work is done when a call returns.
  virtual bool isHost() const = 0;
  /// Identifies the memory that weights can be shared in: "cpu", "cuda:0".
  virtual std::string memoryName() const = 0;
  /// Whether this device runs plans of a target, and how well: 0 no, higher is better.
  virtual int suitability(const engine::Plan &plan) const = 0;

  /// `bytes` > 0; aligned to 256 at least. Null is never a result.
  virtual Result<void *> allocate(size_t bytes) = 0;
  virtual void free(void *memory) = 0;
  /// The same for what a caller gets and gives back from any thread, run after run: a device whose driver takes its
  /// time may keep some of it.
  virtual Result<void *> allocateResult(size_t bytes) { return allocate(bytes); }
  virtual void freeResult(void *memory) { free(memory); }
  /// Pinned host memory, which kernels may write; the same rules.
  virtual Result<void *> allocateHost(size_t bytes) = 0;
  virtual void freeHost(void *memory) = 0;
  /// Bytes of device memory that are free; 0 when it does not say.
  virtual size_t freeBytes() { return 0; }
  /// Memory that is made from here on has its pages at once, and not when it is first written.
  virtual void setPrefault(bool) {}
  /// Makes what launches need beside their buffers: `scratchBytes` a worker.
  virtual Status prepareScratch(int64_t /*scratchBytes*/) { return okStatus(); }

  /// `image` must live as long as the module.
  virtual Result<std::unique_ptr<Module>> load(std::string_view image) = 0;

  // In the order of the chosen stream. Host memory of a copy may be reused after sync().
  virtual Status copy(void *to, const void *from, size_t bytes, CopyKind kind) = 0;
  virtual Status zero(void *memory, size_t bytes) = 0;
  virtual Status launch(const LaunchCommand &command) = 0;

  /// Polls until all that was enqueued is over; a deadline error after `patience`.
  virtual Status sync() = 0;
  void setPatience(int64_t nanoseconds) { patience = nanoseconds; } ///< negative: endless

  // Marks: polled without blocking. A device that is the host has nothing to wait for.
  virtual Result<MarkHandle> makeMark() { return MarkHandle(this); }
  virtual void destroyMark(MarkHandle) {}
  virtual Status setMark(MarkHandle) { return okStatus(); } ///< behind what is enqueued
  virtual Result<bool> reached(MarkHandle) { return true; }
  /// The caller's events (CUevent): what follows waits for it; it is recorded behind all.
  virtual Status waitForEvent(void *) { return unsupportedError("no events on this device"); }
  virtual Status recordEvent(void *) { return unsupportedError("no events on this device"); }
  /// From any thread: a stream (CUstream) of the device's that whoever makes inputs lets wait for
  /// them, and the same for what a stream of the caller has to do by now.
  virtual Result<void *> inputStream() { return unsupportedError("no streams on this device"); }
  virtual Status waitForStream(void *) { return unsupportedError("no streams on this device"); }
  /// What follows waits for that stream.
  virtual Status awaitInputs() { return okStatus(); }

  // Streams: 0 is where a step begins and ends; others begin behind a signal of an earlier
  // one. A signal is a number of the plan.
  virtual Status useStream(int) { return okStatus(); }
  virtual Status signal(int) { return okStatus(); }
  virtual Status await(int) { return okStatus(); }

  // Graphs; only where supportsGraphs(). Launches and copies of a capture are numbered.
  virtual bool supportsGraphs() const { return false; }
  virtual Status beginCapture() { return unsupportedError("no graphs on this device"); }
  /// Launches and copies captured so far: the number of the next.
  virtual size_t capturedNodes() const { return 0; }
  /// Ends the capture; `reuse` may be an older graph of the same steps that is updated
  /// in place when possible, and destroyed otherwise.
  virtual Result<GraphHandle> endCapture(GraphHandle) {
    return unsupportedError("no graphs on this device");
  }
  virtual void abandonCapture() {}
  /// Whether nodes can be changed; where not, a graph is captured again.
  virtual bool updatesNodes() const { return false; }
  /// Later launches of the graph do this instead at a node; its kind stays.
  virtual Status updateLaunch(GraphHandle, size_t, const LaunchCommand &) {
    return unsupportedError("no graphs on this device");
  }
  virtual Status updateCopy(GraphHandle, size_t, void *, const void *, size_t, CopyKind) {
    return unsupportedError("no graphs on this device");
  }
  virtual Status launchGraph(GraphHandle) { return unsupportedError("no graphs on this device"); }
  virtual void destroyGraph(GraphHandle) {}

  /// Calls of this thread between them cost less; a thread that has entered leaves before another
  /// enters.
  virtual void enter() {}
  virtual void leave() {}

  /// Work that never ends holds the device: what the driver would block on to free is left
  /// to the end of the process from here on.
  virtual void abandon() {}

  // Time of what lies between, in stream order; end() waits.
  virtual Status beginTiming() = 0;
  virtual Result<double> endTiming() = 0; ///< seconds

protected:
  int64_t patience = int64_t(60) * 1000000000; ///< nanoseconds; negative: endless
};

/// enter() and leave().
class DeviceUse {
public:
  explicit DeviceUse(Device &device) : device(device) { device.enter(); }
  ~DeviceUse() { device.leave(); }
  DeviceUse(const DeviceUse &) = delete;

private:
  Device &device;
};

struct DeviceOptions {
  int threads = 0;          ///< CPU; 0: all that the process may use
  bool pinThreads = true;   ///< CPU
  bool prefault = false;    ///< CPU: as setPrefault()
  void *stream = nullptr;   ///< CUDA: the caller's stream
};

/// "cpu", "cuda", "cuda:N", "fake:N". Usage for other names, Unsupported when there is
/// no such device or driver.
Result<std::unique_ptr<Device>> openDevice(const std::string &name, const DeviceOptions &options);

} // namespace lathe::runtime

#endif // LATHE_RUNTIME_DEVICE_DEVICE_H
