//===- SubmitBench.cpp - what a step costs beside its kernels ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A row for each bar: figure, bar, verdict. See README.md.
//
//===----------------------------------------------------------------------===//

#include "../../../runtime/device/CudaDriver.h"
#include "../../../runtime/device/FakeDriver.h"
#include "../../../runtime/exec/Graphs.h"
#include "../../unit/PlanFixture.h"
#include "lathe/engine/EngineFile.h"
#include "lathe/runtime/lathe.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

using namespace lathe;
using namespace lathe::engine;
using namespace lathe::test;
using Clock = std::chrono::steady_clock;
using Dims = std::vector<int64_t>;

namespace {

/// Kernels that tell the time, wait for a flag, or keep a multiprocessor busy.
const char *const kPtx = R"(.version 7.8
.target sm_80
.address_size 64

// out[0] = the time; ends n ns later, having read x.
.visible .entry opens(.param .u64 px, .param .u64 pout, .param .u64 pn)
{
  .reg .b64 %x, %out, %n, %begin, %now, %end;
  .reg .f32 %f;
  .reg .pred %p;
  mov.u64 %begin, %globaltimer;
  ld.param.u64 %x, [px];
  ld.param.u64 %out, [pout];
  ld.param.u64 %n, [pn];
  ld.global.f32 %f, [%x];
  add.u64 %end, %begin, %n;
again:
  mov.u64 %now, %globaltimer;
  setp.lt.u64 %p, %now, %end;
  @%p bra again;
  st.global.u64 [%out], %begin;
  ret;
}

// Runs n ns; out[1] = the time at its end.
.visible .entry closes(.param .u64 px, .param .u64 pout, .param .u64 pn)
{
  .reg .b64 %out, %n, %now, %end;
  .reg .pred %p;
  ld.param.u64 %out, [pout];
  ld.param.u64 %n, [pn];
  mov.u64 %now, %globaltimer;
  add.u64 %end, %now, %n;
again:
  mov.u64 %now, %globaltimer;
  setp.lt.u64 %p, %now, %end;
  @%p bra again;
  st.global.u64 [%out+8], %now;
  ret;
}

// out[0] = x[0]
.visible .entry touch(.param .u64 px, .param .u64 pout, .param .u64 pn)
{
  .reg .b64 %x, %out;
  .reg .f32 %f;
  ld.param.u64 %x, [px];
  ld.param.u64 %out, [pout];
  ld.global.f32 %f, [%x];
  st.global.f32 [%out], %f;
  ret;
}

// Until the flag that x points to is set.
.visible .entry spins(.param .u64 px, .param .u64 pout, .param .u64 pn)
{
  .reg .b64 %x;
  .reg .u32 %v;
  .reg .pred %p;
  ld.param.u64 %x, [px];
again:
  ld.volatile.global.u32 %v, [%x];
  setp.eq.u32 %p, %v, 0;
  @%p bra again;
  ret;
}

// n rounds of dependent multiplications in every thread; out[0] = something of them.
.visible .entry works(.param .u64 px, .param .u64 pout, .param .u64 pn)
{
  .reg .b64 %x, %out, %n, %i;
  .reg .f32 %f, %g;
  .reg .pred %p;
  ld.param.u64 %x, [px];
  ld.param.u64 %out, [pout];
  ld.param.u64 %n, [pn];
  ld.global.f32 %f, [%x];
  mov.f32 %g, 0f3F800001;
  mov.u64 %i, 0;
again:
  fma.rn.f32 %f, %f, %g, %g;
  fma.rn.f32 %f, %f, %g, %g;
  fma.rn.f32 %f, %f, %g, %g;
  fma.rn.f32 %f, %f, %g, %g;
  add.u64 %i, %i, 1;
  setp.lt.u64 %p, %i, %n;
  @%p bra again;
  st.global.f32 [%out], %f;
  ret;
}
)";

bool dry = false;
int missed = 0;

/// One row; on the fake device there is nothing to judge.
void row(const char *what, double value, const char *unit, double bar, bool atMost = true) {
  bool met = atMost ? value <= bar : value >= bar;
  missed += !met && !dry;
  std::printf("%-58s %10.3f %-3s %s %g %s\n", what, value, unit, atMost ? "<=" : ">=", bar,
              dry ? "" : met ? "met" : "NOT MET");
}
void say(const char *what, double value, const char *unit) {
  std::printf("%-58s %10.3f %s\n", what, value, unit);
}

