//===- MeshTest.cpp - ranks and their collectives -------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ranks of one process and ranks over TCP (here threads as well, on this machine) against sums in the order of
// the members and lib/reference, under the thread sanitizer.
//
//===----------------------------------------------------------------------===//
#include "../../runtime/comm/ThreadMesh.h"
#include "../../runtime/comm/tcp/TcpRank.h"

#include "lathe/reference/Collective.h"
#include "lathe/support/Half.h"

#include <atomic>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <thread>

using namespace lathe;
using namespace lathe::runtime;

namespace {

constexpr int64_t kSecond = 1000000000;

enum class Way { Threads, Awake, Tcp }; ///< Awake: threads that look for a while before they sleep

/// A port of this machine that nobody has now.
int64_t freePort() {
  int64_t port = 0;
  Result<tcp::Socket> socket = tcp::listenAt("127.0.0.1", 0, port);
  EXPECT_TRUE(socket.ok()) << socket.status().str();
  return port;
}

World worldOf(int64_t rank, int64_t ranks, int64_t port) {
  World world;
  world.rank = rank;
  world.ranks = ranks;
  world.host = "127.0.0.1";
  world.port = port;
  world.join = world.patience = 60 * kSecond;
  world.silence = 10 * kSecond;
  world.identity = "engine";
  return world;
}

/// Runs one function on each rank, and gives what they return.
std::vector<Status> onRanks(Way way, int64_t ranks, const std::function<Status(Communicator &)> &body,
                            int64_t patience = 60 * kSecond) {
  auto mesh = ThreadMesh::create(ranks, patience, way == Way::Awake ? 20000 : 0);
  const int64_t port = way == Way::Tcp ? freePort() : 0;
  std::vector<Status> results(ranks);
  std::vector<std::shared_ptr<Communicator>> ends(ranks); // until all are done
  std::vector<std::thread> threads;
  for (int64_t r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      if (way == Way::Tcp) {
        World world = worldOf(r, ranks, port);
        world.patience = patience;
        Result<tcp::Connections> connections = tcp::meetOthers(world);
        if (!connections) {
          results[r] = connections.status();
          return;
        }
        ends[r] = std::make_shared<tcp::TcpRank>(world, std::move(*connections));
      } else {
        ends[r] = mesh->communicator(r);
      }
      results[r] = body(*ends[r]);
    });
  for (std::thread &thread : threads)
    thread.join();
  return results;
}

float element(int64_t rank, int64_t i) { return 1.0f / float(3 + 7 * rank + i); }

/// All ranks of the mesh, in order.
std::vector<int64_t> everyone(const Communicator &c) {
  std::vector<int64_t> ranks;
  for (int64_t r = 0; r < c.ranks(); ++r)
    ranks.push_back(r);
  return ranks;
}

struct Mesh : testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(, Mesh, testing::Values(Way::Threads, Way::Awake, Way::Tcp), [](const auto &info) {
                           return info.param == Way::Tcp ? "Tcp" : info.param == Way::Awake ? "Awake" : "Threads";
                         });

TEST_P(Mesh, AllReduceAddsInTheOrderOfTheMembers) {
  for (int64_t ranks : {1, 2, 3, 4, 8})
    for (int64_t size : {0, 1, 5, 257, 9001}) { // fewer than ranks, no multiple, and more than goes at once
      std::vector<std::vector<float>> memory(ranks, std::vector<float>(size));
      std::vector<Status> results = onRanks(GetParam(), ranks, [&](Communicator &c) -> Status {
        std::vector<float> &own = memory[c.rank()];
        for (int64_t i = 0; i < size; ++i)
          own[i] = element(c.rank(), i);
        LATHE_RETURN_IF_ERROR(c.begin("step", okStatus(), {}));
        Exchange x;
        x.run = size;
        x.in = x.out = own.data(); // in place
        return c.end(c.exchange(everyone(c), x, {}), {});
      });
      for (const Status &s : results)
        EXPECT_TRUE(s.ok()) << s.str();
      for (int64_t i = 0; i < size; ++i) {
        float want = element(0, i);
        for (int64_t r = 1; r < ranks; ++r)
          want += element(r, i);
        for (int64_t r = 0; r < ranks; ++r)
          EXPECT_EQ(memory[r][i], want) << ranks << " ranks, rank " << r << ", element " << i;
      }
    }
}

