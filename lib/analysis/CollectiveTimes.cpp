//===- CollectiveTimes.cpp - when ranks are through with a collective -----===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/analysis/CollectiveTimes.h"

#include "CollectiveSchedule.h"
#include "MessageNetwork.h"

#include <algorithm>
#include <limits>
#include <string>

namespace lathe::analysis {
namespace {

/// Follows every message.
class Player {
public:
  Player(const MeshTopology &topology, const CollectiveSchedule &schedule, int64_t first, int64_t ranks)
      : topology(topology), schedule(schedule), first(first), ranks(ranks), states(size_t(ranks)),
        expected(size_t(ranks * schedule.rounds())) {
    for (int64_t r = 0; r < ranks; ++r) {
      ports.push_back({network.addPort(topology.peers.bytesPerSecond), network.addPort(topology.peers.bytesPerSecond)});
      if (!topology.portPerHost || r == 0 || !isInside(r, r - 1))
        outside.push_back({network.addPort(topology.network.bytesPerSecond), network.addPort(topology.network.bytesPerSecond)});
      else
        outside.push_back(outside.back());
    }
    for (int64_t round = 0; round < schedule.rounds(); ++round)
      for (int64_t r = 0; r < ranks; ++r) {
        schedule.sends(round, r, sent);
        for (const Sent &message : sent)
          ++expected[place(round, message.to)];
      }
  }

  std::vector<double> run(const std::vector<double> &starts) {
    for (int64_t r = 0; r < ranks; ++r)
      begin(r, starts[size_t(r)]);
    double time = 0;
    std::vector<int> arrived;
    while (network.next(time, arrived))
      for (int id : arrived) {
        const Flight flight = flights[size_t(id)];
        freeFlights.push_back(id);
        --states[size_t(flight.from)].unsent;
        --expected[place(flight.round, flight.to)];
        goOn(flight.from, time);
        if (flight.round == states[size_t(flight.to)].round)
          goOn(flight.to, time);
      }
    std::vector<double> times;
    for (const State &state : states)
      times.push_back(state.time);
    return times;
  }

private:
  struct State {
    int64_t round = -1;
    int64_t unsent = 0; ///< messages of this round that have not arrived
    double time = 0;    ///< when the round began
  };
  struct Flight {
    int64_t from, to, round;
  };
  struct Pair {
    int out, in;
  };

  bool isInside(int64_t a, int64_t b) const { return topology.hostOf(first + a) == topology.hostOf(first + b); }
  size_t place(int64_t round, int64_t rank) const { return size_t(round * ranks + rank); }

  /// The round after that which a rank is in.
  void begin(int64_t rank, double time) {
    State &state = states[size_t(rank)];
    state.time = time;
    if (++state.round == schedule.rounds())
      return;
    schedule.sends(state.round, rank, sent);
    state.unsent = int64_t(sent.size());
    double leaves = time;
    for (const Sent &message : sent) {
      const bool inside = isInside(rank, message.to);
      const MeshLink &link = inside ? topology.peers : topology.network;
      const std::vector<Pair> &used = inside ? ports : outside;
      leaves += link.messageSeconds;
      int id = int(flights.size());
      if (freeFlights.empty())
        flights.emplace_back();
      else
        id = freeFlights.back(), freeFlights.pop_back();
      flights[size_t(id)] = {rank, message.to, state.round};
      network.send(leaves, used[size_t(rank)].out, used[size_t(message.to)].in, message.bytes, link.latency, id);
    }
    goOn(rank, time);
  }

  void goOn(int64_t rank, double time) {
    const State &state = states[size_t(rank)];
    if (state.round < schedule.rounds() && !state.unsent && !expected[place(state.round, rank)])
      begin(rank, std::max(time, state.time));
  }

  const MeshTopology &topology;
  const CollectiveSchedule &schedule;
  const int64_t first, ranks;
  MessageNetwork network;
  std::vector<Pair> ports, outside;
  std::vector<State> states;
  std::vector<int> expected; ///< messages for a rank in a round that have not arrived
  std::vector<Flight> flights;
  std::vector<int> freeFlights;
  std::vector<Sent> sent;
};

/// A ring's messages have their ports to themselves: each round follows from the one before. Once a round takes all
/// ranks equally long, so do the rest.
std::vector<double> ringTimes(const MeshTopology &topology, int64_t first, int64_t rounds, double part,
                              std::vector<double> times) {
  const size_t ranks = times.size();
  std::vector<double> takes, next(ranks); ///< a message of each rank
  for (size_t r = 0; r < ranks; ++r) {
    const MeshLink &link = topology.between(first + int64_t(r), first + int64_t((r + 1) % ranks));
    takes.push_back(link.messageSeconds + link.latency + part / link.bytesPerSecond);
  }
  for (int64_t round = 0; round < rounds; ++round) {
    double least = std::numeric_limits<double>::infinity(), most = 0;
    for (size_t r = 0; r < ranks; ++r) {
      const size_t ahead = r ? r - 1 : ranks - 1;
      next[r] = std::max(times[r] + takes[r], times[ahead] + takes[ahead]);
      least = std::min(least, next[r] - times[r]);
      most = std::max(most, next[r] - times[r]);
    }
    times.swap(next);
    if (most - least <= 1e-9 * most) {
      for (double &time : times)
        time += double(rounds - 1 - round) * most;
      break;
    }
  }
  return times;
}

} // namespace

Result<std::vector<double>> collectiveTimes(const MeshTopology &topology, const CollectiveCall &call,
                                            const std::vector<double> &arrivals) {
  const auto ranks = int64_t(arrivals.size());
  Result<CollectiveSchedule> schedule = CollectiveSchedule::make(topology, call, ranks);
  if (!schedule)
    return schedule.status();
  std::vector<double> starts = arrivals;
  for (double &start : starts)
    start += topology.meetingSeconds;
  if (!schedule->rounds())
    return starts;
  if (call.algorithm == CollectiveAlgorithm::Ring)
    return ringTimes(topology, call.first, schedule->rounds(), double(call.bytes) / double(ranks), std::move(starts));
  if (schedule->messages() > double(kMostMessages))
    return unsupportedError("a " + std::string(nameOf(call.algorithm)) + " of " + std::to_string(ranks) + " ranks has more than " +
                            std::to_string(kMostMessages) + " messages; a ring or a tree has fewer");
  return Player(topology, *schedule, call.first, ranks).run(starts);
}

} // namespace lathe::analysis
