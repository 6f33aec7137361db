//===- FakeDriver.cpp - a CUDA driver without a GPU -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "FakeDriver.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sstream>

namespace lathe::runtime::cuda {
namespace {

constexpr CUresult kInvalidValue = 1, kInvalidHandle = 400, kNotFound = 500,
                   kIllegalAddress = 700, kCaptureUnsupported = 900, kUpdateFailure = 910;

struct FakeFunction {
  std::string name;
  bool listed = false; ///< the parameters are known
  std::vector<size_t> parameterSizes;
};
struct FakeModule {
  bool listed = false;
  std::map<std::string, FakeFunction> functions;
};
/// One captured operation; `shape` says what cuGraphExecUpdate may not change.
struct Node {
  std::string shape;
  std::function<CUresult()> run;
};
struct FakeGraph {
  std::vector<Node> nodes;
};
struct FakeStream {
  FakeGraph *capture = nullptr;
};

struct State {
  FakeGpu gpu;
  std::map<uintptr_t, size_t> device, host; ///< allocations: address to bytes
  int contexts = 0;                         ///< pushed and not popped
  FakeStream defaultStream;
};
State &state() {
  static State s;
  return s;
}

CUresult injected(const char *call) {
  FakeGpu &g = state().gpu;
  return g.failingCall == call ? g.failure : kSuccess;
}

/// Device memory [p, p + bytes) lies in one allocation.
bool onDevice(CUdeviceptr p, size_t bytes) {
  auto &map = state().device;
  auto it = map.upper_bound(p);
  if (it == map.begin())
    return false;
  --it;
  return p - it->first <= it->second && bytes <= it->second - (p - it->first);
}
void *host(CUdeviceptr p) { return reinterpret_cast<void *>(p); }
FakeStream &fake(CUstream s) {
  return s ? *reinterpret_cast<FakeStream *>(s) : state().defaultStream;
}

/// Runs now, or later when the stream is being captured.
CUresult submit(CUstream stream, std::string shape, std::function<CUresult()> operation) {
  FakeStream &s = fake(stream);
  if (!s.capture)
    return operation();
  s.capture->nodes.push_back({std::move(shape), std::move(operation)});
  return kSuccess;
}

CUresult allocate(std::map<uintptr_t, size_t> &into, void **out, size_t bytes, uint64_t limit) {
  uint64_t total = bytes;
  for (const auto &item : into)
    total += item.second;
  if (bytes == 0)
    return kInvalidValue;
  int &countdown = state().gpu.failingAllocation;
  if (total > limit || (countdown >= 0 && countdown-- == 0))
    return kOutOfMemory;
  void *p = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
  if (!p)
    return kOutOfMemory;
  std::memset(p, 0xcd, bytes); // fresh memory is not zero
  into[reinterpret_cast<uintptr_t>(p)] = bytes;
  *out = p;
  return kSuccess;
}
CUresult release(std::map<uintptr_t, size_t> &from, void *p) {
  if (!from.erase(reinterpret_cast<uintptr_t>(p)))
    return kInvalidValue;
  std::free(p);
  return kSuccess;
}

void runKernel(const FakeLaunch &launch, void **parameters) {
  FakeGpu &g = state().gpu;
  g.launches.push_back(launch);
  auto it = g.kernels.find(launch.function);
  if (it != g.kernels.end())
    it->second(launch, parameters);
}

CUresult launchKernel(const CUlaunchConfig *c, CUfunction handle, void **parameters, void **) {
  if (CUresult r = injected("cuLaunchKernelEx"))
    return r;
  const auto &f = *reinterpret_cast<FakeFunction *>(handle);
  FakeLaunch l{f.name,
               {c->gridX, c->gridY, c->gridZ},
               {c->blockX, c->blockY, c->blockZ},
               {1, 1, 1},
               c->sharedBytes};
  for (unsigned i = 0; i < c->attributeCount; ++i) {
    const CUlaunchAttribute &a = c->attributes[i];
    if (a.id == kAttributeClusterDimension) {
      l.cluster[0] = a.value.clusterDim.x;
      l.cluster[1] = a.value.clusterDim.y;
      l.cluster[2] = a.value.clusterDim.z;
    } else if (a.id == kAttributeProgrammaticSerialization) {
      l.programmatic = a.value.programmaticStreamSerializationAllowed != 0;
    }
  }
  if (!c->gridX || !c->gridY || !c->gridZ || c->blockX * c->blockY * c->blockZ > 1024 ||
      c->gridX % l.cluster[0] != 0)
    return kInvalidValue;
  if (!fake(c->stream).capture) {
    runKernel(l, parameters);
    return kSuccess;
  }
  l.fromGraph = true;
  auto copies = std::make_shared<std::vector<std::vector<uint64_t>>>();
  for (size_t i = 0; i < f.parameterSizes.size(); ++i) {
    std::vector<uint64_t> bytes((f.parameterSizes[i] + 7) / 8);
    std::memcpy(bytes.data(), parameters[i], f.parameterSizes[i]);
    copies->push_back(std::move(bytes));
  }
  return submit(c->stream, "kernel " + f.name, [l, copies] {
    std::vector<void *> pointers;
    for (auto &c : *copies)
      pointers.push_back(c.data());
    runKernel(l, pointers.data());
    return kSuccess;
  });
}

CUresult loadModule(CUmodule *out, const void *image, unsigned, int *, void **) {
  if (CUresult r = injected("cuModuleLoadDataEx"))
    return r;
  auto module = std::make_unique<FakeModule>();
  const char *text = static_cast<const char *>(image);
  if (std::strncmp(text, "fake\n", 5) == 0) {
    module->listed = true;
    std::istringstream lines(text + 5);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      FakeFunction f;
      f.listed = true;
      words >> f.name;
      for (size_t bytes; words >> bytes;)
        f.parameterSizes.push_back(bytes);
      module->functions[f.name] = f;
    }
  }
  *out = reinterpret_cast<CUmodule>(module.release());
  return kSuccess;
}

Driver makeTable() {
  Driver d;
  d.cuInit = [](unsigned) { return injected("cuInit"); };
  d.cuDriverGetVersion = [](int *v) { return *v = 13000, kSuccess; };
  d.cuGetErrorName = [](CUresult r, const char **text) {
    *text = r == kOutOfMemory ? "CUDA_ERROR_OUT_OF_MEMORY"
            : r == kIllegalAddress ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                                   : "CUDA_ERROR_FAKE";
    return kSuccess;
  };
  d.cuGetErrorString = [](CUresult, const char **text) {
    return *text = "reported by the fake driver", kSuccess;
  };
  d.cuDeviceGet = [](CUdevice *device, int ordinal) { return *device = ordinal, kSuccess; };
  d.cuDeviceGetCount = [](int *count) { return *count = 1, kSuccess; };
  d.cuDeviceGetName = [](char *name, int length, CUdevice) {
    std::strncpy(name, "fake GPU", static_cast<size_t>(length));
    return kSuccess;
  };
  d.cuDeviceGetAttribute = [](int *value, int attribute, CUdevice) {
    *value = attribute == kDeviceMajor      ? state().gpu.capability / 10
             : attribute == kDeviceMinor    ? state().gpu.capability % 10
             : attribute == kDeviceMaxGridX ? 0x7fffffff
                                            : 65535;
    return kSuccess;
  };
  d.cuDevicePrimaryCtxRetain = [](CUcontext *c, CUdevice) {
    return *c = reinterpret_cast<CUcontext>(&state()), injected("cuDevicePrimaryCtxRetain");
  };
  d.cuDevicePrimaryCtxRelease = [](CUdevice) { return kSuccess; };
  d.cuCtxPushCurrent = [](CUcontext) { return ++state().contexts, kSuccess; };
  d.cuCtxPopCurrent = [](CUcontext *) { return --state().contexts, kSuccess; };
  d.cuMemGetInfo = [](size_t *free, size_t *total) {
    *total = state().gpu.memoryLimit;
    *free = *total - state().gpu.allocatedBytes();
    return kSuccess;
  };
  d.cuMemAlloc = [](CUdeviceptr *out, size_t bytes) {
    if (CUresult r = injected("cuMemAlloc"))
      return r;
    void *p = nullptr;
    CUresult r = allocate(state().device, &p, bytes, state().gpu.memoryLimit);
    *out = reinterpret_cast<CUdeviceptr>(p);
    return r;
  };
  d.cuMemFree = [](CUdeviceptr p) { return release(state().device, host(p)); };
  d.cuMemAllocHost = [](void **out, size_t bytes) {
    if (CUresult r = injected("cuMemAllocHost"))
      return r;
    return allocate(state().host, out, bytes, UINT64_MAX);
  };
  d.cuMemFreeHost = [](void *p) { return release(state().host, p); };
  d.cuMemcpyHtoDAsync = [](CUdeviceptr to, const void *from, size_t n, CUstream s) {
    if (CUresult r = injected("cuMemcpyHtoDAsync"))
      return r;
    if (!onDevice(to, n) || onDevice(reinterpret_cast<CUdeviceptr>(from), 1))
      return kInvalidValue;
    return submit(s, "copy", [=] { return std::memcpy(host(to), from, n), kSuccess; });
  };
  d.cuMemcpyDtoHAsync = [](void *to, CUdeviceptr from, size_t n, CUstream s) {
    if (CUresult r = injected("cuMemcpyDtoHAsync"))
      return r;
    if (!onDevice(from, n) || onDevice(reinterpret_cast<CUdeviceptr>(to), 1))
      return kInvalidValue;
    return submit(s, "copy", [=] { return std::memcpy(to, host(from), n), kSuccess; });
  };
  d.cuMemcpyDtoDAsync = [](CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s) {
    if (!onDevice(from, n) || !onDevice(to, n))
      return kInvalidValue;
    return submit(s, "copy", [=] { return std::memmove(host(to), host(from), n), kSuccess; });
  };
  d.cuMemsetD8Async = [](CUdeviceptr p, unsigned char value, size_t n, CUstream s) {
    if (!onDevice(p, n))
      return kInvalidValue;
    return submit(s, "set", [=] { return std::memset(host(p), value, n), kSuccess; });
  };
  d.cuStreamCreate = [](CUstream *s, unsigned) {
    return *s = reinterpret_cast<CUstream>(new FakeStream), kSuccess;
  };
  d.cuStreamDestroy = [](CUstream s) {
    return delete reinterpret_cast<FakeStream *>(s), kSuccess;
  };
  d.cuStreamSynchronize = [](CUstream s) {
    if (CUresult r = injected("cuStreamSynchronize"))
      return r;
    return fake(s).capture ? kCaptureUnsupported : kSuccess;
  };
  d.cuStreamBeginCapture = [](CUstream s, int) {
    if (fake(s).capture)
      return kCaptureUnsupported;
    return fake(s).capture = new FakeGraph, kSuccess;
  };
  d.cuStreamEndCapture = [](CUstream s, CUgraph *graph) {
    if (!fake(s).capture)
      return kInvalidHandle;
    *graph = reinterpret_cast<CUgraph>(fake(s).capture);
    fake(s).capture = nullptr;
    return injected("cuStreamEndCapture");
  };
  d.cuGraphInstantiateWithFlags = [](CUgraphExec *exec, CUgraph graph, unsigned long long) {
    if (CUresult r = injected("cuGraphInstantiateWithFlags"))
      return r;
    ++state().gpu.graphInstantiations;
    *exec = reinterpret_cast<CUgraphExec>(new FakeGraph(*reinterpret_cast<FakeGraph *>(graph)));
    return kSuccess;
  };
  d.cuGraphExecUpdate = [](CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *) {
    auto &old = *reinterpret_cast<FakeGraph *>(exec);
    const auto &now = *reinterpret_cast<FakeGraph *>(graph);
    if (!std::equal(old.nodes.begin(), old.nodes.end(), now.nodes.begin(), now.nodes.end(),
                    [](const Node &a, const Node &b) { return a.shape == b.shape; }))
      return kUpdateFailure;
    old = now;
    ++state().gpu.graphUpdates;
    return kSuccess;
  };
  d.cuGraphLaunch = [](CUgraphExec exec, CUstream) {
    if (CUresult r = injected("cuGraphLaunch"))
      return r;
    ++state().gpu.graphLaunches;
    for (const Node &n : reinterpret_cast<FakeGraph *>(exec)->nodes)
      if (CUresult r = n.run())
        return r;
    return kSuccess;
  };
  d.cuGraphExecDestroy = [](CUgraphExec exec) {
    return delete reinterpret_cast<FakeGraph *>(exec), kSuccess;
  };
  d.cuGraphDestroy = [](CUgraph graph) {
    return delete reinterpret_cast<FakeGraph *>(graph), kSuccess;
  };
  d.cuEventCreate = [](CUevent *e, unsigned) {
    return *e = reinterpret_cast<CUevent>(&state()), kSuccess;
  };
  d.cuEventDestroy = [](CUevent) { return kSuccess; };
  d.cuEventRecord = [](CUevent, CUstream) { return kSuccess; };
  d.cuEventSynchronize = [](CUevent) { return kSuccess; };
  d.cuEventElapsedTime = [](float *ms, CUevent, CUevent) { return *ms = 0.5f, kSuccess; };
  d.cuModuleLoadDataEx = loadModule;
  d.cuModuleUnload = [](CUmodule m) { return delete reinterpret_cast<FakeModule *>(m), kSuccess; };
  d.cuModuleGetFunction = [](CUfunction *out, CUmodule m, const char *name) {
    auto &module = *reinterpret_cast<FakeModule *>(m);
    if (module.listed && !module.functions.count(name))
      return kNotFound;
    FakeFunction &f = module.functions[name];
    f.name = name;
    return *out = reinterpret_cast<CUfunction>(&f), kSuccess;
  };
  d.cuFuncGetParamInfo = [](CUfunction f, size_t index, size_t *offset, size_t *bytes) {
    if (!reinterpret_cast<FakeFunction *>(f)->listed)
      return kNotSupported;
    const auto &sizes = reinterpret_cast<FakeFunction *>(f)->parameterSizes;
    *offset = index * 8;
    if (index >= sizes.size())
      return kInvalidValue;
    return *bytes = sizes[index], kSuccess;
  };
  d.cuFuncSetAttribute = [](CUfunction, int, int value) {
    return value > (227 << 10) ? kInvalidValue : kSuccess;
  };
  d.cuLaunchKernelEx = launchKernel;
  d.cuTensorMapEncodeTiled = [](CUtensorMap *map, int type, uint32_t rank, void *address,
                                const uint64_t *dims, const uint64_t *, const uint32_t *,
                                const uint32_t *, int, int, int, int) {
    if (reinterpret_cast<uintptr_t>(address) % 16 != 0 || rank < 1 || rank > 5)
      return kInvalidValue;
    *map = {};
    map->opaque[0] = reinterpret_cast<uintptr_t>(address);
    map->opaque[1] = static_cast<uint64_t>(type);
    std::copy(dims, dims + rank, map->opaque + 2);
    return kSuccess;
  };
  d.cuTensorMapEncodeIm2col = [](CUtensorMap *map, int type, uint32_t rank, void *address,
                                 const uint64_t *dims, const uint64_t *, const int *lower,
                                 const int *upper, uint32_t channels, uint32_t pixels,
                                 const uint32_t *steps, int, int, int, int) {
    if (reinterpret_cast<uintptr_t>(address) % 16 != 0 || rank < 3 || rank > 5)
      return kInvalidValue;
    *map = {};
    map->opaque[0] = reinterpret_cast<uintptr_t>(address);
    map->opaque[1] = static_cast<uint64_t>(type);
    std::copy(dims, dims + rank, map->opaque + 2);
    // What is particular to images, in one word of the first half, a byte each and the box in two.
    map->opaque[7] = static_cast<uint64_t>(channels) << 40 | static_cast<uint64_t>(pixels) << 24 |
                     static_cast<uint64_t>(lower[0] & 0xff) << 16 |
                     static_cast<uint64_t>(upper[0] & 0xff) << 8 | steps[1];
    return kSuccess;
  };
  return d;
}

} // namespace

uint64_t FakeGpu::allocatedBytes() const {
  uint64_t total = 0;
  for (const auto &item : state().device)
    total += item.second;
  return total;
}

void FakeGpu::reset() { *this = FakeGpu(); }

FakeGpu &fakeGpu() { return state().gpu; }

const Driver &fakeDriver() {
  static const Driver table = makeTable();
  return table;
}

} // namespace lathe::runtime::cuda
