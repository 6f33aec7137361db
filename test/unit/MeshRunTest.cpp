//===- MeshRunTest.cpp - one engine on the ranks of a mesh ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Engines made by hand, each rank a thread: shards of weights, collectives of the plan, and that what goes
// wrong on one rank is an error of all, not a wait.
//
//===----------------------------------------------------------------------===//
#include "RuntimeFixture.h"

#include "../../runtime/Handles.h"
#include "../../runtime/exec/Context.h"

#include <chrono>
#include <cstring>
#include <functional>

using namespace lathe;
using namespace lathe::test;
using Dims = std::vector<int64_t>;

namespace {

/// Rank r: t = x * w[r] + x, y = the sum of all t; w[0] = {1, 2, 3, 4}, w[1] = {10, 20, 30, 40}.
Plan meshPlan(int32_t ranks = 2) {
  Plan p = makeScalePlan("x86-64-v2", false);
  p.ranks = ranks;
  p.weights[0].shards = ranks;
  p.kernels.resize(1);
  p.blocks[0][1] = Step{CollectiveStep{"all_reduce", 0, {2}, {3}, Reduction::Sum, 0}, {"Sum_2"}};
  return p;
}

std::string meshEngine(const Plan &plan, int32_t shards = 2) {
  EngineWriter w("mesh test");
  for (int32_t rank = 0; rank < shards; ++rank) {
    float factor = rank ? 10 : 1, weights[4] = {factor, 2 * factor, 3 * factor, 4 * factor};
    EXPECT_TRUE(w.addWeight(shardSection("weights", rank), {reinterpret_cast<char *>(weights), 16}).ok());
  }
  Status added = w.addPlan(plan);
  EXPECT_TRUE(added.ok()) << added.str();
  EXPECT_TRUE(w.addKernels(plan.target, cpuImage()).ok());
  return *w.str();
}

struct Mesh {
  rt::Engine engine;
  rt::Group group;
  std::vector<lathe_tensor> y;
  std::vector<std::vector<float>> x;
  std::vector<Dims> dims;

  explicit Mesh(int64_t patience = 10000, const Plan &plan = meshPlan())
      : engine(openEngine(meshEngine(plan))) {
    lathe_options o{};
    o.size = sizeof o;
    o.deadline_ms = patience;
    rt::Error e = group.create(engine, {"cpu", "cpu"}, o);
    EXPECT_FALSE(e) << e.message();
  }
  /// One step, of so many rows on each rank.
  rt::Error run(const std::vector<int64_t> &rows) {
    x.clear();
    dims.clear();
    y.assign(rows.size(), {});
    std::vector<lathe_tensor> in;
    for (int64_t count : rows) {
      x.emplace_back(size_t(count) * 4, 2.0f);
      dims.push_back({count, 4});
    }
    for (size_t r = 0; r < rows.size(); ++r)
      in.push_back(rt::tensor(x[r], dims[r]));
    uint64_t step = 0;
    if (rt::Error e = group.submit("", in, y, step))
      return e;
    return group.wait(step);
  }
};

TEST(MeshRun, AddsWhatEachRankHasOfTheWeights) {
  Mesh mesh;
  for (int64_t rows : {1, 5, 64, 0}) {
    rt::Error e = mesh.run({rows, rows});
    ASSERT_FALSE(e) << e.message();
    const auto *a = static_cast<const float *>(mesh.y[0].data), *b = static_cast<const float *>(mesh.y[1].data);
    for (int64_t i = 0; i < rows * 4; ++i)
      EXPECT_EQ(a[i], 2 * 2 + 2 * 11 * float(i % 4 + 1));
    EXPECT_EQ(rows ? std::memcmp(a, b, size_t(rows) * 16) : 0, 0);
  }
}

TEST(MeshRun, RefusesAsManyDevicesAsItHasNoRanks) {
  Mesh mesh;
  lathe_options o{};
  o.size = sizeof o;
  for (std::vector<std::string> devices : {std::vector<std::string>(1, "cpu"), std::vector<std::string>(3, "cpu")}) {
    rt::Group group;
    rt::Error e = group.create(mesh.engine, devices, o);
    EXPECT_EQ(e.code(), LATHE_USAGE);
    EXPECT_NE(e.message().find("2 ranks"), std::string::npos) << e.message();
  }
  rt::Context context;
  rt::Error e = context.create(mesh.engine, "cpu", o);
  EXPECT_EQ(e.code(), LATHE_USAGE);
  EXPECT_NE(e.message().find("mesh of 2 ranks"), std::string::npos) << e.message();
}

TEST(MeshRun, TellsAllRanksOfWhatOneWasGiven) {
  Mesh mesh;
  auto begin = std::chrono::steady_clock::now();
  rt::Error e = mesh.run({3, 4});
  EXPECT_EQ(e.code(), LATHE_USAGE) << e.message();
  EXPECT_NE(e.message().find("B = "), std::string::npos) << e.message();
  e = mesh.run({3, 600}); // beyond the guard of one rank
  EXPECT_NE(e.code(), LATHE_OK);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  e = mesh.run({3, 3}); // and the mesh is as before
  EXPECT_FALSE(e) << e.message();
}

TEST(MeshRun, EndsWhenItIsCancelledAndGoesOn) {
  Mesh mesh;
  for (int round = 0; round < 20; ++round) {
    std::vector<float> x(4, 1);
    const int64_t dims[] = {1, 4};
    std::vector<lathe_tensor> in(2, {x.data(), 16, LATHE_F32, LATHE_HOST, 2, dims, nullptr}), y(2);
    uint64_t step = 0;
    ASSERT_FALSE(mesh.group.submit("", in, y, step));
    lathe_group_cancel(mesh.group.get(), step);
    rt::Error e = mesh.group.wait(step);
    EXPECT_TRUE(!e || e.code() == LATHE_CANCELLED) << e.message();
    e = mesh.run({2, 2});
    ASSERT_FALSE(e) << e.message();
  }
}

/// What rank 0 of two hears when the other does as it does.
struct FakeRanks : runtime::Communicator {
  std::function<void()> atExchange, atEnd; ///< called within them
  Status told;                             ///< how the last step went on rank 0

