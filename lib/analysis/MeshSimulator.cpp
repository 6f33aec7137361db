//===- MeshSimulator.cpp - a program on many ranks, in time ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/analysis/MeshSimulator.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace lathe::analysis {
namespace {

class Simulator {
public:
  Simulator(const MeshTopology &topology, std::vector<MeshStep> steps, int64_t members, int64_t copies)
      : topology(topology), members(members), ranks(size_t(members * copies)), speeds(ranks, 1) {
    timeline.ranks = members * copies;
    timeline.members = members;
    timeline.steps = std::move(steps);
    for (auto [rank, speed] : topology.speeds)
      if (size_t(rank) < ranks)
        speeds[size_t(rank)] = speed;
  }

  Result<MeshTimeline> run() {
    timeline.begin.resize(timeline.steps.size() * ranks);
    timeline.end.resize(timeline.steps.size() * ranks);
    for (size_t i = 0; i < timeline.steps.size(); ++i)
      LATHE_RETURN_IF_ERROR(advance(i));
    return std::move(timeline);
  }

private:
  Status advance(size_t index) {
    const MeshStep &step = timeline.steps[index];
    std::vector<double> &ready = streams.try_emplace(step.stream, std::vector<double>(ranks)).first->second;
    for (int event : step.waits) {
      auto reached = events.find(event);
      if (reached == events.end())
        return invalidError("waits for event " + std::to_string(event) + ", which no earlier step is", where(index));
      for (size_t r = 0; r < ranks; ++r)
        ready[r] = std::max(ready[r], reached->second[r]);
    }
    std::copy(ready.begin(), ready.end(), timeline.begin.begin() + std::ptrdiff_t(index * ranks));
    if (step.collective) {
      for (int64_t first = 0; first < int64_t(ranks); first += members)
        if (Status met = meet(*step.collective, first, ready.data() + first); !met.ok())
          return Status(met.code(), met.message(), where(index));
    } else {
      for (size_t r = 0; r < ranks; ++r)
        ready[r] += step.seconds / speeds[r];
      for (auto [rank, seconds] : step.more)
        if (rank >= 0 && size_t(rank) < ranks)
          ready[size_t(rank)] += seconds;
    }
    std::copy(ready.begin(), ready.end(), timeline.end.begin() + std::ptrdiff_t(index * ranks));
    if (step.signal >= 0)
      events[step.signal] = ready;
    timeline.seconds = std::max(timeline.seconds, *std::max_element(ready.begin(), ready.end()));
    return okStatus();
  }

  std::string where(size_t index) const {
    const MeshStep &step = timeline.steps[index];
    return "step " + std::to_string(index) + ", " + step.name + (step.nodes.empty() ? "" : " (" + step.nodes + ")");
  }

  /// Layers meet alike, and so do copies: what has been followed once is known, to a picosecond. `times`: of the
  /// members, when they come, and then when they are through.
  Status meet(CollectiveCall call, int64_t rank, double *times) {
    const double first = *std::min_element(times, times + members);
    call.first = rank;
    Key key{int(call.kind), int(call.algorithm), call.bytes, rank % topology.gpusPerHost, {}};
    std::vector<double> since;
    for (int64_t i = 0; i < members; ++i) {
      since.push_back(times[i] - first);
      key.late.push_back(std::llround(since.back() * 1e12));
    }
    auto known = met.find(key);
    if (known == met.end()) {
      Result<std::vector<double>> through = collectiveTimes(topology, call, since);
      if (!through)
        return through.status();
      known = met.emplace(std::move(key), std::move(*through)).first;
    }
    for (int64_t i = 0; i < members; ++i)
      times[i] = first + known->second[size_t(i)];
    return okStatus();
  }

  struct Key {
    int kind, algorithm;
    int64_t bytes, place; ///< of the first member on its host
    std::vector<int64_t> late; ///< picoseconds behind the first
    auto operator<=>(const Key &) const = default;
  };

  const MeshTopology &topology;
  const int64_t members;
  const size_t ranks;
  std::vector<double> speeds;
  MeshTimeline timeline;
  std::map<int, std::vector<double>> streams, events;
  std::map<Key, std::vector<double>> met;
};

} // namespace

Result<MeshTimeline> simulateMesh(const MeshTopology &topology, std::vector<MeshStep> steps, int64_t ranks, int64_t copies) {
  if (ranks < 1 || copies < 1 || ranks > topology.gpus() || copies > topology.gpus() / ranks)
    return usageError((copies > 1 ? std::to_string(copies) + " times " : "") + std::to_string(ranks) + " ranks do not fit on " +
                      std::to_string(topology.gpus()) + " GPUs (" + std::to_string(topology.hosts) + " hosts of " +
                      std::to_string(topology.gpusPerHost) + ")");
  if (copies > 1 && topology.portPerHost && ranks % topology.gpusPerHost && topology.gpusPerHost % ranks)
    return unsupportedError("copies of " + std::to_string(ranks) + " ranks share the port of a host of " +
                            std::to_string(topology.gpusPerHost) + " GPUs");
  return Simulator(topology, std::move(steps), ranks, copies).run();
}

} // namespace lathe::analysis
