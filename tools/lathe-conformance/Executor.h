//===- Executor.h - where a test's engine runs ------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// In this process, or by a program that may run on another processor (tools/lathe-runner).
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_TOOLS_CONFORMANCE_EXECUTOR_H
#define LATHE_TOOLS_CONFORMANCE_EXECUTOR_H

#include "Session.h"

#include <memory>

namespace lathe::cli {

class Executor {
public:
  virtual ~Executor() = default;
  /// In place of the engine before. `model` was made by Model::fromBytes.
  virtual Status open(const Model &model) = 0;
  /// What the engine draws from here on.
  virtual Status seed(uint64_t seed) = 0;
  virtual Result<std::vector<HostTensor>> run(const engine::Plan &plan, const std::vector<HostTensor> &inputs) = 0;

  static std::unique_ptr<Executor> local(const SessionOptions &options);
  /// Starts `command` (a line for the shell) with the first engine. One that dies or gives no answer for so many
  /// seconds is an internal error of that test and is started anew for the next.
  static std::unique_ptr<Executor> runner(const std::string &command, int patience);
};

} // namespace lathe::cli

#endif // LATHE_TOOLS_CONFORMANCE_EXECUTOR_H
