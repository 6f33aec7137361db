//===- SegmentsTest.cpp - graphs between steps of the host ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Programs with sizes, branches and loops of the run on the fake GPU: what is captured and launched,
// and that it does the same as without graphs.
//
//===----------------------------------------------------------------------===//

#include "FakeGpuFixture.h"

#include <algorithm>
#include <ostream>

using namespace lathe;
using namespace lathe::engine;
using namespace lathe::test;

namespace {

/// y[K] = relu of the positive elements of x[N], with a temporary between; K arrives at run time.
Plan makeSizesPlan() {
  DimExpr n = DimExpr::symbol("N"), k = DimExpr::symbol("K");
  Plan p = makePackPlan();
  p.arenas.push_back({k * 4, false});
  int32_t t = addBuffer(p, makeBuffer("t", BufferKind::Arena, 2, DType::F32, {k}));
  p.kernels.push_back(makeKernel("relu", 2));
  auto &last = std::get<LaunchStep>(p.blocks[0].back().op);
  int32_t out = last.buffers[1];
  last.buffers[1] = t;
  p.blocks[0].push_back(Step{LaunchStep{2, {t, out}, {k}}, {"Relu_2"}});
  return onGpu(p);
}

void installPacking() {
  fakeGpu().kernels["count_positive"] = [](const FakeLaunch &, void **p) {
    auto *x = parameter<const float *>(p, 0);
    *parameter<int64_t *>(p, 1) =
        std::count_if(x, x + parameter<int64_t>(p, 2), [](float v) { return v > 0; });
  };
  fakeGpu().kernels["pack_positive"] = [](const FakeLaunch &, void **p) {
    auto *x = parameter<const float *>(p, 0);
    std::copy_if(x, x + parameter<int64_t>(p, 2), parameter<float *>(p, 1),
                 [](float v) { return v > 0; });
  };
}

/// Elements of which the first `positive` are.
std::vector<float> mixed(int64_t n, int64_t positive) {
  std::vector<float> x(static_cast<size_t>(n), -1.0f);
  for (int64_t i = 0; i < positive; ++i)
    x[static_cast<size_t>(i)] = static_cast<float>(10 * positive + i);
  return x;
}

void runSizes(Gpu &gpu, int64_t n, int64_t positive) {
  std::vector<float> x = mixed(n, positive);
  Dims dims = {n};
  lathe_tensor y{};
  gpu.run({rt::tensor(x, dims)}, {&y, 1});
  ASSERT_EQ(y.dims[0], positive);
  for (int64_t i = 0; i < positive; ++i)
    ASSERT_EQ(static_cast<const float *>(y.data)[i], x[static_cast<size_t>(i)]) << positive;
}

/// The same of 600 elements into device memory of the caller; gives how many graphs were captured so far.
uint64_t runSizesInto(Gpu &gpu, int64_t positive, float (&place)[64]) {
  std::vector<float> x = mixed(600, positive);
  Dims dims = {600};
  lathe_tensor memory{place, sizeof place, LATHE_F32, LATHE_DEVICE, 0, nullptr, nullptr};
  std::fill_n(place, positive, 0.0f);
  gpu.run({rt::tensor(x, dims)}, {&memory, 1});
  EXPECT_TRUE(std::equal(place, place + positive, x.begin()));
  return gpu.context.counters().graphs_captured;
}

struct Counts {
  uint64_t captured, launched;
  bool operator==(const Counts &) const = default;
};
std::ostream &operator<<(std::ostream &os, const Counts &c) {
  return os << c.captured << " captured, " << c.launched << " launched";
}
Counts countsOf(Gpu &gpu) {
  lathe_counters c = gpu.context.counters();
  return {c.graphs_captured, c.graph_launches};
}

TEST(Segments, LieBetweenBoundSizes) {
  Gpu gpu({makeSizesPlan()}), plain({makeSizesPlan()}, /*graphs=*/false);
  installPacking();
  // What counts, with the copy to the host, and what packs: each seen first, then captured.
  runSizes(gpu, 600, 3);
  EXPECT_EQ(countsOf(gpu), (Counts{0, 0}));
  runSizes(gpu, 600, 3);
  EXPECT_EQ(countsOf(gpu), (Counts{2, 2}));
  runSizes(gpu, 600, 3);
  EXPECT_EQ(countsOf(gpu), (Counts{2, 4}));
  // Another number of results: counting is the same.
  runSizes(gpu, 600, 2);
  EXPECT_EQ(countsOf(gpu), (Counts{2, 5}));
  runSizes(gpu, 600, 2);
  EXPECT_EQ(countsOf(gpu), (Counts{3, 7}));
  runSizes(gpu, 600, 3);
  EXPECT_EQ(countsOf(gpu), (Counts{3, 9}));
  // Memory that grows moves: graphs that know it are captured again, the second time that it lies there.
  for (int i = 0; i < 3; ++i)
    runSizes(gpu, 600, 500);
  Counts grown = countsOf(gpu);
  runSizes(gpu, 600, 3);
  EXPECT_EQ(countsOf(gpu), (Counts{grown.captured, grown.launched + 1}));
  runSizes(gpu, 600, 3);
  EXPECT_EQ(countsOf(gpu), (Counts{grown.captured + 1, grown.launched + 3}));
  for (auto [n, positive] : {std::pair(600, 3), std::pair(64, 3), std::pair(64, 0)})
    for (int i = 0; i < 3; ++i)
      runSizes(gpu, n, positive);
  // All is counted as without graphs.
  for (int64_t positive : {3, 3, 3, 2, 2, 3, 500, 500, 500, 3, 3})
    runSizes(plain, 600, positive);
  for (auto [n, positive] : {std::pair(600, 3), std::pair(64, 3), std::pair(64, 0)})
    for (int i = 0; i < 3; ++i)
      runSizes(plain, n, positive);
  lathe_counters a = gpu.context.counters(), b = plain.context.counters();
  EXPECT_EQ(b.graph_launches, 0u);
  EXPECT_EQ(a.launches, b.launches);
  EXPECT_EQ(a.host_steps, b.host_steps);
  EXPECT_EQ(a.bytes_from_device, b.bytes_from_device);
  EXPECT_EQ(a.bytes_to_device, b.bytes_to_device);
}

/// y = x; where `go`: `trips` times y += 2 in two launches; else y += 3 in three.
Plan makeFlowPlan() {
  Plan p = makeLoopPlan();
  int32_t y = 3;
  p.blocks[2].push_back(p.blocks[2][0]);
  std::get<IfStep>(p.blocks[0][1].op).elseBlock = 3;
  p.blocks.push_back(Block(3, Step{LaunchStep{0, {y}, {4}}, {"Add_4"}}));
  return onGpu(p);
}

float runFlow(Gpu &gpu, bool go, int64_t trips) {
  std::vector<float> x = {1, 2, 3, 4};
  Dims dims = {4}, none = {};
  lathe_tensor in[3] = {rt::tensor(x, dims), {}, {}}, y{};
  in[1] = {&trips, 8, LATHE_I64, LATHE_HOST, 0, nullptr, nullptr};
  in[2] = {&go, 1, LATHE_BOOL, LATHE_HOST, 0, nullptr, nullptr};
  rt::Error e = gpu.context.run("", in, {&y, 1});
  EXPECT_FALSE(e) << e.message();
  const auto *p = static_cast<const float *>(y.data);
  for (int i = 1; i < 4; ++i)
    EXPECT_EQ(p[i] - p[0], static_cast<float>(i));
  return p[0] - 1;
}

void installIncrement() {
  fakeGpu().kernels["increment"] = [](const FakeLaunch &, void **p) {
    for (int64_t i = 0; i < parameter<int64_t>(p, 1); ++i)
      parameter<float *>(p, 0)[i] += 1;
  };
}

TEST(Segments, LieInBranchesAndLoops) {
  Gpu gpu({makeFlowPlan()});
  installIncrement();
  // The second iteration captures what the first has seen: no size of the body is the iteration's.
  EXPECT_EQ(runFlow(gpu, true, 4), 8);
  EXPECT_EQ(countsOf(gpu), (Counts{1, 3}));
  EXPECT_EQ(runFlow(gpu, true, 5), 10);
  EXPECT_EQ(countsOf(gpu), (Counts{1, 8}));
  EXPECT_EQ(runFlow(gpu, true, 0), 0);
  // The other side is a segment of its own.
  EXPECT_EQ(runFlow(gpu, false, 5), 3);
  EXPECT_EQ(countsOf(gpu), (Counts{1, 8}));
  EXPECT_EQ(runFlow(gpu, false, 5), 3);
  EXPECT_EQ(runFlow(gpu, false, 5), 3);
  EXPECT_EQ(countsOf(gpu), (Counts{2, 10}));
  EXPECT_EQ(gpu.context.counters().launches, 2u * 9 + 3 * 3);
  EXPECT_EQ(gpu.context.counters().graphs, 2u);
}

/// The iteration is a size of the body: a graph for each.
TEST(Segments, KnowTheIteration) {
  Plan p = makeFlowPlan();
  for (Step &step : p.blocks[2])
    std::get<LaunchStep>(step.op).symbols = {DimExpr::min(DimExpr::symbol("i") + 4, 4)};
  Gpu gpu({p});
  installIncrement();
  EXPECT_EQ(runFlow(gpu, true, 3), 6);
  EXPECT_EQ(countsOf(gpu), (Counts{0, 0}));
  EXPECT_EQ(runFlow(gpu, true, 4), 8);
  EXPECT_EQ(countsOf(gpu), (Counts{3, 3}));
  EXPECT_EQ(runFlow(gpu, true, 4), 8);
  EXPECT_EQ(countsOf(gpu), (Counts{4, 7}));
}

/// What a caller takes is not copied, nor written by the runs behind; and the memory that he gives back is used again.
TEST(Segments, HandOverResults) {
  Gpu gpu({makeSizesPlan()});
  installPacking();
  auto runOnce = [&](int64_t positive, lathe_tensor &y) {
    std::vector<float> x = mixed(600, positive);
    Dims dims = {600};
    y = {};
    y.memory = LATHE_DEVICE;
    gpu.run({rt::tensor(x, dims)}, {&y, 1});
  };
  auto taken = [&](lathe_tensor &y) {
    DLManagedTensor *out = nullptr;
    EXPECT_EQ(lathe_tensor_take_dlpack(gpu.context.get(), &y, &out), nullptr);
    EXPECT_EQ(y.data, nullptr);
    EXPECT_EQ(y.bytes, 0u);
    return out;
  };
  lathe_tensor y{};
  runOnce(30, y);
  void *place = y.data;
  DLManagedTensor *first = taken(y);
  EXPECT_EQ(first->dl_tensor.data, place);
  EXPECT_EQ(first->dl_tensor.shape[0], 30);
  runOnce(20, y);
  EXPECT_NE(y.data, place);
  EXPECT_EQ(static_cast<const float *>(first->dl_tensor.data)[29], 329.0f);
  EXPECT_EQ(static_cast<const float *>(y.data)[19], 219.0f);
  DLManagedTensor *second = taken(y);
  first->deleter(first);
  runOnce(30, y);
  EXPECT_EQ(y.data, place);
  EXPECT_EQ(static_cast<const float *>(second->dl_tensor.data)[19], 219.0f);
  second->deleter(second);
  // A block that is far too large stays, and few bytes of it are copied.
  runOnce(60, y);
  runOnce(1, y);
  place = y.data;
  DLManagedTensor *few = taken(y);
  EXPECT_NE(few->dl_tensor.data, place);
  EXPECT_EQ(*static_cast<const float *>(few->dl_tensor.data), 10.0f);
  few->deleter(few);
}

/// A graph knows where the results of its program lie: they are copied.
TEST(Segments, HandOverNothingThatAGraphKnows) {
  Gpu gpu({makeScalePlan("sm_90a", true)});
  std::vector<float> x = makeInput(2);
  Dims dims = {2, 4};
  lathe_tensor y{};
  y.memory = LATHE_DEVICE;
  gpu.run({rt::tensor(x, dims)}, {&y, 1});
  void *place = y.data;
  DLManagedTensor *out = nullptr;
  ASSERT_EQ(lathe_tensor_take_dlpack(gpu.context.get(), &y, &out), nullptr);
  EXPECT_EQ(y.data, nullptr);
  EXPECT_NE(out->dl_tensor.data, place);
  EXPECT_EQ(out->dl_tensor.shape[0], 2);
  out->deleter(out);
}

/// Results that the caller keeps lie elsewhere the next time: such a segment is launched step by step, not captured anew.
TEST(Segments, AreNotCapturedForResultsInTurn) {
  Gpu gpu({makeSizesPlan()});
  installPacking();
  runSizes(gpu, 600, 3);
  alignas(256) float kept[2][64];
  const uint64_t captured = runSizesInto(gpu, 3, kept[0]);
  for (int place : {1, 0, 1, 0, 1})
    EXPECT_EQ(runSizesInto(gpu, 3, kept[place]), captured);
  EXPECT_EQ(runSizesInto(gpu, 3, kept[1]), captured + 1);
}

/// The same where a third place takes part, where each place is new, and where the context's own memory takes turns.
TEST(Segments, AreNotCapturedForResultsInManyPlaces) {
  Gpu gpu({makeSizesPlan()});
  installPacking();
  alignas(256) float kept[16][64];
  runSizes(gpu, 600, 3);
  const uint64_t captured = runSizesInto(gpu, 3, kept[0]);
  for (int place : {1, 2, 0, 1, 2, 0, 1, 2})
    EXPECT_EQ(runSizesInto(gpu, 3, kept[place]), captured);
  for (int place = 3; place < 16; ++place)
    EXPECT_EQ(runSizesInto(gpu, 3, kept[place]), captured);
  for (int place : {0, 1, 0, 2}) {
    runSizes(gpu, 600, 3);
    EXPECT_EQ(runSizesInto(gpu, 3, kept[place]), captured);
  }
}

/// Of graphs that have no room that one goes which was launched longest ago, even if steps came by it since and lay
/// elsewhere.
TEST(Segments, MakeRoomWhereTheyWereNotLaunched) {
  lathe_options o{};
  o.max_graphs = 3;
  Gpu gpu({makeSizesPlan()}, o);
  installPacking();
  alignas(256) float kept[4][64];
  runSizes(gpu, 600, 3);
  runSizesInto(gpu, 3, kept[0]); // counts, and packs three
  for (int i = 0; i < 2; ++i)
    runSizesInto(gpu, 2, kept[0]); // packs two
  for (int place : {1, 2, 3})
    runSizesInto(gpu, 3, kept[place]); // launches no graph that packs
  for (int i = 0; i < 2; ++i)
    runSizesInto(gpu, 1, kept[0]); // takes the place of the one that packs three
  const uint64_t captured = gpu.context.counters().graphs_captured;
  EXPECT_EQ(captured, 4u);
  EXPECT_EQ(runSizesInto(gpu, 2, kept[0]), captured);
}

TEST(Segments, AreBoundedWithTheOtherGraphs) {
  lathe_options o{};
  o.max_graphs = 2;
  Gpu gpu({makeSizesPlan()}, o);
  installPacking();
  for (int round = 0; round < 4; ++round)
    for (int64_t positive = 1; positive < 8; ++positive)
      runSizes(gpu, 8, positive);
  EXPECT_LE(gpu.context.counters().graphs, 2u);
  EXPECT_GT(gpu.context.counters().graph_launches, 20u);
}

TEST(Segments, AreLeftAloneWhereStepsAreWatched) {
  Gpu gpu({makeSizesPlan()});
  installPacking();
  lathe_context_profile(gpu.context.get(), 1);
  for (int i = 0; i < 3; ++i)
    runSizes(gpu, 16, 3);
  EXPECT_EQ(countsOf(gpu), (Counts{0, 0}));
  lathe_context_profile(gpu.context.get(), 0);
  for (int i = 0; i < 3; ++i)
    runSizes(gpu, 16, 3);
  EXPECT_EQ(countsOf(gpu), (Counts{2, 4}));
}

} // namespace
