//===- Selection.h - places by values ----------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_PASSES_LEGALIZE_SELECTION_H
#define LATHE_PASSES_LEGALIZE_SELECTION_H

#include "Node.h"

namespace lathe::legal {

/// Where flags (i1, a vector) are set.
struct Places {
  mlir::Value places; ///< i64 [count]
  mlir::Value all;    ///< as many as flags: behind the count zeros
  DimExpr count;      ///< a size that the run counts
};
Places placesOf(Node &n, mlir::Value flags);

} // namespace lathe::legal

#endif // LATHE_PASSES_LEGALIZE_SELECTION_H
