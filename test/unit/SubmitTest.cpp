//===- SubmitTest.cpp - steps that are submitted ----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The same calls on the CPU, where a thread works the steps off, and on the fake GPU, whose
// work is held back to see that nothing waits for it.
//
//===----------------------------------------------------------------------===//

#include "FakeGpuFixture.h"

#include <atomic>
#include <chrono>
#include <deque>
#include <thread>

using namespace lathe;
using namespace lathe::engine;
using namespace lathe::test;

namespace {

constexpr int64_t kMillisecond = 1000000;

std::vector<float> scaled(const std::vector<float> &x) {
  std::vector<float> y;
  for (size_t i = 0; i < x.size(); ++i)
    y.push_back(std::max(0.0f, x[i] * static_cast<float>(i % 4 + 1) + x[i]));
  return y;
}
std::vector<float> valuesOf(const lathe_tensor &t) {
  int64_t count = 1;
  for (int32_t i = 0; i < t.rank; ++i)
    count *= t.dims[i];
  const auto *p = static_cast<const float *>(t.data);
  return {p, p + count};
}

struct Cpu {
  rt::Engine engine;
  rt::Context context;
  explicit Cpu(const std::vector<Plan> &plans, lathe_options o = {}) {
    engine = openEngine(makeEngine(plans, cpuImage()));
    o.size = sizeof o;
    o.threads = 2;
    rt::Error e = context.create(engine, "cpu", o);
    EXPECT_FALSE(e) << e.message();
  }
};

uint64_t submit(rt::Context &context, std::vector<lathe_tensor> inputs, lathe_tensor &output,
                lathe_code expected = LATHE_OK) {
  uint64_t step = 0;
  rt::Error e = context.submit("", inputs, {&output, 1}, step);
  EXPECT_EQ(e.code(), expected) << (e ? e.message() : "success");
  return step;
}
std::string wait(rt::Context &context, uint64_t step, lathe_code expected = LATHE_OK,
                 int64_t nanoseconds = -1) {
  rt::Error e = context.wait(step, nanoseconds);
  EXPECT_EQ(e.code(), expected) << (e ? e.message() : "success");
  return e ? e.message() : "";
}
bool ended(rt::Context &context, uint64_t step) {
  bool now = false;
  rt::Error e = context.poll(step, now);
  EXPECT_FALSE(e) << e.message();
  return now;
}

/// Submits steps ahead, changes the input behind each, and reads the results in order.
void checkPipeline(rt::Context &context) {
  std::vector<std::vector<float>> wanted;
  std::deque<std::pair<uint64_t, lathe_tensor>> under;
  for (int i = 0; i < 20; ++i) {
    std::vector<float> x = makeInput(3 + i % 4);
    x[0] = static_cast<float>(i);
    Dims dims = {3 + i % 4, 4};
    under.push_back({0, lathe_tensor{}});
    under.back().first = submit(context, {rt::tensor(x, dims)}, under.back().second);
    wanted.push_back(scaled(x));
    std::fill(x.begin(), x.end(), -1.0f); // the step has its own copy
    if (under.size() == 3) {
      wait(context, under.front().first);
      EXPECT_EQ(valuesOf(under.front().second), wanted[i - 2]);
      under.pop_front();
    }
  }
  for (size_t i = 18; !under.empty(); ++i) {
    wait(context, under.front().first);
    EXPECT_EQ(valuesOf(under.front().second), wanted[i]);
    under.pop_front();
  }
}

TEST(Submit, PipelinesOnTheCpu) {
  Cpu cpu({makeScalePlan("x86-64-v2", false)});
  checkPipeline(cpu.context);
  EXPECT_EQ(cpu.context.counters().runs, 20u);
}

TEST(Submit, PipelinesOnAGpu) {
  for (bool graphs : {true, false}) {
    Gpu gpu({makeScalePlan("sm_90a", true)}, graphs);
    checkPipeline(gpu.context);
    EXPECT_EQ(gpu.context.counters().runs, 20u);
  }
}

TEST(Submit, NothingWaitsForTheDevice) {
  Gpu gpu({makeScalePlan("sm_90a", true)});
  std::vector<float> x = makeInput(4), callers(16);
  Dims dims = {4, 4};
  std::vector<lathe_tensor> y(4);
  gpu.run({rt::tensor(x, dims)}, {&y[0], 1}); // memory is there
  submit(gpu.context, {rt::tensor(x, dims)}, y[1]);
  wait(gpu.context, 0);
  fakeGpu().held = true;
  std::vector<uint64_t> steps;
  for (int i = 0; i < 3; ++i) {
    x[5] = static_cast<float>(10 + i);
    y[i] = {};
    if (i == 2)
      y[i] = {callers.data(), 64, LATHE_F32, LATHE_HOST, 0, nullptr, nullptr};
    steps.push_back(submit(gpu.context, {rt::tensor(x, dims)}, y[i]));
  }
  EXPECT_FALSE(ended(gpu.context, steps[0]));
  wait(gpu.context, steps[0], LATHE_DEADLINE, kMillisecond);
  EXPECT_FALSE(ended(gpu.context, steps[2]));
  fakeGpu().release();
  EXPECT_TRUE(ended(gpu.context, steps[0])) << "a step whose deadline passed may still end";
  wait(gpu.context, steps[2]);
  EXPECT_EQ(valuesOf(y[0])[5], 30.0f);
  EXPECT_EQ(valuesOf(y[1])[5], 33.0f);
  EXPECT_EQ(callers[5], 36.0f);
  EXPECT_EQ(gpu.context.counters().bytes_staged, 0u);
}

/// With a kernel that reports an error where the first value is negative.
Plan checked(Plan p) {
  Kernel &k = p.kernels[0];
  k.name = "append_checked";
  k.variants[0].status = true;
  k.variants[0].launches[0].function = k.name;
  k.variants[0].launches[0].args.push_back({KernelArg::Kind::Status, 0});
  return onGpu(p);
}

/// The states are as before the step that failed, and what stood behind it has not been.
TEST(Submit, AFailureCancelsWhatIsBehind) {
  Gpu gpu({checked(makeAppendPlan("decode"))});
  std::vector<float> x = {1, 2, 3, 4};
  Dims dims = {1, 1, 4};
  auto device = [&] {
    lathe_tensor t{};
    t.memory = LATHE_DEVICE;
    return t;
  };
  std::vector<lathe_tensor> y(5, device());
  gpu.run({rt::tensor(x, dims)}, {&y[0], 1});
  fakeGpu().held = true;
  uint64_t good = submit(gpu.context, {rt::tensor(x, dims)}, y[1]);
  x[0] = -1;
  uint64_t bad = submit(gpu.context, {rt::tensor(x, dims)}, y[2]);
  x[0] = 5;
  uint64_t behind = submit(gpu.context, {rt::tensor(x, dims)}, y[3]);
  fakeGpu().release();
  wait(gpu.context, good);
  EXPECT_EQ(y[1].dims[1], 2);
  // Not yet told: this one is behind the failure as well.
  uint64_t late = submit(gpu.context, {rt::tensor(x, dims)}, y[4]);
  EXPECT_NE(wait(gpu.context, bad, LATHE_RUNTIME_FAILURE).find("division by zero"),
            std::string::npos);
  EXPECT_NE(wait(gpu.context, behind, LATHE_CANCELLED).find("division by zero"), std::string::npos);
  wait(gpu.context, late, LATHE_CANCELLED);
  int64_t length = 0;
  ASSERT_EQ(lathe_state_length(gpu.context.get(), "kv", &length), nullptr);
  EXPECT_EQ(length, 2);
  y[0] = device();
  gpu.run({rt::tensor(x, dims)}, {&y[0], 1});
  EXPECT_EQ(y[0].dims[1], 3);
  EXPECT_EQ(static_cast<const float *>(y[0].data)[8], 5);
}

TEST(Submit, AFailureCancelsWhatIsBehindOnTheCpu) {
  Cpu cpu({makeAppendPlan("decode")});
  std::vector<float> x(4 * 5, 1.0f);
  Dims five = {1, 5, 4}, one = {1, 1, 4};
  std::vector<lathe_tensor> y(4);
  uint64_t first = submit(cpu.context, {rt::tensor(x, five)}, y[0]);
  uint64_t full = submit(cpu.context, {rt::tensor(x, five)}, y[1]);
  uint64_t behind = submit(cpu.context, {rt::tensor(x, one)}, y[2]);
  wait(cpu.context, behind, LATHE_CANCELLED);
  EXPECT_NE(wait(cpu.context, full, LATHE_RUNTIME_FAILURE).find("buffer present"), std::string::npos);
  wait(cpu.context, first);
  int64_t length = 0;
  ASSERT_EQ(lathe_state_length(cpu.context.get(), "kv", &length), nullptr);
  EXPECT_EQ(length, 5);
  uint64_t next = submit(cpu.context, {rt::tensor(x, one)}, y[3]);
  wait(cpu.context, next);
  EXPECT_EQ(y[3].dims[1], 6);
}

/// A state of fixed size is put back too.
/// To be told of a failure does not start what was submitted behind it.
TEST(Submit, StepsBehindAFailureStayCancelledWhenItIsTold) {
  Cpu cpu({makeAppendPlan("decode")});
  std::vector<float> x(4 * 5, 1.0f);
  Dims five = {1, 5, 4}, one = {1, 1, 4};
  std::vector<lathe_tensor> y(32);
  uint64_t first = submit(cpu.context, {rt::tensor(x, five)}, y[0]);
  uint64_t full = submit(cpu.context, {rt::tensor(x, five)}, y[1]);
  std::vector<uint64_t> behind;
  for (size_t i = 2; i < y.size(); ++i)
    behind.push_back(submit(cpu.context, {rt::tensor(x, one)}, y[i]));
  wait(cpu.context, first);
  wait(cpu.context, full, LATHE_RUNTIME_FAILURE);
  for (uint64_t step : behind)
    wait(cpu.context, step, LATHE_CANCELLED);
  int64_t length = 0;
  ASSERT_EQ(lathe_state_length(cpu.context.get(), "kv", &length), nullptr);
  EXPECT_EQ(length, 5);
}

TEST(Submit, FixedStatesGoBack) {
  Plan p = checked(makeAppendPlan("main"));
  p.symbols[2] = {"P", 0, 0, 0, 1, SymbolOrigin::Constant, -1, -1};
  p.states[0] = {"kv", DType::F32, {DimExpr::symbol("B"), 8, 4}, -1, "", 0, true};
  p.blocks[0].pop_back();
  Gpu gpu({p});
  std::vector<float> x = {7, 7, 7, 7};
  Dims dims = {1, 1, 4};
  lathe_tensor y{};
  y.memory = LATHE_DEVICE;
  gpu.run({rt::tensor(x, dims)}, {&y, 1});
  const float *state = static_cast<const float *>(y.data);
  x[0] = -1;
  gpu.run({rt::tensor(x, dims)}, {&y, 1}, LATHE_RUNTIME_FAILURE);
  EXPECT_EQ(state[0], 7);
}

/// y = the state s[4], which begins as the weight {1, 2, 3, 4} and becomes x.
Plan keepPlan() {
  Plan p = emptyPlan();
  int32_t x = addInput(p, "x", DType::F32, {4});
  int32_t y = addOutput(p, "y", DType::F32, {4});
  p.weights.push_back({"s", "weights", 0, 16, DType::F32, {4}, "", ""});
  p.states.push_back({"s", DType::F32, {4}, -1, "", 0, true, 0});
  int32_t s = addBuffer(p, makeBuffer("s", BufferKind::State, 0, DType::F32, {4}));
  p.blocks[0] = {Step{CopyStep{s, y}, {}}, Step{CopyStep{x, s}, {}}};
  return p;
}

TEST(Submit, FixedStatesBeginAsAWeightAndAreReadAndWritten) {
  Gpu gpu({onGpu(keepPlan())});
  std::vector<float> x = {5, 6, 7, 8}, read(4);
  Dims dims = {4};
  auto state = [&] {
    lathe_tensor value{};
    EXPECT_EQ(lathe_state_read(gpu.context.get(), "s", &value), nullptr);
    EXPECT_EQ(value.bytes, 16u);
    EXPECT_EQ(value.rank, 1);
    value.data = read.data();
    EXPECT_EQ(lathe_state_read(gpu.context.get(), "s", &value), nullptr);
    return read;
  };
  EXPECT_EQ(state(), (std::vector<float>{1, 2, 3, 4})) << "before the first run";
  lathe_tensor y{};
  gpu.run({rt::tensor(x, dims)}, {&y, 1});
  EXPECT_EQ(static_cast<const float *>(y.data)[3], 4);
  EXPECT_EQ(state(), x);
  ASSERT_EQ(lathe_state_reset(gpu.context.get(), "s"), nullptr);
  EXPECT_EQ(state(), (std::vector<float>{1, 2, 3, 4}));
  std::vector<float> own = {9, 9, 9, 9};
  lathe_tensor value = rt::tensor(own, dims);
  ASSERT_EQ(lathe_state_write(gpu.context.get(), "s", &value), nullptr);
  gpu.run({rt::tensor(x, dims)}, {&y, 1});
  EXPECT_EQ(static_cast<const float *>(y.data)[0], 9);
  EXPECT_EQ(state(), x);
  Dims two = {2, 2};
  value = rt::tensor(own, two);
  for (auto [name, tensor] : {std::pair("s", &value), std::pair("none", &value), std::pair("s", (lathe_tensor *)nullptr)}) {
    lathe_error *e = lathe_state_write(gpu.context.get(), name, tensor);
    EXPECT_EQ(lathe_error_code(e), LATHE_USAGE) << name;
    lathe_error_free(e);
  }
}

TEST(Submit, AKernelWithoutEndEndsInATypedError) {
  fakeGpu().reset();
  lathe_options o{};
  o.deadline_ms = 5;
  {
    Gpu gpu({makeScalePlan("sm_90a", true)}, o);
    std::vector<float> x = makeInput(4);
    Dims dims = {4, 4};
    lathe_tensor y{}, z{};
    gpu.run({rt::tensor(x, dims)}, {&y, 1});
    fakeGpu().held = true;
    gpu.run({rt::tensor(x, dims)}, {&y, 1}, LATHE_DEADLINE);
    wait(gpu.context, 0, LATHE_DEADLINE);
    submit(gpu.context, {rt::tensor(x, dims)}, z); // nothing waits
    lathe_error *e = lathe_state_truncate(gpu.context.get(), "none", 0);
    EXPECT_EQ(lathe_error_code(e), LATHE_DEADLINE);
    lathe_error_free(e);
  } // returns
  EXPECT_EQ(fakeGpu().blockingCalls, 0u) << "no call that a driver would block in";
  fakeGpu().release();
}

/// y = x, behind the custom call "hold".
Plan holdPlan(bool cuda) {
  Plan p = emptyPlan();
  int32_t x = addInput(p, "x", DType::F32, {4});
  int32_t y = addOutput(p, "y", DType::F32, {4});
  p.blocks[0].push_back(Step{CustomCallStep{"hold", {}, {x}, {y}}, {"Hold_0"}});
  return cuda ? onGpu(p) : p;
}
struct Hold {
  std::atomic<bool> open{false};
  std::atomic<int> calls{0};
  static const char *call(void *user, const lathe_call *c) {
    auto *hold = static_cast<Hold *>(user);
    ++hold->calls;
    while (!hold->open)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::memcpy(c->outputs[0].data, c->inputs[0].data, 16);
    return nullptr;
  }
};

TEST(Submit, CodeWithoutEndIsLeftBehindOnTheCpu) {
  static Hold hold; // outlives the thread that is left behind
  lathe_options o{};
  o.deadline_ms = 5;
  std::vector<float> x = {1, 2, 3, 4};
  Dims dims = {4};
  lathe_tensor y{};
  {
    Cpu cpu({holdPlan(false)}, o);
    ASSERT_EQ(lathe_context_register_call(cpu.context.get(), "hold", Hold::call, &hold), nullptr);
    uint64_t step = submit(cpu.context, {rt::tensor(x, dims)}, y);
    while (hold.calls == 0) // on a busy machine a thread begins later than the deadline
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    wait(cpu.context, step, LATHE_DEADLINE);
  } // returns
  EXPECT_EQ(hold.calls, 1);
  hold.open = true;
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
}

/// A step that was queued before the wait for another does not get the memory of its results.
TEST(Submit, ResultsOutliveStepsThatWereQueuedBeforeTheWait) {
  struct Gate {
    std::atomic<int> allowed{0}, calls{0};
  } gate;
  Cpu cpu({holdPlan(false)});
  auto call = [](void *user, const lathe_call *c) -> const char * {
    auto &gate = *static_cast<Gate *>(user);
    for (int number = ++gate.calls; gate.allowed < number;)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::memcpy(c->outputs[0].data, c->inputs[0].data, 16);
    return nullptr;
  };
  ASSERT_EQ(lathe_context_register_call(cpu.context.get(), "hold", call, &gate), nullptr);
  Dims dims = {4};
  std::vector<lathe_tensor> y(4);
  std::vector<uint64_t> steps;
  std::vector<std::vector<float>> x;
  for (int i = 0; i < 3; ++i) {
    x.push_back(std::vector<float>(4, static_cast<float>(i)));
    steps.push_back(submit(cpu.context, {rt::tensor(x[i], dims)}, y[i]));
  }
  gate.allowed = 1;
  wait(cpu.context, steps[0]);
  gate.allowed = 3;
  while (!ended(cpu.context, steps[2]))
    std::this_thread::yield();
  EXPECT_EQ(valuesOf(y[0]), x[0]);
  wait(cpu.context, steps[1]);
  EXPECT_EQ(valuesOf(y[1]), x[1]);
  wait(cpu.context, steps[2]);
  EXPECT_EQ(valuesOf(y[2]), x[2]);
}

TEST(Submit, CancelsFromAnyThread) {
  for (bool cuda : {false, true}) {
    Hold hold;
    installKernels();
    rt::Engine engine = openEngine(
        makeEngine({holdPlan(cuda)}, cuda ? packArchive({{"none", ""}}) : cpuImage()));
    rt::Context context;
    rt::Error made = context.create(engine, cuda ? "fake:0" : "cpu", 1);
    ASSERT_FALSE(made) << made.message();
    ASSERT_EQ(lathe_context_register_call(context.get(), "hold", Hold::call, &hold), nullptr);
    std::vector<float> x = {1, 2, 3, 4};
    Dims dims = {4};
    std::vector<lathe_tensor> y(4);
    std::vector<uint64_t> steps;
    for (int i = 0; i < 3; ++i)
      steps.push_back(submit(context, {rt::tensor(x, dims)}, y[i]));
    while (hold.calls == 0)
      std::this_thread::yield();
    std::thread other([&] { context.cancel(steps[1]); });
    other.join();
    hold.open = true;
    wait(context, steps[0]);
    EXPECT_EQ(valuesOf(y[0]), x);
    wait(context, steps[1], LATHE_CANCELLED);
    wait(context, steps[2], LATHE_CANCELLED);
    uint64_t next = submit(context, {rt::tensor(x, dims)}, y[3]);
    wait(context, next);
    EXPECT_EQ(valuesOf(y[3]), x);
    EXPECT_EQ(hold.calls, 2);
  }
}

/// Fake device memory of the caller.
struct Memory {
  runtime::cuda::CUdeviceptr address = 0;
  explicit Memory(size_t bytes) { runtime::cuda::fakeDriver().cuMemAlloc(&address, bytes); }
  ~Memory() { runtime::cuda::fakeDriver().cuMemFree(address); }
  float *data() const { return reinterpret_cast<float *>(address); }
};

TEST(Submit, ChangesTheNodesOfAGraph) {
  Plan plan = makeScalePlan("sm_90a", true);
  plan.outputs.push_back({"copy", DType::F32, {DimExpr::symbol("B"), 4}, 4, -1});
  plan.buffers.push_back(
      makeBuffer("copy", BufferKind::Output, 1, DType::F32, {DimExpr::symbol("B"), 4}));
  plan.blocks[0].push_back(Step{CopyStep{0, 4}, {"Identity_3"}});
  Gpu gpu({plan});
  Dims dims = {8, 4};
  Memory ins[] = {Memory(128), Memory(128), Memory(128)}, outs[] = {Memory(128), Memory(128)},
         copies[] = {Memory(128), Memory(128)};
  for (int i = 0; i < 12; ++i) {
    std::vector<float> x = makeInput(8);
    x[3] = static_cast<float>(i);
    Memory &in = ins[i % 3], &out = outs[i % 2], &copy = copies[i / 2 % 2];
    std::copy(x.begin(), x.end(), in.data());
    lathe_tensor given = rt::tensor(x, dims);
    given.data = in.data();
    given.memory = LATHE_DEVICE;
    lathe_tensor y[2] = {{out.data(), 128, LATHE_F32, LATHE_DEVICE, 0, nullptr, nullptr},
                         {copy.data(), 128, LATHE_F32, LATHE_DEVICE, 0, nullptr, nullptr}};
    gpu.run({given}, y);
    ASSERT_EQ(y[0].data, out.data());
    ASSERT_EQ(valuesOf(y[0]), scaled(x)) << i;
    ASSERT_EQ(valuesOf(y[1]), x) << i;
  }
  lathe_counters c = gpu.context.counters();
  EXPECT_EQ(c.graphs_captured, 1u);
  EXPECT_EQ(c.graph_nodes_updated, fakeGpu().nodeUpdates);
  EXPECT_EQ(c.graph_nodes_updated, 11u * 3) << "the temporary's memory is the context's";
  // Where the driver tells no nodes the graph is captured again.
  auto &table = const_cast<runtime::cuda::Driver &>(runtime::cuda::fakeDriver());
  auto kept = std::exchange(table.cuStreamGetCaptureInfo, nullptr);
  std::vector<float> x = makeInput(8);
  std::copy(x.begin(), x.end(), ins[1].data());
  lathe_tensor given = rt::tensor(x, dims), y[2] = {};
  given.data = ins[1].data();
  given.memory = LATHE_DEVICE;
  gpu.run({given}, y);
  EXPECT_EQ(valuesOf(y[0]), scaled(x));
  table.cuStreamGetCaptureInfo = kept;
}

/// Of the driver a submission of a captured graph asks for its launch and an event, once in the
/// context; it does not ask how far the steps ahead are.
TEST(Submit, AsksLittleOfTheDriver) {
  Gpu gpu({makeScalePlan("sm_90a", true)});
  std::vector<float> x = makeInput(4);
  Dims dims = {4, 4};
  std::vector<lathe_tensor> y(4);
  for (lathe_tensor &t : y) // a graph for each place
    submit(gpu.context, {rt::tensor(x, dims)}, t);
  wait(gpu.context, 0);
  static int pushes, queries, records, launches;
  pushes = queries = records = launches = 0;
  auto &table = const_cast<runtime::cuda::Driver &>(runtime::cuda::fakeDriver());
  static const runtime::cuda::Driver kept = table;
  table.cuCtxPushCurrent = [](runtime::cuda::CUcontext c) { return ++pushes, kept.cuCtxPushCurrent(c); };
  table.cuEventQuery = [](runtime::cuda::CUevent e) { return ++queries, kept.cuEventQuery(e); };
  table.cuEventRecord = [](runtime::cuda::CUevent e, runtime::cuda::CUstream s) {
    return ++records, kept.cuEventRecord(e, s);
  };
  table.cuGraphLaunch = [](runtime::cuda::CUgraphExec g, runtime::cuda::CUstream s) {
    return ++launches, kept.cuGraphLaunch(g, s);
  };
  for (lathe_tensor &t : y) {
    t = {};
    submit(gpu.context, {rt::tensor(x, dims)}, t);
  }
  EXPECT_EQ(pushes, 4);
  EXPECT_EQ(launches, 4);
  EXPECT_EQ(records, 4);
  EXPECT_EQ(queries, 0);
  table = kept;
  wait(gpu.context, 0);
  for (const lathe_tensor &t : y)
    EXPECT_EQ(valuesOf(t), scaled(x));
}

TEST(Submit, KeepsHundredsOfGraphs) {
  Gpu gpu({makeScalePlan("sm_90a", true)});
  for (int round = 0; round < 2; ++round)
    for (int64_t b = 500; b > 0; --b) {
      std::vector<float> x = makeInput(b);
      Dims dims = {b, 4};
      lathe_tensor y{};
      gpu.run({rt::tensor(x, dims)}, {&y, 1});
      expectScaled(y, x);
    }
  lathe_counters c = gpu.context.counters();
  EXPECT_EQ(c.graphs_captured, 500u);
  EXPECT_EQ(c.graphs, 500u);
  EXPECT_EQ(c.graph_launches, 1000u);
  EXPECT_GT(c.graph_bytes, 500u * 1024);
}

TEST(Submit, BoundsTheMemoryOfGraphs) {
  lathe_options o{};
  o.max_graph_bytes = 64 << 10;
  Gpu gpu({makeScalePlan("sm_90a", true)}, o);
  for (int64_t b = 500; b > 0; --b) {
    std::vector<float> x = makeInput(b);
    Dims dims = {b, 4};
    lathe_tensor y{};
    gpu.run({rt::tensor(x, dims)}, {&y, 1});
    expectScaled(y, x);
  }
  EXPECT_LE(gpu.context.counters().graph_bytes, 68u << 10);
}

TEST(Submit, CapturesAtStart) {
  Gpu gpu({makeScalePlan("sm_90a", true)});
  std::vector<float> x = makeInput(6);
  Dims dims = {6, 4};
  lathe_tensor in = rt::tensor(x, dims), y{};
  rt::Error e = gpu.context.warm("", {&in, 1}, {&y, 1});
  ASSERT_FALSE(e) << e.message();
  EXPECT_EQ(gpu.context.counters().graphs_captured, 1u);
  EXPECT_TRUE(fakeGpu().launches.empty());
  gpu.run({in}, {&y, 1});
  expectScaled(y, x);
  EXPECT_EQ(gpu.context.counters().graphs_captured, 1u);
}

TEST(Submit, WaitsForEventsAndRecordsOne) {
  using namespace runtime::cuda;
  const Driver &driver = fakeDriver();
  Gpu gpu({makeScalePlan("sm_90a", true)});
  std::vector<float> x = makeInput(4);
  Dims dims = {4, 4};
  lathe_tensor y{}, in = rt::tensor(x, dims);
  gpu.run({in}, {&y, 1});
  CUevent ready = nullptr, done = nullptr;
  driver.cuEventCreate(&ready, 2);
  driver.cuEventCreate(&done, 2);
  CUstream mine = nullptr;
  driver.cuStreamCreate(&mine, 1);
  fakeGpu().held = true;
  driver.cuEventRecord(ready, mine);
  void *waits[] = {ready};
  lathe_submit_options o{sizeof o, 1, waits, done};
  uint64_t step = 0;
  y = {};
  rt::Error e = gpu.context.submit("", {&in, 1}, {&y, 1}, step, &o);
  ASSERT_FALSE(e) << e.message();
  EXPECT_NE(driver.cuEventQuery(done), 0);
  fakeGpu().release();
  EXPECT_EQ(driver.cuEventQuery(done), 0);
  wait(gpu.context, step);
  expectScaled(y, x);
  driver.cuStreamDestroy(mine);
  driver.cuEventDestroy(ready);
  driver.cuEventDestroy(done);
  Cpu cpu({makeScalePlan("x86-64-v2", false)});
  EXPECT_EQ(cpu.context.submit("", {&in, 1}, {&y, 1}, step, &o).code(), LATHE_UNSUPPORTED);
}

TEST(Submit, BoundsTheNumberOfSteps) {
  Cpu cpu({makeScalePlan("x86-64-v2", false)});
  std::vector<float> x = makeInput(1);
  Dims dims = {1, 4};
  std::vector<lathe_tensor> y(65);
  for (int i = 0; i < 64; ++i)
    submit(cpu.context, {rt::tensor(x, dims)}, y[i]);
  submit(cpu.context, {rt::tensor(x, dims)}, y[64], LATHE_USAGE);
  wait(cpu.context, 64);
  for (int i = 0; i < 64; ++i)
    EXPECT_EQ(valuesOf(y[i]), scaled(x));
  EXPECT_EQ(cpu.context.wait(65).code(), LATHE_USAGE);
}

TEST(Submit, ContextsOnManyThreads) {
  rt::Engine engine = openEngine(makeEngine({makeScalePlan("x86-64-v2", false)}, cpuImage()));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      rt::Context context;
      ASSERT_FALSE(context.create(engine, "cpu", 1));
      checkPipeline(context);
    });
  for (std::thread &t : threads)
    t.join();
}

