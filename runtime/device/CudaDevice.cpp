//===- CudaDevice.cpp - runs kernels through the CUDA driver ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "CudaDevice.h"
#include "CudaScope.h"

#include "lathe/engine/EngineFile.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

namespace lathe::runtime {

using namespace cuda;
using engine::KernelArg;

namespace {

/// Shared by the contexts of an engine; the mutex guards the two attributes.
struct CudaFunction : Function {
  CUfunction handle = nullptr;
  std::mutex mutex;
  int64_t sharedLimit = 48 << 10; ///< dynamic shared memory that it is set up for
  bool largeCluster = false;
};

class CudaModule : public Module {
public:
  CudaModule(const Driver &driver, CUcontext context, engine::Archive cubins,
             std::shared_ptr<std::atomic<bool>> abandoned)
      : driver(driver), context(context), cubins(std::move(cubins)),
        abandoned(std::move(abandoned)) {}
  ~CudaModule() override {
    if (*abandoned)
      return;
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

  Status load(Function *function) override {
    if (!driver.cuFuncLoad)
      return okStatus();
    Scope scope(driver, context);
    CUresult r = driver.cuFuncLoad(static_cast<CudaFunction *>(function)->handle);
    return r == kSuccess ? okStatus() : driverError(driver, r, "cuFuncLoad");
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
  std::shared_ptr<std::atomic<bool>> abandoned;
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

/// The nodes belong to `graph`, which must live as long as they are updated.
struct CudaGraph {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  std::vector<CUgraphNode> nodes;
};
CudaGraph *graphOf(GraphHandle handle) { return static_cast<CudaGraph *>(handle); }

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
  d->streams.push_back(d->stream);
  return std::unique_ptr<Device>(std::move(d));
}

CudaDevice::~CudaDevice() {
  if (device < 0 || *abandoned)
    return;
  freeSpares();
  {
    Scope scope(driver, context);
    for (CUevent event : {startEvent, endEvent, inputsReady, callersPoint})
      if (event)
        driver.cuEventDestroy(event);
    for (std::vector<CUevent> *events : {&signals, &ends})
      for (CUevent event : *events)
        if (event)
          driver.cuEventDestroy(event);
    for (size_t i = ownsStream ? 0 : 1; i < streams.size(); ++i)
      driver.cuStreamDestroy(streams[i]);
    if (inputs)
      driver.cuStreamDestroy(inputs);
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
  Scope scope(driver, context, isEntered());
  CUdeviceptr p = 0;
  CUresult r = driver.cuMemAlloc(&p, bytes);
  if (r == kOutOfMemory && freeSpares())
    r = driver.cuMemAlloc(&p, bytes);
  if (r == kOutOfMemory)
    return runtimeError("out of device memory: " + std::to_string(bytes) + " bytes");
  LATHE_RETURN_IF_ERROR(check(r, "cuMemAlloc"));
  return reinterpret_cast<void *>(p);
}

void CudaDevice::free(void *p) {
  if (!p || *abandoned)
    return;
  Scope scope(driver, context, isEntered());
  driver.cuMemFree(address(p));
}

Result<void *> CudaDevice::allocateResult(size_t bytes) {
  LATHE_RETURN_IF_ERROR(lost);
  if (void *spare = spares.take(bytes)) {
    // Whoever had it may have work on streams of its own that still uses it. cuMemFree would have waited, too.
    Scope scope(driver, context, isEntered());
    Status idle = check(driver.cuCtxSynchronize(), "cuCtxSynchronize");
    if (idle.ok())
      return spare;
    freeResult(spare);
    return idle;
  }
  Result<void *> fresh = allocate(bytes);
  if (fresh)
    spares.added(*fresh, bytes);
  return fresh;
}

void CudaDevice::freeResult(void *p) {
  for (void *memory : spares.give(p))
    free(memory);
}

bool CudaDevice::freeSpares() {
  std::vector<void *> gone = spares.giveUp();
  for (void *memory : gone)
    free(memory);
  return !gone.empty();
}

Result<void *> CudaDevice::allocateHost(size_t bytes) {
  LATHE_RETURN_IF_ERROR(lost);
  Scope scope(driver, context, isEntered());
  void *p = nullptr;
  CUresult r = driver.cuMemAllocHost(&p, bytes);
  if (r == kOutOfMemory)
    return runtimeError("out of host memory: " + std::to_string(bytes) + " bytes");
  LATHE_RETURN_IF_ERROR(check(r, "cuMemAllocHost"));
  return p;
}

void CudaDevice::freeHost(void *p) {
  if (!p || *abandoned)
    return;
  Scope scope(driver, context, isEntered());
  driver.cuMemFreeHost(p);
}

Result<std::unique_ptr<Module>> CudaDevice::load(std::string_view image) {
  Result<engine::Archive> cubins = engine::parseArchive(image, "kernel images");
  if (!cubins)
    return cubins.status();
  return std::unique_ptr<Module>(
      std::make_unique<CudaModule>(driver, context, std::move(*cubins), abandoned));
}

size_t CudaDevice::freeBytes() {
  Scope scope(driver, context, isEntered());
  size_t free = 0, total = 0;
  return driver.cuMemGetInfo(&free, &total) == kSuccess ? free : 0;
}

Status CudaDevice::copy(void *to, const void *from, size_t bytes, CopyKind kind) {
  LATHE_RETURN_IF_ERROR(lost);
  if (bytes == 0)
    return okStatus();
  Scope scope(driver, context, isEntered());
  switch (kind) {
  case CopyKind::HostToDevice:
    LATHE_RETURN_IF_ERROR(check(driver.cuMemcpyHtoDAsync(address(to), from, bytes, stream),
                                "cuMemcpyHtoDAsync"));
    break;
  case CopyKind::DeviceToHost:
    LATHE_RETURN_IF_ERROR(check(driver.cuMemcpyDtoHAsync(to, address(from), bytes, stream),
                                "cuMemcpyDtoHAsync"));
    break;
  case CopyKind::DeviceToDevice:
    LATHE_RETURN_IF_ERROR(check(driver.cuMemcpyDtoDAsync(address(to), address(from), bytes, stream),
                                "cuMemcpyDtoDAsync"));
    break;
  }
  return noteNode();
}

Status CudaDevice::zero(void *p, size_t bytes) {
  LATHE_RETURN_IF_ERROR(lost);
  if (bytes == 0)
    return okStatus();
  Scope scope(driver, context, isEntered());
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

Status CudaDevice::prepareLaunch(const LaunchCommand &c) {
  for (int i = 0; i < 3; ++i)
    if (c.grid[i] < 0 || c.grid[i] > maxGrid[i])
      return runtimeError("a grid of " + std::to_string(c.grid[i]) +
                          " blocks is beyond the device's limit");
  LATHE_RETURN_IF_ERROR(encodeTensorMaps(c));
  auto *function = static_cast<CudaFunction *>(c.function);
  const engine::Launch &l = *c.spec;
  if (c.sharedBytes < 0 || c.sharedBytes > (1 << 20))
    return runtimeError("shared memory of a kernel is out of range");
  int64_t cluster = l.cluster[0] * l.cluster[1] * l.cluster[2];
  if (c.sharedBytes > (48 << 10) || cluster > 8) {
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
  // The driver copies what the pointers point to during its call.
  parameters.clear();
  statusParameter = c.status;
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
      p = &statusParameter;
      break;
    }
    parameters.push_back(const_cast<void *>(p));
  }
  return okStatus();
}

Status CudaDevice::launch(const LaunchCommand &c) {
  LATHE_RETURN_IF_ERROR(lost);
  if (c.grid[0] == 0 || c.grid[1] == 0 || c.grid[2] == 0)
    return okStatus();
  Scope scope(driver, context, isEntered());
  LATHE_RETURN_IF_ERROR(prepareLaunch(c));
  const engine::Launch &l = *c.spec;
  CUlaunchAttribute attributes[2];
  std::memset(attributes, 0, sizeof attributes);
  unsigned count = 0;
  if (l.cluster[0] * l.cluster[1] * l.cluster[2] > 1) {
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
  LATHE_RETURN_IF_ERROR(check(driver.cuLaunchKernelEx(&config,
                                                      static_cast<CudaFunction *>(c.function)->handle,
                                                      parameters.data(), nullptr),
                              "cuLaunchKernelEx"));
  return noteNode();
}

Status CudaDevice::beginCapture() {
  LATHE_RETURN_IF_ERROR(lost);
  Scope scope(driver, context, isEntered());
  nodes.clear();
  LATHE_RETURN_IF_ERROR(
      check(driver.cuStreamBeginCapture(stream, kCaptureThreadLocal), "cuStreamBeginCapture"));
  capturing = true;
  return okStatus();
}

Status CudaDevice::noteNode() {
  if (!capturing || !driver.cuStreamGetCaptureInfo)
    return okStatus();
  // The node just captured is what the next one of the stream would depend on.
  int status = 0;
  uint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode *last = nullptr;
  const CUgraphEdgeData *edges = nullptr;
  size_t count = 0;
  LATHE_RETURN_IF_ERROR(check(
      driver.cuStreamGetCaptureInfo(stream, &status, &id, &graph, &last, &edges, &count),
      "cuStreamGetCaptureInfo"));
  nodes.push_back(count == 1 ? *last : nullptr);
  return okStatus();
}

Result<GraphHandle> CudaDevice::endCapture(GraphHandle reuse) {
  Scope scope(driver, context, isEntered());
  capturing = false;
  stream = streams.front();
  std::unique_ptr<CudaGraph> made(graphOf(reuse));
  if (!made)
    made = std::make_unique<CudaGraph>();
  CUgraph graph = nullptr;
  Status s = check(driver.cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
  if (s.ok() && made->exec) {
    CUgraphExecUpdateResultInfo info{};
    if (driver.cuGraphExecUpdate(made->exec, graph, &info) == kSuccess) {
      // The executable graph still goes by the nodes of the graph that it was made from.
      driver.cuGraphDestroy(graph);
      return static_cast<GraphHandle>(made.release());
    }
  }
  if (made->exec)
    driver.cuGraphExecDestroy(made->exec);
  if (made->graph)
    driver.cuGraphDestroy(made->graph);
  *made = {graph, nullptr, nodes};
  if (s.ok())
    s = check(driver.cuGraphInstantiateWithFlags(&made->exec, graph, 0),
              "cuGraphInstantiateWithFlags");
  if (!s.ok()) {
    destroyGraph(made.release());
    return s;
  }
  return static_cast<GraphHandle>(made.release());
}

void CudaDevice::abandonCapture() {
  Scope scope(driver, context, isEntered());
  capturing = false;
  stream = streams.front();
  CUgraph graph = nullptr;
  if (driver.cuStreamEndCapture(stream, &graph) == kSuccess && graph)
    driver.cuGraphDestroy(graph);
}

Status CudaDevice::updateLaunch(GraphHandle handle, size_t number, const LaunchCommand &c) {
  LATHE_RETURN_IF_ERROR(lost);
  CudaGraph &graph = *graphOf(handle);
  if (number >= graph.nodes.size() || !graph.nodes[number])
    return unsupportedError("the driver does not tell the nodes of a graph");
  Scope scope(driver, context, isEntered());
  LATHE_RETURN_IF_ERROR(prepareLaunch(c));
  const engine::Launch &l = *c.spec;
  CUkernelNodeParams params{static_cast<CudaFunction *>(c.function)->handle,
                            static_cast<unsigned>(c.grid[0]),
                            static_cast<unsigned>(c.grid[1]),
                            static_cast<unsigned>(c.grid[2]),
                            static_cast<unsigned>(l.block[0]),
                            static_cast<unsigned>(l.block[1]),
                            static_cast<unsigned>(l.block[2]),
                            static_cast<unsigned>(c.sharedBytes),
                            parameters.data(),
                            nullptr,
                            nullptr,
                            nullptr};
  return check(driver.cuGraphExecKernelNodeSetParams(graph.exec, graph.nodes[number], &params),
               "cuGraphExecKernelNodeSetParams");
}

Status CudaDevice::updateCopy(GraphHandle handle, size_t number, void *to, const void *from,
                              size_t bytes, CopyKind kind) {
  LATHE_RETURN_IF_ERROR(lost);
  CudaGraph &graph = *graphOf(handle);
  if (number >= graph.nodes.size() || !graph.nodes[number])
    return unsupportedError("the driver does not tell the nodes of a graph");
  Scope scope(driver, context, isEntered());
  auto end = [](const void *p, bool onHost) {
    CUcopyEnd e{};
    e.memoryType = onHost ? kMemoryHost : kMemoryDevice;
    e.host = onHost ? const_cast<void *>(p) : nullptr;
    e.device = onHost ? 0 : address(p);
    return e;
  };
  CUcopyNodeParams params{end(from, kind == CopyKind::HostToDevice),
                          end(to, kind == CopyKind::DeviceToHost), bytes, 1, 1};
  return check(
      driver.cuGraphExecMemcpyNodeSetParams(graph.exec, graph.nodes[number], &params, context),
      "cuGraphExecMemcpyNodeSetParams");
}

Status CudaDevice::launchGraph(GraphHandle graph) {
  LATHE_RETURN_IF_ERROR(lost);
  Scope scope(driver, context, isEntered());
  return check(driver.cuGraphLaunch(graphOf(graph)->exec, stream), "cuGraphLaunch");
}

void CudaDevice::destroyGraph(GraphHandle handle) {
  std::unique_ptr<CudaGraph> graph(graphOf(handle));
  if (!graph || *abandoned)
    return;
  Scope scope(driver, context, isEntered());
  if (graph->exec)
    driver.cuGraphExecDestroy(graph->exec);
  if (graph->graph)
    driver.cuGraphDestroy(graph->graph);
}

} // namespace lathe::runtime
