//===- MeshSimulatorTest.cpp - collectives and programs in time -----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Against what can be worked out by hand, and against times of SimGrid, which test/perf/mesh/against_simgrid.py wrote.
//
//===----------------------------------------------------------------------===//
#include "../../lib/analysis/MessageNetwork.h"

#include "lathe/analysis/MeshSimulator.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

using namespace lathe;
using namespace lathe::analysis;

namespace {

MeshTopology topologyOf(int64_t hosts, int64_t gpus) {
  MeshTopology topology;
  topology.hosts = hosts, topology.gpusPerHost = gpus;
  topology.peers = {1e-6, 2e-7, 1e11};
  topology.network = {5e-6, 1e-6, 1e10};
  topology.meetingSeconds = 3e-6;
  return topology;
}

std::vector<double> timesOf(const MeshTopology &topology, CollectiveAlgorithm algorithm, int64_t bytes,
                            std::vector<double> arrivals, CollectiveKind kind = CollectiveKind::AllReduce, int64_t first = 0) {
  auto times = collectiveTimes(topology, {kind, algorithm, bytes, first}, arrivals);
  EXPECT_TRUE(times) << times.status().str();
  return times ? *times : std::vector<double>();
}

void expectAll(const std::vector<double> &times, double want) {
  ASSERT_FALSE(times.empty());
  for (double time : times)
    EXPECT_NEAR(time, want, 1e-9 * want);
}

TEST(CollectiveTimes, FollowTheFormulas) {
  const MeshTopology host = topologyOf(1, 4);
  const double bytes = 1e6, start = 3e-6;
  // Of a port's three messages the first begins earliest; sharing it, all end when the port has carried everything.
  const std::vector<double> none(4);
  expectAll(timesOf(host, CollectiveAlgorithm::OneShot, 1000000, none), start + 2e-7 + 1e-6 + 3 * bytes / 1e11);
  expectAll(timesOf(host, CollectiveAlgorithm::TwoShot, 1000000, none), start + 2 * (2e-7 + 1e-6 + 3 * bytes / 4 / 1e11));
  expectAll(timesOf(host, CollectiveAlgorithm::Ring, 1000000, none), start + 6 * (2e-7 + 1e-6 + bytes / 4 / 1e11));
  expectAll(timesOf(host, CollectiveAlgorithm::Direct, 1000000, none),
            start + 2 * (2e-7 + 1e-6 + 3 * bytes / 4 / 1e11) + 2 * (3 * 2e-7 + 1e-6));
  expectAll(timesOf(host, CollectiveAlgorithm::OneShot, 1000000, none, CollectiveKind::AllGather),
            start + 2e-7 + 1e-6 + 3 * bytes / 4 / 1e11);
  expectAll(timesOf(host, CollectiveAlgorithm::Ring, 1000000, none, CollectiveKind::ReduceScatter),
            start + 3 * (2e-7 + 1e-6 + bytes / 4 / 1e11));
  expectAll(timesOf(host, CollectiveAlgorithm::Ring, 1000000, {5e-6}), 8e-6);
}

TEST(CollectiveTimes, ATreeGoesUpAndDown) {
  // Hosts of one GPU each: three rounds up and three down, of which the root has all.
  const MeshTopology hosts = topologyOf(8, 1);
  const double hop = 1e-6 + 5e-6 + 1e6 / 1e10;
  const std::vector<double> times = timesOf(hosts, CollectiveAlgorithm::Tree, 1000000, std::vector<double>(8));
  EXPECT_NEAR(*std::max_element(times.begin(), times.end()), 3e-6 + 6 * hop, 1e-12);
  // Parts within hosts of four: each of them has a quarter to send to the other host.
  const MeshTopology pairs = topologyOf(2, 4);
  const double inside = 2e-7 + 1e-6 + 3 * 2.5e5 / 1e11, between = 1e-6 + 5e-6 + 2.5e5 / 1e10;
  const std::vector<double> both = timesOf(pairs, CollectiveAlgorithm::Tree, 1000000, std::vector<double>(8));
  EXPECT_NEAR(*std::max_element(both.begin(), both.end()), 3e-6 + 2 * inside + 2 * between, 1e-12);
  // One port for all four.
  MeshTopology shared = pairs;
  shared.portPerHost = true;
  const std::vector<double> slow = timesOf(shared, CollectiveAlgorithm::Tree, 1000000, std::vector<double>(8));
  EXPECT_NEAR(*std::max_element(slow.begin(), slow.end()), 3e-6 + 2 * inside + 2 * (1e-6 + 5e-6 + 1e6 / 1e10), 1e-12);
}

TEST(MessageNetwork, SharesPortsMaxMinFairly) {
  // Three messages go to port y, which leaves each 2 bytes a second. One of them comes from port a, and needs less than
  // half of it: the other message of a has the rest, 4 and not 3, and all 6 when it is alone.
  MessageNetwork network;
  const int a = network.addPort(6), b = network.addPort(6), c = network.addPort(6);
  const int x = network.addPort(6), y = network.addPort(6);
  network.send(0, a, x, 20, 0, 0);
  network.send(0, a, y, 6, 0, 1);
  network.send(0, b, y, 6, 0, 2);
  network.send(0, c, y, 6, 0, 3);
  double time = 0;
  std::vector<int> arrived;
  ASSERT_TRUE(network.next(time, arrived));
  std::sort(arrived.begin(), arrived.end());
  EXPECT_EQ(arrived, (std::vector<int>{1, 2, 3}));
  EXPECT_NEAR(time, 3, 1e-9);
  ASSERT_TRUE(network.next(time, arrived));
  EXPECT_EQ(arrived, std::vector<int>{0});
  EXPECT_NEAR(time, 3 + (20 - 3 * 4) / 6.0, 1e-9);
  EXPECT_FALSE(network.next(time, arrived));
}

TEST(CollectiveTimes, LinksBetweenHostsHavePortsOfTheirOwn) {
  // Two hosts of two ranks: what goes to the other host is slower, and takes nothing of what a rank sends within its own.
  MeshTopology topology = topologyOf(2, 2);
  topology.peers.messageSeconds = topology.network.messageSeconds = 0;
  const std::vector<double> times = timesOf(topology, CollectiveAlgorithm::OneShot, 1000000, std::vector<double>(4));
  expectAll(times, 3e-6 + 5e-6 + 2 * 1e6 / 1e10);
}

TEST(CollectiveTimes, WaitForTheLast) {
  const MeshTopology host = topologyOf(1, 4);
  for (CollectiveAlgorithm algorithm : {CollectiveAlgorithm::OneShot, CollectiveAlgorithm::TwoShot, CollectiveAlgorithm::Ring}) {
    const std::vector<double> times = timesOf(host, algorithm, 4096, {0, 0, 1e-3, 0});
    for (double time : times) // whose messages still have to come; the late one has all others' already
      EXPECT_GT(time, 1e-3);
    EXPECT_LT(times[2], 1e-3 + 20e-6);
  }
}

TEST(CollectiveTimes, RingsOfTenThousandRanksAreQuick) {
  MeshTopology topology = topologyOf(1250, 8);
  std::vector<double> arrivals(10000);
  for (size_t r = 0; r < arrivals.size(); ++r)
    arrivals[r] = 1e-6 * double(r * 7919 % 100);
  const std::vector<double> times = timesOf(topology, CollectiveAlgorithm::Ring, 1 << 30, arrivals);
  // The slowest link of the ring says how long a round takes, but for the first, which are those of late ranks.
  const double round = 1e-6 + 5e-6 + double(1 << 30) / 10000 / 1e10, least = 19998 * round;
  EXPECT_GE(*std::max_element(times.begin(), times.end()), least);
  EXPECT_LE(*std::max_element(times.begin(), times.end()), 1.05 * least);
  const std::vector<double> tree = timesOf(topology, CollectiveAlgorithm::Tree, 1 << 20, std::vector<double>(10000));
  EXPECT_LT(*std::max_element(tree.begin(), tree.end()), 1e-3);
}

TEST(CollectiveTimes, WhatIsNotThereIsRefused) {
  const MeshTopology topology = topologyOf(2, 4);
  auto code = [&](CollectiveAlgorithm algorithm, CollectiveKind kind, size_t ranks, int64_t first = 0) {
    return collectiveTimes(topology, {kind, algorithm, 64, first}, std::vector<double>(ranks)).status().code();
  };
  EXPECT_EQ(code(CollectiveAlgorithm::TwoShot, CollectiveKind::AllGather, 4), ErrorCode::Unsupported);
  EXPECT_EQ(code(CollectiveAlgorithm::Tree, CollectiveKind::ReduceScatter, 8), ErrorCode::Unsupported);
  EXPECT_EQ(code(CollectiveAlgorithm::Tree, CollectiveKind::AllReduce, 6), ErrorCode::Unsupported);
  EXPECT_EQ(code(CollectiveAlgorithm::Tree, CollectiveKind::AllReduce, 4, 2), ErrorCode::Unsupported);
  EXPECT_EQ(collectiveTimes(topologyOf(1, 4000), {CollectiveKind::AllReduce, CollectiveAlgorithm::OneShot, 64},
                            std::vector<double>(4000))
                .status()
                .code(),
            ErrorCode::Unsupported);
}

TEST(CollectiveTimes, AreThoseOfSimgrid) {
  std::ifstream file(LATHE_SOURCE_DIR "/test/perf/mesh/golden.tsv");
  ASSERT_TRUE(file);
  int rows = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#"))
      continue;
    std::istringstream text(line);
    std::string algorithm, port;
    MeshTopology topology;
    int64_t bytes = 0, late = 0;
    double lateSeconds = 0, seconds = 0;
    ASSERT_TRUE(text >> algorithm >> topology.hosts >> topology.gpusPerHost >> bytes >> port >> late >> lateSeconds >> seconds)
        << line;
    topology.peers = {7e-7, 2e-7, 3.2e11};
    topology.network = {5e-6, 1e-6, 4.5e10};
    topology.meetingSeconds = 9e-7;
    topology.portPerHost = port == "host";
    std::vector<double> arrivals(size_t(topology.gpus()));
    arrivals[size_t(late)] = lateSeconds;
    std::optional<CollectiveAlgorithm> named = algorithmNamed(algorithm);
    ASSERT_TRUE(named) << line;
    const std::vector<double> times = timesOf(topology, *named, bytes, arrivals);
    ASSERT_FALSE(times.empty());
    EXPECT_NEAR(*std::max_element(times.begin(), times.end()), seconds, 0.05 * seconds) << line;
    ++rows;
  }
  EXPECT_GT(rows, 80);
}

