//===- Environment.cpp - what launchers say ---------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Rendezvous.h"

#include <charconv>
#include <cstdlib>
#include <optional>

namespace lathe::runtime::tcp {

namespace {

constexpr int64_t kUsualPort = 29500;

std::string variable(const char *name) {
  const char *value = std::getenv(name);
  return value ? value : "";
}

Result<int64_t> number(const std::string &name, int64_t least, int64_t most) {
  const std::string text = variable(name.c_str());
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most)
    return usageError("is '" + text + "', not a number from " + std::to_string(least) + " to " + std::to_string(most),
                      "environment variable " + name);
  return value;
}

/// Variables of a launcher that say rank and ranks. PMI's are those of MPICH and Intel MPI.
constexpr const char *kLaunchers[][2] = {{"RANK", "WORLD_SIZE"},
                                         {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                         {"PMI_RANK", "PMI_SIZE"},
                                         {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}};

} // namespace

Result<World> completeWorld(World world) {
  constexpr int64_t kMostRanks = 65536;
  if (!world.ranks) {
    bool isSaid = false;
    for (auto [rank, ranks] : kLaunchers) {
      if (variable(rank).empty() || variable(ranks).empty())
        continue;
      Result<int64_t> all = number(ranks, 1, kMostRanks);
      if (!all)
        return all.status();
      Result<int64_t> own = number(rank, 0, *all - 1);
      if (!own)
        return own.status();
      world.rank = *own;
      world.ranks = *all;
      isSaid = true;
      break;
    }
    if (!isSaid)
      return usageError("no launcher has said which rank this process is (RANK and WORLD_SIZE of torchrun, or those of "
                        "mpirun or srun)");
  }
  if (world.host.empty())
    world.host = variable("MASTER_ADDR");
  if (world.host.empty())
    world.host = variable("SLURM_LAUNCH_NODE_IPADDR");
  if (world.host.empty())
    world.host = "127.0.0.1";
  if (!world.port) {
    world.port = kUsualPort;
    if (!variable("MASTER_PORT").empty()) {
      Result<int64_t> port = number("MASTER_PORT", 1, 65534);
      if (!port)
        return port.status();
      // An agent of torchrun keeps a store of its own there.
      world.port = *port + (variable("TORCHELASTIC_USE_AGENT_STORE") == "True");
    }
  }
  if (world.ranks < 1 || world.ranks > kMostRanks || world.rank < 0 || world.rank >= world.ranks)
    return usageError("there is no rank " + std::to_string(world.rank) + " of " + std::to_string(world.ranks));
  if (world.port < 1 || world.port > 65535)
    return usageError("there is no port " + std::to_string(world.port));
  return world;
}

} // namespace lathe::runtime::tcp