[[noreturn]] void fail(const std::string &why) {
  std::fprintf(stderr, "lathe-submit-bench: %s\n", why.c_str());
  std::exit(2);
}
void must(rt::Error e) {
  if (e)
    fail(e.message());
}
double quantile(std::vector<double> v, double q) {
  std::sort(v.begin(), v.end());
  return v.empty() ? 0 : v[std::min(v.size() - 1, static_cast<size_t>(q * double(v.size())))];
}

//===--- plans ------------------------------------------------------------===//

Plan emptyPlan() {
  Plan p;
  p.entry = "main";
  p.target = "sm_90";
  p.cuda = true;
  p.blocks.resize(1);
  return p;
}
int32_t addPort(Plan &p, bool output, const char *name, DType type, std::vector<DimExpr> dims) {
  auto &ports = output ? p.outputs : p.inputs;
  auto index = static_cast<int32_t>(ports.size());
  p.buffers.push_back(makeBuffer(name, output ? BufferKind::Output : BufferKind::Input, index, type,
                                 dims));
  auto buffer = static_cast<int32_t>(p.buffers.size()) - 1;
  ports.push_back({name, type, dims, buffer, -1});
  if (!output && !dims.empty())
    if (auto symbol = dims[0].symbolName())
      p.symbols.push_back({*symbol, 0, 1 << 20, 1, 1, SymbolOrigin::InputDim, index, 0});
  return buffer;
}
/// A kernel of the module above: x, out, n; `blocks` of `threads`.
int32_t addKernel(Plan &p, const char *function, int64_t blocks = 1, int64_t threads = 1) {
  Kernel k = makeKernel(function, 2, "bench");
  k.variants[0].launches[0].grid[0] = blocks;
  k.variants[0].launches[0].block[0] = threads;
  p.kernels.push_back(k);
  return static_cast<int32_t>(p.kernels.size()) - 1;
}
Step launch(int32_t kernel, int32_t x, int32_t out, DimExpr n, int32_t stream = 0,
            std::vector<int32_t> waits = {}, int32_t signal = -1) {
  return Step{LaunchStep{kernel, {x, out}, {n}}, {}, stream, std::move(waits), signal};
}

/// Two kernels that take `first` and `second` ns and write when they began and ended.
Plan timedPlan(int64_t first, int64_t second) {
  Plan p = emptyPlan();
  int32_t x = addPort(p, false, "x", DType::F32, {DimExpr::symbol("N")});
  int32_t t = addPort(p, true, "times", DType::I64, {2});
  p.blocks[0] = {launch(addKernel(p, "opens"), x, t, first),
                 launch(addKernel(p, "closes"), x, t, second)};
  return p;
}

/// As many kernels that read the input and write memory of the context.
Plan touchPlan(int count) {
  Plan p = emptyPlan();
  int32_t x = addPort(p, false, "x", DType::F32, {DimExpr::symbol("N")});
  p.arenas.push_back({256 * count, false});
  int32_t kernel = addKernel(p, "touch");
  for (int i = 0; i < count; ++i) {
    p.buffers.push_back(makeBuffer("t", BufferKind::Arena, 0, DType::F32, {1}, 256 * i));
    p.blocks[0].push_back(launch(kernel, x, static_cast<int32_t>(p.buffers.size()) - 1, 1));
  }
  return p;
}

/// Two chains of `length` kernels that each fill `blocks` multiprocessors.
Plan chainsPlan(int streams, int length, int64_t blocks, int64_t rounds) {
  Plan p = emptyPlan();
  int32_t x = addPort(p, false, "x", DType::F32, {DimExpr::symbol("N")});
  int32_t out[2] = {addPort(p, true, "a", DType::F32, {1}), addPort(p, true, "b", DType::F32, {1})};
  int32_t end = addPort(p, true, "end", DType::F32, {1});
  int32_t works = addKernel(p, "works", blocks, 1024), touch = addKernel(p, "touch");
  p.resources.streams.assign(static_cast<size_t>(streams), 0);
  p.resources.events = streams - 1;
  for (int i = 0; i < length; ++i)
    for (int c = 0; c < 2; ++c) {
      bool last = streams > 1 && c == 1 && i + 1 == length;
      p.blocks[0].push_back(launch(works, i ? out[c] : x, out[c], rounds, c % streams, {},
                                   last ? 0 : -1));
    }
  p.blocks[0].push_back(launch(touch, out[1], end, 1, 0,
                               streams > 1 ? std::vector<int32_t>{0} : std::vector<int32_t>{}));
  return p;
}

