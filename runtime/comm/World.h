//===- World.h - ranks that are processes -----------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a process becomes a rank. What it then talks through is a plugin, so that the
// runtime needs nothing but libc: liblathe_tcp.so beside it, or the file that the
// environment variable LATHE_COMM names.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_COMM_WORLD_H
#define LATHE_RUNTIME_COMM_WORLD_H

#include "Communicator.h"

namespace lathe::runtime {

/// The processes that run one engine for a mesh together, as one of them sees it. Times are nanoseconds.
struct World {
  int64_t rank = 0;
  int64_t ranks = 0;    ///< 0: rank, ranks, and what is not given below, are what the launcher says
  std::string host;     ///< of rank 0, where all meet; empty: MASTER_ADDR, else this machine
  int64_t port = 0;     ///< 0: MASTER_PORT, else 29500
  int64_t join = -1;    ///< what it takes at most until all are there; negative: for ever
  int64_t silence = 0;  ///< a rank of which nothing is heard for so long is lost; 0: 3 s
  int64_t patience = -1; ///< as of a ThreadMesh
  bool endsLater = false; ///< steps end by WorldRank::tellEnd()
  std::string identity; ///< of the engine, printable: all ranks must have the same
  int64_t expected = 0; ///< ranks that the engine is for
};

/// A rank that is a process. Where steps are enqueued and end later, as on GPUs, they end by tellEnd() and heardEnd()
/// instead of end(): these do not wait, so that steps may begin while others are under way. One thread at a time, but
/// for lost().
class WorldRank : public Communicator {
public:
  /// As begin() of any rank. `note`: bits that this rank tells the others; `notes`: those of all ranks together, when
  /// the step has begun.
  virtual Status beginNoting(const std::string &what, const Status &own, const Stop &stop, uint32_t note,
                             uint32_t &notes) = 0;
  /// As begin(), within a step that has begun on all ranks: whoever leaves the step ends this, and the next step has the
  /// same number everywhere.
  virtual Status meet(const std::string &what, const Status &own, const Stop &stop) = 0;
  /// The same with notes, as of beginNoting().
  virtual Status meetNoting(const std::string &what, const Status &own, const Stop &stop, uint32_t note,
                            uint32_t &notes) = 0;
  /// What begin() and meetings wait for other ranks to come, from now on, as World::patience. One that is lost ends them
  /// sooner.
  virtual void setPatience(int64_t patience) = 0;
  /// The number of the step that began last, the same on all ranks.
  virtual uint64_t step() const = 0;
  /// How a step went here; `caused`: by the failure of another rank. Once a step, also one that did not begin here for
  /// a reason of this rank's own.
  virtual void tellEnd(uint64_t step, const Status &own, bool caused) = 0;
  /// Whether all others have told; `outcome`: what went wrong first, or ok, without what this rank told. An error when a
  /// rank that has not told is lost.
  virtual Result<bool> heardEnd(uint64_t step, Status &outcome) = 0;
  /// Whether another rank has told that the step failed there.
  virtual bool hasFailed(uint64_t step) = 0;
  /// Ok, or which rank is lost, and how. Any thread.
  virtual Status lost() = 0;
  /// Called once, by a thread of the communicator's, as soon as a rank is lost; at once, if it is already.
  virtual void onLoss(std::function<void()> call) = 0;
};

struct Joined {
  std::shared_ptr<WorldRank> communicator;
  int64_t onThisHost = 1;  ///< ranks that share its cores
  int64_t placeOnHost = 0; ///< among them, by rank
  std::string session;     ///< known to the ranks of this world alone
};

/// Opens the plugin and meets the others. Errors: Unsupported without a plugin; Usage for a port that is
/// taken and for ranks that do not fit together; Deadline, which names the missing; PeerLost.
Result<Joined> joinWorld(const World &world);

/// What a plugin and the runtime must agree on: they exchange C++ objects, and are made together.
inline constexpr const char kCommAbi[] = "lathe comm 3, " __VERSION__;

} // namespace lathe::runtime

/// What a plugin exports. The text is kCommAbi of its build.
extern "C" {
using lathe_comm_abi_function = const char *();
using lathe_comm_join_function = void(const lathe::runtime::World *, lathe::Status *, lathe::runtime::Joined *);
}

#endif // LATHE_RUNTIME_COMM_WORLD_H
