//===- MeshProcessTest.cpp - ranks on GPUs that are processes -------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Contexts that are ranks of a world, on fake GPUs whose memory is passed as it is between processes: threads of this
// one where they need not die, else a process each.
//
//===----------------------------------------------------------------------===//
#include "MeshDeviceFixture.h"

#include "../../runtime/device/SymmetricMemory.h"

#include <chrono>
#include <csignal>
#include <netinet/in.h>
#include <set>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace lathe;
using namespace lathe::engine;
using namespace lathe::test;
using runtime::SymmetricMemory;
using runtime::cuda::fakeDriver;

namespace {

using Clock = std::chrono::steady_clock;
constexpr uint64_t kPage = uint64_t(2) << 20;

TEST(SharedPages, AreTheSameMemoryForAnotherProcess) {
  fakeGpu().reset();
  const uint64_t before = fakeGpu().allocatedBytes();
  {
    auto first = SymmetricMemory::createApart(fakeDriver(), 0, 0, 2, 4 * kPage);
    auto second = SymmetricMemory::createApart(fakeDriver(), 1, 1, 2, 4 * kPage);
    ASSERT_TRUE(first.ok() && second.ok());
    EXPECT_FALSE((*first)->hasFresh());
    ASSERT_TRUE((*first)->map(0, kPage, 2 * kPage).ok());
    EXPECT_TRUE((*first)->hasFresh());
    for (const runtime::SharedPages &pages : (*first)->takeFresh()) {
      EXPECT_EQ(pages.offset, kPage);
      ASSERT_TRUE((*second)->take(0, pages).ok());
    }
    EXPECT_FALSE((*first)->hasFresh());
    EXPECT_EQ(fakeGpu().allocatedBytes(), before + 2 * kPage) << "once";
    ASSERT_TRUE((*first)->fill(0, kPage, 7, 2 * kPage).ok());
    EXPECT_EQ((*second)->at(0)[3 * kPage - 1], 7);
    ASSERT_TRUE((*second)->write(0, kPage, "xy", 2).ok());
    EXPECT_EQ((*first)->at(0)[kPage + 1], 'y');
    ASSERT_TRUE((*first)->map(0, 0, kPage).ok()) << "given to nobody";
    first = Status(ErrorCode::Cancelled, "gone");
    EXPECT_EQ((*second)->at(0)[kPage], 'x') << "memory lives as long as one process has it";
  }
  EXPECT_EQ(fakeGpu().allocatedBytes(), before);
}

TEST(SharedPages, SayWhatIsMissing) {
  fakeGpu().reset();
  for (const char *call : {"cuMemExportToShareableHandle", "cuMemImportFromShareableHandle", "cuMemMap"}) {
    auto first = SymmetricMemory::createApart(fakeDriver(), 0, 0, 2, kPage);
    auto second = SymmetricMemory::createApart(fakeDriver(), 1, 1, 2, kPage);
    fakeGpu().failingCall = std::string(call) == "cuMemMap" ? "" : call;
    Status status = (*first)->map(0, 0, kPage);
    fakeGpu().failingCall = call;
    for (const runtime::SharedPages &pages : (*first)->takeFresh())
      status = (*second)->take(0, pages);
    EXPECT_NE(status.message().find(call), std::string::npos) << status.str();
    fakeGpu().failingCall = "";
  }
}

int64_t freePort() {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(bind(probe, reinterpret_cast<sockaddr *>(&address), length), 0);
  getsockname(probe, reinterpret_cast<sockaddr *>(&address), &length);
  close(probe);
  return ntohs(address.sin_port);
}

/// One rank, on a fake GPU.
struct Rank {
  lathe_context *context = nullptr;
  bool graphs = true;
  int silence = 500;