  int64_t rank() const override { return 0; }
  int64_t ranks() const override { return 2; }
  Status begin(const std::string &, const Status &own, const Stop &) override { return own; }
  Status exchange(std::span<const int64_t>, const runtime::Exchange &, const Stop &stop) override {
    if (atExchange)
      atExchange();
    return stop();
  }
  Status end(const Status &own, const Stop &) override {
    told = own;
    if (atEnd)
      atEnd();
    return own;
  }
};

std::shared_ptr<runtime::Context> contextOf(const rt::Engine &engine, const std::shared_ptr<FakeRanks> &ranks) {
  runtime::Context::Options options;
  options.communicator = ranks;
  auto context = runtime::Context::create(runtime::engineOf(engine.get()), "cpu", options);
  EXPECT_TRUE(context.ok()) << context.status().str();
  return *context;
}

TEST(MeshRun, KeepsWhatRanksHaveAgreedOnWhenItIsCancelledTooLate) {
  rt::Engine engine = openEngine(meshEngine(meshPlan()));
  auto ranks = std::make_shared<FakeRanks>();
  std::shared_ptr<runtime::Context> context = contextOf(engine, ranks);
  std::vector<float> x(4, 1);
  const Dims dims = {1, 4};
  const lathe_tensor in = rt::tensor(x, dims);
  auto cancel = [&] { context->cancel(1); };
  for (auto &[early, late] : {std::pair<std::function<void()>, std::function<void()>>{{}, cancel}, {cancel, {}}}) {
    ranks->atExchange = early;
    ranks->atEnd = late;
    lathe_tensor y{};
    Result<uint64_t> step = context->submit("", {&in, 1}, {&y, 1}, {});
    ASSERT_TRUE(step.ok()) << step.status().str();
    const Status outcome = context->wait(*step, -1);
    EXPECT_EQ(outcome.code(), ranks->told.code()) << outcome.str();
    EXPECT_EQ(outcome.code() == ErrorCode::Cancelled, bool(early)) << outcome.str();
  }
  runtime::Context::close(context);
}

TEST(MeshRun, TellsTheOtherRanksWhatKernelsReport) {
  Plan plan = makeLookUpPlan();
  plan.ranks = 2;
  EngineWriter w("mesh test");
  ASSERT_TRUE(w.addPlan(plan).ok());
  ASSERT_TRUE(w.addKernels(plan.target, cpuImage()).ok());
  rt::Engine engine = openEngine(*w.str());
  auto ranks = std::make_shared<FakeRanks>();
  std::shared_ptr<runtime::Context> context = contextOf(engine, ranks);
  std::vector<float> table = {1, 2, 3};
  std::vector<int64_t> index = {2, 7};
  const Dims rows = {3}, count = {2};
  const lathe_tensor in[] = {rt::tensor(table, rows), rt::tensor(index, count)};
  lathe_tensor out{};
  const Status outcome = context->run("", in, {&out, 1});
  EXPECT_NE(ranks->told.message().find("index 7 is out of range"), std::string::npos) << ranks->told.str();
  EXPECT_EQ(outcome.message(), ranks->told.message());
  index = {2, 0};
  EXPECT_TRUE(context->run("", in, {&out, 1}).ok());
  runtime::Context::close(context);
}

TEST(MeshRun, RefusesEnginesThatLackARank) {
  rt::Engine engine;
  std::string bytes = meshEngine(meshPlan(), 1);
  EXPECT_EQ(engine.openMemory(std::as_bytes(std::span(bytes))).code(), LATHE_INVALID);
}

TEST(MeshRun, MakesRandomWeightsOfEachRank) {
  Plan p = meshPlan();
  const RandomSpread spread{42, 0.5f, 1.0f};
  Weight &w = p.weights[0];
  w.section = kRandomSection;
  // The last rank has an element less, and a zero in its place.
  w.random = {{spread, 1, 4, 0, 4, 0, 0, 0}, {spread, 1, 3, 0, 4, 4, 0, 1}};
  float whole[8] = {};
  fillRandom(reinterpret_cast<std::byte *>(whole), DType::F32, {spread, 1, 7, 0, 7}, 0, 7);
  Mesh mesh(10000, p);
  rt::Error e = mesh.run({3, 3});
  ASSERT_FALSE(e) << e.message();
  const auto *y = static_cast<const float *>(mesh.y[1].data);
  for (int i = 0; i < 12; ++i)
    EXPECT_EQ(y[i], (2 * whole[i % 4] + 2) + (2 * whole[4 + i % 4] + 2));
  Result<std::string> bytes = serialize(p);
  ASSERT_TRUE(bytes.ok()) << bytes.status().str();
  Result<Plan> again = parse(*bytes);
  ASSERT_TRUE(again.ok()) << again.status().str();
  EXPECT_EQ(*again, p);
  for (int32_t rank : {-1, 2}) {
    p.weights[0].random[1].rank = rank;
    EXPECT_FALSE(verify(p, "").ok());
  }
  p.weights[0].random[1].rank = 1;
  p.weights[0].shards = 0;
  EXPECT_FALSE(verify(p, "").ok()) << "slices of nobody's";
}

TEST(MeshRun, ChecksCollectivesOfPlans) {
  ASSERT_TRUE(verify(meshPlan(), "").ok());
  auto refused = [](const std::function<void(Plan &, CollectiveStep &)> &change) {
    Plan p = meshPlan();
    change(p, std::get<CollectiveStep>(p.blocks[0][1].op));
    return !verify(p, "").ok();
  };
  EXPECT_TRUE(refused([](Plan &, CollectiveStep &s) { s.name = "all_to_some"; }));
  EXPECT_TRUE(refused([](Plan &, CollectiveStep &s) { s.name = "all_gather"; })) << "sizes";
  EXPECT_TRUE(refused([](Plan &, CollectiveStep &s) { s.name = "reduce_scatter"; })) << "sizes";
  EXPECT_TRUE(refused([](Plan &, CollectiveStep &s) { s.inputs = {}; }));
  EXPECT_TRUE(refused([](Plan &, CollectiveStep &s) { s.inputs = {99}; }));
  EXPECT_TRUE(refused([](Plan &, CollectiveStep &s) { s.outputs = {1}; })) << "a weight";
  EXPECT_TRUE(refused([](Plan &p, CollectiveStep &) { p.weights[0].shards = 3; }));
  EXPECT_TRUE(refused([](Plan &p, CollectiveStep &) { p.ranks = 0; }));
  EXPECT_TRUE(refused([](Plan &p, CollectiveStep &) { p.buffers[3].dtype = p.outputs[0].dtype = DType::F16; }));
  Plan gathers = meshPlan();
  gathers.buffers[3] = makeBuffer("y", BufferKind::Output, 0, DType::F32, {DimExpr::symbol("B"), 8});
  gathers.outputs[0].dims = gathers.buffers[3].dims;
  std::get<CollectiveStep>(gathers.blocks[0][1].op) = {"all_gather", 0, {2}, {3}, Reduction::Sum, 1};
  EXPECT_TRUE(verify(gathers, "").ok());
  // What was written is what is read.
  Result<std::string> bytes = serialize(gathers);
  ASSERT_TRUE(bytes.ok());
  Result<Plan> again = parse(*bytes);
  ASSERT_TRUE(again.ok()) << again.status().str();
  EXPECT_EQ(*again, gathers);
  Mesh mesh(10000, gathers);
  rt::Error e = mesh.run({2, 2});
  ASSERT_FALSE(e) << e.message();
  const auto *y = static_cast<const float *>(mesh.y[1].data);
  for (int i = 0; i < 16; ++i)
    EXPECT_EQ(y[i], 2 * float(i % 4 + 1) * (i % 8 < 4 ? 1 : 10) + 2);
}

} // namespace
