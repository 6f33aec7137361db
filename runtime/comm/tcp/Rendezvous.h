//===- Rendezvous.h - how ranks find each other -----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rank 0 listens where all know it; each rank tells it who it is and where it listens
// itself, on a port that the system gives. When all are there and fit together, rank 0 tells
// everyone of everyone, or everyone what is wrong. Then each pair has two connections, and
// rank 0 gives the word that all have them.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_COMM_TCP_RENDEZVOUS_H
#define LATHE_RUNTIME_COMM_TCP_RENDEZVOUS_H

#include "../World.h"
#include "Socket.h"

#include <vector>

namespace lathe::runtime::tcp {

/// Connections to each other rank, by rank; that of the rank itself is not open.
struct Connections {
  std::vector<Socket> data, control;
  int64_t onThisHost = 1;  ///< ranks with the address of this one, itself among them
  int64_t placeOnHost = 0; ///< of these, those before it
  std::string session;     ///< tells this world from any other
};

/// What the launcher says, where World::ranks is 0: torchrun (RANK, WORLD_SIZE), mpirun
/// (OMPI_COMM_WORLD_RANK, PMI_RANK), srun (SLURM_PROCID), and MASTER_ADDR and MASTER_PORT of any. Usage error
/// where nothing or nonsense is said.
Result<World> completeWorld(World world);

/// Meets the others; each rank gets an error when one of them does.
Result<Connections> meetOthers(const World &world);

} // namespace lathe::runtime::tcp

#endif // LATHE_RUNTIME_COMM_TCP_RENDEZVOUS_H
