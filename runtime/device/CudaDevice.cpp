//===- CudaDevice.cpp - runs kernels through the CUDA driver ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "CudaDevice.h"

#include "lathe/engine/EngineFile.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

namespace lathe::runtime {

using namespace cuda;
using engine::KernelArg;

namespace {

/// The driver's notion of a current context is per thread; ours is per call.
class Scope {
public:
  Scope(const Driver &driver, CUcontext context) : driver(driver) {
    driver.cuCtxPushCurrent(context);
  }
  ~Scope() {
    CUcontext popped;
    driver.cuCtxPopCurrent(&popped);
  }
  Scope(const Scope &) = delete;

private:
  const Driver &driver;
};

/// Shared by the contexts of an engine; the mutex guards the two attributes.
struct CudaFunction : Function {
  CUfunction handle = nullptr;
  std::mutex mutex;
  int64_t sharedLimit = 48 << 10; ///< dynamic shared memory that it is set up for
  bool largeCluster = false;
};

class CudaModule : public Module {
public:
  CudaModule(const Driver &driver, CUcontext context, engine::Archive cubins)
      : driver(driver), context(context), cubins(std::move(cubins)) {}
  ~CudaModule() override {
    Scope scope(driver, context);
    for (auto &item : modules)
      driver.cuModuleUnload(item.second);
  }

  Result<Function *> function(const std::string &image, const engine::Launch &launch) override {
    const std::string &name = launch.function;
    auto [it, isNew] = functions.try_emplace(image + '\0' + name);
    if (!isNew)
      return &it->second;
    Scope scope(driver, context);
    Result<CUmodule> module = load(image);
    Status status = module.status();
    if (module) {
      CUresult r = driver.cuModuleGetFunction(&it->second.handle, *module, name.c_str());
      if (r != kSuccess)
        status = driverError(driver, r, ("cuModuleGetFunction '" + name + "'").c_str());
    }
    if (status.ok())
      status = checkParameters(it->second.handle, launch);
    if (!status.ok()) {
      functions.erase(it);
      return status;
    }
    return &it->second;
  }

private:
  /// The driver reads as many parameters as the function has, wherever that leads.
  Status checkParameters(CUfunction function, const engine::Launch &launch) {
    if (!driver.cuFuncGetParamInfo)
      return okStatus();
    size_t offset = 0, bytes = 0;
    for (size_t i = 0; i <= launch.args.size(); ++i) {
      CUresult r = driver.cuFuncGetParamInfo(function, i, &offset, &bytes);
      if (r == kNotSupported)
        return okStatus();
      bool exists = r == kSuccess;
      size_t expected = i == launch.args.size()                               ? 0
                        : launch.args[i].kind == KernelArg::Kind::TensorMap ? sizeof(CUtensorMap)
                                                                              : 8;
      if ((exists ? bytes : 0) != expected)
        return invalidError("parameter " + std::to_string(i) + " of '" + launch.function +
                            "' has " + std::to_string(exists ? bytes : 0) +
                            " bytes, the plan passes " + std::to_string(expected));
    }
    return okStatus();
  }

  /// Cubins load when their first function is wanted.
  Result<CUmodule> load(const std::string &image) {
    auto loaded = modules.find(image);
    if (loaded != modules.end())
      return loaded->second;
    for (const auto &[name, bytes] : cubins) {
      if (name != image)
        continue;
      char log[2048] = "";
      int options[] = {kJitErrorLog, kJitErrorLogBytes};
      void *values[] = {log, reinterpret_cast<void *>(sizeof log)};
      std::string copy(bytes); // the driver wants text images terminated
      CUmodule module = nullptr;
      CUresult r = driver.cuModuleLoadDataEx(&module, copy.c_str(), 2, options, values);
      if (r != kSuccess) {
        Status s = driverError(driver, r, ("loading kernel image '" + image + "'").c_str());
        log[sizeof log - 1] = 0;
        return Status(s.code(), s.message() + (*log ? std::string(": ") + log : std::string()));
      }
      modules[image] = module;
      return module;
    }
    return invalidError("the engine has no kernel image '" + image + "'");
  }

