//===- Trace.h - runs as a timeline -----------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_TOOLS_LATHE_TRACE_H
#define LATHE_TOOLS_LATHE_TRACE_H

#include "lathe/runtime/lathe.h"
#include "lathe/support/Status.h"

#include <chrono>
#include <string>
#include <vector>

namespace lathe::cli {

/// Profiles a context while it lives, and writes what ran when in the format of Chrome's trace
/// viewer ("trace event format", JSON), which Perfetto opens too.
class Trace {
public:
  explicit Trace(lathe_context *context);
  ~Trace();
  Trace(const Trace &) = delete;
  Trace &operator=(const Trace &) = delete;

  /// Seconds since profiling began.
  double now() const;
  /// A run of an entry, in those seconds.
  void addRun(const std::string &entry, double begin, double seconds);
  /// `model` and `target` name the process of the trace.
  Status write(const std::string &file, const std::string &model, const std::string &target) const;

private:
  struct Run {
    std::string entry;
    double begin, seconds;
  };
  lathe_context *context;
  std::chrono::steady_clock::time_point start;
  std::vector<Run> runs;
};

} // namespace lathe::cli

#endif // LATHE_TOOLS_LATHE_TRACE_H
