//===- DimNode.h - representation of dimension expressions -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Private to DimExpr*.cpp: the immutable node behind a DimExpr. A constant is a
// sum without atoms; a sum of exactly one atom with coefficient 1 is that atom's
// node itself.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_LIB_SUPPORT_DIMNODE_H
#define LATHE_LIB_SUPPORT_DIMNODE_H

#include "lathe/support/DimExpr.h"

namespace lathe::detail {

using NodePtr = std::shared_ptr<const DimNode>;

/// coefficient * atoms[0] * atoms[1] ...; atoms sorted by text.
struct Monomial {
  int64_t coefficient = 0;
  std::vector<NodePtr> atoms;
};

struct DimNode {
  DimExpr::Kind kind = DimExpr::Kind::Sum;
  std::vector<Monomial> terms;   ///< Sum: in canonical order, no zero coefficient
  std::vector<DimExpr> operands; ///< functions
  std::string text;              ///< canonical text; a symbol's name
  bool overflow = false;         ///< the one node that stands for "left 64 bits or too large"

  static const NodePtr &of(const DimExpr &e) { return e.node; }
  static DimExpr wrap(NodePtr node) { return DimExpr(std::move(node)); }
};

/// The function as written: "floordiv", "max", ...
const char *functionName(DimExpr::Kind kind);

} // namespace lathe::detail

#endif // LATHE_LIB_SUPPORT_DIMNODE_H