  ~Rank() { leave(); }
  void leave() { lathe_context_destroy(std::exchange(context, nullptr)); }
  rt::Error join(const rt::Engine &engine, int rank, int64_t port, const std::string &device = "fake", int ranks = 2) {
    setenv("LATHE_COMM", LATHE_TCP, 1);
    lathe_options o{};
    o.size = sizeof o;
    o.deadline_ms = 20000;
    o.no_graphs = !graphs;
    lathe_world w{};
    w.size = sizeof w;
    w.rank = rank;
    w.ranks = ranks;
    w.port = int32_t(port);
    w.join_ms = 10000;
    w.silence_ms = silence;
    return rt::Error(lathe_context_create_rank(engine.get(), device.c_str(), &o, &w, &context));
  }
  /// A step of so many rows; `y`: where results are when it has ended.
  rt::Error submit(int64_t rows, float value, lathe_tensor &y, uint64_t &step) {
    std::vector<float> x(size_t(rows) * 4, value);
    const Dims dims = {rows, 4};
    const lathe_tensor in = rt::tensor(x, dims);
    return rt::Error(lathe_submit(context, "", &in, 1, &y, 1, nullptr, &step));
  }
  rt::Error wait(uint64_t step) { return rt::Error(lathe_wait(context, step, -1)); }
  rt::Error run(int64_t rows, float value, lathe_tensor &y) {
    std::vector<float> x(size_t(rows) * 4, value);
    const Dims dims = {rows, 4};
    const lathe_tensor in = rt::tensor(x, dims);
    return rt::Error(lathe_run(context, "", &in, 1, &y, 1));
  }
};

float at(const lathe_tensor &y, int64_t i) { return static_cast<const float *>(y.data)[i]; }

/// The ranks of a plan as threads, which do the same at the same time.
struct World {
  rt::Engine engine;
  Collectives collectives;
  std::vector<Rank> ranks;

