//===- Logic.cpp - comparisons, logic, selection ----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Node.h"

using namespace mlir;

namespace lathe::legal {
namespace {

template <Predicate P> LogicalResult compare(Node &n) {
  return n.done(n.e.compare(n.in(0), n.in(1), P));
}
template <typename OpTy> LogicalResult binary(Node &n) {
  return n.done(n.e.infer<OpTy>(n.in(0), n.in(1)));
}

LogicalResult logicalNot(Node &n) { return n.done(n.e.unary<NotOp>(n.in(0))); }
LogicalResult where(Node &n) { return n.done(n.e.select(n.in(0), n.in(1), n.in(2))); }
LogicalResult isNan(Node &n) { return n.done(n.e.infer<IsNanOp>(n.in(0))); }
LogicalResult isInf(Node &n) {
  return n.done(n.e.infer<IsInfOp>(n.in(0), bool(n.intAttr("detect_negative", 1)),
                                   bool(n.intAttr("detect_positive", 1))));
}

} // namespace

void addLogic(Handlers &h) {
  h["Equal"] = compare<Predicate::Eq>;
  h["Less"] = compare<Predicate::Lt>;
  h["LessOrEqual"] = compare<Predicate::Le>;
  h["Greater"] = compare<Predicate::Gt>;
  h["GreaterOrEqual"] = compare<Predicate::Ge>;
  h["And"] = binary<AndOp>;
  h["Or"] = binary<OrOp>;
  h["Xor"] = binary<XorOp>;
  h["BitwiseAnd"] = binary<AndOp>;
  h["BitwiseOr"] = binary<OrOp>;
  h["BitwiseXor"] = binary<XorOp>;
  h["Not"] = logicalNot;
  h["BitwiseNot"] = logicalNot;
  h["Where"] = where;
  h["IsNaN"] = isNan;
  h["IsInf"] = isInf;
}

} // namespace lathe::legal