TEST_P(Mesh, GatherJoinsAndScatterCutsAlongADimension) {
  const int64_t ranks = 4, rows = 3, run = 2;
  std::vector<std::vector<float>> whole(ranks, std::vector<float>(rows * ranks * run)), part(ranks);
  std::vector<Status> results = onRanks(GetParam(), ranks, [&](Communicator &c) -> Status {
    std::vector<float> own(rows * run);
    for (int64_t i = 0; i < rows * run; ++i)
      own[i] = float(100 * c.rank() + i);
    part[c.rank()].resize(rows * run);
    LATHE_RETURN_IF_ERROR(c.begin("step", okStatus(), {}));
    Exchange x;
    x.rows = rows;
    x.run = run;
    x.kind = Exchange::Kind::AllGather;
    x.in = own.data();
    x.out = whole[c.rank()].data();
    Status s = c.exchange(everyone(c), x, {});
    x.kind = Exchange::Kind::ReduceScatter;
    x.in = whole[c.rank()].data();
    x.out = part[c.rank()].data();
    if (s.ok())
      s = c.exchange(everyone(c), x, {});
    return c.end(s, {});
  });
  for (int64_t r = 0; r < ranks; ++r) {
    ASSERT_TRUE(results[r].ok()) << results[r].str();
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t m = 0; m < ranks; ++m)
        for (int64_t i = 0; i < run; ++i)
          EXPECT_EQ(whole[r][(row * ranks + m) * run + i], float(100 * m + row * run + i));
    // All ranks gathered the same, so that the sum is `ranks` times this rank's part.
    for (int64_t i = 0; i < rows * run; ++i)
      EXPECT_EQ(part[r][i], float(ranks * (100 * r + i)));
  }
}

TEST(Reduce, KindsAndTypes) {
  using Reduction = Exchange::Reduction;
  auto reduce = [](DType dtype, Reduction kind, auto values) {
    auto out = values[0];
    std::vector<const void *> ins;
    for (auto &value : values)
      ins.push_back(&value);
    void *to = &out;
    Exchange x;
    x.dtype = dtype;
    x.reduction = kind;
    x.run = 1;
    reduceElements(x, 0, ins, {&to, 1}, 0, 1);
    return out;
  };
  EXPECT_EQ(reduce(DType::I32, Reduction::Sum, std::vector<int32_t>{INT32_MAX, 1}), INT32_MIN); // wraps
  EXPECT_EQ(reduce(DType::I16, Reduction::Prod, std::vector<int16_t>{-2, 300, 7}), -4200);
  EXPECT_EQ(reduce(DType::UI8, Reduction::Max, std::vector<uint8_t>{3, 250, 7}), 250);
  EXPECT_EQ(reduce(DType::I8, Reduction::Min, std::vector<int8_t>{3, -128, 7}), -128);
  EXPECT_EQ(reduce(DType::F64, Reduction::Prod, std::vector<double>{3, 0.5, 7}), 10.5);
  float nan = std::numeric_limits<float>::quiet_NaN();
  for (Reduction kind : {Reduction::Max, Reduction::Min})
    for (auto values : {std::vector<float>{nan, 1}, std::vector<float>{1, nan}})
      EXPECT_TRUE(std::isnan(reduce(DType::F32, kind, values)));
  // In f32: each addend alone would be lost in f16.
  uint16_t big = floatToF16(2048), one = floatToF16(1);
  EXPECT_EQ(reduce(DType::F16, Reduction::Sum, std::vector<uint16_t>{big, one, one}), floatToF16(2050));
  EXPECT_FALSE(isReducible(DType::Bool));
}