MeshStep kernel(double seconds) {
  MeshStep step;
  step.name = "kernel";
  step.seconds = seconds;
  return step;
}

MeshStep allReduce(int64_t bytes) {
  MeshStep step;
  step.name = "all_reduce";
  step.collective = CollectiveCall{CollectiveKind::AllReduce, CollectiveAlgorithm::OneShot, bytes};
  return step;
}

TEST(MeshSimulator, StepsFollowEachOther) {
  MeshTopology topology = topologyOf(1, 2);
  topology.speeds[1] = 0.5;
  auto timeline = simulateMesh(topology, {kernel(1e-3), allReduce(1000), kernel(2e-3)}, 2);
  ASSERT_TRUE(timeline) << timeline.status().str();
  EXPECT_NEAR(timeline->endOf(0, 0), 1e-3, 1e-12);
  EXPECT_NEAR(timeline->endOf(0, 1), 2e-3, 1e-12);
  const double through = 2e-3 + 3e-6 + 2e-7 + 1e-6 + 1e3 / 1e11; // the last to come, and what it sends
  EXPECT_NEAR(timeline->endOf(1, 0), through, 1e-12);
  EXPECT_NEAR(timeline->seconds, through + 4e-3, 1e-9);
  // Two copies do the same.
  MeshTopology four = topologyOf(1, 4);
  four.speeds = {{1, 0.5}, {3, 0.5}};
  auto copies = simulateMesh(four, {kernel(1e-3), allReduce(1000), kernel(2e-3)}, 2, 2);
  ASSERT_TRUE(copies);
  EXPECT_EQ(copies->ranks, 4);
  EXPECT_EQ(copies->endOf(2, 2), timeline->endOf(2, 0));
  EXPECT_EQ(copies->endOf(2, 3), timeline->endOf(2, 1));
  // Nobody waits for those of another copy.
  four.speeds = {{3, 0.5}};
  auto apart = simulateMesh(four, {kernel(1e-3), allReduce(1000)}, 2, 2);
  ASSERT_TRUE(apart);
  EXPECT_EQ(apart->lastBeginOf(1, 0), apart->beginOf(1, 0));
  EXPECT_EQ(apart->lastBeginOf(1, 2), apart->beginOf(1, 3));
  EXPECT_LT(apart->endOf(1, 1), apart->endOf(1, 2));
}

