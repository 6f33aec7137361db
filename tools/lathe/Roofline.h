//===- Roofline.h - what a machine could do at best -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_TOOLS_LATHE_ROOFLINE_H
#define LATHE_TOOLS_LATHE_ROOFLINE_H

#include "lathe/codegen/Target.h"

#include <string>

namespace lathe::cli {

struct Roofline {
  double gbs = 0;    ///< 1e9 bytes a second from and to memory
  double gflops = 0; ///< 1e9 f32 operations a second, an FMA being two
  std::string origin;
};

/// The CPU: measured on `threads` threads (0: all) in about 0.3 s. A GPU: the data
/// sheet of the usual card of the architecture, without tensor cores.
Roofline rooflineOf(const Target &target, int threads);

} // namespace lathe::cli

#endif // LATHE_TOOLS_LATHE_ROOFLINE_H
