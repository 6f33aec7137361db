//===- InspectTiles.cpp - lathe inspect --tile ----------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the name of a configuration stands for, from the descriptor of its family
// (lathe/codegen/Skeleton.h), and what a CPU's kernel could run as instead. Scripts of
// test/perf ask here for threads, stages, shared memory and configurations, so that
// no formula and no list stands twice.
//
//===----------------------------------------------------------------------===//
#include "InspectTables.h"

#include "lathe/codegen/CpuConfigs.h"
#include "lathe/codegen/Skeleton.h"
#include "lathe/codegen/Target.h"

#include "llvm/Support/FormatVariadic.h"

#include <cstdio>

namespace lathe::cli {

namespace json = llvm::json;

Status printTiles(const std::vector<std::string> &names, const std::string &targetName, bool asJson) {
  Result<Target> target = Target::parse(targetName);
  if (!target)
    return target.status();
  json::Array rows;
  for (const std::string &name : names) {
    Result<KernelConfig> config = KernelConfig::parse(name);
    if (!config)
      return config.status();
    const Skeleton &family = *config->form;
    const TileFacts facts{.resultBytes = 2};
    if (family.complete)
      *config = family.complete(*config, facts, *target);
    std::vector<std::string> beside = cpuConfigsBeside(*config);
    int64_t shared = family.sharedBytes ? family.sharedBytes(*config, facts) : 0;
    if (!asJson) {
      std::printf("%s: %lld threads, %lld bytes of shared memory\n  %s\n", config->str().c_str(),
                  static_cast<long long>(config->threads), static_cast<long long>(shared),
                  std::string(family.block).c_str());
      for (const std::string &other : beside)
        std::printf("  or %s\n", other.c_str());
      continue;
    }
    rows.push_back(json::Object{{"name", name},
                                {"config", config->str()},
                                {"block", std::string(family.block)},
                                {"threads", config->threads},
                                {"stages", config->stages},
                                {"shared_bytes", shared},
                                {"beside", json::Array(beside)}});
  }
  if (asJson)
    std::printf("%s\n", llvm::formatv("{0:2}", json::Value(std::move(rows))).str().c_str());
  return okStatus();
}

} // namespace lathe::cli
