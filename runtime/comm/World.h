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
  std::string identity; ///< of the engine, printable: all ranks must have the same
  int64_t expected = 0; ///< ranks that the engine is for
};

struct Joined {
  std::shared_ptr<Communicator> communicator;
  int64_t onThisHost = 1; ///< ranks that share its cores
};

/// Opens the plugin and meets the others. Errors: Unsupported without a plugin; Usage for a port that is
/// taken and for ranks that do not fit together; Deadline, which names the missing; PeerLost.
Result<Joined> joinWorld(const World &world);

/// What a plugin and the runtime must agree on: they exchange C++ objects, and are made together.
inline constexpr const char kCommAbi[] = "lathe comm 1, " __VERSION__;

} // namespace lathe::runtime

/// What a plugin exports. The text is kCommAbi of its build.
extern "C" {
using lathe_comm_abi_function = const char *();
using lathe_comm_join_function = void(const lathe::runtime::World *, lathe::Status *, lathe::runtime::Joined *);
}

#endif // LATHE_RUNTIME_COMM_WORLD_H
