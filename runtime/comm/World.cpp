//===- World.cpp - opens what processes talk through ------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "World.h"

#include "lathe/support/CodeFile.h"

#include <cstdlib>
#include <dlfcn.h>

namespace lathe::runtime {

/// Where the plugin may be: named, beside this library or program, in lib beside bin, where the system looks.
static void *openPlugin(std::string &tried) {
  constexpr char kFile[] = "liblathe_tcp.so";
  std::string places[] = {{}, {}, kFile};
  if (const char *named = std::getenv("LATHE_COMM")) {
    places[2] = named;
  } else if (std::string folder = fileOfCode(reinterpret_cast<const void *>(&joinWorld)); !folder.empty()) {
    folder.resize(folder.rfind('/') + 1);
    places[0] = folder + kFile;
    places[1] = folder + "../lib/" + kFile;
  }
  for (const std::string &place : places)
    if (!place.empty()) {
      if (void *found = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL))
        return found;
      const char *why = dlerror();
      tried += (tried.empty() ? "" : "; ") + (why ? std::string(why) : place);
    }
  return nullptr;
}

Result<Joined> joinWorld(const World &world) {
  std::string tried;
  // Never closed: a communicator may outlive every caller that could.
  void *plugin = openPlugin(tried);
  if (!plugin)
    return unsupportedError("ranks that are processes talk through liblathe_tcp.so, which cannot be opened: " + tried);
  auto *abi = reinterpret_cast<lathe_comm_abi_function *>(dlsym(plugin, "lathe_comm_abi"));
  auto *join = reinterpret_cast<lathe_comm_join_function *>(dlsym(plugin, "lathe_comm_join"));
  if (!abi || !join || abi() != std::string(kCommAbi))
    return unsupportedError("liblathe_tcp.so is of another build of lathe");
  Status status;
  Joined joined;
  join(&world, &status, &joined);
  if (!status.ok())
    return status;
  return joined;
}

} // namespace lathe::runtime