Plan spinPlan() {
  Plan p = emptyPlan();
  int32_t x = addPort(p, false, "flag", DType::I32, {1});
  int32_t y = addPort(p, true, "y", DType::F32, {1});
  p.blocks[0] = {launch(addKernel(p, "spins"), x, y, 1)};
  return p;
}

rt::Engine engineOf(const Plan &plan) {
  engine::EngineWriter w("submit bench");
  if (Status s = w.addPlan(plan); !s.ok())
    fail(s.str());
  std::string image = dry ? "fake\nopens 8 8 8\ncloses 8 8 8\ntouch 8 8 8\nspins 8 8 8\nworks 8 8 8\n"
                          : kPtx;
  if (Status s = w.addKernels(plan.target, engine::packArchive({{"bench", image}})); !s.ok())
    fail(s.str());
  auto bytes = w.str();
  rt::Engine engine;
  must(engine.openMemory(std::as_bytes(std::span(*bytes))));
  return engine;
}

struct Bench {
  std::string device;
  const runtime::cuda::Driver *driver = nullptr;
  int multiprocessors = 132;

  rt::Context open(const rt::Engine &engine, int64_t deadlineMs = 10000) const {
    rt::Context context;
    lathe_options o{};
    o.size = sizeof o;
    o.deadline_ms = deadlineMs;
    must(context.create(engine, device, o));
    return context;
  }
};

/// Steps submitted `ahead` of the one that is waited for; the time of each submission in us.
/// `before` prepares the inputs, `after` sees the results.
template <typename Before, typename After>
std::vector<double> pipeline(rt::Context &context, int count, int outputs, size_t ahead,
                             Before before, After after) {
  std::vector<double> times;
  std::deque<std::pair<uint64_t, std::vector<lathe_tensor>>> under;
  auto waitFront = [&] {
    must(context.wait(under.front().first));
    after(under.front().second);
    under.pop_front();
  };
  for (int i = 0; i < count; ++i) {
    lathe_tensor in = before(i);
    under.emplace_back(0, std::vector<lathe_tensor>(static_cast<size_t>(outputs)));
    auto &[step, results] = under.back();
    auto begin = Clock::now();
    must(context.submit("", {&in, 1}, results, step));
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
    if (under.size() > ahead)
      waitFront();
  }
  while (!under.empty())
    waitFront();
  return times;
}

/// Device memory that nothing works on any more.
void readBack(const runtime::cuda::Driver &driver, void *host, runtime::cuda::CUdeviceptr device,
              size_t bytes) {
  runtime::cuda::CUevent done = nullptr;
  driver.cuEventCreate(&done, runtime::cuda::kEventNoTiming);
  driver.cuMemcpyDtoHAsync(host, device, bytes, nullptr);
  driver.cuEventRecord(done, nullptr);
  while (driver.cuEventQuery(done) == runtime::cuda::kNotReady) {
  }
  driver.cuEventDestroy(done);
}

lathe_tensor onDevice(void *data, const Dims &dims) {
  return {data, 0, LATHE_F32, LATHE_DEVICE, 1, dims.data(), nullptr};
}

//===--- what is measured -------------------------------------------------===//

