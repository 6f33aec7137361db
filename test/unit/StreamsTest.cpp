//===- StreamsTest.cpp - plans of several streams ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What such a plan must say is checked when it is read and at each size; the fake GPU runs it in
// orders that its events leave open.
//
//===----------------------------------------------------------------------===//

#include "FakeGpuFixture.h"

#include <array>
#include <set>

using namespace lathe;
using namespace lathe::engine;
using namespace lathe::test;

namespace {

/// a = relu(x), b = relu(x) on a stream of its own, y = a * b[i % 4] + a.
Plan twoStreams() {
  DimExpr n = DimExpr::symbol("N");
  Plan p = emptyPlan();
  int32_t x = addInput(p, "x", DType::F32, {n});
  int32_t y = addOutput(p, "y", DType::F32, {n});
  p.arenas.push_back({n * 8 + 512, false});
  int32_t a = addBuffer(p, makeBuffer("a", BufferKind::Arena, 0, DType::F32, {n}));
  int32_t b = addBuffer(p, makeBuffer("b", BufferKind::Arena, 0, DType::F32, {n},
                                      DimExpr::ceilDiv(n * 4, 256) * 256));
  p.kernels = {makeKernel("relu", 2), makeKernel("scale_add", 3)};
  p.resources.streams = {0, 0};
  p.resources.events = 1;
  p.blocks[0] = {Step{LaunchStep{0, {x, a}, {n}}, {"Relu_0"}},
                 Step{LaunchStep{0, {x, b}, {n}}, {"Relu_1"}, 1, {}, 0},
                 Step{LaunchStep{1, {a, b, y}, {n}}, {"Mul_2"}, 0, {0}, -1}};
  return onGpu(p);
}

TEST(Streams, RunBesideEachOther) {
  for (bool graphs : {true, false}) {
    Gpu gpu({twoStreams()}, graphs);
    for (int64_t n : {8, 40, 8}) {
      std::vector<float> x = makeInput(n / 4);
      Dims dims = {n};
      lathe_tensor y{};
      gpu.run({rt::tensor(x, dims)}, {&y, 1});
      for (int64_t i = 0; i < n; ++i) {
        float a = std::max(x[i], 0.0f), b = std::max(x[i % 4], 0.0f);
        ASSERT_EQ(static_cast<const float *>(y.data)[i], a * b + a);
      }
      const auto &l = fakeGpu().launches;
      EXPECT_NE(l[l.size() - 3].stream, l[l.size() - 2].stream);
      EXPECT_EQ(l[l.size() - 3].stream, l[l.size() - 1].stream);
    }
    EXPECT_EQ(gpu.context.counters().graphs_captured, graphs ? 3u : 0u) << "8, 40 and 8 after growth";
  }
}

/// Where the launches of other streams write nothing, the others do not wait for events.
TEST(Streams, TakeOneWhereTheOthersHaveNothing) {
  const DimExpr n = DimExpr::symbol("N"), part = DimExpr::min(DimExpr::floorDiv(n, 16), 1) * 8;
  Plan p = emptyPlan();
  const int32_t x = addInput(p, "x", DType::F32, {n}), y = addOutput(p, "y", DType::F32, {n});
  const int32_t z = addOutput(p, "z", DType::F32, {part});
  p.arenas.push_back({n * 8 + 512, false});
  const int32_t a = addBuffer(p, makeBuffer("a", BufferKind::Arena, 0, DType::F32, {n}));
  const int32_t b =
      addBuffer(p, makeBuffer("b", BufferKind::Arena, 0, DType::F32, {part}, DimExpr::ceilDiv(n * 4, 256) * 256));
  p.kernels = {makeKernel("relu", 2)};
  p.kernels[0].variants[0].launches[0].programmaticDependent = true;
  p.resources.streams = {0, 0};
  p.resources.events = 1;
  p.blocks[0] = {Step{LaunchStep{0, {x, a}, {n}}, {"Relu_0"}}, Step{LaunchStep{0, {x, b}, {part}}, {"Relu_1"}, 1, {}, 0},
                 Step{LaunchStep{0, {a, y}, {n}}, {"Relu_2"}, 0, {0}, -1}, Step{LaunchStep{0, {b, z}, {part}}, {"Relu_3"}}};
  for (bool graphs : {true, false}) {
    Gpu gpu({onGpu(p)}, graphs);
    for (int64_t count : {8, 40, 8}) {
      std::vector<float> in = makeInput(count / 4);
      Dims dims = {count};
      std::array<lathe_tensor, 2> out{};
      fakeGpu().launches.clear();
      gpu.run({rt::tensor(in, dims)}, out);
      for (int64_t i = 0; i < count; ++i)
        ASSERT_EQ(static_cast<const float *>(out[0].data)[i], std::max(in[i], 0.0f));
      EXPECT_EQ(out[1].bytes, count < 16 ? 0u : 32u);
      const auto &launches = fakeGpu().launches;
      ASSERT_EQ(launches.size(), count < 16 ? 2u : 4u);
      EXPECT_EQ(launches[1].stream == launches[0].stream, count < 16);
      EXPECT_EQ(launches[count < 16 ? 1 : 2].programmatic, count < 16) << "it waits for an event, or for the launch ahead";
    }
  }
}

TEST(Streams, RefusesWhatNoEventOrders) {
  auto refused = [](Plan p) {
    Status s = verify(p);
    EXPECT_EQ(s.code(), ErrorCode::Invalid);
    return s.message();
  };
  ASSERT_TRUE(verify(twoStreams()).ok());
  Plan race = twoStreams();
  race.blocks[0][2].waits.clear();
  EXPECT_NE(refused(race).find("beside a step of another stream"), std::string::npos);
  // An event that is taken out, here that before the step that reads both.
  Plan open = twoStreams();
  open.blocks[0][1].signal = -1;
  EXPECT_NE(refused(open).find("no earlier step signals"), std::string::npos);
  Plan unknown = twoStreams();
  unknown.blocks[0][2].waits = {0, 7};
  EXPECT_NE(refused(unknown).find("no earlier step signals"), std::string::npos);
  Plan twice = twoStreams();
  twice.blocks[0][0].signal = 0;
  refused(twice);
  Plan none = twoStreams();
  none.blocks[0][1].stream = 2;
  refused(none);
  Plan cpu = twoStreams();
  cpu.cuda = false;
  refused(cpu);
}

/// What steps of different streams touch shares no bytes, at any size.
TEST(Streams, RefusesMemoryThatNoEventOrders) {
  Plan p = twoStreams();
  EXPECT_EQ(buffersBeside(p), (std::vector<std::pair<int32_t, int32_t>>{{2, 3}}));
  p.buffers[3].offset = 0;
  Status s = verify(p);
  EXPECT_EQ(s.code(), ErrorCode::Invalid);
  EXPECT_NE(s.message().find("shares bytes with buffer 'a'"), std::string::npos) << s.str();
  EXPECT_EQ(s.location(), "buffer 3 'b'");
  // Ordered, they may: the second product begins when the first has been read.
  p.resources.events = 2;
  p.blocks[0] = {Step{LaunchStep{0, {0, 2}, {DimExpr::symbol("N")}}, {}},
                 Step{LaunchStep{0, {2, 1}, {DimExpr::symbol("N")}}, {}, 0, {}, 0},
                 Step{LaunchStep{0, {0, 3}, {DimExpr::symbol("N")}}, {}, 1, {0}, -1}};
  EXPECT_TRUE(verify(p).ok()) << verify(p).str();
  EXPECT_TRUE(buffersBeside(p).empty());
  p.blocks[0][2].waits.clear();
  EXPECT_FALSE(verify(p).ok());
  // At the best size there is room, at others not.
  Plan grows = twoStreams();
  grows.buffers[3].offset = 256;
  ASSERT_TRUE(verify(grows).ok());
  Gpu gpu({grows});
  for (int64_t n : {64, 65}) {
    std::vector<float> x(static_cast<size_t>(n), 1.0f);
    Dims dims = {n};
    lathe_tensor y{};
    std::string message =
        gpu.run({rt::tensor(x, dims)}, {&y, 1}, n == 64 ? LATHE_OK : LATHE_INVALID);
    if (n == 65)
      EXPECT_NE(message.find("shares bytes with buffer 'a'"), std::string::npos) << message;
  }
}

/// Three chains of four launches and copies, joined in pairs; the last stream ends by itself.
Plan threeStreams() {
  DimExpr n = DimExpr::symbol("N");
  Plan p = emptyPlan();
  int32_t x = addInput(p, "x", DType::F32, {n});
  int32_t y = addOutput(p, "y", DType::F32, {n}), z = addOutput(p, "z", DType::F32, {n});
  DimExpr line = DimExpr::ceilDiv(n * 4, 256) * 256;
  p.arenas.push_back({line * 6, false});
  int32_t t[6];
  for (int i = 0; i < 6; ++i)
    t[i] = addBuffer(p, makeBuffer("t" + std::to_string(i), BufferKind::Arena, 0, DType::F32, {n},
                                   line * i));
  p.kernels = {makeKernel("relu", 2), makeKernel("scale_add", 3)};
  p.resources.streams = {0, 0, 0};
  p.resources.events = 3;
  p.blocks[0] = {Step{LaunchStep{0, {x, t[0]}, {n}}, {}, 0, {}, 0},
                 Step{LaunchStep{1, {x, x, t[1]}, {n}}, {}, 1},
                 Step{LaunchStep{1, {t[0], x, t[2]}, {n}}, {}, 2, {0}, 2},
                 Step{LaunchStep{1, {t[1], t[0], t[3]}, {n}}, {}, 1, {0}, 1},
                 Step{LaunchStep{1, {t[0], x, t[4]}, {n}}, {}, 0},
                 Step{LaunchStep{1, {t[4], t[3], y}, {n}}, {}, 0, {1}},
                 // t5 lies where t1 did.
                 Step{LaunchStep{1, {t[2], t[0], t[5]}, {n}}, {}, 2, {1}},
                 Step{CopyStep{t[5], z}, {}, 2}};
  p.buffers[t[5]].offset = p.buffers[t[1]].offset;
  return onGpu(p);
}

TEST(Streams, KeepTheirOrderInAnyInterleaving) {
  std::vector<float> results[2];
  auto run = [&](Gpu &gpu, std::vector<float> *into) {
    std::vector<float> x = {3, -1, 2, 5, 4, -2, 1, 7};
    Dims dims = {8};
    lathe_tensor out[2] = {};
    fakeGpu().held = true;
    uint64_t step = 0;
    rt::Error e = gpu.context.submit("", std::array{rt::tensor(x, dims)}, out, step);
    ASSERT_FALSE(e) << e.message();
    fakeGpu().release();
    e = gpu.context.wait(step);
    ASSERT_FALSE(e) << e.message();
    for (int i : {0, 1}) {
      const auto *p = static_cast<const float *>(out[i].data);
      into[i].assign(p, p + 8);
    }
  };
  for (bool graphs : {true, false}) {
    Gpu gpu({threeStreams()}, graphs);
    if (results[0].empty())
      run(gpu, results);
    std::set<std::vector<int>> orders;
    for (uint64_t seed = 1; seed <= 200; ++seed) {
      fakeGpu().seed = seed;
      fakeGpu().launches.clear();
      std::vector<float> now[2];
      run(gpu, now);
      for (int i : {0, 1})
        ASSERT_EQ(now[i], results[i]) << "seed " << seed;
      std::vector<int> order;
      for (const FakeLaunch &l : fakeGpu().launches)
        order.push_back(l.stream * 2 + (l.function == "relu"));
      ASSERT_EQ(order.size(), 7u);
      orders.insert(order);
    }
    EXPECT_GT(orders.size(), 10u) << "they were interleaved";
  }
  // What finds no wrong order would find this either: streams that wait for nothing.
  int wrong = 0;
  for (bool graphs : {true, false}) {
    Gpu gpu({threeStreams()}, graphs);
    for (uint64_t seed = 1; seed <= 50; ++seed) {
      fakeGpu().seed = seed;
      fakeGpu().forgetsWaits = true;
      std::vector<float> now[2];
      run(gpu, now);
      wrong += now[0] != results[0] || now[1] != results[1];
    }
    EXPECT_GT(wrong, graphs ? 10 : 20);
  }
}

/// A stream of the caller fills an input, and a step that is submitted meanwhile reads it.
TEST(Streams, StepsBeginBehindWhatTheCallersStreamHasToDo) {
  const runtime::cuda::Driver &driver = runtime::cuda::fakeDriver();
  enum class Way { Event, Stream, InputStream, Stale };
  for (bool graphs : {true, false})
    for (Way way : {Way::Event, Way::Stream, Way::InputStream, Way::Stale}) {
      Gpu gpu({makeScalePlan("sm_90a", true)}, graphs);
      runtime::cuda::CUstream callers = nullptr;
      runtime::cuda::CUevent written = nullptr;
      runtime::cuda::CUdeviceptr memory = 0;
      ASSERT_EQ(driver.cuStreamCreate(&callers, 0), 0);
      ASSERT_EQ(driver.cuEventCreate(&written, 0), 0);
      ASSERT_EQ(driver.cuMemAlloc(&memory, 64), 0);
      std::vector<float> x = makeInput(4);
      Dims dims = {4, 4};
      lathe_tensor input = rt::tensor(x, dims), y{};
      input.data = reinterpret_cast<void *>(memory);
      input.memory = LATHE_DEVICE;
      int stale = 0;
      for (uint64_t seed = 0; seed < 30; ++seed) {
        for (float &value : x)
          value += 1;
        fakeGpu().seed = seed;
        fakeGpu().held = seed > 0; // the first run makes memory
        fakeGpu().forgetsWaits = way == Way::Stale;
        ASSERT_EQ(driver.cuMemcpyHtoDAsync(memory, x.data(), 64, callers), 0);
        lathe_submit_options o{sizeof o, 0, nullptr, nullptr};
        void *events[] = {written}, *inputs = nullptr;
        rt::Error e;
        if (way == Way::Event) {
          ASSERT_EQ(driver.cuEventRecord(written, callers), 0);
          o.wait_events = events;
          o.wait_count = 1;
        } else if (way == Way::InputStream) {
          e = rt::Error(lathe_context_input_stream(gpu.context.get(), &inputs));
          ASSERT_FALSE(e) << e.message();
          ASSERT_EQ(driver.cuEventRecord(written, callers), 0);
          ASSERT_EQ(driver.cuStreamWaitEvent(static_cast<runtime::cuda::CUstream>(inputs), written, 0), 0);
        } else {
          e = gpu.context.waitFor(callers);
          ASSERT_FALSE(e) << e.message();
        }
        uint64_t step = 0;
        e = gpu.context.submit("", std::array{input}, std::span(&y, 1), step, &o);
        ASSERT_FALSE(e) << e.message();
        fakeGpu().release();
        e = gpu.context.wait(step);
        ASSERT_FALSE(e) << e.message();
        const auto *got = static_cast<const float *>(y.data);
        bool same = true;
        for (size_t i = 0; i < x.size(); ++i)
          same &= got[i] == std::max(0.0f, x[i] * static_cast<float>(i % 4 + 1) + x[i]);
        stale += !same;
      }
      if (way == Way::Stale)
        EXPECT_GT(stale, 0) << "streams that wait for nothing are found";
      else
        EXPECT_EQ(stale, 0) << "way " << int(way);
      EXPECT_EQ(gpu.context.counters().bytes_to_device, 0u);
      driver.cuMemFree(memory);
      driver.cuEventDestroy(written);
      driver.cuStreamDestroy(callers);
    }
}

TEST(Streams, TheCpuHasNone) {
  rt::Engine engine = openEngine(makeEngine({makeScalePlan("x86-64-v2", false)}, cpuImage()));
  rt::Context context;
  ASSERT_FALSE(context.create(engine));
  EXPECT_EQ(context.waitFor(nullptr).code(), LATHE_UNSUPPORTED);
}

TEST(Streams, CollectivesOfGpusHaveAPlaceAndNoCode) {
  Plan p = twoStreams();
  int32_t a = 2;
  p.blocks[0].push_back(Step{CollectiveStep{"all_reduce", 3, {a}, {a}}, {"AllReduce_0"}});
  ASSERT_TRUE(verify(p).ok());
  rt::Context context;
  rt::Engine engine;
  std::string bytes = makeEngine({p}, fakeImages());
  EXPECT_EQ(engine.openMemory(std::as_bytes(std::span(bytes))).code(), LATHE_UNSUPPORTED);
  p.blocks[0].push_back(Step{CollectiveStep{"all_reduce", 3, {a}, {a}}, {}});
  EXPECT_FALSE(verify(p).ok()) << "their order is total";
}

} // namespace
