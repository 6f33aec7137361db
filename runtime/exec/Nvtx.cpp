//===- Nvtx.cpp - ranges on the timeline of a profiler ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Nvtx.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <dlfcn.h>

namespace lathe::runtime {
namespace {

// Numbers of the interface.
enum : uint32_t { kExportCallbacks = 1, kExportVersion = 3 };
enum : uint32_t { kModuleCore = 1 };
enum : uint32_t { kRangePushA = 9, kRangePop = 11, kCoreFunctions = 16 };

using Function = void (*)();

/// What a tool listens with; both null where none does.
struct Listener {
  int (*push)(const char *) = nullptr;
  int (*pop)() = nullptr;
};

/// What the tool fills: a place for each function of the core module.
struct Places {
  Function functions[kCoreFunctions] = {};
  Function *table[kCoreFunctions + 1] = {}; ///< ends with a null
  Places() {
    for (uint32_t i = 1; i < kCoreFunctions; ++i)
      table[i] = &functions[i];
  }
};

Places &places() {
  static Places all;
  return all;
}

int getModuleFunctionTable(uint32_t module, Function ***table, unsigned *size) {
  if (module != kModuleCore)
    return 0;
  if (table)
    *table = places().table;
  if (size)
    *size = kCoreFunctions;
  return 1;
}

struct ExportCallbacks {
  size_t bytes = sizeof(ExportCallbacks);
  int (*getModuleFunctionTable)(uint32_t, Function ***, unsigned *) =
      &lathe::runtime::getModuleFunctionTable;
};

struct ExportVersion {
  size_t bytes = sizeof(ExportVersion);
  uint32_t version = 3, reserved = 0;
  void (*setInjectionVersion)(uint32_t) = [](uint32_t) {};
};

const void *getExportTable(uint32_t id) {
  static const ExportCallbacks callbacks;
  static const ExportVersion version;
  return id == kExportCallbacks ? static_cast<const void *>(&callbacks)
         : id == kExportVersion ? &version
                                : nullptr;
}

Listener listen() {
  const char *path = secure_getenv("NVTX_INJECTION64_PATH");
  void *library = path ? dlopen(path, RTLD_LAZY) : nullptr;
  using Initialize = int (*)(const void *(*)(uint32_t));
  auto initialize =
      library ? reinterpret_cast<Initialize>(dlsym(library, "InitializeInjectionNvtx2")) : nullptr;
  if (!initialize || !initialize(&getExportTable))
    return {};
  auto push = reinterpret_cast<int (*)(const char *)>(places().functions[kRangePushA]);
  auto pop = reinterpret_cast<int (*)()>(places().functions[kRangePop]);
  return push && pop ? Listener{push, pop} : Listener{};
}

} // namespace

NvtxRange::NvtxRange(const std::string &name) : pop(nullptr) {
  static const Listener listener = listen();
  if (!listener.push || name.empty())
    return;
  listener.push(name.c_str());
  pop = listener.pop;
}

} // namespace lathe::runtime