void measureSubmit(const Bench &b) {
  rt::Engine engine = engineOf(timedPlan(20000, 20000));
  rt::Context context = b.open(engine);
  std::vector<float> x(1024, 1.0f);
  Dims dims = {1024};
  std::vector<int64_t> times;
  auto staged = pipeline(
      context, 2000, 1, 1, [&](int) { return rt::tensor(x, dims); },
      [&](const std::vector<lathe_tensor> &out) {
        const auto *t = static_cast<const int64_t *>(out[0].data);
        times.insert(times.end(), t, t + 2);
      });
  staged.erase(staged.begin(), staged.begin() + 100);
  row("host: submit, graph, 4 KiB staged in, 16 B out, median", quantile(staged, 0.5), "us", 5);
  say("  90th percentile", quantile(staged, 0.9), "us");
  std::vector<double> gaps;
  for (size_t i = 201; i + 1 < times.size(); i += 2)
    gaps.push_back(double(times[i + 1] - times[i]) * 1e-3);
  say("GPU: kernels' gap between steps, copies in and out there", quantile(gaps, 0.5), "us");

  // The same without copies: what is left is not work of any kind.
  runtime::cuda::CUdeviceptr memory = 0;
  runtime::cuda::CUcontext primary = nullptr;
  b.driver->cuDevicePrimaryCtxRetain(&primary, 0);
  b.driver->cuCtxPushCurrent(primary);
  b.driver->cuMemAlloc(&memory, 1 << 16);
  void *host = nullptr;
  b.driver->cuMemAllocHost(&host, 1 << 16);
  constexpr int kRounds = 20, kSteps = 60;
  std::vector<double> bare;
  gaps.clear();
  for (int round = 0; round < kRounds; ++round) {
    std::vector<lathe_tensor> outputs;
    for (int i = 0; i < kSteps; ++i)
      outputs.push_back({reinterpret_cast<void *>(memory + 256 * i), 16, LATHE_I64, LATHE_DEVICE, 0,
                         nullptr, nullptr});
    for (lathe_tensor &out : outputs) {
      lathe_tensor in = onDevice(reinterpret_cast<void *>(memory + (1 << 15)), dims);
      uint64_t step = 0;
      auto begin = Clock::now();
      must(context.submit("", {&in, 1}, {&out, 1}, step));
      bare.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
    }
    must(context.wait());
    readBack(*b.driver, host, memory, 1 << 15);
    for (int i = 0; i + 1 < kSteps && round > 1; ++i) {
      int64_t times[2][2];
      for (int k : {0, 1})
        std::memcpy(times[k], static_cast<char *>(host) + 256 * (i + k), 16);
      gaps.push_back(double(times[1][0] - times[0][1]) * 1e-3);
    }
  }
  row("GPU: idle between two steps submitted ahead, median", quantile(gaps, 0.5), "us", 4);
  say("  90th percentile", quantile(gaps, 0.9), "us");
  say("host: submit with the caller's memory, two nodes updated", quantile(bare, 0.5), "us");
  b.driver->cuMemFreeHost(host);
  b.driver->cuMemFree(memory);
  runtime::cuda::CUcontext popped = nullptr;
  b.driver->cuCtxPopCurrent(&popped);
  b.driver->cuDevicePrimaryCtxRelease(0);
}

void measureUpdates(const Bench &b) {
  constexpr int kNodes = 16;
  rt::Engine engine = engineOf(touchPlan(kNodes));
  rt::Context context = b.open(engine);
  runtime::cuda::CUcontext primary = nullptr, popped = nullptr;
  b.driver->cuDevicePrimaryCtxRetain(&primary, 0);
  b.driver->cuCtxPushCurrent(primary);
  runtime::cuda::CUdeviceptr memory[3];
  for (auto &m : memory)
    b.driver->cuMemAlloc(&m, 4096);
  Dims dims = {1024};
  double medians[2];
  for (int changing = 0; changing < 2; ++changing) {
    auto times = pipeline(
        context, 1500, 0, 1,
        [&](int i) { return onDevice(reinterpret_cast<void *>(memory[changing ? i % 3 : 0]), dims); },
        [](const std::vector<lathe_tensor> &) {});
    times.erase(times.begin(), times.begin() + 200);
    medians[changing] = quantile(times, 0.5);
  }
  say("host: submit of 16 kernels, the same memory", medians[0], "us");
  say("host: submit of 16 kernels, other memory for all", medians[1], "us");
  row("host: more for each updated node", (medians[1] - medians[0]) / kNodes, "us", 1);
  lathe_counters c = context.counters();
  say("  nodes updated in 1500 steps", double(c.graph_nodes_updated), "");
  for (auto m : memory)
    b.driver->cuMemFree(m);
  b.driver->cuCtxPopCurrent(&popped);
  b.driver->cuDevicePrimaryCtxRelease(0);
}

