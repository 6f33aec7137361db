//===- CudaDriverTest.cpp - the GPU path over the fake driver ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "../../runtime/device/CudaDevice.h"
#include "EngineBytes.h"
#include "FakeGpuFixture.h"

#include <cstring>

using namespace lathe;
using namespace lathe::engine;
using namespace lathe::test;
using runtime::cuda::FakeLaunch;
using runtime::cuda::fakeGpu;

namespace {

TEST(CudaDriver, RepeatedShapesAreOneGraphLaunch) {
  Gpu gpu({makeScalePlan("sm_90a", true)});
  for (int64_t b : {3, 3, 5, 3, 5}) {
    std::vector<float> x = makeInput(b);
    Dims dims = {b, 4};
    lathe_tensor y{};
    gpu.run({rt::tensor(x, dims)}, {&y, 1});
    expectScaled(y, x);
  }
  lathe_counters c = gpu.context.counters();
  EXPECT_EQ(c.runs, 5u);
  EXPECT_EQ(c.launches, 10u);
  EXPECT_EQ(c.graph_launches, 5u);
  // The second shape grew the staging memory, so the first was captured again.
  EXPECT_LE(c.graphs_captured, 3u);
  EXPECT_EQ(c.bytes_to_device, (3 + 3 + 5 + 3 + 5) * 16u);
  EXPECT_EQ(c.bytes_from_device, (3 + 3 + 5 + 3 + 5) * 16u);
  EXPECT_EQ(fakeGpu().graphLaunches, 5u);
  ASSERT_EQ(fakeGpu().launches.size(), 10u);
  EXPECT_TRUE(fakeGpu().launches[0].fromGraph);
  EXPECT_EQ(fakeGpu().launches[0].grid[0], 1u);
}

TEST(CudaDriver, RunsWithoutGraphsToo) {
  Gpu gpu({makeScalePlan("sm_90a", true)}, false);
  std::vector<float> x = makeInput(40);
  Dims dims = {40, 4};
  lathe_tensor y{};
  gpu.run({rt::tensor(x, dims)}, {&y, 1});
  expectScaled(y, x);
  EXPECT_EQ(gpu.context.counters().graph_launches, 0u);
  EXPECT_EQ(fakeGpu().launches[0].grid[0], 10u);
  EXPECT_FALSE(fakeGpu().launches[0].fromGraph);
}

TEST(CudaDriver, ManyShapesUpdateOldGraphs) {
  lathe_options options{};
  options.max_graphs = 16;
  Gpu gpu({makeScalePlan("sm_90a", true)}, options);
  for (int64_t b = 40; b > 0; --b) {
    std::vector<float> x = makeInput(b);
    Dims dims = {b, 4};
    lathe_tensor y{};
    gpu.run({rt::tensor(x, dims)}, {&y, 1});
    expectScaled(y, x);
  }
  EXPECT_EQ(fakeGpu().graphInstantiations, 16u);
  EXPECT_EQ(fakeGpu().graphUpdates, 24u);
  EXPECT_EQ(gpu.context.counters().graph_launches, 40u);
}

TEST(CudaDriver, StatesGrowWithoutCopies) {
  Gpu gpu({onGpu(makeAppendPlan("decode"))});
  std::vector<float> x = {1, 2, 3, 4};
  Dims dims = {1, 1, 4};
  lathe_tensor present{};
  present.memory = LATHE_DEVICE;
  for (int i = 0; i < 8; ++i) {
    x[0] = static_cast<float>(i);
    gpu.run({rt::tensor(x, dims)}, {&present, 1});
    EXPECT_EQ(present.dims[1], i + 1);
  }
  const auto *kv = static_cast<const float *>(present.data); // the fake's memory is the host's
  for (int i = 0; i < 8; ++i)
    EXPECT_EQ(kv[i * 4], static_cast<float>(i));
  lathe_counters c = gpu.context.counters();
  EXPECT_EQ(c.state_bytes_copied, 0u);
  EXPECT_EQ(c.state_bytes_appended, 8u * 16);
  EXPECT_EQ(c.graph_launches, 8u) << "a decode step is one graph launch";
  gpu.run({rt::tensor(x, dims)}, {&present, 1}, LATHE_RUNTIME_FAILURE);
  ASSERT_FALSE(gpu.context.truncate("kv", 3));
  lathe_tensor onHost{};
  gpu.run({rt::tensor(x, dims)}, {&onHost, 1});
  EXPECT_EQ(onHost.dims[1], 4);
  EXPECT_EQ(static_cast<const float *>(onHost.data)[12], 7);
}

TEST(CudaDriver, StatusWordsNameTheNode) {
  Gpu gpu({onGpu(makeLookUpPlan())});
  std::vector<float> table(5);
  std::vector<int64_t> index = {1, 2};
  Dims tableDims = {5}, indexDims = {2};
  lathe_tensor y{};
  gpu.run({rt::tensor(table, tableDims), rt::tensor(index, indexDims)}, {&y, 1});
  index[1] = 9;
  EXPECT_EQ(gpu.run({rt::tensor(table, tableDims), rt::tensor(index, indexDims)}, {&y, 1},
                    LATHE_RUNTIME_FAILURE),
            "node Gather_7 (kernel 'look_up'): index 9 is out of range");
  index[1] = 0;
  gpu.run({rt::tensor(table, tableDims), rt::tensor(index, indexDims)}, {&y, 1});
}

TEST(CudaDriver, EncodesTensorMapsAndLaunchAttributes) {
  Plan p = emptyPlan();
  int32_t x = addInput(p, "x", DType::BF16, {DimExpr::symbol("M"), 64});
  int32_t y = addOutput(p, "y", DType::F32, {4});
  Kernel k = makeKernel("tma", 2);
  k.symbols = {"m"};
  KernelVariant &v = k.variants[0];
  v.tensorMaps.push_back({0, {64, DimExpr::symbol("m")}, {128}, {64, 8}, 128, false, {}, {}, {}, 0});
  Launch &l = v.launches[0];
  l.args = {{KernelArg::Kind::Buffer, 1}, {KernelArg::Kind::TensorMap, 0},
            {KernelArg::Kind::Symbol, 0}};
  l.grid[0] = 4;
  l.block = {128, 1, 1};
  l.cluster = {2, 1, 1};
  l.sharedBytes = 100000;
  l.programmaticDependent = true;
  p.kernels.push_back(k);
  for (int i = 0; i < 2; ++i)
    p.blocks[0].push_back(Step{LaunchStep{0, {x, y}, {DimExpr::symbol("M")}}, {"MatMul_0"}});
  for (auto [graphs, overlap] : {std::pair(true, true), {false, true}, {true, false}}) {
    Gpu gpu({onGpu(p)}, graphs, overlap);
    uint64_t address = 0, rows = 0;
    int type = -1;
    fakeGpu().kernels["tma"] = [&](const FakeLaunch &, void **params) {
      runtime::cuda::CUtensorMap map;
      std::memcpy(&map, params[1], sizeof map);
      address = map.opaque[0];
      type = static_cast<int>(map.opaque[1]);
      rows = map.opaque[3];
    };
    std::vector<uint16_t> data(17 * 64);
    Dims dims = {17, 64};
    lathe_tensor in{data.data(), data.size() * 2, LATHE_BF16, LATHE_HOST, 2, dims.data(), nullptr};
    gpu.run({in}, {});
    EXPECT_NE(address, 0u);
    EXPECT_EQ(type, 9);
    EXPECT_EQ(rows, 17u);
    const FakeLaunch &launch = fakeGpu().launches.back();
    EXPECT_EQ(launch.cluster[0], 2u);
    EXPECT_EQ(launch.block[0], 128u);
    EXPECT_EQ(launch.sharedBytes, 100000u);
    EXPECT_EQ(launch.programmatic, overlap);
    // The first of a run waits for what is ahead of the run.
    EXPECT_FALSE(fakeGpu().launches[fakeGpu().launches.size() - 2].programmatic);
  }
}

TEST(CudaDriver, EncodesMapsOfImages) {
  Plan p = emptyPlan();
  int32_t x = addInput(p, "x", DType::F16, {DimExpr::symbol("N"), 9, 8, 64});
  int32_t y = addOutput(p, "y", DType::F32, {4});
  Kernel k = makeKernel("tma", 2);
  k.symbols = {"n"};
  KernelVariant &v = k.variants[0];
  v.tensorMaps.push_back({0, {64, 8, 9, DimExpr::symbol("n")}, {128, 1024, 9216}, {32, 100}, 64,
                          true, {-1, -2}, {-3, 0}, {1, 2, 2, 1}, 0});
  v.launches[0].args = {{KernelArg::Kind::Buffer, 1}, {KernelArg::Kind::TensorMap, 0},
                           {KernelArg::Kind::Symbol, 0}};
  p.kernels.push_back(k);
  p.blocks[0].push_back(Step{LaunchStep{0, {x, y}, {DimExpr::symbol("N")}}, {"Conv_0"}});
  Gpu gpu({onGpu(p)}, false);
  runtime::cuda::CUtensorMap map{};
  fakeGpu().kernels["tma"] = [&](const FakeLaunch &, void **params) {
    std::memcpy(&map, params[1], sizeof map);
  };
  std::vector<uint16_t> data(3 * 9 * 8 * 64);
  Dims dims = {3, 9, 8, 64};
  lathe_tensor in{data.data(), data.size() * 2, LATHE_F16, LATHE_HOST, 4, dims.data(), nullptr};
  gpu.run({in}, {});
  EXPECT_EQ(map.opaque[1], 6u);
  EXPECT_EQ(map.opaque[5], 3u); // images
  // Channels, pixels, lower corner, upper corner, step.
  EXPECT_EQ(map.opaque[7], 32ull << 40 | 100ull << 24 | 0xff << 16 | 0xfd << 8 | 2);
}

/// The driver would read past the end of the parameters.
TEST(CudaDriver, RefusesFunctionsWithOtherParameters) {
  for (const char *parameters : {"8 8", "8 8 8 8", "8 8 4", "8 128 8"}) {
    fakeGpu().reset();
    Plan p = makeScalePlan("sm_90a", true);
    p.kernels.pop_back();
    p.blocks[0].pop_back();
    p.kernels.push_back(makeKernel("relu", 2, "relu"));
    p.blocks[0].push_back(Step{LaunchStep{1, {2, 3}, {4}}, {"Relu_2"}});
    std::string images =
        packArchive({{"scale_add", "fake\nscale_add 8 8 8 8\n"},
                     {"relu", "fake\nrelu " + std::string(parameters) + "\n"}});
    rt::Context context;
    rt::Error e = context.create(openEngine(makeEngine({p}, images)), "fake:0");
    EXPECT_EQ(e.code(), LATHE_INVALID) << parameters;
    EXPECT_NE(e.message().find("parameter"), std::string::npos) << e.message();
  }
}

/// A real engine's cubins are opaque to the fake: it runs dry.
TEST(CudaDriver, RunsOpaqueImagesDry) {
  installKernels();
  rt::Engine engine = openEngine(makeEngine(
      {makeScalePlan("sm_90a", true)}, packArchive({{"scale_add", "\x7f"}, {"relu", "\x7f"}})));
  rt::Context context;
  rt::Error e = context.create(engine, "fake:0");
  ASSERT_FALSE(e) << e.message();
}

TEST(CudaDriver, ChoosesTheTargetOfTheDevice) {
  Plan hopper = makeScalePlan("sm_90a", true), ampere = makeScalePlan("sm_80", true);
  EngineWriter w("test");
  float weights[4] = {};
  ASSERT_TRUE(w.addWeight("weights", {reinterpret_cast<char *>(weights), 16}).ok());
  for (const Plan *p : {&hopper, &ampere}) {
    ASSERT_TRUE(w.addPlan(*p).ok());
    ASSERT_TRUE(w.addKernels(p->target, fakeImages()).ok());
  }
  rt::Engine engine = openEngine(*w.str());
  struct Case {
    int capability;
    const char *target;
  };
  for (Case c : {Case{90, "sm_90a"}, Case{80, "sm_80"}, Case{89, "sm_80"}, Case{100, nullptr},
                 Case{75, nullptr}}) {
    fakeGpu().reset();
    fakeGpu().capability = c.capability;
    rt::Context context;
    rt::Error e = context.create(engine, "fake:0");
    EXPECT_EQ(e.code(), c.target ? LATHE_OK : LATHE_UNSUPPORTED) << c.capability;
    if (c.target)
      EXPECT_STREQ(lathe_context_target(context.get()), c.target);
  }
}

TEST(CudaDriver, FailuresLeaveAUsableContext) {
  Gpu gpu({makeScalePlan("sm_90a", true)});
  std::vector<float> x = makeInput(6);
  Dims dims = {6, 4};
  for (const char *call :
       {"cuMemAlloc", "cuMemcpyHtoDAsync", "cuLaunchKernelEx", "cuStreamEndCapture",
        "cuGraphInstantiateWithFlags", "cuGraphLaunch", "cuMemcpyDtoHAsync", "cuEventRecord",
        "cuEventQuery"}) {
    fakeGpu().failingCall = call;
    fakeGpu().failure = std::string(call) == "cuMemAlloc" ? 2 : 999;
    lathe_tensor y{};
    rt::Error e = gpu.context.run({rt::tensor(x, dims)}, {&y, 1});
    EXPECT_EQ(e.code(), LATHE_RUNTIME_FAILURE) << call;
    fakeGpu().failingCall.clear();
    y = {};
    gpu.run({rt::tensor(x, dims)}, {&y, 1});
    expectScaled(y, x);
    // The next failure shall meet a new shape.
    dims[0] += 6;
    x = makeInput(dims[0]);
  }
}

/// Copies of results that callers give back are used again: once for each size at a time, behind all work of the device,
/// and not for much smaller results; what is kept is bounded, and goes first where memory is short.
TEST(CudaDriver, KeepsMemoryOfResults) {
  fakeGpu().reset();
  const uint64_t before = fakeGpu().allocatedBytes();
  {
    Result<std::unique_ptr<runtime::Device>> opened = runtime::CudaDevice::open(runtime::cuda::fakeDriver(), "fake", 0, nullptr);
    ASSERT_TRUE(opened.ok());
    runtime::Device &device = **opened;
    void *first = *device.allocateResult(4096), *second = *device.allocateResult(4096);
    EXPECT_NE(first, second);
    device.freeResult(first);
    EXPECT_NE(*device.allocateResult(8192), first); // too small
    EXPECT_NE(*device.allocateResult(1024), first); // a waste
    fakeGpu().failingCall = "cuCtxSynchronize";
    EXPECT_FALSE(device.allocateResult(4000).ok()); // who had it may still use it
    fakeGpu().failingCall.clear();
    EXPECT_EQ(*device.allocateResult(4000), first);
    EXPECT_NE(*device.allocateResult(4000), first);
    // More than is kept goes back to the driver.
    const uint64_t used = fakeGpu().allocatedBytes();
    const size_t large = size_t(200) << 20;
    void *one = *device.allocateResult(large), *other = *device.allocateResult(large);
    device.freeResult(one);
    EXPECT_EQ(fakeGpu().allocatedBytes(), used + 2 * large);
    device.freeResult(other);
    EXPECT_EQ(fakeGpu().allocatedBytes(), used + large);
    // Where memory is short nothing is kept.
    fakeGpu().memoryLimit = fakeGpu().allocatedBytes() + 4096;
    EXPECT_TRUE(device.allocate(large / 2).ok());
  }
  fakeGpu().reset();
  EXPECT_GE(fakeGpu().allocatedBytes(), before);
}

TEST(CudaDriver, AnyAllocationMayFail) {
  std::vector<float> x = makeInput(6);
  Dims dims = {6, 4};
  int failed = 0;
  for (int n = 0; n < 100; ++n) {
    Gpu gpu({makeScalePlan("sm_90a", true)});
    fakeGpu().failingAllocation = n;
    lathe_tensor y{};
    rt::Error e = gpu.context.run({rt::tensor(x, dims)}, {&y, 1});
    bool last = fakeGpu().failingAllocation >= 0; // not reached
    EXPECT_EQ(e.code(), last ? LATHE_OK : LATHE_RUNTIME_FAILURE) << n;
    failed += !last;
    fakeGpu().failingAllocation = -1;
    y = {};
    gpu.run({rt::tensor(x, dims)}, {&y, 1});
    expectScaled(y, x);
    if (last)
      break;
  }
  EXPECT_GE(failed, 4);
}

/// Plans with one bit changed and digests made right: errors or runs, never an access
/// out of bounds (under ASan) or a hang. The kernels here do nothing.
TEST(CudaDriver, SurvivesFlippedPlans) {
  Plan looping = onGpu(makeLoopPlan());
  looping.blocks[2].insert(looping.blocks[2].begin(),
                           Step{HostOpStep{"add", {{"axis", {0}, {}, ""}}, {1, 1}, {1}}, {}});
  looping.buffers[1].kind = BufferKind::Host; // writable: an arena instead of the input
  looping.buffers[1].index = 0;
  looping.arenas.push_back({64, true});
  looping.inputs[1].buffer = -1;
  for (const Plan &plan : {onGpu(makeAppendPlan("main")), onGpu(makePackPlan()), looping,
                           makeScalePlan("sm_90a", true)}) {
    fakeGpu().reset();
    std::string images = packArchive({{"append", ""}, {"count_positive", ""},
                                      {"pack_positive", ""}, {"increment", ""},
                                      {"scale_add", ""}, {"relu", ""}});
    const std::string original = makeEngine({plan}, images);
    auto [begin, end] = planRange(original);
    size_t ran = 0, refused = 0;
    for (size_t bit = begin * 8; bit < end * 8; bit += 5) {
      std::string bytes = original;
      bytes[bit / 8] ^= static_cast<char>(1 << bit % 8);
      resign(bytes);
      rt::Engine engine;
      rt::Context context;
      if (engine.openMemory(std::as_bytes(std::span(bytes))) ||
          context.create(engine, "fake:0")) {
        ++refused;
        continue;
      }
      // Inputs of the original plan; a changed one mostly refuses them.
      std::vector<float> x(64, 1.0f);
      int64_t trips = 2;
      bool go = true;
      std::vector<lathe_tensor> inputs;
      std::vector<Dims> dims;
      for (const Port &p : plan.inputs) {
        Dims d;
        for (const DimExpr &e : p.dims)
          d.push_back(e.constant().value_or(2));
        dims.push_back(d);
      }
      for (size_t i = 0; i < plan.inputs.size(); ++i) {
        DType t = plan.inputs[i].dtype;
        void *data = t == DType::I64    ? static_cast<void *>(&trips)
                     : t == DType::Bool ? static_cast<void *>(&go)
                                        : x.data();
        inputs.push_back({data, t == DType::I64 ? 8u : t == DType::Bool ? 1u : 256u,
                          static_cast<lathe_dtype>(t), LATHE_HOST,
                          static_cast<int32_t>(dims[i].size()), dims[i].data(), nullptr});
      }
      std::vector<lathe_tensor> outputs(plan.outputs.size());
      rt::Error e = context.run("", inputs, outputs);
      EXPECT_NE(e.code(), LATHE_INTERNAL) << bit << " " << e.message();
      ++(e ? refused : ran);
    }
    EXPECT_GT(ran, 0u);
    EXPECT_GT(refused, ran);
  }
}

/// Results stay on the device and go back in.
TEST(CudaDriver, ChainsOnTheDevice) {
  Gpu gpu({makeScalePlan("sm_90a", true)});
  std::vector<float> x = makeInput(3);
  Dims dims = {3, 4};
  lathe_tensor first{}, second{};
  first.memory = LATHE_DEVICE;
  gpu.run({rt::tensor(x, dims)}, {&first, 1});
  std::vector<float> between(static_cast<const float *>(first.data),
                             static_cast<const float *>(first.data) + 12);
  lathe_context_reset_counters(gpu.context.get());
  gpu.run({first}, {&second, 1});
  expectScaled(second, between);
  EXPECT_EQ(gpu.context.counters().bytes_to_device, 0u);
}

TEST(CudaDriver, AnIllegalAddressLosesTheDevice) {
  Gpu gpu({makeScalePlan("sm_90a", true)});
  std::vector<float> x = makeInput(6);
  Dims dims = {6, 4};
  lathe_tensor y{};
  fakeGpu().failingCall = "cuGraphLaunch";
  fakeGpu().failure = 700;
  gpu.run({rt::tensor(x, dims)}, {&y, 1}, LATHE_RUNTIME_FAILURE);
  fakeGpu().failingCall.clear();
  EXPECT_NE(gpu.run({rt::tensor(x, dims)}, {&y, 1}, LATHE_RUNTIME_FAILURE).find("lost"),
            std::string::npos);
}

TEST(CudaDriver, FreesAllMemory) {
  uint64_t before = fakeGpu().allocatedBytes();
  {
    Gpu gpu({onGpu(makeAppendPlan("decode"))});
    std::vector<float> x(4);
    Dims dims = {1, 1, 4};
    gpu.run({rt::tensor(x, dims)}, {});
    EXPECT_GT(fakeGpu().allocatedBytes(), before);
  }
  EXPECT_EQ(fakeGpu().allocatedBytes(), before);
}

TEST(CudaDriver, TapsAndProfilesOnTheDevice) {
  Gpu gpu({makeScalePlan("sm_90a", true)});
  std::vector<float> x = makeInput(2);
  Dims dims = {2, 4};
  std::vector<float> last;
  lathe_context_set_tap(
      gpu.context.get(),
      [](void *user, const lathe_tap *tap) {
        const lathe_tensor &t = tap->tensors[tap->count - 1];
        const auto *p = static_cast<const float *>(t.data);
        static_cast<std::vector<float> *>(user)->assign(p, p + 8);
      },
      &last);
  lathe_context_profile(gpu.context.get(), 1);
  lathe_tensor y{};
  gpu.run({rt::tensor(x, dims)}, {&y, 1});
  expectScaled(y, x);
  EXPECT_EQ(std::memcmp(last.data(), y.data, 32), 0);
  EXPECT_EQ(gpu.context.counters().graph_launches, 0u);
  size_t count = 0;
  const lathe_profile_row *rows = lathe_context_profile_rows(gpu.context.get(), &count);
  ASSERT_EQ(count, 2u);
  EXPECT_DOUBLE_EQ(rows[0].seconds, 0.5e-3);
}

TEST(CudaDriver, BindsSizesThroughTheHost) {
  Gpu gpu({onGpu(makePackPlan())});
  fakeGpu().kernels["count_positive"] = [](const FakeLaunch &, void **p) {
    *parameter<int64_t *>(p, 1) = 3;
  };
  fakeGpu().kernels["pack_positive"] = [](const FakeLaunch &, void **p) {
    auto *out = parameter<float *>(p, 1);
    out[0] = 1, out[1] = 2, out[2] = 3;
  };
  std::vector<float> x(10);
  Dims dims = {10};
  lathe_tensor y{};
  rt::Error e = gpu.context.run({rt::tensor(x, dims)}, {&y, 1});
  ASSERT_FALSE(e) << e.message();
  EXPECT_EQ(y.dims[0], 3);
  EXPECT_EQ(static_cast<const float *>(y.data)[2], 3);
  EXPECT_EQ(gpu.context.counters().graph_launches, 0u);
}

TEST(CudaDriver, WithoutADriverThereIsATypedError) {
  rt::Engine engine = openEngine(makeEngine({makeScalePlan("sm_90a", true)}, fakeImages()));
  rt::Context context;
  rt::Error e = context.create(engine, "cuda:99");
  EXPECT_EQ(e.code(), LATHE_UNSUPPORTED) << e.message();
}

} // namespace