/// Every collective, kind and type, against lib/reference: one dimension of three, on three ranks.
TEST_P(Mesh, AgreesWithTheReference) {
  const int64_t ranks = 3;
  const char *kinds[] = {"sum", "prod", "max", "min"};
  std::mt19937 random(11);
  for (DType dtype : {DType::F64, DType::F32, DType::F16, DType::BF16, DType::I8, DType::I16, DType::I32,
                      DType::I64, DType::UI8, DType::UI16, DType::UI32, DType::UI64})
    for (int which = 0; which < 9; ++which) { // four kinds that reduce, twice, and all_gather
      const std::string op = which == 8 ? "all_gather" : which < 4 ? "all_reduce" : "reduce_scatter";
      const int64_t dim = random() % 3;
      std::vector<int64_t> dims = {2, 3, 2};
      dims[dim] = 6;
      std::vector<HostTensor> in(ranks, HostTensor(dtype, dims));
      for (HostTensor &tensor : in)
        for (int64_t i = 0; i < tensor.count(); ++i)
          tensor.setReal(i, double(random() % 9) - (isFloat(dtype) || dtype <= DType::I64 ? 4 : 0));
      auto want = reference::evaluateCollective(op, kinds[which % 4], dim, in);
      ASSERT_TRUE(want.ok()) << want.status().str();
      std::vector<HostTensor> out(ranks, HostTensor(dtype, (*want)[0].dims));
      std::vector<Status> results = onRanks(GetParam(), ranks, [&](Communicator &c) -> Status {
        Exchange x;
        x.kind = op == "all_reduce"   ? Exchange::Kind::AllReduce
                 : op == "all_gather" ? Exchange::Kind::AllGather
                                      : Exchange::Kind::ReduceScatter;
        x.reduction = Exchange::Reduction(which % 4);
        x.dtype = dtype;
        const std::vector<int64_t> &part = op == "reduce_scatter" ? out[0].dims : dims;
        x.run = 1;
        for (int64_t d = 0; d < 3; ++d)
          (op != "all_reduce" && d < dim ? x.rows : x.run) *= part[d];
        x.in = in[c.rank()].data.data();
        x.out = out[c.rank()].data.data();
        LATHE_RETURN_IF_ERROR(c.begin("step", okStatus(), {}));
        return c.end(c.exchange(everyone(c), x, {}), {});
      });
      for (int64_t r = 0; r < ranks; ++r) {
        ASSERT_TRUE(results[r].ok()) << results[r].str();
        EXPECT_EQ(out[r].data, (*want)[r].data) << op << " " << kinds[which % 4] << " of " << name(dtype);
      }
    }
}

/// Two rows of three ranks: sums along the rows, then along the columns, groups beside each other.
TEST_P(Mesh, GroupsOfRanks) {
  std::vector<float> sums(6);
  std::vector<Status> results = onRanks(GetParam(), 6, [&](Communicator &c) -> Status {
    const int64_t row = c.rank() / 3 * 3, column = c.rank() % 3;
    const std::vector<int64_t> groups[] = {{row, row + 1, row + 2}, {column, column + 3}};
    for (int round = 0; round < 50; ++round) {
      LATHE_RETURN_IF_ERROR(c.begin("step", okStatus(), {}));
      float value = float(c.rank());
      Status s;
      for (const std::vector<int64_t> &group : groups) {
        Exchange x;
        x.run = 1;
        x.in = x.out = &value;
        if (s.ok())
          s = c.exchange(group, x, {});
      }
      sums[c.rank()] = value;
      LATHE_RETURN_IF_ERROR(c.end(s, {}));
    }
    return okStatus();
  });
  for (int64_t r = 0; r < 6; ++r) {
    EXPECT_TRUE(results[r].ok()) << results[r].str();
    EXPECT_EQ(sums[r], 15);
  }
}

