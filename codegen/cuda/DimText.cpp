//===- DimText.cpp - dimension expressions as C++ ----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Holes.h"

namespace lathe::codegen {

std::string dimText(const DimExpr &e, llvm::function_ref<std::string(const std::string &)> name) {
  if (auto c = e.constant())
    return std::to_string(*c) + "ll";
  if (auto symbol = e.symbolName())
    return name(*symbol);
  auto call = [&](const char *function) {
    std::vector<DimExpr> parts = e.operands();
    std::string text = dimText(parts[0], name);
    for (size_t i = 1; i < parts.size(); ++i)
      text = std::string(function) + "(" + text + ", " + dimText(parts[i], name) + ")";
    return text;
  };
  switch (e.kind()) {
  case DimExpr::Kind::FloorDiv:
    return call("floorDiv");
  case DimExpr::Kind::CeilDiv:
    return call("ceilDiv");
  case DimExpr::Kind::Mod:
    return call("floorMod");
  case DimExpr::Kind::Min:
    return call("minIndex");
  case DimExpr::Kind::Max:
    return call("maxIndex");
  case DimExpr::Kind::Bcast:
    return call("broadcastSize");
  default:
    break;
  }
  std::string sum;
  for (const DimExpr::Term &term : e.terms()) {
    std::string text = std::to_string(term.coefficient) + "ll";
    if (term.coefficient == 1 && !term.atoms.empty())
      text.clear();
    for (const DimExpr &atom : term.atoms)
      text += (text.empty() ? "" : " * ") + dimText(atom, name);
    sum += (sum.empty() ? "" : " + ") + text;
  }
  return "(" + sum + ")";
}

} // namespace lathe::codegen
