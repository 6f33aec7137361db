//===- DimNode.h - representation of dimension expressions -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Private to Dim*.cpp: the immutable node behind a DimExpr. A constant is a
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

using Terms = std::vector<Monomial>;

/// Beyond these an expression becomes the overflow node.
inline constexpr size_t kMaxTerms = 4096;
inline constexpr size_t kMaxText = 1 << 20;

DimExpr overflowExpr();
template <typename... E> bool anyOverflow(const E &...e) {
  return (DimNode::of(e)->overflow || ...);
}

/// Sorts and merges; every sum is made here.
DimExpr fromTerms(Terms terms);
/// Summands of any expression.
Terms termsOf(const DimExpr &e);

inline int compareNodes(const NodePtr &a, const NodePtr &b) {
  return a == b ? 0 : a->text.compare(b->text);
}
/// a's atoms without b's; nothing when b's are not among them.
std::optional<std::vector<NodePtr>> removeAtoms(const std::vector<NodePtr> &a,
                                                const std::vector<NodePtr> &b);

/// The function as written: "floordiv", "max", ...
const char *functionName(DimExpr::Kind kind);

} // namespace lathe::detail

#endif // LATHE_LIB_SUPPORT_DIMNODE_H