TEST_P(Mesh, OneFailureFailsAllAndTheNextStepRuns) {
  std::vector<Status> first(4), second(4);
  onRanks(GetParam(), 4, [&](Communicator &c) {
    auto step = [&](bool fails) -> Status {
      LATHE_RETURN_IF_ERROR(c.begin("step", okStatus(), {}));
      float value = 1;
      Exchange x;
      x.run = 1;
      x.in = x.out = &value;
      Status s = fails ? runtimeError("index 9 is out of range", "node Gather_1") : c.exchange(everyone(c), x, {});
      return c.end(s, {});
    };
    first[c.rank()] = step(c.rank() == 2);
    second[c.rank()] = step(false);
    return okStatus();
  });
  for (int64_t r = 0; r < 4; ++r) {
    EXPECT_EQ(first[r].code(), ErrorCode::RuntimeFailure);
    EXPECT_EQ(first[r].message(), "index 9 is out of range");
    EXPECT_EQ(first[r].location(), r == 2 ? "node Gather_1" : "rank 2: node Gather_1");
    EXPECT_TRUE(second[r].ok()) << second[r].str();
  }
}

TEST_P(Mesh, RanksThatCannotTakePartAreToldOfByAll) {
  for (bool differs : {false, true}) {
    std::vector<Status> results = onRanks(GetParam(), 3, [&](Communicator &c) {
      if (differs)
        return c.begin(c.rank() == 1 ? "N = 3" : "N = 4", okStatus(), {});
      return c.begin("step", c.rank() == 1 ? usageError("rank is 3, expected 2", "input 'x'") : okStatus(), {});
    });
    for (int64_t r = 0; r < 3; ++r) {
      EXPECT_EQ(results[r].code(), ErrorCode::Usage);
      if (differs)
        EXPECT_EQ(results[r].message(), "rank 1 runs 'N = 3', rank 0 'N = 4'");
      else
        EXPECT_EQ(results[r].location(), r == 1 ? "input 'x'" : "rank 1: input 'x'");
    }
  }
}

TEST_P(Mesh, DifferentCollectivesAreADefectOnAllRanks) {
  std::vector<Status> results = onRanks(GetParam(), 2, [&](Communicator &c) -> Status {
    LATHE_RETURN_IF_ERROR(c.begin("step", okStatus(), {}));
    float values[2] = {};
    Exchange x;
    x.run = c.rank() + 1;
    x.in = x.out = values;
    return c.end(c.exchange(everyone(c), x, {}), {});
  });
  for (const Status &s : results)
    EXPECT_EQ(s.code(), ErrorCode::Internal);
}

TEST_P(Mesh, AMissingRankEndsTheWait) {
  std::vector<Status> results = onRanks(GetParam(), 3, [&](Communicator &c) {
    return c.rank() == 2 ? okStatus() : c.begin("step", okStatus(), {});
  }, /*patience=*/kSecond / 20);
  for (int64_t r = 0; r < 2; ++r) {
    EXPECT_EQ(results[r].code(), ErrorCode::Deadline);
    EXPECT_NE(results[r].message().find("2"), std::string::npos) << results[r].str();
  }
  // Cancelled by the caller.
  std::atomic<int> asked = 0;
  results = onRanks(GetParam(), 2, [&](Communicator &c) {
    auto stop = [&] { return ++asked > 2 ? Status(ErrorCode::Cancelled, "cancelled") : okStatus(); };
    return c.rank() == 1 ? okStatus() : c.begin("step", okStatus(), stop);
  });
  EXPECT_EQ(results[0].code(), ErrorCode::Cancelled);
}

TEST_P(Mesh, AStepThatDoesNotEndBreaksTheMesh) {
  std::vector<Status> results = onRanks(GetParam(), 2, [&](Communicator &c) -> Status {
    LATHE_RETURN_IF_ERROR(c.begin("step", okStatus(), {}));
    if (c.rank() == 1)
      return okStatus(); // as code that never comes back
    (void)c.end(okStatus(), {});
    return c.begin("next", okStatus(), {});
  }, /*patience=*/kSecond);
  EXPECT_EQ(results[0].code(), ErrorCode::RuntimeFailure);
}

//===--- over TCP ---------------------------------------------------------===//

using Clock = std::chrono::steady_clock;

