//===- Roofline.h - what a machine could do at best -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_TOOLS_LATHE_ROOFLINE_H
#define LATHE_TOOLS_LATHE_ROOFLINE_H

#include "lathe/codegen/Target.h"

#include <optional>
#include <string>

namespace lathe::cli {

struct Roofline {
  double gbs = 0;    ///< 1e9 bytes a second from and to memory
  double gflops = 0; ///< 1e9 f32 operations a second, an FMA being two
  std::string origin;
  /// A GPU whose kernels on tensor cores have a roof of their own; else every kernel has the one above.
  std::optional<Target> tensorCores;

  /// 1e9 operations a second that a kernel of this configuration can do at most.
  double gflopsOf(const std::string &config) const;
};

/// The CPU: measured on `threads` threads (0: all) in about 0.3 s. A GPU: the data
/// sheet of the usual card of the architecture.
Roofline rooflineOf(const Target &target, int threads);

} // namespace lathe::cli

#endif // LATHE_TOOLS_LATHE_ROOFLINE_H
