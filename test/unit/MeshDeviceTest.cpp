//===- MeshDeviceTest.cpp - the ranks of a mesh on GPUs -------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The memory that ranks share, and engines for a mesh on fake GPUs, whose collective kernels are functions here that
// keep to lathe/engine/CollectiveAbi.h: through graphs and without, operands in the arenas and elsewhere, and what goes
// wrong on one rank is an error of all.
//
//===----------------------------------------------------------------------===//
#include "MeshDeviceFixture.h"

#include "../../runtime/comm/PeerArenas.h"

#include <chrono>
#include <deque>
#include <set>

using namespace lathe;
using namespace lathe::engine;
using namespace lathe::test;
using runtime::PeerArenas;
using runtime::SymmetricMemory;
using runtime::cuda::fakeDriver;

namespace {

constexpr uint64_t kPage = uint64_t(2) << 20;

TEST(SymmetricMemory, IsAtOnePlaceOnAllRanksAndGrowsThere) {
  fakeGpu().reset();
  const uint64_t before = fakeGpu().allocatedBytes();
  {
    auto made = SymmetricMemory::create(fakeDriver(), {0, 1, 1}, 8 * kPage - 5);
    ASSERT_TRUE(made.ok()) << made.status().str();
    SymmetricMemory &memory = **made;
    EXPECT_EQ(memory.stride(), 8 * kPage);
    EXPECT_EQ(memory.at(2), memory.at(0) + 16 * kPage);
    EXPECT_EQ(fakeGpu().allocatedBytes(), before) << "addresses alone";
    EXPECT_FALSE(memory.write(1, 0, "x", 1).ok());
    ASSERT_TRUE(memory.map(1, kPage + 3, 10).ok());
    EXPECT_EQ(fakeGpu().allocatedBytes(), before + kPage);
    ASSERT_TRUE(memory.map(1, 0, 3 * kPage).ok()) << "around what is there";
    ASSERT_TRUE(memory.map(1, 0, 3 * kPage).ok());
    EXPECT_EQ(fakeGpu().allocatedBytes(), before + 3 * kPage);
    ASSERT_TRUE(memory.fill(1, 0, 7, 3 * kPage).ok());
    ASSERT_TRUE(memory.write(1, 2 * kPage - 1, "ab", 2).ok()) << "over the border of two pages";
    EXPECT_EQ(memory.at(1)[2 * kPage - 2], 7);
    EXPECT_EQ(memory.at(1)[2 * kPage], 'b');
    EXPECT_EQ(memory.map(0, 7 * kPage, kPage + 1).code(), ErrorCode::RuntimeFailure);
  }
  EXPECT_EQ(fakeGpu().allocatedBytes(), before);
}

TEST(SymmetricMemory, SaysWhatIsMissing) {
  fakeGpu().reset();
  const uint64_t before = fakeGpu().allocatedBytes();
  fakeGpu().peerAccess = false;
  EXPECT_EQ(SymmetricMemory::create(fakeDriver(), {0, 1}, kPage).status().code(), ErrorCode::Unsupported);
  EXPECT_TRUE(SymmetricMemory::create(fakeDriver(), {1, 1}, kPage).ok()) << "a device reaches its own";
  fakeGpu().peerAccess = true;
  for (const char *call : {"cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess"}) {
    fakeGpu().failingCall = call;
    auto made = SymmetricMemory::create(fakeDriver(), {0, 1}, kPage);
    Status status = made ? (*made)->map(0, 0, kPage) : made.status();
    EXPECT_NE(status.message().find(call), std::string::npos) << status.str();
    fakeGpu().failingCall = "";
    if (made) {
      EXPECT_TRUE((*made)->map(0, 0, kPage).ok()) << "as if nothing had been";
    }
  }
  EXPECT_EQ(fakeGpu().allocatedBytes(), before);
}

TEST(PeerArenas, AreReadyAndKnowTheirOperands) {
  fakeGpu().reset();
  auto made = PeerArenas::create({"fake:0", "fake:1"}, int64_t(1000) * 1000000);
  ASSERT_TRUE(made.ok()) << made.status().str();
  PeerArenas &arenas = **made;
  EXPECT_EQ(arenas.ranks(), 2);
  EXPECT_LT(arenas.timeout(), int64_t(1000) * 1000000) << "kernels give up before those who wait for them";
  const char *second = static_cast<char *>(arenas.begin()) + arenas.arenaBytes();
  auto *header = reinterpret_cast<const ArenaHeader *>(second);
  EXPECT_EQ(header->epochs[3], 0u);
  EXPECT_EQ(static_cast<unsigned char>(second[kArenaHeaderBytes]), 0xff);
  EXPECT_EQ(static_cast<unsigned char>(second[arenaOperandOffset(2) - 1]), 0xff);
  Result<void *> area = arenas.arena(1, 0, 100), copies = arenas.copies(1, 100);
  ASSERT_TRUE(area.ok() && copies.ok());
  EXPECT_TRUE(arenas.holds(1, *area, 100));
  EXPECT_FALSE(arenas.holds(0, *area, 100));
  EXPECT_FALSE(arenas.holds(1, second, 100)) << "the header";
  EXPECT_EQ(*arenas.arena(1, 0, 3 * int64_t(kPage)), *area) << "it grows where it is";
  EXPECT_NE(*arenas.arena(1, 1, 100), *area);
  arenas.abort();
  EXPECT_TRUE(arenas.isBroken());
  EXPECT_EQ(header->abort, kAbortByHost);
  ASSERT_TRUE(arenas.prepare().ok());
  EXPECT_FALSE(arenas.isBroken());
  EXPECT_EQ(header->abort, 0u);
  EXPECT_EQ(PeerArenas::create(std::vector<std::string>(9, "fake:0"), -1).status().code(), ErrorCode::Unsupported);
  EXPECT_EQ(PeerArenas::create({"fake:0", "cpu"}, -1).status().code(), ErrorCode::Usage);
}

struct Mesh {
  rt::Engine engine;
  rt::Group group;
  Collectives collectives;
  std::deque<std::vector<lathe_tensor>> y; ///< of each step, which fills them when it ends
  std::vector<std::vector<float>> x;
  std::vector<Dims> dims;