  explicit World(const Plan &plan = meshPlan(), bool graphs = true) : ranks(size_t(plan.ranks)) {
    installKernels();
    fakeGpu().devices = int(plan.ranks);
    collectives.ranks = plan.ranks;
    collectives.install();
    engine = openEngine(meshEngine(plan));
    const int64_t port = freePort();
    all([&](int r) {
      ranks[r].graphs = graphs;
      rt::Error e = ranks[r].join(engine, r, port, "fake", int(plan.ranks));
      EXPECT_FALSE(e) << e.message();
    });
  }
  void all(const std::function<void(int)> &body) {
    std::vector<std::thread> threads;
    for (size_t r = 0; r < ranks.size(); ++r)
      threads.emplace_back([&body, r] { body(int(r)); });
    for (std::thread &thread : threads)
      thread.join();
  }
};

TEST(MeshProcess, ReducesThroughSlotsAndInPlace) {
  for (bool intoArena : {false, true})
    for (bool graphs : {true, false}) {
      Plan plan = meshPlan("all_reduce", intoArena);
      plan.arenas[0].bytes = DimExpr::symbol("B") * 65536 + 128;
      World world(plan, graphs);
      for (int64_t rows : {1, 5, 64, 512, 64, 0, 5}) // arenas grow
        world.all([&](int r) {
          lathe_tensor y{};
          rt::Error e = world.ranks[r].run(rows, 2, y);
          ASSERT_FALSE(e) << e.message();
          for (int64_t i = 0; i < rows * 4; ++i)
            ASSERT_EQ(at(y, i), 2 * 2 + 2 * 11 * float(i % 4 + 1)) << rows;
        });
      lathe_counters c{};
      lathe_context_counters(world.ranks[1].context, &c);
      EXPECT_EQ(c.graph_launches, graphs ? 7u : 0u);
      EXPECT_EQ(lathe_context_rank(world.ranks[1].context), 1);
    }
}

TEST(MeshProcess, GathersAndScattersRowsOfAnySize) {
  for (const char *name : {"all_gather", "reduce_scatter"}) {
    World world(meshPlan(name));
    for (int64_t rows : {3, 1, 3, 500})
      world.all([&](int r) {
        lathe_tensor y{};
        rt::Error e = world.ranks[r].run(rows, 2, y);
        ASSERT_FALSE(e) << e.message();
        for (int64_t i = 0; i < rows * (*name == 'a' ? 8 : 2); ++i)
          ASSERT_EQ(at(y, i), *name == 'a' ? 2 * float(i % 4 + 1) * (i % 8 < 4 ? 1 : 10) + 2
                                           : 4 + 22 * float(2 * r + i % 2 + 1));
      });
  }
}

/// Memory that only one rank has made ahead of a step reaches the others when it begins.
TEST(MeshProcess, WarmsOneRankAlone) {
  World world(meshPlan("all_gather"));
  world.all([&](int r) {
    lathe_tensor y{};
    if (r == 1) {
      std::vector<float> x(4 * 4);
      const Dims dims = {4, 4};
      const lathe_tensor in = rt::tensor(x, dims);
      rt::Error e(lathe_warm(world.ranks[r].context, "", &in, 1, &y, 1));
      ASSERT_FALSE(e) << e.message();
    }
    for (int64_t rows : {4, 400, 4}) {
      rt::Error e = world.ranks[r].run(rows, 2, y);
      ASSERT_FALSE(e) << e.message();
      EXPECT_EQ(at(y, 5), 42);
    }
  });
}

TEST(MeshProcess, HasThreeRanks) {
  for (const char *name : {"all_reduce", "all_gather"})
    for (bool graphs : {true, false}) {
      World world(meshPlan(name, false, 3), graphs);
      for (int64_t rows : {5, 500, 5})
        world.all([&](int r) {
          lathe_tensor y{};
          rt::Error e = world.ranks[r].run(rows, 2, y);
          ASSERT_FALSE(e) << e.message();
          for (int64_t i = 0; i < rows * 4; ++i)
            ASSERT_EQ(at(y, i), name == std::string("all_reduce") ? 3 * 2 + 2 * 111 * float(i % 4 + 1)
                                : i % 12 < 4                      ? 2 + 2 * float(i % 4 + 1)
                                : i % 12 < 8                      ? 2 + 20 * float(i % 4 + 1)
                                                                  : 2 + 200 * float(i % 4 + 1));
        });
      world.all([&](int r) { // one is given something else, and all go on
        lathe_tensor y{};
        EXPECT_EQ(world.ranks[r].run(r == 1 ? 3 : 2, 2, y).code(), LATHE_USAGE);
        rt::Error e = world.ranks[r].run(3, 2, y);
        EXPECT_FALSE(e) << e.message();
      });
    }
}

/// Where sizes come with the data, memory that one rank alone makes in front of a collective is that for a copy of its
/// result, which the caller wants at a place that kernels do not write to.
TEST(MeshProcess, SharesWhatOneRankAloneMakesWithinAStep) {
  Plan plan = meshPlan();
  plan.buffers[3].alignment = 4;
  const int32_t given = addInput(plan, "k", DType::I64, {1}, /*onHost=*/true);
  plan.symbols.push_back({"K", 0, 100, 1, 1, SymbolOrigin::Bound, -1, -1});
  plan.blocks[0].insert(plan.blocks[0].begin(), Step{BindStep{1, given, 0}, {"Size_0"}});
  for (int alone : {0, 1}) {
    World world(plan);
    runtime::cuda::CUdeviceptr memory = 0;
    ASSERT_EQ(fakeDriver().cuMemAlloc(&memory, 4096), 0);
    world.all([&](int r) {
      for (int64_t rows : {2, 3, 2}) {
        std::vector<float> x(size_t(rows) * 4, 2.0f);
        std::vector<int64_t> k = {7};
        const Dims dims = {rows, 4}, one = {1};
        const lathe_tensor in[] = {rt::tensor(x, dims), rt::tensor(k, one)};
        lathe_tensor y{};
        if (r == alone) {
          y.data = reinterpret_cast<void *>(memory + 4);
          y.bytes = 1024;
          y.memory = LATHE_DEVICE;
        }
        rt::Error e(lathe_run(world.ranks[r].context, "", in, 2, &y, 1));
        ASSERT_FALSE(e) << e.message();
        EXPECT_EQ(at(y, 5), 48);
      }
    });
    fakeDriver().cuMemFree(memory);
  }
}

/// One caller waits for each step, the other for the last alone; and one never waits for some.
TEST(MeshProcess, EnqueuesStepsBehindEachOtherHoweverCallersWait) {
  World world(meshPlan("all_reduce", true));
  world.all([&](int r) {
    std::vector<lathe_tensor> y(20);
    std::vector<uint64_t> steps(20);
    for (size_t i = 0; i < steps.size(); ++i) {
      rt::Error e = world.ranks[r].submit(4, float(i + 1), y[i], steps[i]);
      ASSERT_FALSE(e) << e.message();
      if (r == 0 && i != 7) {
        rt::Error waited = world.ranks[r].wait(steps[i]);
        ASSERT_FALSE(waited) << waited.message();
        EXPECT_EQ(at(y[i], 0), 13 * float(i + 1));
      }
    }
    rt::Error e = world.ranks[r].wait(steps.back());
    ASSERT_FALSE(e) << e.message();
    EXPECT_EQ(at(y.back(), 0), 13 * 20);
  });
}

TEST(MeshProcess, FailsOnAllWhenOneFailsAndGoesOn) {
  for (bool graphs : {true, false}) {
    World world(meshPlan(), graphs);
    for (int round = 0; round < 3; ++round) {
      world.collectives.lost = round % 2; // a kernel that has waited in vain, on all ranks
      world.all([&](int r) {
        lathe_tensor y{};
        rt::Error e = world.ranks[r].run(2, 2, y);
        EXPECT_EQ(e.code(), LATHE_PEER_LOST) << e.message();
        EXPECT_NE(e.message().find("Sum_2"), std::string::npos) << e.message();
      });
      world.collectives.lost = -1;
      world.all([&](int r) {
        lathe_tensor y{};
        rt::Error e = world.ranks[r].run(3, 2, y);
        ASSERT_FALSE(e) << e.message();
        EXPECT_EQ(at(y, 0), 26);
      });
    }
  }
}

TEST(MeshProcess, EndsKernelsThatWaitForARankThatFails) {
  World world(meshPlan(), /*graphs=*/false);
  auto own = fakeGpu().kernels["scale_add"];
  int launches = 0;
  fakeGpu().kernels["scale_add"] = [&](const FakeLaunch &l, void **p) {
    own(l, p);
    if (++launches == 2) // behind it no launch of either rank succeeds; one may have enqueued its collective
      fakeGpu().failingCall = "cuLaunchKernelEx";
  };
  const auto begin = Clock::now();
  world.all([&](int r) {
    lathe_tensor y{};
    EXPECT_TRUE(world.ranks[r].run(2, 2, y));
  });
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5));
  fakeGpu().failingCall = "";
  world.all([&](int r) {
    lathe_tensor y{};
    rt::Error e = world.ranks[r].run(2, 2, y);
    ASSERT_FALSE(e) << e.message();
    EXPECT_EQ(at(y, 0), 26);
  });
}

