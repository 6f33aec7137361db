//===- Layout.h - sizes and places for one shape ----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A Program evaluated for values of its symbols: where each buffer lies and how each
// kernel is launched. The formulas come from a file, so everything is checked here:
// a buffer that leaves its arena, weight or state is an error, not an access.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_EXEC_LAYOUT_H
#define LATHE_RUNTIME_EXEC_LAYOUT_H

#include "Program.h"

namespace lathe::runtime {

struct Place {
  int64_t bytes = -1;  ///< -1: symbols of its formulas are not known yet
  int64_t offset = 0;  ///< from the start of the root's memory (arena, weight, ...)
  bool known() const { return bytes >= 0; }
};

/// How a launch site runs: which variant, with what.
struct SiteLaunch {
  bool isEmpty = false; ///< nothing is to be written: there is no launch
  int variant = 0;
  std::vector<int64_t> symbols;        ///< of the kernel
  std::vector<int64_t> tensorMapSizes;
  struct One {
    int64_t grid[3];
    int64_t sharedBytes;
  };
  std::vector<One> launches;
  int64_t scratchBytes = 0;
};

struct Layout {
  std::vector<int64_t> symbols;
  std::vector<int64_t> arenaBytes; ///< -1: not known yet
  std::vector<int64_t> stateBytes;
  std::vector<Place> places;       ///< per buffer
  std::vector<SiteLaunch> sites;   ///< static programs only
  /// False: launches of streams but the first are all empty, so that all steps take the first, in their order.
  bool usesStreams = true;
};

/// Evaluates everything whose symbols are known (all of them in a static program).
Result<Layout> evaluateLayout(const Program &program, std::vector<int64_t> symbols);

/// One launch site; its buffers must be known.
Result<SiteLaunch> evaluateSite(const Program &program, const LaunchSite &site,
                                const Layout &layout);

/// Sizes of a shape; `what` names it in errors. Negative sizes are errors.
Result<std::vector<int64_t>> evaluateDims(const std::vector<ExprProgram> &dims, Values symbols,
                                          std::string_view what);

/// Bytes of a dense tensor, checked.
Result<int64_t> denseBytes(DType dtype, const std::vector<int64_t> &dims, std::string_view what);

} // namespace lathe::runtime

#endif // LATHE_RUNTIME_EXEC_LAYOUT_H