void measureSizes(const Bench &b) {
  constexpr int64_t kSizes = 500;
  rt::Engine engine = engineOf(timedPlan(5000, 1000));
  rt::Context context = b.open(engine);
  std::vector<float> x(kSizes, 1.0f);
  auto begin = Clock::now();
  for (int64_t n = kSizes; n > 0; --n) {
    Dims dims = {n};
    lathe_tensor in = rt::tensor(std::span<float>(x).first(static_cast<size_t>(n)), dims), out{};
    must(context.warm("", {&in, 1}, {&out, 1}));
  }
  double capture = std::chrono::duration<double>(Clock::now() - begin).count();
  lathe_counters c = context.counters();
  say("500 sizes: capture of one, by lathe_warm", capture / kSizes * 1e6, "us");
  say("  graphs kept", double(c.graphs), "");
  say("  device memory that they took", double(c.graph_bytes) / (1 << 20), "MiB");
  // Each is found again: no step captures.
  double all = 0, one = 0;
  for (int pass = 0; pass < 3; ++pass)
    for (bool same : {false, true}) {
      auto start = Clock::now();
      for (int64_t i = 0; i < kSizes; ++i) {
        int64_t n = same ? 100 : i * 263 % kSizes + 1;
        Dims dims = {n};
        lathe_tensor in = rt::tensor(std::span<float>(x).first(static_cast<size_t>(n)), dims), out{};
        uint64_t step = 0;
        must(context.submit("", {&in, 1}, {&out, 1}, step));
        must(context.wait(step));
      }
      (same ? one : all) = std::chrono::duration<double>(Clock::now() - start).count() / kSizes * 1e6;
    }
  say("  a step of 500 sizes in turn, submit to result", all, "us");
  say("  a step of one size, submit to result", one, "us");
  row("  captured again", double(context.counters().graphs_captured - c.graphs_captured), "", 0);
  // The look-up by itself, over the same keys.
  runtime::ShapeCache cache;
  for (int64_t n = 1; n <= kSizes; ++n)
    cache.add({int64_t(LATHE_F32) << 8 | 1, n}, std::make_unique<runtime::Shape>());
  std::vector<int64_t> key(2);
  size_t found = 0;
  begin = Clock::now();
  constexpr int kRounds = 1000;
  for (int r = 0; r < kRounds; ++r)
    for (int64_t i = 0; i < kSizes; ++i) {
      key[0] = int64_t(LATHE_F32) << 8 | 1;
      key[1] = i * 263 % kSizes + 1;
      found += cache.find(key) != nullptr;
    }
  double lookUp =
      std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / (kRounds * kSizes);
  if (found != size_t(kRounds * kSizes))
    fail("a size was not found");
  row("  look-up of one of 500 sizes", lookUp, "us", 1);
}

void measureStreams(const Bench &b) {
  double medians[2];
  for (int streams : {1, 2}) {
    rt::Engine engine = engineOf(chainsPlan(streams, 6, b.multiprocessors / 4, 4000));
    rt::Context context = b.open(engine);
    std::vector<float> x(4, 1.0f);
    Dims dims = {4};
    std::vector<double> times;
    for (int i = 0; i < 60; ++i) {
      lathe_tensor in = rt::tensor(x, dims);
      std::vector<lathe_tensor> out(3);
      auto begin = Clock::now();
      must(context.run("", {&in, 1}, out));
      times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
    }
    times.erase(times.begin(), times.begin() + 10);
    medians[streams - 1] = quantile(times, 0.5);
    say(streams == 1 ? "two chains, a quarter of the GPU each: one stream"
                     : "two chains, a quarter of the GPU each: two streams",
        medians[streams - 1], "us");
  }
  row("  gain", medians[0] / medians[1], "x", 1.4, false);
}

