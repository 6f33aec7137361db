//===- Plugin.cpp - what the runtime calls ----------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "TcpRank.h"

#include <exception>

using namespace lathe;
using namespace lathe::runtime;

namespace lathe::runtime::tcp {

static Result<Joined> join(const World &wanted) {
  Result<World> world = completeWorld(wanted);
  if (!world)
    return world.status();
  if (world->expected && world->ranks != world->expected)
    return usageError("the engine is for a mesh of " + std::to_string(world->expected) +
                      (world->expected == 1 ? " rank" : " ranks") + ", the world has " + std::to_string(world->ranks));
  constexpr int64_t kSecond = 1000000000;
  constexpr int64_t kYear = 365 * 24 * 3600 * kSecond;
  world->silence = !world->silence ? 3 * kSecond : world->silence < 0 ? kYear : world->silence;
  Result<Connections> connections = meetOthers(*world);
  if (!connections)
    return connections.status();
  Joined joined;
  joined.onThisHost = connections->onThisHost;
  joined.placeOnHost = connections->placeOnHost;
  joined.session = connections->session;
  joined.communicator = std::make_shared<TcpRank>(*world, std::move(*connections));
  return joined;
}

} // namespace lathe::runtime::tcp

extern "C" __attribute__((visibility("default"))) const char *lathe_comm_abi() { return kCommAbi; }

extern "C" __attribute__((visibility("default"))) void lathe_comm_join(const World *world, Status *status,
                                                                        Joined *joined) {
  try {
    if (Result<Joined> made = tcp::join(*world))
      *joined = std::move(*made);
    else
      *status = made.status();
  } catch (const std::exception &problem) { // of memory or threads
    *status = runtimeError(problem.what());
  }
}
