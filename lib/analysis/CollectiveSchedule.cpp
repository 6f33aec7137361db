//===- CollectiveSchedule.cpp - the messages of a collective --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "CollectiveSchedule.h"

#include <algorithm>
#include <string>

namespace lathe::analysis {

namespace {
constexpr std::string_view kAlgorithms[] = {"one-shot", "two-shot", "direct", "ring", "tree"};
constexpr std::string_view kKinds[] = {"all_reduce", "all_gather", "reduce_scatter"};
} // namespace

std::string_view nameOf(CollectiveAlgorithm algorithm) { return kAlgorithms[size_t(algorithm)]; }
std::string_view nameOf(CollectiveKind kind) { return kKinds[size_t(kind)]; }

std::optional<CollectiveAlgorithm> algorithmNamed(std::string_view name) {
  for (size_t i = 0; i < std::size(kAlgorithms); ++i)
    if (kAlgorithms[i] == name)
      return CollectiveAlgorithm(i);
  return std::nullopt;
}

Result<CollectiveSchedule> CollectiveSchedule::make(const MeshTopology &topology, const CollectiveCall &call,
                                                    int64_t ranks) {
  CollectiveSchedule made;
  made.ranks = ranks;
  if (ranks < 2)
    return made;
  const bool isOneHost = topology.hostOf(call.first) == topology.hostOf(call.first + ranks - 1);
  made.perHost = isOneHost ? ranks : topology.gpusPerHost;
  made.hosts = ranks / made.perHost;
  using Kind = Stage::Kind;
  const bool reduces = call.kind != CollectiveKind::AllGather, gathers = call.kind != CollectiveKind::ReduceScatter;
  const double bytes = double(call.bytes), part = bytes / double(ranks);
  auto add = [&](Stage stage, int64_t times = 1) { made.stages.insert(made.stages.end(), size_t(times), stage); };
  switch (call.algorithm) {
  case CollectiveAlgorithm::OneShot:
    add({Kind::Everyone, reduces && gathers ? bytes : part});
    return made;
  case CollectiveAlgorithm::Direct:
  case CollectiveAlgorithm::TwoShot:
    if (call.algorithm == CollectiveAlgorithm::TwoShot && !(reduces && gathers))
      break;
    if (call.algorithm == CollectiveAlgorithm::Direct)
      add({Kind::Everyone, 0}); // the meeting ahead
    add({Kind::Everyone, part}, int64_t(reduces) + int64_t(gathers));
    if (call.algorithm == CollectiveAlgorithm::Direct)
      add({Kind::Everyone, 0});
    return made;
  case CollectiveAlgorithm::Ring:
    add({Kind::Next, part}, (int64_t(reduces) + int64_t(gathers)) * (ranks - 1));
    return made;
  case CollectiveAlgorithm::Tree: {
    if (!(reduces && gathers))
      break;
    if (!isOneHost && (ranks % made.perHost || call.first % made.perHost))
      return unsupportedError("a tree wants all " + std::to_string(made.perHost) + " ranks of each host, not ranks " +
                              std::to_string(call.first) + " to " + std::to_string(call.first + ranks - 1));
    const double share = bytes / double(made.perHost);
    const Stage inHost{Kind::Everyone, share, 1, true};
    if (made.perHost > 1)
      add(inHost);
    int64_t distance = 1;
    for (; distance < made.hosts; distance *= 2)
      add({Kind::Up, share, distance});
    while ((distance /= 2) >= 1)
      add({Kind::Down, share, distance});
    if (made.perHost > 1)
      add(inHost);
    return made;
  }
  }
  return unsupportedError("there is no " + std::string(nameOf(call.algorithm)) + " form of " +
                          std::string(nameOf(call.kind)));
}

void CollectiveSchedule::sends(int64_t round, int64_t rank, std::vector<Sent> &out) const {
  out.clear();
  const Stage &stage = stages[size_t(round)];
  switch (stage.kind) {
  case Stage::Kind::Everyone: {
    // Each begins with the rank behind it, so that no port gets everything at once.
    const int64_t first = stage.inHost ? rank / perHost * perHost : 0, count = stage.inHost ? perHost : ranks;
    for (int64_t i = 1; i < count; ++i)
      out.push_back({first + (rank - first + i) % count, stage.bytes});
    return;
  }
  case Stage::Kind::Next:
    out.push_back({(rank + 1) % ranks, stage.bytes});
    return;
  case Stage::Kind::Up:
  case Stage::Kind::Down: {
    // Host h of a binomial tree with root 0: pairs whose numbers differ by `distance`.
    const int64_t host = rank / perHost, gpu = rank % perHost;
    const bool isUp = stage.kind == Stage::Kind::Up, sendsNow = host % (2 * stage.distance) == (isUp ? stage.distance : 0);
    const int64_t other = isUp ? host - stage.distance : host + stage.distance;
    if (sendsNow && other < hosts)
      out.push_back({other * perHost + gpu, stage.bytes});
    return;
  }
  }
}

double CollectiveSchedule::messages() const {
  double count = 0;
  for (const Stage &stage : stages)
    count += double(ranks) * (stage.kind == Stage::Kind::Everyone ? double((stage.inHost ? perHost : ranks) - 1) : 1);
  return count;
}

} // namespace lathe::analysis
