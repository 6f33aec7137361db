//===- ExprProgram.cpp - formulas compiled for evaluation -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sums of products become postfix code; the stack depth is checked when compiling,
// so that evaluation needs no bounds check.
//
//===----------------------------------------------------------------------===//

#include "lathe/engine/ExprProgram.h"

#include <algorithm>
#include <array>
#include <set>

namespace lathe::engine {

struct ExprProgram::Builder {
  std::span<const std::string> symbols;
  ExprProgram program;
  std::set<uint32_t> used;
  size_t depth = 0, nesting = 0;
  Status status;

  void push(Op op, int64_t operand) {
    program.code.push_back({op, operand});
    if (++depth > kMaxDepth)
      status = invalidError("a formula needs too deep a stack");
  }
  void binary(Op op) {
    program.code.push_back({op, 0});
    --depth;
  }

  void atom(const DimExpr &e) {
    if (!status.ok())
      return;
    Op op;
    switch (e.kind()) {
    case DimExpr::Kind::Sum:
      return sum(e);
    case DimExpr::Kind::Symbol: {
      std::string name = e.symbolName().value_or("");
      auto it = std::find(symbols.begin(), symbols.end(), name);
      if (it == symbols.end()) {
        status = invalidError("unknown symbol '" + name + "' in a formula");
        return;
      }
      auto number = static_cast<uint32_t>(it - symbols.begin());
      used.insert(number);
      return push(Op::Symbol, number);
    }
    case DimExpr::Kind::FloorDiv:
      op = Op::FloorDiv;
      break;
    case DimExpr::Kind::CeilDiv:
      op = Op::CeilDiv;
      break;
    case DimExpr::Kind::Mod:
      op = Op::Mod;
      break;
    case DimExpr::Kind::Min:
      op = Op::Min;
      break;
    case DimExpr::Kind::Max:
      op = Op::Max;
      break;
    case DimExpr::Kind::Bcast:
      op = Op::Bcast;
      break;
    }
    std::vector<DimExpr> operands = e.operands();
    if (operands.size() < 2) {
      status = invalidError("a function of a formula has fewer than two operands");
      return;
    }
    sum(operands[0]);
    for (size_t i = 1; i < operands.size() && status.ok(); ++i) {
      sum(operands[i]);
      binary(op);
    }
  }

  void sum(const DimExpr &e) {
    if (++nesting > kMaxDepth)
      status = invalidError("a formula nests too deep");
    if (!status.ok())
      return;
    std::vector<DimExpr::Term> terms = e.terms();
    if (terms.empty())
      push(Op::Constant, 0);
    bool firstTerm = true;
    for (const DimExpr::Term &term : terms) {
      bool firstFactor = true;
      if (term.coefficient != 1 || term.atoms.empty()) {
        push(Op::Constant, term.coefficient);
        firstFactor = false;
      }
      for (const DimExpr &a : term.atoms) {
        atom(a);
        if (!status.ok())
          return;
        if (!firstFactor)
          binary(Op::Mul);
        firstFactor = false;
      }
      if (!firstTerm)
        binary(Op::Add);
      firstTerm = false;
    }
    --nesting;
  }
};

Result<ExprProgram> ExprProgram::compile(const DimExpr &expr,
                                         std::span<const std::string> symbols) {
  if (std::optional<int64_t> c = expr.constant()) {
    ExprProgram p;
    p.constantValue = *c;
    return p;
  }
  Builder b{symbols, {}, {}, 0, 0, {}};
  b.sum(expr);
  if (!b.status.ok())
    return b.status;
  b.program.used.assign(b.used.begin(), b.used.end());
  return std::move(b.program);
}

namespace {
/// Quotient rounded down and its remainder, for divisor not 0 and no overflow.
int64_t floorQuotient(int64_t a, int64_t b) {
  int64_t q = a / b;
  return (a % b != 0 && ((a < 0) != (b < 0))) ? q - 1 : q;
}
} // namespace

ExprProgram::Outcome ExprProgram::evaluate(std::span<const int64_t> values, int64_t &out) const {
  if (code.empty()) {
    out = constantValue;
    return Outcome::Ok;
  }
  std::array<int64_t, kMaxDepth + 1> stack;
  size_t top = 0;
  for (const Instr &in : code) {
    if (in.op == Op::Constant) {
      stack[top++] = in.operand;
      continue;
    }
    if (in.op == Op::Symbol) {
      int64_t v = static_cast<size_t>(in.operand) < values.size() ? values[in.operand]
                                                                  : kUnknownSymbol;
      if (v == kUnknownSymbol)
        return Outcome::UnknownSymbol;
      stack[top++] = v;
      continue;
    }
    int64_t b = stack[--top], a = stack[top - 1], r = 0;
    switch (in.op) {
    case Op::Add:
      if (__builtin_add_overflow(a, b, &r))
        return Outcome::Overflow;
      break;
    case Op::Mul:
      if (__builtin_mul_overflow(a, b, &r))
        return Outcome::Overflow;
      break;
    case Op::FloorDiv:
    case Op::CeilDiv:
    case Op::Mod:
      if (b == 0)
        return Outcome::DivisionByZero;
      if (a == INT64_MIN && b == -1)
        return Outcome::Overflow;
      if (in.op == Op::FloorDiv)
        r = floorQuotient(a, b);
      else if (in.op == Op::CeilDiv)
        r = floorQuotient(a, b) + (a % b != 0);
      else
        r = a - floorQuotient(a, b) * b;
      break;
    case Op::Min:
      r = std::min(a, b);
      break;
    case Op::Max:
      r = std::max(a, b);
      break;
    case Op::Bcast:
      if (a != 1 && b != 1 && a != b)
        return Outcome::NoBroadcast;
      r = a == 1 ? b : a;
      break;
    case Op::Constant:
    case Op::Symbol:
      break;
    }
    stack[top - 1] = r;
  }
  out = stack[0];
  return Outcome::Ok;
}

Result<int64_t> ExprProgram::value(std::span<const int64_t> values, std::string_view what) const {
  int64_t v = 0;
  switch (evaluate(values, v)) {
  case Outcome::Ok:
    return v;
  case Outcome::UnknownSymbol:
    return invalidError("a symbol is used before it has a value", std::string(what));
  case Outcome::Overflow:
    return runtimeError("a size does not fit into 64 bits", std::string(what));
  case Outcome::DivisionByZero:
    return runtimeError("a size formula divides by zero", std::string(what));
  case Outcome::NoBroadcast:
    return runtimeError("sizes do not broadcast", std::string(what));
  }
  return v;
}

} // namespace lathe::engine
