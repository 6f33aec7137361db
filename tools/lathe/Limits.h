//===- Limits.h - what a verb may take --------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_TOOLS_LATHE_LIMITS_H
#define LATHE_TOOLS_LATHE_LIMITS_H

#include "Options.h"

#include <cstdint>

namespace lathe::cli {

/// --max-memory and --max-seconds, which every verb has.
struct Limits {
  uint64_t bytes = 0; ///< 0: no limit
  double seconds = 0; ///< 0: no limit
  std::string bytesText; ///< as it was given
  void addTo(Parser &parser);
};

/// Goes on in a process of its own that this one watches, when there is a limit; must be called before
/// there are threads. Memory is what the process and those that it starts (the linker, Python) have for
/// themselves, without mapped files, looked at every few milliseconds. Beyond a limit all of them are
/// ended, the files that they were writing are removed, and the exit code is that of RuntimeFailure
/// (memory) or Deadline. Within the limits the exit code is the verb's.
Status goOnWithin(const Limits &limits, const std::string &verb);

} // namespace lathe::cli

#endif // LATHE_TOOLS_LATHE_LIMITS_H