TEST(Group, OneStepOnAllDevices) {
  for (bool cuda : {false, true}) {
    installKernels();
    rt::Engine engine = openEngine(
        cuda ? makeEngine({onGpu(makeAppendPlan("decode"))}, fakeImages())
             : makeEngine({makeAppendPlan("decode")}, cpuImage()));
    rt::Group group;
    lathe_options o{};
    o.size = sizeof o;
    o.threads = 1;
    rt::Error e = group.create(
        engine, cuda ? std::vector<std::string>{"fake:0", "fake:1"} : std::vector<std::string>{"cpu", "cpu"}, o);
    ASSERT_FALSE(e) << e.message();
    std::vector<float> x(8 * 4, 1.0f), other(8 * 4, 2.0f);
    Dims one = {1, 1, 4}, six = {1, 6, 4};
    auto length = [&](size_t member) {
      int64_t n = -1;
      EXPECT_EQ(lathe_state_length(group.member(member), "kv", &n), nullptr);
      return n;
    };
    std::vector<lathe_tensor> y(2);
    std::vector<lathe_tensor> in = {rt::tensor(x, one), rt::tensor(other, six)};
    uint64_t step = 0, behind = 0;
    e = group.submit("", in, y, step);
    ASSERT_FALSE(e) << e.message();
    e = group.wait(step);
    ASSERT_FALSE(e) << e.message();
    EXPECT_EQ(y[0].dims[1], 1);
    EXPECT_EQ(y[1].dims[1], 6);
    EXPECT_EQ(valuesOf(y[0])[0], 1.0f);
    EXPECT_EQ(length(1), 6);
    // The second has no room for six more: the first has not done the step either.
    std::vector<lathe_tensor> z(2), w(2);
    rt::Error submitted = group.submit("", in, z, step);
    if (!submitted) {
      e = group.submit("", in, w, behind);
      ASSERT_FALSE(e) << e.message();
      rt::Error failed = group.wait(step);
      EXPECT_EQ(failed.code(), LATHE_RUNTIME_FAILURE);
      EXPECT_NE(failed.message().find("device 1 (cpu)"), std::string::npos) << failed.message();
      EXPECT_EQ(group.wait(behind).code(), LATHE_CANCELLED);
    } else { // a GPU's sizes are checked at once
      EXPECT_NE(submitted.message().find("device 1 (fake:1)"), std::string::npos);
    }
    EXPECT_EQ(length(0), 1);
    EXPECT_EQ(length(1), 6);
    in[1] = rt::tensor(other, one);
    e = group.submit("", in, z, step);
    ASSERT_FALSE(e) << e.message();
    e = group.wait();
    ASSERT_FALSE(e) << e.message();
    EXPECT_EQ(length(0), 2);
    EXPECT_EQ(length(1), 7);
    EXPECT_EQ(lathe_group_member(group.get(), 2), nullptr);
  }
}

} // namespace
