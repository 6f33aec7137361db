//===- Worker.h - checks in processes of their own --------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What crashes or hangs in a check ends a child, not the run.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_TEST_FUZZ_WORKER_H
#define LATHE_TEST_FUZZ_WORKER_H

#include "Check.h"

#include <functional>

namespace lathe::fuzz {

struct WorkOptions {
  CheckOptions check;
  int jobs = 1;
  int deadline = 60; ///< seconds that one model may take
};

struct SeedResult {
  uint64_t seed = 0;
  int64_t nodes = 0;
  double seconds = 0;
  Verdict verdict; ///< way "crash" or "hang" where its process ended, "generator" where there is no model
};

/// Generates and checks the models of consecutive seeds; `report` gets each result as it comes, in no order.
void checkSeeds(uint64_t first, uint64_t count, const WorkOptions &options,
                const std::function<void(const SeedResult &)> &report);

/// Checks one model in a child.
Verdict checkAside(const TestModel &model, const WorkOptions &options);

/// Runs `work` in a child and gives what it returns; empty where the child crashed or took longer than the deadline.
std::string inChild(int deadline, const std::function<std::string()> &work, std::string *ended = nullptr);

} // namespace lathe::fuzz

#endif // LATHE_TEST_FUZZ_WORKER_H