TEST(MeshProcess, IsToldOfWhatOneRankWasGiven) {
  World world;
  world.all([&](int r) {
    lathe_tensor y{};
    rt::Error e = world.ranks[r].run(3 + r, 2, y);
    EXPECT_EQ(e.code(), LATHE_USAGE) << e.message();
    EXPECT_NE(e.message().find("B = "), std::string::npos) << e.message();
    e = world.ranks[r].run(3, 2, y);
    ASSERT_FALSE(e) << e.message();
  });
}

TEST(MeshProcess, EndsStepsThatOneRankCancels) {
  World world(meshPlan("all_reduce", true));
  for (int round = 0; round < 20; ++round) {
    lathe_code outcomes[2][2] = {};
    world.all([&](int r) {
      lathe_tensor y{}, z{};
      uint64_t step = 0, behind = 0;
      ASSERT_FALSE(world.ranks[r].submit(2, 2, y, step));
      ASSERT_FALSE(world.ranks[r].submit(2, 2, z, behind));
      if (r == round % 2)
        lathe_cancel(world.ranks[r].context, round % 4 < 2 ? step : behind);
      for (uint64_t s : {step, behind}) {
        rt::Error e = world.ranks[r].wait(s);
        EXPECT_TRUE(!e || e.code() == LATHE_CANCELLED || e.code() == LATHE_PEER_LOST) << e.message();
        outcomes[r][s == behind] = e.code();
      }
      rt::Error e = world.ranks[r].run(2, 2, y);
      ASSERT_FALSE(e) << e.message();
      EXPECT_EQ(at(y, 0), 26);
    });
    for (int step : {0, 1})
      EXPECT_EQ(outcomes[0][step] == LATHE_OK, outcomes[1][step] == LATHE_OK)
          << "step " << step << " of round " << round << ": " << outcomes[0][step] << " and " << outcomes[1][step];
  }
}

/// Whoever has loaded the weights first: an engine that ranks of processes have run on has them until it is closed.
TEST(MeshProcess, KeepsWeightsThatAGroupHasLoaded) {
  installKernels();
  Collectives collectives;
  collectives.install();
  const uint64_t before = fakeGpu().allocatedBytes();
  {
    rt::Engine engine = openEngine(meshEngine(meshPlan()));
    auto load = [&](bool asRanks) {
      lathe_options o{};
      o.size = sizeof o;
      rt::Group group;
      rt::Error e = group.create(engine, {"fake:0", "fake:1"}, o);
      ASSERT_FALSE(e) << e.message();
      const int64_t port = freePort();
      Rank ranks[2];
      auto join = [&](int r) {
        rt::Error e = ranks[r].join(engine, r, port);
        EXPECT_FALSE(e) << e.message();
      };
      if (asRanks) {
        std::thread other([&] { join(1); });
        join(0);
        other.join();
      }
    };
    load(/*asRanks=*/false);
    EXPECT_EQ(fakeGpu().allocatedBytes(), before);
    load(/*asRanks=*/true);
    EXPECT_GT(fakeGpu().allocatedBytes(), before);
  }
  EXPECT_EQ(fakeGpu().allocatedBytes(), before);
}