void measureSpin(const Bench &b) {
  rt::Engine engine = engineOf(spinPlan());
  constexpr int64_t kDeadline = 200;
  runtime::cuda::CUcontext primary = nullptr, popped = nullptr;
  b.driver->cuDevicePrimaryCtxRetain(&primary, 0);
  b.driver->cuCtxPushCurrent(primary);
  void *flag = nullptr;
  b.driver->cuMemAllocHost(&flag, 4096);
  std::memset(flag, 0, 4096);
  double waited = 0, destroyed = 0;
  lathe_code code = LATHE_OK;
  {
    auto context = std::make_unique<rt::Context>(b.open(engine, kDeadline));
    Dims dims = {1};
    lathe_tensor in{flag, 4, LATHE_I32, LATHE_DEVICE, 1, dims.data(), nullptr}, out{};
    runtime::cuda::CUdeviceptr inDevice = 0;
    if (dry) { // the fake knows what memory is whose
      b.driver->cuMemAlloc(&inDevice, 4096);
      in.data = reinterpret_cast<void *>(inDevice);
      runtime::cuda::fakeGpu().held = true;
    }
    auto begin = Clock::now();
    rt::Error e = context->run("", {&in, 1}, {&out, 1});
    waited = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
    code = e.code();
    if (e)
      std::printf("  the error: %s\n", e.message().c_str());
    begin = Clock::now();
    context.reset();
    destroyed = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  }
  row("a kernel without end: LATHE_DEADLINE (1: yes)", code == LATHE_DEADLINE, "", 1, false);
  row("  after, deadline 200 ms", waited, "ms", 400);
  row("  destruction of the context", destroyed, "ms", 200);
  *static_cast<volatile int *>(flag) = 1; // lets the process end
  if (dry)
    runtime::cuda::fakeGpu().release();
  b.driver->cuCtxPopCurrent(&popped);
}

/// If and Loop: the GPU's results against the CPU's.
void checkFlow(const Bench &b, const std::string &path) {
  rt::Engine engine;
  must(engine.open(path));
  std::vector<std::vector<float>> results[2];
  for (bool gpu : {false, true}) {
    rt::Context context;
    must(context.create(engine, gpu ? b.device : "cpu"));
    for (int seed = 1; seed <= 4; ++seed) {
      std::vector<float> x(32);
      for (size_t i = 0; i < x.size(); ++i)
        x[i] = std::sin(float(seed * 7 + int(i) * 3)) + (seed % 2 ? 0.3f : -0.3f);
      Dims dims = {4, 8};
      lathe_tensor out{};
      must(context.run({rt::tensor(x, dims)}, {&out, 1}));
      const auto *p = static_cast<const float *>(out.data);
      results[gpu].emplace_back(p, p + 32);
    }
    if (gpu)
      say("If and Loop of the run: host steps of 4 runs", double(context.counters().host_steps), "");
  }
  double worst = 0;
  for (size_t r = 0; r < results[0].size(); ++r)
    for (size_t i = 0; i < 32; ++i)
      worst = std::max(worst, std::abs(double(results[0][r][i]) - results[1][r][i]) /
                                  std::max(1.0, std::abs(double(results[0][r][i]))));
  row("  worst relative difference from the CPU", worst, "", 1e-5);
}

} // namespace

int main(int argc, char **argv) {
  Bench b;
  b.device = "cuda:0";
  std::string flow;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!std::strcmp(argv[i], "--device"))
      b.device = argv[i + 1];
    else if (!std::strcmp(argv[i], "--flow"))
      flow = argv[i + 1];
    else
      fail(std::string("unknown option ") + argv[i]);
  }
  dry = b.device.rfind("fake", 0) == 0;
  if (dry) {
    b.driver = &runtime::cuda::fakeDriver();
  } else {
    auto opened = runtime::cuda::openDriver();
    if (!opened) {
      std::fprintf(stderr, "lathe-submit-bench: %s\n", opened.status().str().c_str());
      return int(opened.status().code());
    }
    b.driver = *opened;
    char name[256] = "";
    b.driver->cuDeviceGetName(name, sizeof name, 0);
    constexpr int kMultiprocessors = 16;
    b.driver->cuDeviceGetAttribute(&b.multiprocessors, kMultiprocessors, 0);
    std::printf("%s, %d multiprocessors\n", name, b.multiprocessors);
  }
  measureSubmit(b);
  measureUpdates(b);
  measureSizes(b);
  measureStreams(b);
  if (!flow.empty() && !dry)
    checkFlow(b, flow);
  measureSpin(b); // last: it leaves the device with work without end for a while
  std::printf(missed ? "%d bars are not met\n" : "all bars are met\n", missed);
  std::fflush(stdout);
  return missed != 0;
}