TEST(MeshSimulator, StreamsWaitForEvents) {
  MeshStep first = kernel(1e-3), beside = kernel(5e-3), last = kernel(1e-3);
  first.signal = 0;
  beside.stream = 1, beside.waits = {0}, beside.signal = 1;
  last.waits = {1};
  auto timeline = simulateMesh(topologyOf(1, 2), {first, beside, kernel(2e-3), last}, 2);
  ASSERT_TRUE(timeline);
  EXPECT_NEAR(timeline->endOf(2, 0), 3e-3, 1e-12); // beside the other stream
  EXPECT_NEAR(timeline->seconds, 7e-3, 1e-12);
  last.waits = {7};
  EXPECT_EQ(simulateMesh(topologyOf(1, 2), {last}, 2).status().code(), ErrorCode::Invalid);
}

TEST(MeshSimulator, RanksMustFit) {
  EXPECT_EQ(simulateMesh(topologyOf(1, 2), {}, 3).status().code(), ErrorCode::Usage);
  EXPECT_EQ(simulateMesh(topologyOf(1, 2), {}, 0).status().code(), ErrorCode::Usage);
  EXPECT_EQ(simulateMesh(topologyOf(1, 4), {}, 2, 3).status().code(), ErrorCode::Usage);
  MeshTopology shared = topologyOf(2, 6);
  shared.portPerHost = true;
  EXPECT_EQ(simulateMesh(shared, {}, 4, 3).status().code(), ErrorCode::Unsupported);
  EXPECT_TRUE(simulateMesh(topologyOf(1, 2), {}, 2));
}

TEST(MeshSimulator, DrawsALaneForRanksThatAreAlike) {
  MeshTopology topology = topologyOf(2, 8);
  topology.speeds[3] = 0.5;
  auto alone = simulateMesh(topology, {kernel(1e-3)}, 16), timeline = simulateMesh(topology, {kernel(1e-3), allReduce(1000)}, 16);
  ASSERT_TRUE(alone && timeline);
  const std::string svg = drawTimeline(*alone, "a < b");
  EXPECT_NE(svg.find(">rank 0, 14 more alike<"), std::string::npos);
  EXPECT_NE(svg.find(">rank 3<"), std::string::npos);
  EXPECT_NE(svg.find("a &lt; b"), std::string::npos);
  EXPECT_EQ(svg.find("waits for other ranks"), std::string::npos);
  EXPECT_NE(drawTimeline(*timeline, "").find("waits for other ranks"), std::string::npos);
  EXPECT_EQ(svg, drawTimeline(*alone, "a < b"));
  EXPECT_NE(drawTimeline(*timeline, "", 1).find("more kinds of ranks"), std::string::npos);
}

} // namespace
