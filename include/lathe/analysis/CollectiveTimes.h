//===- CollectiveTimes.h - when ranks are through with a collective -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A collective is messages in rounds. In a round a rank sends what it has to send, a message after another, and goes
// on to the next when these have arrived and those for it have come. A message takes the latency of its link and
// then its bytes at the rate that the ports of both ends leave it: ports are shared max-min fairly among the messages
// that are under way (D. Bertsekas and R. Gallager, Data Networks, 1992, section 6.5).
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_ANALYSIS_COLLECTIVETIMES_H
#define LATHE_ANALYSIS_COLLECTIVETIMES_H

#include "lathe/analysis/MeshTopology.h"
#include "lathe/support/Status.h"

#include <optional>
#include <string_view>
#include <vector>

namespace lathe::analysis {

enum class CollectiveKind : uint8_t { AllReduce, AllGather, ReduceScatter };

/// How ranks exchange. Parts are of equal bytes.
enum class CollectiveAlgorithm : uint8_t {
  OneShot, ///< everything to everyone: one round
  TwoShot, ///< a part to everyone, which reduces it; its result to everyone
  Direct,  ///< TwoShot or OneShot on operands that peers read and write, between two meetings
  Ring,    ///< a part to the next rank in each round
  Tree,    ///< parts within hosts; of a part's owners on all hosts a binomial tree up and down; parts within hosts
};
/// "one-shot", "two-shot", "direct", "ring", "tree".
std::string_view nameOf(CollectiveAlgorithm algorithm);
std::optional<CollectiveAlgorithm> algorithmNamed(std::string_view name);
std::string_view nameOf(CollectiveKind kind);

struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::AllReduce;
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::OneShot;
  int64_t bytes = 0; ///< of the whole value: what all_reduce reduces, all_gather leaves, and reduce_scatter takes
  int64_t first = 0; ///< the rank of the topology that is the first of those that meet; the others follow it
};

/// Messages of one collective that are followed one by one, at most; a ring's are not.
inline constexpr int64_t kMostMessages = 4'000'000;

/// Seconds at which each rank is through that comes at `arrivals[rank]`: as many ranks as there are arrivals, which the
/// topology has. Unsupported for an algorithm that the kind or the ranks do not have, and for more than kMostMessages.
Result<std::vector<double>> collectiveTimes(const MeshTopology &topology, const CollectiveCall &call,
                                            const std::vector<double> &arrivals);

} // namespace lathe::analysis

#endif // LATHE_ANALYSIS_COLLECTIVETIMES_H
