//===- CollectiveSchedule.h - the messages of a collective ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_LIB_ANALYSIS_COLLECTIVESCHEDULE_H
#define LATHE_LIB_ANALYSIS_COLLECTIVESCHEDULE_H

#include "lathe/analysis/CollectiveTimes.h"

namespace lathe::analysis {

struct Sent {
  int64_t to = 0;
  double bytes = 0;
};

/// Which messages a rank sends in which round. Rounds are the same for all; in some a rank has nothing to do.
class CollectiveSchedule {
public:
  /// Of `ranks` ranks, numbered from 0. Unsupported where the kind or the ranks have no such algorithm.
  static Result<CollectiveSchedule> make(const MeshTopology &topology, const CollectiveCall &call, int64_t ranks);

  int64_t rounds() const { return int64_t(stages.size()); }
  void sends(int64_t round, int64_t rank, std::vector<Sent> &out) const;
  /// Of all ranks and rounds, an upper bound.
  double messages() const;

private:
  struct Stage {
    enum class Kind {
      Everyone, ///< `bytes` to each of the group
      Next,     ///< `bytes` to the next of all ranks
      Up, Down, ///< `bytes` between hosts that are `distance` apart in the tree, GPU by GPU
    };
    Kind kind = Kind::Everyone;
    double bytes = 0;
    int64_t distance = 1;
    bool inHost = false; ///< the group is the host's, else all ranks
  };

  int64_t ranks = 0, perHost = 1, hosts = 1;
  std::vector<Stage> stages;
};

} // namespace lathe::analysis

#endif // LATHE_LIB_ANALYSIS_COLLECTIVESCHEDULE_H