/// What meeting comes to on each of these ranks.
std::vector<Status> meet(const std::vector<World> &worlds) {
  std::vector<Status> results(worlds.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < worlds.size(); ++i)
    threads.emplace_back([&, i] { results[i] = tcp::meetOthers(worlds[i]).status(); });
  for (std::thread &thread : threads)
    thread.join();
  return results;
}

TEST(Rendezvous, TellsAllOfRanksThatDoNotFit) {
  const int64_t port = freePort();
  auto worlds = [&] { return std::vector<World>{worldOf(0, 3, port), worldOf(1, 3, port), worldOf(2, 3, port)}; };
  auto expect = [](const std::vector<Status> &results, ErrorCode code, const std::string &text) {
    for (const Status &s : results) {
      EXPECT_EQ(s.code(), code) << s.str();
      EXPECT_NE(s.message().find(text), std::string::npos) << s.str();
    }
  };
  std::vector<World> w = worlds();
  w[2].identity = "other";
  expect(meet(w), ErrorCode::Usage, "another engine");
  w = worlds();
  w[1].ranks = 2;
  expect(meet(w), ErrorCode::Usage, "rank 1 is of a world of 2 ranks, rank 0 of one of 3");
  w = worlds();
  w[2].rank = 1;
  expect(meet(w), ErrorCode::Usage, "two processes say that they are rank 1");
  w = worlds();
  w.pop_back();
  w[0].join = kSecond / 5;
  expect(meet(w), ErrorCode::Deadline, "have not come in time: 2");
  expect(meet(worlds()), ErrorCode::Ok, ""); // at the same port, after all that
}

TEST(Rendezvous, SaysWhoHasThePort) {
  int64_t port = 0;
  Result<tcp::Socket> other = tcp::listenAt("127.0.0.1", 0, port); // accepts, and says nothing
  ASSERT_TRUE(other.ok());
  std::vector<World> worlds = {worldOf(0, 2, port), worldOf(1, 2, port)};
  worlds[1].join = kSecond / 2;
  std::vector<Status> results = meet(worlds);
  EXPECT_EQ(results[0].code(), ErrorCode::Usage);
  EXPECT_NE(results[0].message().find("is taken"), std::string::npos) << results[0].str();
  EXPECT_EQ(results[1].code(), ErrorCode::Deadline);
  EXPECT_NE(results[1].message().find("another program"), std::string::npos) << results[1].str();
}

