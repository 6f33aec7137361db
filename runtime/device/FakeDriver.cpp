//===- FakeDriver.cpp - a CUDA driver without a GPU -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "FakeDriver.h"
#include "FakePages.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>

namespace lathe::runtime::cuda {
namespace {

constexpr CUresult kInvalidValue = 1, kInvalidHandle = 400, kNotFound = 500,
                   kIllegalAddress = 700, kCaptureUnsupported = 900, kCaptureUnjoined = 904,
                   kUpdateFailure = 910;

struct FakeFunction {
  std::string name;
  bool listed = false; ///< the parameters are known
  std::vector<size_t> parameterSizes;
};
struct FakeModule {
  bool listed = false;
  std::map<std::string, FakeFunction> functions;
};
/// One operation of a stream or a graph: nothing while it has to wait. `shape` says what
/// cuGraphExecUpdate may not change.
using Operation = std::function<std::optional<CUresult>()>;
struct FakeKernelLaunch {
  FakeLaunch launch;
  std::vector<size_t> sizes;
  std::vector<std::vector<uint64_t>> parameters;
};
struct FakeCopy {
  void *to;
  const void *from;
  size_t bytes;
};
struct Node {
  std::string shape;
  Operation run;
  std::shared_ptr<FakeKernelLaunch> kernel; ///< of a launch
  std::shared_ptr<FakeCopy> copy;           ///< of a copy
  std::vector<size_t> after;                ///< nodes of the graph that it depends on
};
struct FakeStream;
struct FakeGraph {
  std::vector<std::shared_ptr<Node>> nodes;
  std::set<FakeStream *> streams, unjoined; ///< of a capture: beside the first
  uint64_t bytes = 0;                       ///< of an executable one
  const FakeGraph *source = nullptr;        ///< of an executable one: whose nodes it goes by
};
struct FakeStream {
  int number = 0;
  FakeGraph *capture = nullptr;
  bool attached = false; ///< captures because of another stream's event
  Node *last = nullptr;  ///< of the capture
  std::vector<size_t> front; ///< nodes of the capture that the next one depends on
  std::deque<Operation> queue;
};
struct FakeEvent {
  uint64_t recorded = 0, reached = 0;
  FakeStream *captured = nullptr; ///< recorded in its capture
  std::vector<size_t> front;      ///< its front then
};

struct State {
  FakeGpu gpu;
  std::recursive_mutex mutex;
  std::map<uintptr_t, size_t> device, host; ///< allocations: address to bytes
  FakePages pages;
  uint64_t graphBytes = 0;
  int contexts = 0; ///< pushed and not popped
  FakeStream defaultStream;
  std::vector<FakeStream *> streams = {&defaultStream};
  int streamsMade = 0;
};
State &state() {
  static State s;
  return s;
}

/// A function of the table: one at a time.
template <typename L, typename... A> CUresult callLocked(A... arguments) {
  std::lock_guard lock(state().mutex);
  return L{}(arguments...);
}
template <typename L, typename... A> auto lockedAs(CUresult (*)(A...)) {
  return static_cast<CUresult (*)(A...)>(&callLocked<L, A...>);
}
template <typename L> auto locked(L lambda) { return lockedAs<L>(+lambda); }

bool underWay() {
  for (FakeStream *s : state().streams)
    if (!s->queue.empty())
      return true;
  return false;
}
/// The real driver would wait here for what is under way.
void mayBlock() { state().gpu.blockingCalls += state().gpu.held && underWay(); }

/// One of `count`, by the seed.
size_t choose(size_t count) {
  uint64_t &seed = state().gpu.seed;
  seed = seed * 6364136223846793005 + 1442695040888963407; // Knuth, MMIX
  return (seed >> 33) % count;
}

/// Does what can be done; the first failure.
CUresult drain() {
  CUresult result = kSuccess;
  for (bool moved = true; moved && !state().gpu.held;) {
    moved = false;
    std::vector<FakeStream *> streams = state().streams;
    if (state().gpu.seed)
      for (size_t i = streams.size(); i > 1; --i)
        std::swap(streams[i - 1], streams[choose(i)]);
    for (FakeStream *s : streams) {
      while (!s->queue.empty()) {
        std::optional<CUresult> done = s->queue.front()();
        if (!done)
          break;
        s->queue.pop_front();
        moved = true;
        if (result == kSuccess)
          result = *done;
        if (state().gpu.seed)
          break;
      }
      if (moved && state().gpu.seed)
        break; // one at a time
    }
  }
  return result;
}

/// The nodes of a graph in the order in which they were captured, or another that keeps what depends
/// on each other in order.
std::vector<size_t> orderOf(const FakeGraph &graph) {
  std::vector<size_t> order;
  if (!state().gpu.seed) {
    for (size_t i = 0; i < graph.nodes.size(); ++i)
      order.push_back(i);
    return order;
  }
  std::vector<bool> done(graph.nodes.size());
  while (order.size() < graph.nodes.size()) {
    std::vector<size_t> ready;
    for (size_t i = 0; i < graph.nodes.size(); ++i)
      if (const auto &after = graph.nodes[i]->after;
          !done[i] && std::all_of(after.begin(), after.end(), [&](size_t a) { return done[a]; }))
        ready.push_back(i);
    order.push_back(ready[choose(ready.size())]);
    done[order.back()] = true;
  }
  return order;
}

CUresult injected(const char *call) {
  FakeGpu &g = state().gpu;
  return g.failingCall == call ? g.failure : kSuccess;
}

/// Device memory [p, p + bytes) lies in one allocation, or in mappings side by side of one range of addresses.
bool onDevice(CUdeviceptr p, size_t bytes) {
  auto &map = state().device;
  auto it = map.upper_bound(p);
  if (it != map.begin() && p - std::prev(it)->first <= std::prev(it)->second &&
      bytes <= std::prev(it)->second - (p - std::prev(it)->first))
    return true;
  return state().pages.holds(p, bytes);
}
void *host(CUdeviceptr p) { return reinterpret_cast<void *>(p); }
FakeStream &fake(CUstream s) {
  return s ? *reinterpret_cast<FakeStream *>(s) : state().defaultStream;
}

/// Runs now, or later when the stream is being captured or the device held.
CUresult submit(CUstream stream, Node node) {
  FakeStream &s = fake(stream);
  if (!s.capture) {
    s.queue.push_back(std::move(node.run));
    return drain();
  }
  node.after = std::exchange(s.front, {s.capture->nodes.size()});
  s.capture->nodes.push_back(std::make_shared<Node>(std::move(node)));
  s.last = s.capture->nodes.back().get();
  if (s.attached)
    s.capture->unjoined.insert(&s);
  return kSuccess;
}
CUresult submitCopy(CUstream stream, void *to, const void *from, size_t bytes) {
  auto copy = std::make_shared<FakeCopy>(FakeCopy{to, from, bytes});
  return submit(stream, {"copy", [copy] { return std::memmove(copy->to, copy->from, copy->bytes), kSuccess; },
                         nullptr, copy, {}});
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

/// Nothing while it waits for a kernel of another stream.
std::optional<CUresult> runKernel(const FakeLaunch &launch, void **parameters) {
  FakeGpu &g = state().gpu;
  if (auto it = g.meetings.find(launch.function); it != g.meetings.end() && !it->second(launch, parameters))
    return std::nullopt;
  g.launches.push_back(launch);
  auto it = g.kernels.find(launch.function);
  if (it != g.kernels.end())
    it->second(launch, parameters);
  return kSuccess;
}

void keepParameters(FakeKernelLaunch &kernel, void **parameters) {
  kernel.parameters.clear();
  for (size_t i = 0; i < kernel.sizes.size(); ++i) {
    std::vector<uint64_t> bytes((kernel.sizes[i] + 7) / 8);
    std::memcpy(bytes.data(), parameters[i], kernel.sizes[i]);
    kernel.parameters.push_back(std::move(bytes));
  }
}

/// The node of an executable graph that stands for one of the graph it was made from.
Node *nodeOf(CUgraphExec handle, CUgraphNode node) {
  auto &exec = *reinterpret_cast<FakeGraph *>(handle);
  for (size_t i = 0; exec.source && i < exec.source->nodes.size(); ++i)
    if (exec.source->nodes[i].get() == reinterpret_cast<Node *>(node))
      return exec.nodes[i].get();
  return nullptr;
}

/// Copies nodes: what they do is not shared with the source.
std::vector<std::shared_ptr<Node>> ownNodes(const FakeGraph &graph) {
  std::vector<std::shared_ptr<Node>> nodes;
  for (const auto &node : graph.nodes) {
    Node own = *node;
    if (node->kernel) {
      own.kernel = std::make_shared<FakeKernelLaunch>(*node->kernel);
      own.run = [kernel = own.kernel] {
        std::vector<void *> pointers;
        for (auto &c : kernel->parameters)
          pointers.push_back(c.data());
        return runKernel(kernel->launch, pointers.data());
      };
    } else if (node->copy) {
      own.copy = std::make_shared<FakeCopy>(*node->copy);
      own.run = [copy = own.copy] {
        return std::memmove(copy->to, copy->from, copy->bytes), kSuccess;
      };
    }
    nodes.push_back(std::make_shared<Node>(std::move(own)));
  }
  return nodes;
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
  l.stream = fake(c->stream).number;
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
  if (!fake(c->stream).capture && !state().gpu.held) {
    if (CUresult r = drain())
      return r;
    if (fake(c->stream).queue.empty() && !state().gpu.meetings.count(f.name))
      return *runKernel(l, parameters);
  }
  l.fromGraph = fake(c->stream).capture;
  auto kernel = std::make_shared<FakeKernelLaunch>(FakeKernelLaunch{l, f.parameterSizes, {}});
  keepParameters(*kernel, parameters);
  return submit(c->stream, {"kernel " + f.name,
                            [kernel] {
                              std::vector<void *> pointers;
                              for (auto &c : kernel->parameters)
                                pointers.push_back(c.data());
                              return runKernel(kernel->launch, pointers.data());
                            },
                            kernel, nullptr, {}});
}

CUresult loadModule(CUmodule *out, const void *image, unsigned, int *, void **) {
  if (CUresult r = injected("cuModuleLoadDataEx"))
    return r;
  auto module = std::make_unique<FakeModule>();
  const char *text = static_cast<const char *>(image);
  if (std::strncmp(text, "fake\n", 5) == 0) {
    module->listed = true;
    // A line a function: its name, and the bytes of each parameter. No stream reads them: those bring in locales,
    // a third of the runtime's library.
    std::string_view rest = text + 5;
    auto next = [](std::string_view &from, char end) {
      const std::string_view part = from.substr(0, from.find(end));
      from.remove_prefix(std::min(from.size(), part.size() + 1));
      return part;
    };
    while (!rest.empty()) {
      std::string_view line = next(rest, '\n');
      FakeFunction f;
      f.listed = true;
      f.name = next(line, ' ');
      while (!line.empty())
        f.parameterSizes.push_back(std::strtoull(std::string(next(line, ' ')).c_str(), nullptr, 10));
      module->functions[f.name] = f;
    }
  }
  *out = reinterpret_cast<CUmodule>(module.release());
  return kSuccess;
}

CUresult encodeMap(CUtensorMap &map, int type, uint32_t rank, void *address, const uint64_t *dims) {
  if (reinterpret_cast<uintptr_t>(address) % 16 != 0 || rank > 5)
    return kInvalidValue;
  map = {};
  map.opaque[0] = reinterpret_cast<uintptr_t>(address);
  map.opaque[1] = static_cast<uint64_t>(type);
  std::copy(dims, dims + rank, map.opaque + 2);
  return kSuccess;
}

Driver makeTable() {
  Driver d;
  d.cuInit = locked([](unsigned) { return injected("cuInit"); });
  d.cuDriverGetVersion = locked([](int *v) { return *v = 13000, kSuccess; });
  d.cuGetErrorName = locked([](CUresult r, const char **text) {
    *text = r == kOutOfMemory ? "CUDA_ERROR_OUT_OF_MEMORY"
            : r == kIllegalAddress ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                                   : "CUDA_ERROR_FAKE";
    return kSuccess;
  });
  d.cuGetErrorString = locked([](CUresult, const char **text) {
    return *text = "reported by the fake driver", kSuccess;
  });
  d.cuDeviceGet = locked([](CUdevice *device, int ordinal) { return *device = ordinal, kSuccess; });
  d.cuDeviceGetCount = locked([](int *count) { return *count = state().gpu.devices, kSuccess; });
  d.cuDeviceGetName = locked([](char *name, int length, CUdevice) {
    std::strncpy(name, "fake GPU", static_cast<size_t>(length));
    return kSuccess;
  });
  d.cuDeviceGetAttribute = locked([](int *value, int attribute, CUdevice) {
    *value = attribute == kDeviceMajor      ? state().gpu.capability / 10
             : attribute == kDeviceMinor    ? state().gpu.capability % 10
             : attribute == kDeviceMaxGridX ? 0x7fffffff
                                            : 65535;
    return kSuccess;
  });
  d.cuDeviceGetUuid = locked([](CUuuid *uuid, CUdevice device) {
    *uuid = {};
    return uuid->bytes[0] = char('0' + device), kSuccess;
  });
  d.cuDevicePrimaryCtxRetain = locked([](CUcontext *c, CUdevice) {
    return *c = reinterpret_cast<CUcontext>(&state()), injected("cuDevicePrimaryCtxRetain");
  });
  d.cuDevicePrimaryCtxRelease = locked([](CUdevice) { return kSuccess; });
  d.cuCtxPushCurrent = locked([](CUcontext) { return ++state().contexts, kSuccess; });
  d.cuCtxPopCurrent = locked([](CUcontext *) { return --state().contexts, kSuccess; });
  d.cuCtxSynchronize = locked([]() { return mayBlock(), injected("cuCtxSynchronize"); });
  d.cuMemGetInfo = locked([](size_t *free, size_t *total) {
    *total = state().gpu.memoryLimit;
    *free = *total - state().gpu.allocatedBytes() - state().graphBytes;
    return kSuccess;
  });
  d.cuMemAlloc = locked([](CUdeviceptr *out, size_t bytes) {
    if (CUresult r = injected("cuMemAlloc"))
      return r;
    void *p = nullptr;
    CUresult r = allocate(state().device, &p, bytes, state().gpu.memoryLimit);
    *out = reinterpret_cast<CUdeviceptr>(p);
    return r;
  });
  d.cuMemFree = locked([](CUdeviceptr p) { return mayBlock(), release(state().device, host(p)); });
  d.cuMemAllocHost = locked([](void **out, size_t bytes) {
    if (CUresult r = injected("cuMemAllocHost"))
      return r;
    return allocate(state().host, out, bytes, UINT64_MAX);
  });
  d.cuMemFreeHost = locked([](void *p) { return mayBlock(), release(state().host, p); });
  d.cuDeviceCanAccessPeer = locked([](int *can, CUdevice, CUdevice) {
    return *can = state().gpu.peerAccess, kSuccess;
  });
  d.cuMemGetAllocationGranularity = locked([](size_t *granularity, const CUmemAllocationProp *, int) {
    return *granularity = FakePages::kGranularity, kSuccess;
  });
  d.cuMemCreate = locked([](CUmemHandle *handle, size_t bytes, const CUmemAllocationProp *prop, unsigned long long) {
    if (CUresult r = injected("cuMemCreate"))
      return r;
    if (!bytes || bytes % FakePages::kGranularity || prop->type != kAllocationPinned ||
        prop->location.type != kLocationDevice || prop->location.id >= state().gpu.devices)
      return kInvalidValue;
    if (bytes > state().gpu.memoryLimit - std::min(state().gpu.memoryLimit, state().gpu.allocatedBytes()))
      return kOutOfMemory;
    return state().pages.create(*handle, bytes);
  });
  d.cuMemRelease = locked([](CUmemHandle handle) { return state().pages.release(handle); });
  d.cuMemExportToShareableHandle = locked([](void *file, CUmemHandle handle, int type, unsigned long long) {
    if (CUresult r = injected("cuMemExportToShareableHandle"))
      return r;
    return type == kHandleFile ? state().pages.exportFile(handle, *static_cast<int *>(file)) : kInvalidValue;
  });
  d.cuMemImportFromShareableHandle = locked([](CUmemHandle *handle, void *file, int type) {
    if (CUresult r = injected("cuMemImportFromShareableHandle"))
      return r;
    return type == kHandleFile ? state().pages.importFile(*handle, int(reinterpret_cast<intptr_t>(file)))
                               : kInvalidValue;
  });
  d.cuMemAddressReserve = locked([](CUdeviceptr *begin, size_t bytes, size_t, CUdeviceptr, unsigned long long) {
    if (CUresult r = injected("cuMemAddressReserve"))
      return r;
    return state().pages.reserve(*begin, bytes);
  });
  d.cuMemAddressFree = locked([](CUdeviceptr begin, size_t bytes) { return state().pages.unreserve(begin, bytes); });
  d.cuMemMap = locked([](CUdeviceptr begin, size_t bytes, size_t offset, CUmemHandle handle, unsigned long long) {
    if (CUresult r = injected("cuMemMap"))
      return r;
    return offset ? kInvalidValue : state().pages.map(begin, bytes, handle);
  });
  d.cuMemUnmap = locked([](CUdeviceptr begin, size_t bytes) {
    mayBlock();
    return state().pages.unmap(begin, bytes);
  });
  d.cuMemSetAccess = locked([](CUdeviceptr begin, size_t bytes, const CUmemAccessDesc *devices, size_t count) {
    if (CUresult r = injected("cuMemSetAccess"))
      return r;
    return !count || devices[0].flags != kAccessReadWrite ? kInvalidValue : state().pages.open(begin, bytes);
  });
  d.cuMemcpyHtoDAsync = locked([](CUdeviceptr to, const void *from, size_t n, CUstream s) {
    if (CUresult r = injected("cuMemcpyHtoDAsync"))
      return r;
    if (!onDevice(to, n) || onDevice(reinterpret_cast<CUdeviceptr>(from), 1))
      return kInvalidValue;
    return submitCopy(s, host(to), from, n);
  });
  d.cuMemcpyDtoHAsync = locked([](void *to, CUdeviceptr from, size_t n, CUstream s) {
    if (CUresult r = injected("cuMemcpyDtoHAsync"))
      return r;
    if (!onDevice(from, n) || onDevice(reinterpret_cast<CUdeviceptr>(to), 1))
      return kInvalidValue;
    return submitCopy(s, to, host(from), n);
  });
  d.cuMemcpyDtoDAsync = locked([](CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s) {
    if (!onDevice(from, n) || !onDevice(to, n))
      return kInvalidValue;
    return submitCopy(s, host(to), host(from), n);
  });
  d.cuMemsetD8Async = locked([](CUdeviceptr p, unsigned char value, size_t n, CUstream s) {
    if (!onDevice(p, n))
      return kInvalidValue;
    return submit(s, {"set", [=] { return std::memset(host(p), value, n), kSuccess; }, nullptr, nullptr, {}});
  });
  d.cuStreamCreate = locked([](CUstream *out, unsigned) {
    auto *made = new FakeStream;
    made->number = state().streamsMade++;
    state().streams.push_back(made);
    return *out = reinterpret_cast<CUstream>(made), kSuccess;
  });
  d.cuStreamDestroy = locked([](CUstream s) {
    mayBlock();
    std::erase(state().streams, reinterpret_cast<FakeStream *>(s));
    return delete reinterpret_cast<FakeStream *>(s), kSuccess;
  });
  d.cuStreamWaitEvent = locked([](CUstream handle, CUevent event, unsigned) {
    if (CUresult r = injected("cuStreamWaitEvent"))
      return r;
    FakeStream &s = fake(handle);
    auto *e = reinterpret_cast<FakeEvent *>(event);
    if (FakeStream *from = e->captured) {
      if (s.capture && s.capture != from->capture)
        return kCaptureUnsupported;
      if (!s.capture)
        s.front.clear();
      if (!state().gpu.forgetsWaits)
        s.front.insert(s.front.end(), e->front.begin(), e->front.end());
      if (!s.capture) {
        s.capture = from->capture;
        s.attached = true;
        s.capture->streams.insert(&s);
      }
      // What `from` did is waited for; `s` has to be joined in its turn.
      s.capture->unjoined.erase(from);
      if (s.attached)
        s.capture->unjoined.insert(&s);
      return kSuccess;
    }
    if (s.capture)
      return kCaptureUnsupported; // an event of no capture
    s.queue.push_back([e, until = e->recorded]() -> std::optional<CUresult> {
      if (e->reached < until && !state().gpu.forgetsWaits)
        return std::nullopt;
      return kSuccess;
    });
    return drain();
  });
  d.cuStreamBeginCapture = locked([](CUstream s, int) {
    if (fake(s).capture)
      return kCaptureUnsupported;
    fake(s).front.clear();
    return fake(s).capture = new FakeGraph, kSuccess;
  });
  d.cuStreamEndCapture = locked([](CUstream s, CUgraph *graph) {
    FakeGraph *made = fake(s).capture;
    if (!made)
      return kInvalidHandle;
    bool unjoined = !made->unjoined.empty();
    for (FakeStream *other : made->streams) {
      other->capture = nullptr;
      other->attached = false;
    }
    made->streams.clear();
    made->unjoined.clear();
    fake(s).capture = nullptr;
    *graph = reinterpret_cast<CUgraph>(made);
    return unjoined ? kCaptureUnjoined : injected("cuStreamEndCapture");
  });
  d.cuStreamGetCaptureInfo = locked([](CUstream s, int *, uint64_t *, CUgraph *, const CUgraphNode **last,
                                const CUgraphEdgeData **, size_t *count) {
    if (!fake(s).capture)
      return kInvalidHandle;
    *last = reinterpret_cast<const CUgraphNode *>(&fake(s).last);
    return *count = fake(s).last ? 1 : 0, kSuccess;
  });
  d.cuGraphInstantiateWithFlags = locked([](CUgraphExec *exec, CUgraph graph, unsigned long long) {
    if (CUresult r = injected("cuGraphInstantiateWithFlags"))
      return r;
    ++state().gpu.graphInstantiations;
    const auto &source = *reinterpret_cast<FakeGraph *>(graph);
    auto *made = new FakeGraph;
    made->nodes = ownNodes(source);
    made->source = &source;
    made->bytes = source.nodes.size() * state().gpu.graphNodeBytes;
    state().graphBytes += made->bytes;
    return *exec = reinterpret_cast<CUgraphExec>(made), kSuccess;
  });
  d.cuGraphExecUpdate = locked([](CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *) {
    auto &old = *reinterpret_cast<FakeGraph *>(exec);
    const auto &now = *reinterpret_cast<FakeGraph *>(graph);
    if (!std::equal(old.nodes.begin(), old.nodes.end(), now.nodes.begin(), now.nodes.end(),
                    [](const auto &a, const auto &b) { return a->shape == b->shape; }))
      return kUpdateFailure;
    old.nodes = ownNodes(now);
    ++state().gpu.graphUpdates;
    return kSuccess;
  });
  d.cuGraphExecKernelNodeSetParams = locked([](CUgraphExec exec, CUgraphNode node,
                                        const CUkernelNodeParams *params) {
    if (CUresult r = injected("cuGraphExecKernelNodeSetParams"))
      return r;
    Node *n = nodeOf(exec, node);
    if (!n || !n->kernel ||
        n->kernel->launch.function != reinterpret_cast<FakeFunction *>(params->function)->name)
      return kInvalidValue;
    ++state().gpu.nodeUpdates;
    // Launches that are enqueued already keep what they were given.
    auto fresh = std::make_shared<FakeKernelLaunch>(*n->kernel);
    keepParameters(*fresh, params->parameters);
    n->kernel = fresh;
    n->run = [fresh] {
      std::vector<void *> pointers;
      for (auto &c : fresh->parameters)
        pointers.push_back(c.data());
      return runKernel(fresh->launch, pointers.data());
    };
    return kSuccess;
  });
  d.cuGraphExecMemcpyNodeSetParams = locked([](CUgraphExec exec, CUgraphNode node,
                                        const CUcopyNodeParams *params, CUcontext) {
    if (CUresult r = injected("cuGraphExecMemcpyNodeSetParams"))
      return r;
    Node *n = nodeOf(exec, node);
    if (!n || !n->copy || params->height != 1 || params->depth != 1)
      return kInvalidValue;
    auto place = [](const CUcopyEnd &e) {
      return e.memoryType == kMemoryHost ? e.host : host(e.device);
    };
    for (const CUcopyEnd *e : {&params->source, &params->target})
      if (e->memoryType == kMemoryDevice && !onDevice(e->device, params->widthBytes))
        return kInvalidValue;
    ++state().gpu.nodeUpdates;
    auto fresh = std::make_shared<FakeCopy>(
        FakeCopy{place(params->target), place(params->source), params->widthBytes});
    n->copy = fresh;
    n->run = [fresh] { return std::memmove(fresh->to, fresh->from, fresh->bytes), kSuccess; };
    return kSuccess;
  });
  d.cuGraphLaunch = locked([](CUgraphExec exec, CUstream stream) {
    if (CUresult r = injected("cuGraphLaunch"))
      return r;
    ++state().gpu.graphLaunches;
    const auto &graph = *reinterpret_cast<FakeGraph *>(exec);
    for (size_t i : orderOf(graph))
      fake(stream).queue.push_back(graph.nodes[i]->run);
    return drain();
  });
  d.cuGraphExecDestroy = locked([](CUgraphExec exec) {
    mayBlock();
    state().graphBytes -= reinterpret_cast<FakeGraph *>(exec)->bytes;
    return delete reinterpret_cast<FakeGraph *>(exec), kSuccess;
  });
  d.cuGraphDestroy = locked([](CUgraph graph) {
    return delete reinterpret_cast<FakeGraph *>(graph), kSuccess;
  });
  d.cuEventCreate = locked([](CUevent *e, unsigned) {
    return *e = reinterpret_cast<CUevent>(new FakeEvent), kSuccess;
  });
  d.cuEventDestroy = locked([](CUevent e) {
    mayBlock();
    return delete reinterpret_cast<FakeEvent *>(e), kSuccess;
  });
  d.cuEventRecord = locked([](CUevent handle, CUstream stream) {
    if (CUresult r = injected("cuEventRecord"))
      return r;
    FakeStream &s = fake(stream);
    auto *e = reinterpret_cast<FakeEvent *>(handle);
    e->captured = s.capture ? &s : nullptr;
    e->front = s.front;
    if (s.capture)
      return kSuccess;
    s.queue.push_back([e, number = ++e->recorded]() -> std::optional<CUresult> {
      e->reached = std::max(e->reached, number);
      return kSuccess;
    });
    return drain();
  });
  d.cuEventQuery = locked([](CUevent handle) {
    if (CUresult r = injected("cuEventQuery"))
      return r;
    auto *e = reinterpret_cast<FakeEvent *>(handle);
    if (e->reached < e->recorded) // what waits for a kernel of another process
      (void)drain();
    return e->reached < e->recorded ? kNotReady : kSuccess;
  });
  d.cuEventElapsedTime = locked([](float *ms, CUevent, CUevent) { return *ms = 0.5f, kSuccess; });
  d.cuModuleLoadDataEx = locked([](CUmodule *out, const void *image, unsigned count, int *options,
                                   void **values) {
    return loadModule(out, image, count, options, values);
  });
  d.cuModuleUnload = locked([](CUmodule m) {
    mayBlock();
    return delete reinterpret_cast<FakeModule *>(m), kSuccess;
  });
  d.cuModuleGetFunction = locked([](CUfunction *out, CUmodule m, const char *name) {
    auto &module = *reinterpret_cast<FakeModule *>(m);
    if (module.listed && !module.functions.count(name))
      return kNotFound;
    FakeFunction &f = module.functions[name];
    f.name = name;
    return *out = reinterpret_cast<CUfunction>(&f), kSuccess;
  });
  d.cuFuncGetParamInfo = locked([](CUfunction f, size_t index, size_t *offset, size_t *bytes) {
    if (!reinterpret_cast<FakeFunction *>(f)->listed)
      return kNotSupported;
    const auto &sizes = reinterpret_cast<FakeFunction *>(f)->parameterSizes;
    *offset = index * 8;
    if (index >= sizes.size())
      return kInvalidValue;
    return *bytes = sizes[index], kSuccess;
  });
  d.cuFuncLoad = locked([](CUfunction) { return ++state().gpu.functionsLoaded, injected("cuFuncLoad"); });
  d.cuFuncSetAttribute = locked([](CUfunction, int, int value) {
    return value > (227 << 10) ? kInvalidValue : kSuccess;
  });
  d.cuLaunchKernelEx = locked([](const CUlaunchConfig *config, CUfunction function, void **parameters,
                                 void **extra) {
    return launchKernel(config, function, parameters, extra);
  });
  d.cuTensorMapEncodeTiled = locked([](CUtensorMap *map, int type, uint32_t rank, void *address,
                                const uint64_t *dims, const uint64_t *, const uint32_t *,
                                const uint32_t *, int, int, int, int) {
    return rank < 1 ? kInvalidValue : encodeMap(*map, type, rank, address, dims);
  });
  d.cuTensorMapEncodeIm2col = locked([](CUtensorMap *map, int type, uint32_t rank, void *address,
                                 const uint64_t *dims, const uint64_t *, const int *lower,
                                 const int *upper, uint32_t channels, uint32_t pixels,
                                 const uint32_t *steps, int, int, int, int) {
    if (CUresult r = rank < 3 ? kInvalidValue : encodeMap(*map, type, rank, address, dims))
      return r;
    // What is particular to images, in one word of the first half, a byte each and the box in two.
    map->opaque[7] = static_cast<uint64_t>(channels) << 40 | static_cast<uint64_t>(pixels) << 24 |
                     static_cast<uint64_t>(lower[0] & 0xff) << 16 |
                     static_cast<uint64_t>(upper[0] & 0xff) << 8 | steps[1];
    return kSuccess;
  });
  return d;
}

} // namespace

uint64_t FakeGpu::allocatedBytes() const {
  uint64_t total = state().pages.ownBytes();
  for (const auto &item : state().device)
    total += item.second;
  return total;
}

void FakeGpu::reset() {
  release();
  *this = FakeGpu();
}

void FakeGpu::release() {
  std::lock_guard lock(state().mutex);
  held = false;
  (void)drain();
}

FakeGpu &fakeGpu() { return state().gpu; }

const Driver &fakeDriver() {
  static const Driver table = makeTable();
  return table;
}

} // namespace lathe::runtime::cuda