TEST(MeshProcess, RefusesWhatCannotMeetOnAllRanks) {
  struct Case {
    const char *devices[2];
    lathe_code code;
    const char *text;
  };
  for (const Case &c : {Case{{"fake:1", "fake:1"}, LATHE_USAGE, "on the same GPU"},
                        Case{{"fake:0", "fake:7"}, LATHE_UNSUPPORTED, "there is no device fake:7"},
                        Case{{"fake", "fake"}, LATHE_UNSUPPORTED, "no access"}}) {
    installKernels();
    fakeGpu().peerAccess = c.devices[0] != std::string("fake");
    rt::Engine engine = openEngine(meshEngine(meshPlan()));
    const int64_t port = freePort();
    Rank ranks[2];
    auto join = [&](int r) {
      rt::Error e = ranks[r].join(engine, r, port, c.devices[r]);
      EXPECT_EQ(e.code(), c.code) << r << ": " << e.message();
      EXPECT_NE(e.message().find(c.text), std::string::npos) << e.message();
    };
    std::thread other([&] { join(1); });
    join(0);
    other.join();
  }
  fakeGpu().peerAccess = true;
}

/// A rank that is a process of its own, and runs steps of two rows until it is killed; at step `last` it stands still in
/// front of its collective.
pid_t startRank(const rt::Engine &engine, int rank, int64_t port, int last) {
  const pid_t child = fork();
  if (child)
    return child;
  int count = 0;
  auto own = fakeGpu().kernels["scale_add"];
  fakeGpu().kernels["scale_add"] = [&](const FakeLaunch &l, void **p) {
    if (++count >= last)
      for (;;)
        pause();
    own(l, p);
  };
  Rank r;
  lathe_tensor y{};
  rt::Error e = r.join(engine, rank, port);
  while (!e)
    e = r.run(2, 2, y);
  _exit(1);
}

TEST(MeshProcess, NamesARankThatDiesOrStopsInItsKernelAndGoesOnWithAnother) {
  installKernels();
  Collectives collectives;
  collectives.install();
  std::vector<const void *> weights;
  rt::Engine engine = openEngine(meshEngine(meshPlan()));
  for (int sign : {SIGKILL, SIGSTOP, SIGKILL}) {
    const int64_t port = freePort();
    const pid_t child = startRank(engine, 1, port, 5);
    fakeGpu().kernels["scale_add"] = [&, own = fakeGpu().kernels["scale_add"]](const FakeLaunch &l, void **p) {
      weights.push_back(parameter<const void *>(p, 1));
      own(l, p);
    };
    {
      Rank rank;
      rt::Error e = rank.join(engine, 0, port);
      ASSERT_FALSE(e) << e.message();
      lathe_tensor y{};
      for (int i = 0; i < 4; ++i) {
        e = rank.run(2, 2, y);
        ASSERT_FALSE(e) << e.message();
        EXPECT_EQ(at(y, 0), 26);
      }
      uint64_t step = 0;
      ASSERT_FALSE(rank.submit(2, 2, y, step));
      std::this_thread::sleep_for(std::chrono::milliseconds(100)); // its kernel waits
      const auto begin = Clock::now();
      kill(child, sign);
      e = rank.wait(step);
      EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5));
      EXPECT_EQ(e.code(), LATHE_PEER_LOST) << e.message();
      for (const char *part : {"rank 1 is lost", "all_reduce", "Sum_2"})
        EXPECT_NE(e.message().find(part), std::string::npos) << e.message();
      EXPECT_EQ(rank.run(2, 2, y).code(), LATHE_PEER_LOST) << "nothing runs any more";
    }
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  EXPECT_EQ(std::set<const void *>(weights.begin(), weights.end()).size(), 1u) << "the survivor keeps its weights";
}

} // namespace