TEST(Rendezvous, ReadsLaunchers) {
  auto with = [](std::initializer_list<std::pair<const char *, const char *>> variables) {
    for (auto [name, value] : variables)
      setenv(name, value, 1);
    Result<World> made = tcp::completeWorld({});
    for (auto [name, value] : variables)
      unsetenv(name);
    return made;
  };
  Result<World> torch = with({{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "1234"}});
  ASSERT_TRUE(torch.ok()) << torch.status().str();
  EXPECT_EQ(torch->rank, 3);
  EXPECT_EQ(torch->ranks, 4);
  EXPECT_EQ(torch->host, "10.0.0.1");
  EXPECT_EQ(torch->port, 1234);
  torch = with({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "1234"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  EXPECT_EQ(torch->port, 1235); // the agent has its own
  Result<World> mpi = with({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}});
  EXPECT_EQ(mpi->rank, 1);
  EXPECT_EQ(mpi->host, "127.0.0.1");
  Result<World> slurm = with({{"SLURM_PROCID", "5"}, {"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_LAUNCH_NODE_IPADDR", "10.1.1.1"}});
  EXPECT_EQ(slurm->rank, 5);
  EXPECT_EQ(slurm->host, "10.1.1.1");
  EXPECT_EQ(with({}).status().code(), ErrorCode::Usage);
  for (const char *wrong : {"", "4", "-1", "x", "1x"})
    EXPECT_EQ(with({{"RANK", wrong}, {"WORLD_SIZE", "4"}}).status().code(), ErrorCode::Usage) << wrong;
  EXPECT_EQ(with({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_PORT", "99999"}}).status().location(),
            "environment variable MASTER_PORT");
}

/// One of three leaves, closes its connections without a word, or falls silent, while others wait for it.
TEST(TcpRank, NamesTheRankThatIsLost) {
  for (bool isSilent : {false, true}) {
    const int64_t port = freePort();
    std::vector<Status> first(3), second(3);
    std::atomic<int> done = 0;
    std::vector<std::thread> threads;
    for (int64_t r = 0; r < 3; ++r)
      threads.emplace_back([&, r] {
        World world = worldOf(r, 3, port);
        world.silence = isSilent ? kSecond : 60 * kSecond;
        Result<tcp::Connections> connections = tcp::meetOthers(world);
        ASSERT_TRUE(connections.ok()) << connections.status().str();
        if (r == 1) { // closes at once, or when the others have given it up
          while (isSilent && done < 2)
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
          return;
        }
        tcp::TcpRank rank(world, std::move(*connections));
        const auto begin = Clock::now();
        first[r] = rank.begin("step", okStatus(), {});
        EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5));
        second[r] = rank.begin("step", okStatus(), {});
        ++done;
        while (done < 2)
          std::this_thread::sleep_for(std::chrono::milliseconds(10));
      });
    for (std::thread &thread : threads)
      thread.join();
    for (int64_t r : {0, 2})
      for (const Status &s : {first[r], second[r]}) {
        EXPECT_EQ(s.code(), ErrorCode::PeerLost) << s.str();
        EXPECT_NE(s.message().find("rank 1 is lost"), std::string::npos) << s.str();
      }
  }
}

/// Steps that fail anywhere, with anything under way, leave connections in order.
/// Ranks whose steps end later: the next begins while ends of the one before are still to come.
std::vector<Status> onLaterRanks(const std::function<Status(tcp::TcpRank &)> &body) {
  const int64_t port = freePort();
  std::vector<Status> results(3);
  std::vector<std::unique_ptr<tcp::TcpRank>> ends(3); // until all are done
  std::vector<std::thread> threads;
  for (int64_t r = 0; r < 3; ++r)
    threads.emplace_back([&, r] {
      World world = worldOf(r, 3, port);
      world.endsLater = true;
      Result<tcp::Connections> connections = tcp::meetOthers(world);
      if (!connections) {
        results[r] = connections.status();
        return;
      }
      ends[r] = std::make_unique<tcp::TcpRank>(world, std::move(*connections));
      results[r] = body(*ends[r]);
    });
  for (std::thread &thread : threads)
    thread.join();
  return results;
}

/// Waits until all have told how the step ended, and says it.
Status hearEnd(tcp::TcpRank &rank, uint64_t step, Status &outcome) {
  for (Deadline deadline = Deadline::in(10 * kSecond);;) {
    Result<bool> heard = rank.heardEnd(step, outcome);
    if (!heard)
      return heard.status();
    if (*heard)
      return okStatus();
    if (deadline.passed())
      return internalError("not heard");
    std::this_thread::yield();
  }
}

TEST(TcpRank, EndsStepsBehindTheBeginningOfOthers) {
  std::vector<Status> results = onLaterRanks([](tcp::TcpRank &rank) -> Status {
    for (uint64_t step = 1; step < 200; ++step) {
      // Each rank hears of the ends of a step at a time of its own; every seventh fails on rank 1, which causes failures.
      auto tell = [&](uint64_t ended) {
        const bool fails = ended % 7 == 0;
        rank.tellEnd(ended,
                     !fails             ? okStatus()
                     : rank.rank() == 1 ? runtimeError("of step " + std::to_string(ended))
                                        : Status(ErrorCode::PeerLost, "waited"),
                     fails && rank.rank() != 1);
      };
      auto hear = [&](uint64_t ended) -> Status {
        Status outcome;
        LATHE_RETURN_IF_ERROR(hearEnd(rank, ended, outcome));
        const bool isRight = ended % 7          ? outcome.ok()
                             : rank.rank() == 1 ? outcome.code() == ErrorCode::PeerLost
                                                : outcome.location() == "rank 1" &&
                                                      outcome.code() == ErrorCode::RuntimeFailure;
        return isRight ? okStatus() : internalError("step " + std::to_string(ended) + ": " + outcome.str());
      };
      if (rank.rank() != 2 && step > 1) {
        tell(step - 1);
        LATHE_RETURN_IF_ERROR(hear(step - 1));
      }
      uint32_t notes = 0;
      auto stop = [&, isTold = false]() mutable -> Status {
        if (rank.rank() == 2 && step > 1 && !std::exchange(isTold, true))
          tell(step - 1);
        return okStatus();
      };
      const bool isTold = rank.rank() == 2 && step > 1 && step % 2;
      if (isTold)
        tell(step - 1);
      LATHE_RETURN_IF_ERROR(rank.beginNoting("step", okStatus(), isTold ? Communicator::Stop() : Communicator::Stop(stop),
                                             1u << rank.rank(), notes));
      if (notes != 7 || rank.step() != step)
        return internalError("notes " + std::to_string(notes));
      if (rank.rank() == 2 && step > 1)
        LATHE_RETURN_IF_ERROR(hear(step - 1));
    }
    return okStatus();
  });
  for (const Status &s : results)
    EXPECT_TRUE(s.ok()) << s.str();
}

TEST(TcpRank, WaitsAsLongAsItIsToldTo) {
  std::vector<Status> results = onLaterRanks([](tcp::TcpRank &rank) -> Status {
    using namespace std::chrono_literals;
    rank.setPatience(-1);
    if (rank.rank() == 1)
      std::this_thread::sleep_for(300ms);
    LATHE_RETURN_IF_ERROR(rank.begin("slow", okStatus(), {}));
    uint32_t notes = 0;
    LATHE_RETURN_IF_ERROR(rank.meetNoting("within it", okStatus(), {}, 1u << rank.rank(), notes));
    if (notes != 7)
      return internalError("notes " + std::to_string(notes));
    rank.setPatience(kSecond / 10);
    return rank.rank() == 1 ? okStatus() : rank.meet("without rank 1", okStatus(), {});
  });
  EXPECT_TRUE(results[1].ok()) << results[1].str();
  for (int64_t r : {0, 2})
    EXPECT_EQ(results[r].code(), ErrorCode::Deadline) << results[r].str();
}

TEST(TcpRank, GoesOnAfterFailuresAnywhere) {
  constexpr int64_t kRanks = 4, kSteps = 60;
  std::vector<std::vector<Status>> outcomes(kRanks, std::vector<Status>(kSteps));
  std::vector<Status> results = onRanks(Way::Tcp, kRanks, [&](Communicator &c) -> Status {
    std::mt19937 random(5); // the same on all ranks
    for (int64_t step = 0; step < kSteps; ++step) {
      const int64_t fails = random() % (kRanks + 2), at = random() % 4, size = random() % 2 ? 100 : 40000;
      if (Status s = c.begin("step", okStatus(), {}); !s.ok())
        return s;
      Status status;
      for (int64_t i = 0; i < 4 && status.ok(); ++i) {
        std::vector<float> values(size_t(size), float(c.rank() + 1));
        Exchange x;
        x.run = size;
        x.in = x.out = values.data();
        status = fails == c.rank() && i == at ? runtimeError("planned", "node X") : c.exchange(everyone(c), x, {});
        if (status.ok() && values[size - 1] != 10)
          return internalError("a wrong sum");
      }
      outcomes[c.rank()][step] = c.end(status, {});
      if (outcomes[c.rank()][step].ok() != (fails >= kRanks))
        return internalError("step " + std::to_string(step) + ": " + outcomes[c.rank()][step].str());
    }
    return okStatus();
  });
  for (int64_t r = 0; r < kRanks; ++r) {
    EXPECT_TRUE(results[r].ok()) << results[r].str();
    for (int64_t step = 0; step < kSteps; ++step)
      if (!outcomes[r][step].ok())
        EXPECT_EQ(outcomes[r][step].message(), "planned");
  }
}

} // namespace
