//===- HostCpu.h - what this machine's processor has -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Caches and who shares them, cores and how many of them this process may use,
// sizes of pages, as Linux tells them. `--target=native` becomes a description
// made of these (Target.h); `lathe inspect --host` prints both.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_CODEGEN_HOSTCPU_H
#define LATHE_CODEGEN_HOSTCPU_H

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace lathe {

/// What was read; 0 and "" where the system does not say.
struct HostCpu {
  struct Cache {
    int64_t bytes = 0;
    int64_t cores = 0; ///< cores that share it: threads of one core count once
  };
  std::array<Cache, 3> caches;  ///< data or unified, first level to third
  int64_t processors = 0;       ///< that this process may run on
  int64_t cores = 0;            ///< of these: threads of one core count once
  double quota = 0;             ///< processors' worth of time that the control group allows; 0: no limit
  int64_t pageBytes = 0, hugePageBytes = 0;
  std::string hugePages;        ///< "always", "madvise" or "never"

  /// A core's share of a cache, rounded down to 2^n or 3 * 2^n, so that like machines make like engines; 0: unknown.
  int64_t share(int level) const;
  /// Cores that can be busy at once, at least 1.
  int64_t usableCores() const;
  /// Some lines for people.
  std::string str() const;

  /// Reads /sys and /proc below `root` (tests have trees of their own) for the processors given, by default those
  /// that this process may run on.
  static HostCpu read(const std::string &root = "", std::vector<int> processors = {});
};

} // namespace lathe

#endif // LATHE_CODEGEN_HOSTCPU_H