  const Driver &driver;
  CUcontext context;
  engine::Archive cubins;
  std::map<std::string, CUmodule> modules;
  std::map<std::string, CudaFunction> functions;
};

int tensorMapType(DType type) {
  switch (bitWidth(type)) {
  case 8:
    return 0;
  case 16:
    return type == DType::F16 ? 6 : type == DType::BF16 ? 9 : 1;
  case 32:
    return type == DType::F32 ? 7 : type == DType::I32 ? 3 : 2;
  case 64:
    return type == DType::F64 ? 8 : type == DType::I64 ? 5 : 4;
  default:
    return -1;
  }
}

CUdeviceptr address(const void *p) { return reinterpret_cast<CUdeviceptr>(p); }

} // namespace

Status CudaDevice::check(CUresult result, const char *call) const {
  if (result == kSuccess)
    return okStatus();
  Status s = driverError(driver, result, call);
  // Illegal address (700) to launch failure (719) end the context's life.
  if (result >= 700 && result <= 719)
    lost = Status(s.code(), s.message() + "; the device is lost to this process");
  return s;
}

Result<std::unique_ptr<Device>> CudaDevice::open(const Driver &driver, const std::string &name,
                                                 int ordinal, void *callersStream) {
  std::unique_ptr<CudaDevice> d(new CudaDevice(driver));
  int count = 0;
  LATHE_RETURN_IF_ERROR(d->check(driver.cuDeviceGetCount(&count), "cuDeviceGetCount"));
  if (ordinal < 0 || ordinal >= count)
    return unsupportedError("there is no device " + name + ":" + std::to_string(ordinal) + " (" +
                            std::to_string(count) + " found)");
  CUdevice device = 0;
  LATHE_RETURN_IF_ERROR(d->check(driver.cuDeviceGet(&device, ordinal), "cuDeviceGet"));
  int major = 0, minor = 0;
  LATHE_RETURN_IF_ERROR(d->check(driver.cuDeviceGetAttribute(&major, kDeviceMajor, device),
                                 "cuDeviceGetAttribute"));
  LATHE_RETURN_IF_ERROR(d->check(driver.cuDeviceGetAttribute(&minor, kDeviceMinor, device),
                                 "cuDeviceGetAttribute"));
  for (int i = 0; i < 3; ++i) {
    int limit = 0;
    LATHE_RETURN_IF_ERROR(d->check(
        driver.cuDeviceGetAttribute(&limit, kDeviceMaxGridX + i, device), "cuDeviceGetAttribute"));
    d->maxGrid[i] = limit;
  }
  d->computeCapability = major * 10 + minor;
  d->memory = name + ":" + std::to_string(ordinal);
  LATHE_RETURN_IF_ERROR(d->check(driver.cuDevicePrimaryCtxRetain(&d->context, device),
                                 "cuDevicePrimaryCtxRetain"));
  d->device = device;
  Scope scope(driver, d->context);
  if (callersStream) {
    d->stream = static_cast<CUstream>(callersStream);
  } else {
    LATHE_RETURN_IF_ERROR(
        d->check(driver.cuStreamCreate(&d->stream, kStreamNonBlocking), "cuStreamCreate"));
    d->ownsStream = true;
  }
  return std::unique_ptr<Device>(std::move(d));
}

CudaDevice::~CudaDevice() {
  if (device < 0)
    return;
  {
    Scope scope(driver, context);
    if (startEvent)
      driver.cuEventDestroy(startEvent);
    if (endEvent)
      driver.cuEventDestroy(endEvent);
    if (ownsStream)
      driver.cuStreamDestroy(stream);
  }
  driver.cuDevicePrimaryCtxRelease(device);
}

int CudaDevice::suitability(const engine::Plan &plan) const {
  if (!plan.cuda || plan.target.rfind("sm_", 0) != 0)
    return 0;
  char *end = nullptr;
  long version = std::strtol(plan.target.c_str() + 3, &end, 10);
  // "a" binaries run on exactly their architecture, others within the major version.
  if (*end == 'a')
    return version == computeCapability ? 10000 : 0;
  if (*end != 0 || version / 10 != computeCapability / 10 || version > computeCapability)
    return 0;
  return static_cast<int>(version);
}

Result<void *> CudaDevice::allocate(size_t bytes) {
  LATHE_RETURN_IF_ERROR(lost);
  Scope scope(driver, context);
  CUdeviceptr p = 0;
  CUresult r = driver.cuMemAlloc(&p, bytes);
  if (r == kOutOfMemory)
    return runtimeError("out of device memory: " + std::to_string(bytes) + " bytes");
  LATHE_RETURN_IF_ERROR(check(r, "cuMemAlloc"));
  return reinterpret_cast<void *>(p);
}

void CudaDevice::free(void *p) {
  if (!p)
    return;
  Scope scope(driver, context);
  driver.cuMemFree(address(p));
}

Result<void *> CudaDevice::allocateHost(size_t bytes) {
  LATHE_RETURN_IF_ERROR(lost);
  Scope scope(driver, context);
  void *p = nullptr;
  CUresult r = driver.cuMemAllocHost(&p, bytes);
  if (r == kOutOfMemory)
    return runtimeError("out of host memory: " + std::to_string(bytes) + " bytes");
  LATHE_RETURN_IF_ERROR(check(r, "cuMemAllocHost"));
  return p;
}

void CudaDevice::freeHost(void *p) {
  if (!p)
    return;
  Scope scope(driver, context);
  driver.cuMemFreeHost(p);
}

Result<std::unique_ptr<Module>> CudaDevice::load(std::string_view image) {
  Result<engine::Archive> cubins = engine::parseArchive(image, "kernel images");
  if (!cubins)
    return cubins.status();
  return std::unique_ptr<Module>(std::make_unique<CudaModule>(driver, context, std::move(*cubins)));
}

Status CudaDevice::copy(void *to, const void *from, size_t bytes, CopyKind kind) {
  LATHE_RETURN_IF_ERROR(lost);
  if (bytes == 0)
    return okStatus();
  Scope scope(driver, context);
  switch (kind) {
  case CopyKind::HostToDevice:
    return check(driver.cuMemcpyHtoDAsync(address(to), from, bytes, stream), "cuMemcpyHtoDAsync");
  case CopyKind::DeviceToHost:
    return check(driver.cuMemcpyDtoHAsync(to, address(from), bytes, stream), "cuMemcpyDtoHAsync");
  case CopyKind::DeviceToDevice:
    return check(driver.cuMemcpyDtoDAsync(address(to), address(from), bytes, stream),
                 "cuMemcpyDtoDAsync");
  }
  return okStatus();
}

Status CudaDevice::zero(void *p, size_t bytes) {
  LATHE_RETURN_IF_ERROR(lost);
  if (bytes == 0)
    return okStatus();
  Scope scope(driver, context);
  return check(driver.cuMemsetD8Async(address(p), 0, bytes, stream), "cuMemsetD8Async");
}

Status CudaDevice::encodeTensorMaps(const LaunchCommand &c) {
  tensorMaps.resize(c.variant->tensorMaps.size());
  const int64_t *sizes = c.tensorMapSizes.data();
  for (size_t i = 0; i < tensorMaps.size(); ++i) {
    const engine::TensorMap &m = c.variant->tensorMaps[i];
    uint32_t rank = static_cast<uint32_t>(m.dims.size());
    uint64_t dims[5] = {}, strides[5] = {};
    uint32_t box[5] = {}, steps[5] = {1, 1, 1, 1, 1};
    for (uint32_t d = 0; d < rank; ++d)
      dims[d] = static_cast<uint64_t>(*sizes++);
    for (uint32_t d = 0; d + 1 < rank; ++d)
      strides[d] = static_cast<uint64_t>(*sizes++);
    for (size_t d = 0; d < m.box.size(); ++d)
      box[d] = static_cast<uint32_t>(m.box[d]);
    for (size_t d = 0; d < m.steps.size(); ++d)
      steps[d] = static_cast<uint32_t>(m.steps[d]);
    int type = tensorMapType(m.elementBytes == 8 ? DType::UI64 : c.dtypes[m.buffer]);
    if (type < 0)
      return invalidError("no tensor map for this element type");
    int swizzle = m.swizzleBytes == 0 ? 0 : m.swizzleBytes == 32 ? 1 : m.swizzleBytes == 64 ? 2 : 3;
    // Fetching 256 bytes at a time helps streams of whole lines by up to a tenth; rows that begin
    // between sectors lose up to a fifth by it.
    constexpr int kNoInterleave = 0, kPromote128 = 2, kPromote256 = 3, kFillZero = 0;
    int promotion = rank > 1 && strides[0] % 64 != 0 ? kPromote128 : kPromote256;
    CUresult r;
    if (m.im2col) {
      int lower[3] = {}, upper[3] = {};
      for (size_t d = 0; d < m.lowerCorner.size(); ++d) {
        lower[d] = static_cast<int>(m.lowerCorner[d]);
        upper[d] = static_cast<int>(m.upperCorner[d]);
      }
      r = driver.cuTensorMapEncodeIm2col(&tensorMaps[i], type, rank, c.buffers[m.buffer], dims,
                                         strides, lower, upper, box[0], box[1], steps,
                                         kNoInterleave, swizzle, promotion, kFillZero);
    } else {
      r = driver.cuTensorMapEncodeTiled(&tensorMaps[i], type, rank, c.buffers[m.buffer], dims,
                                        strides, box, steps, kNoInterleave, swizzle, promotion,
                                        kFillZero);
    }
    LATHE_RETURN_IF_ERROR(check(r, "encoding a tensor map"));
  }
  return okStatus();
}

Status CudaDevice::launch(const LaunchCommand &c) {
  LATHE_RETURN_IF_ERROR(lost);
  for (int i = 0; i < 3; ++i) {
    if (c.grid[i] == 0)
      return okStatus();
    if (c.grid[i] < 0 || c.grid[i] > maxGrid[i])
      return runtimeError("a grid of " + std::to_string(c.grid[i]) +
                          " blocks is beyond the device's limit");
  }
  Scope scope(driver, context);
  LATHE_RETURN_IF_ERROR(encodeTensorMaps(c));
  auto *function = static_cast<CudaFunction *>(c.function);
  const engine::Launch &l = *c.spec;
  if (c.sharedBytes < 0 || c.sharedBytes > (1 << 20))
    return runtimeError("shared memory of a kernel is out of range");
  int64_t cluster = l.cluster[0] * l.cluster[1] * l.cluster[2];
  {
    std::lock_guard lock(function->mutex);
    if (c.sharedBytes > function->sharedLimit) {
      LATHE_RETURN_IF_ERROR(check(driver.cuFuncSetAttribute(function->handle,
                                                            kFunctionMaxDynamicShared,
                                                            static_cast<int>(c.sharedBytes)),
                                  "cuFuncSetAttribute"));
      function->sharedLimit = c.sharedBytes;
    }
    if (cluster > 8 && !function->largeCluster) {
      LATHE_RETURN_IF_ERROR(check(
          driver.cuFuncSetAttribute(function->handle, kFunctionNonPortableCluster, 1),
          "cuFuncSetAttribute"));
      function->largeCluster = true;
    }
  }

  // The driver copies what the pointers point to during the call.
  std::vector<void *> parameters;
  parameters.reserve(l.args.size());
  void *status = c.status;
  for (const KernelArg &a : l.args) {
    const void *p = nullptr;
    switch (a.kind) {
    case KernelArg::Kind::Buffer:
      p = &c.buffers[a.index];
      break;
    case KernelArg::Kind::TensorMap:
      p = &tensorMaps[a.index];
      break;
    case KernelArg::Kind::Symbol:
      p = &c.symbols[a.index];
      break;
    case KernelArg::Kind::Status:
      p = &status;
      break;
    }
    parameters.push_back(const_cast<void *>(p));
  }
  CUlaunchAttribute attributes[2];
  std::memset(attributes, 0, sizeof attributes);
  unsigned count = 0;
  if (cluster > 1) {
    attributes[count].id = kAttributeClusterDimension;
    attributes[count++].value.clusterDim = {static_cast<unsigned>(l.cluster[0]),
                                            static_cast<unsigned>(l.cluster[1]),
                                            static_cast<unsigned>(l.cluster[2])};
  }
  if (l.programmaticDependent && c.mayOverlap) {
    attributes[count].id = kAttributeProgrammaticSerialization;
    attributes[count++].value.programmaticStreamSerializationAllowed = 1;
  }
  CUlaunchConfig config{static_cast<unsigned>(c.grid[0]),
                        static_cast<unsigned>(c.grid[1]),
                        static_cast<unsigned>(c.grid[2]),
                        static_cast<unsigned>(l.block[0]),
                        static_cast<unsigned>(l.block[1]),
                        static_cast<unsigned>(l.block[2]),
                        static_cast<unsigned>(c.sharedBytes),
                        stream,
                        attributes,
                        count};
  return check(driver.cuLaunchKernelEx(&config, function->handle, parameters.data(), nullptr),
               "cuLaunchKernelEx");
}

Status CudaDevice::sync() {
  LATHE_RETURN_IF_ERROR(lost);
  Scope scope(driver, context);
  return check(driver.cuStreamSynchronize(stream), "cuStreamSynchronize");
}

Status CudaDevice::beginCapture() {
  LATHE_RETURN_IF_ERROR(lost);
  Scope scope(driver, context);
  return check(driver.cuStreamBeginCapture(stream, kCaptureThreadLocal), "cuStreamBeginCapture");
}

Result<GraphHandle> CudaDevice::endCapture(GraphHandle reuse) {
  Scope scope(driver, context);
  CUgraph graph = nullptr;
  Status s = check(driver.cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
  auto exec = static_cast<CUgraphExec>(reuse);
  if (s.ok() && exec) {
    CUgraphExecUpdateResultInfo info{};
    if (driver.cuGraphExecUpdate(exec, graph, &info) == kSuccess) {
      driver.cuGraphDestroy(graph);
      return reuse;
    }
  }
  if (exec)
    driver.cuGraphExecDestroy(exec);
  exec = nullptr;
  if (s.ok())
    s = check(driver.cuGraphInstantiateWithFlags(&exec, graph, 0), "cuGraphInstantiateWithFlags");
  if (graph)
    driver.cuGraphDestroy(graph);
  if (!s.ok())
    return s;
  return static_cast<GraphHandle>(exec);
}

void CudaDevice::abandonCapture() {
  Scope scope(driver, context);
  CUgraph graph = nullptr;
  if (driver.cuStreamEndCapture(stream, &graph) == kSuccess && graph)
    driver.cuGraphDestroy(graph);
}

Status CudaDevice::launchGraph(GraphHandle graph) {
  LATHE_RETURN_IF_ERROR(lost);
  Scope scope(driver, context);
  return check(driver.cuGraphLaunch(static_cast<CUgraphExec>(graph), stream), "cuGraphLaunch");
}

void CudaDevice::destroyGraph(GraphHandle graph) {
  Scope scope(driver, context);
  if (graph)
    driver.cuGraphExecDestroy(static_cast<CUgraphExec>(graph));
}

Status CudaDevice::beginTiming() {
  LATHE_RETURN_IF_ERROR(lost);
  Scope scope(driver, context);
  for (CUevent *e : {&startEvent, &endEvent})
    if (!*e)
      LATHE_RETURN_IF_ERROR(check(driver.cuEventCreate(e, 0), "cuEventCreate"));
  return check(driver.cuEventRecord(startEvent, stream), "cuEventRecord");
}

Result<double> CudaDevice::endTiming() {
  LATHE_RETURN_IF_ERROR(lost);
  Scope scope(driver, context);
  LATHE_RETURN_IF_ERROR(check(driver.cuEventRecord(endEvent, stream), "cuEventRecord"));
  LATHE_RETURN_IF_ERROR(check(driver.cuEventSynchronize(endEvent), "cuEventSynchronize"));
  float milliseconds = 0;
  LATHE_RETURN_IF_ERROR(check(driver.cuEventElapsedTime(&milliseconds, startEvent, endEvent),
                              "cuEventElapsedTime"));
  return milliseconds * 1e-3;
}

} // namespace lathe::runtime