  explicit Mesh(const Plan &plan = meshPlan(), bool graphs = true) {
    installKernels();
    collectives.install();
    engine = openEngine(meshEngine(plan));
    lathe_options o{};
    o.size = sizeof o;
    o.deadline_ms = 10000;
    o.no_graphs = !graphs;
    rt::Error e = group.create(engine, {"fake:0", "fake:1"}, o);
    EXPECT_FALSE(e) << e.message();
  }
  rt::Error submit(int64_t rows, uint64_t &step, float value = 2) {
    x.emplace_back(size_t(rows) * 4, value);
    dims.push_back({rows, 4});
    y.emplace_back(2);
    std::vector<lathe_tensor> in(2, rt::tensor(x.back(), dims.back()));
    return group.submit("", in, y.back(), step);
  }
  rt::Error run(int64_t rows) {
    uint64_t step = 0;
    if (rt::Error e = submit(rows, step))
      return e;
    return group.wait(step);
  }
  float at(size_t rank, int64_t i) const { return static_cast<const float *>(y.back()[rank].data)[i]; }
};

TEST(MeshDevice, ReducesThroughSlotsAndInPlace) {
  for (bool intoArena : {false, true})
    for (bool graphs : {true, false}) {
      Mesh mesh(meshPlan("all_reduce", intoArena), graphs);
      for (int64_t rows : {1, 5, 64, 512, 64, 0, 5}) {
        rt::Error e = mesh.run(rows);
        ASSERT_FALSE(e) << e.message();
        for (int64_t i = 0; i < rows * 4; ++i) {
          ASSERT_EQ(mesh.at(0, i), 2 * 2 + 2 * 11 * float(i % 4 + 1)) << rows;
          ASSERT_EQ(mesh.at(1, i), mesh.at(0, i));
        }
      }
      lathe_counters c{};
      lathe_context_counters(mesh.group.member(1), &c);
      EXPECT_EQ(c.host_steps, 0u);
      EXPECT_EQ(c.graph_launches, graphs ? 7u : 0u);
    }
}

TEST(MeshDevice, GathersAndScattersRowsOfAnySize) {
  {
    Mesh mesh(meshPlan("all_gather"));
    for (int64_t rows : {3, 1, 3}) {
      rt::Error e = mesh.run(rows);
      ASSERT_FALSE(e) << e.message();
      for (int64_t i = 0; i < rows * 8; ++i)
        ASSERT_EQ(mesh.at(1, i), 2 * float(i % 4 + 1) * (i % 8 < 4 ? 1 : 10) + 2);
    }
  }
  for (bool intoArena : {false, true}) { // rows of 8 bytes, which kernels do not take
    Mesh mesh(meshPlan("reduce_scatter", intoArena));
    for (int64_t rows : {3, 1, 3}) {
      rt::Error e = mesh.run(rows);
      ASSERT_FALSE(e) << e.message();
      for (int64_t i = 0; i < rows * 2; ++i)
        for (size_t rank : {0, 1})
          ASSERT_EQ(mesh.at(rank, i), 4 + 22 * float(2 * rank + size_t(i % 2) + 1));
    }
  }
}

/// What a collective writes to lies in memory of the caller, which changes under the graph.
TEST(MeshDevice, FollowsMemoryOfTheCaller) {
  Mesh mesh;
  runtime::cuda::CUdeviceptr memory = 0;
  ASSERT_EQ(fakeDriver().cuMemAlloc(&memory, 4 * 256), 0);
  for (int turn : {0, 1, 0}) {
    std::vector<float> x(8, 2.0f);
    const Dims dims = {2, 4};
    std::vector<lathe_tensor> in(2, rt::tensor(x, dims)), out(2);
    for (size_t r = 0; r < 2; ++r) {
      out[r].data = reinterpret_cast<void *>(memory + (size_t(turn) * 2 + r) * 256);
      out[r].bytes = 32;
      out[r].memory = LATHE_DEVICE;
    }
    uint64_t step = 0;
    rt::Error e = mesh.group.submit("", in, out, step);
    ASSERT_FALSE(e) << e.message();
    e = mesh.group.wait(step);
    ASSERT_FALSE(e) << e.message();
    for (size_t r = 0; r < 2; ++r) {
      EXPECT_EQ(out[r].data, reinterpret_cast<void *>(memory + (size_t(turn) * 2 + r) * 256));
      EXPECT_EQ(static_cast<const float *>(out[r].data)[1], 48);
    }
  }
  lathe_counters c{};
  lathe_context_counters(mesh.group.member(1), &c);
  EXPECT_EQ(c.graphs_captured, 1u);
  fakeDriver().cuMemFree(memory);
}

/// The product on stream 0, the collective on another, the kernel that reads it on the first again.
Plan besidePlan() {
  Plan p = meshPlan("all_reduce", /*intoArena=*/true);
  p.resources.streams = {0, 0};
  p.resources.events = 2;
  p.blocks[0][0].signal = 0;
  p.blocks[0][1].stream = 1;
  p.blocks[0][1].waits = {0};
  p.blocks[0][1].signal = 1;
  p.blocks[0][2].waits = {1};
  return p;
}

TEST(MeshDevice, MeetsOnAStreamOfItsOwn) {
  for (bool graphs : {true, false}) {
    Mesh mesh(besidePlan(), graphs);
    for (int64_t rows : {1, 64, 0, 5}) {
      rt::Error e = mesh.run(rows);
      ASSERT_FALSE(e) << e.message();
      for (int64_t i = 0; i < rows * 4; ++i) {
        ASSERT_EQ(mesh.at(0, i), 2 * 2 + 2 * 11 * float(i % 4 + 1)) << rows;
        ASSERT_EQ(mesh.at(1, i), mesh.at(0, i));
      }
    }
    std::set<int> meeting, others;
    for (const FakeLaunch &l : fakeGpu().launches)
      (fakeGpu().meetings.count(l.function) ? meeting : others).insert(l.stream);
    EXPECT_EQ(meeting.size(), 2u) << "one of each rank";
    for (int stream : meeting)
      EXPECT_FALSE(others.count(stream));
  }
}

TEST(MeshDevice, RefusesCollectivesThatNothingOrdersAlike) {
  Plan p = besidePlan();
  const Step second{CollectiveStep{"all_reduce", 1, {2}, {3}, Reduction::Sum, 1}, {"Sum_9"}, 0, {1}, -1};
  p.blocks[0].back() = second;
  Status s = verify(p);
  EXPECT_EQ(s.code(), ErrorCode::Invalid);
  EXPECT_NE(s.message().find("collectives on several streams"), std::string::npos) << s.str();
}

TEST(MeshDevice, EnqueuesStepsBehindEachOther) {
  Mesh mesh(meshPlan("all_reduce", true));
  EXPECT_EQ(fakeGpu().functionsLoaded, 2 * 5u) << "those that a rank may launch, before any waits for another";
  ASSERT_FALSE(mesh.run(4));
  std::vector<uint64_t> steps(20);
  for (size_t i = 0; i < steps.size(); ++i) {
    rt::Error e = mesh.submit(4, steps[i], float(i + 1));
    ASSERT_FALSE(e) << e.message();
  }
  rt::Error e = mesh.group.wait(steps.back());
  ASSERT_FALSE(e) << e.message();
}

TEST(MeshDevice, LosesARankOnAllAndGoesOn) {
  for (bool graphs : {true, false}) {
    Mesh mesh(meshPlan(), graphs);
    ASSERT_FALSE(mesh.run(2));
    for (int64_t lost : {0, 1}) {
      mesh.collectives.lost = lost;
      auto begin = std::chrono::steady_clock::now();
      uint64_t first = 0, behind = 0;
      ASSERT_FALSE(mesh.submit(2, first));
      ASSERT_FALSE(mesh.submit(2, behind));
      rt::Error e = mesh.group.wait(first);
      EXPECT_EQ(e.code(), LATHE_PEER_LOST) << e.message();
      EXPECT_NE(e.message().find("rank " + std::to_string(lost)), std::string::npos) << e.message();
      EXPECT_NE(e.message().find("Sum_2"), std::string::npos) << e.message();
      EXPECT_TRUE(mesh.group.wait(behind));
      EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
      mesh.collectives.lost = -1;
      e = mesh.run(3);
      ASSERT_FALSE(e) << e.message();
      EXPECT_EQ(mesh.at(1, 0), 26);
    }
  }
}

TEST(MeshDevice, EndsKernelsThatWaitForARankThatFails) {
  Mesh mesh(meshPlan(), /*graphs=*/false);
  ASSERT_FALSE(mesh.run(2));
  // The launch of one rank fails while the other may have its own enqueued already.
  int launches = 0;
  fakeGpu().kernels["scale_add"] = [&, own = fakeGpu().kernels["scale_add"]](const FakeLaunch &l, void **p) {
    own(l, p);
    if (++launches == 2)
      fakeGpu().failingCall = "cuLaunchKernelEx";
  };
  auto begin = std::chrono::steady_clock::now();
  rt::Error e = mesh.run(2);
  EXPECT_TRUE(e) << "a launch has failed";
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  fakeGpu().failingCall = "";
  e = mesh.run(2);
  ASSERT_FALSE(e) << e.message();
  EXPECT_EQ(mesh.at(0, 0), 26);
}

TEST(MeshDevice, EndsWhenItIsCancelledAndGoesOn) {
  for (bool graphs : {true, false}) {
    Mesh mesh(meshPlan("all_reduce", true), graphs);
    for (int round = 0; round < 20; ++round) {
      uint64_t step = 0, behind = 0;
      ASSERT_FALSE(mesh.submit(2, step));
      ASSERT_FALSE(mesh.submit(2, behind));
      lathe_group_cancel(mesh.group.get(), round % 2 ? step : behind);
      for (uint64_t s : {step, behind}) {
        rt::Error e = mesh.group.wait(s);
        EXPECT_TRUE(!e || e.code() == LATHE_CANCELLED) << e.message();
      }
      rt::Error e = mesh.run(2);
      ASSERT_FALSE(e) << e.message();
      EXPECT_EQ(mesh.at(1, 0), 26);
    }
  }
}

/// The status words of a cancelled step are not read: that a kernel gave up is told by the arenas alone.
TEST(MeshDevice, BeginsAnewAfterACancelledStepWhoseKernelsGaveUp) {
  for (bool graphs : {true, false}) {
    Mesh mesh(meshPlan(), graphs);
    ASSERT_FALSE(mesh.run(2));
    mesh.collectives.lost = 1;
    fakeGpu().held = true; // nothing has run when the step is cancelled
    uint64_t step = 0;
    ASSERT_FALSE(mesh.submit(2, step));
    std::this_thread::sleep_for(std::chrono::milliseconds(50)); // it is enqueued
    lathe_group_cancel(mesh.group.get(), step);
    fakeGpu().release();
    rt::Error e = mesh.group.wait(step);
    EXPECT_EQ(e.code(), LATHE_CANCELLED) << e.message();
    mesh.collectives.lost = -1;
    e = mesh.run(2);
    ASSERT_FALSE(e) << e.message();
    EXPECT_EQ(mesh.at(0, 0), 26);
    EXPECT_EQ(mesh.at(1, 0), 26);
  }
}

TEST(MeshDevice, TellsAllRanksOfWhatOneWasGiven) {
  Mesh mesh;
  std::vector<float> x(4 * 4, 2.0f);
  const Dims three = {3, 4}, four = {4, 4};
  std::vector<lathe_tensor> in = {rt::tensor(x, three), rt::tensor(x, four)}, y(2);
  in[0].bytes = 0;
  uint64_t step = 0;
  ASSERT_FALSE(mesh.group.submit("", in, y, step));
  rt::Error e = mesh.group.wait(step);
  EXPECT_EQ(e.code(), LATHE_USAGE) << e.message();
  EXPECT_NE(e.message().find("B = "), std::string::npos) << e.message();
  e = mesh.run(3);
  ASSERT_FALSE(e) << e.message();
}

TEST(MeshDevice, RefusesWhatCannotMeet) {
  installKernels();
  fakeGpu().peerAccess = false;
  rt::Engine engine = openEngine(meshEngine(meshPlan()));
  rt::Group group;
  lathe_options o{};
  o.size = sizeof o;
  rt::Error e = group.create(engine, {"fake:0", "fake:1"}, o);
  EXPECT_EQ(e.code(), LATHE_UNSUPPORTED);
  EXPECT_NE(e.message().find("no access"), std::string::npos) << e.message();
  fakeGpu().peerAccess = true;
  Plan onHost = meshPlan();
  onHost.buffers[3].onHost = true;
  rt::Engine other;
  std::string bytes = meshEngine(onHost);
  EXPECT_NE(other.openMemory(std::as_bytes(std::span(bytes))).code(), LATHE_OK);
}

} // namespace
