//===- DimEval.cpp - values, substitution and bounds -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The walks over dimension expressions: evaluation in checked arithmetic,
// substitution, and interval arithmetic.
//
//===----------------------------------------------------------------------===//
#include "DimNode.h"

#include <algorithm>

namespace lathe {

using detail::DimNode;
using detail::Monomial;
using detail::NodePtr;
using Kind = DimExpr::Kind;

namespace {

using Lookup = std::function<std::optional<int64_t>(std::string_view)>;

/// Evaluates into `value`; false with `error` set when there is none.
class Evaluator {
public:
  explicit Evaluator(const Lookup &lookup) : lookup(lookup) {}

  bool run(const NodePtr &node, int64_t &value) {
    switch (node->kind) {
    case Kind::Sum:
      return sum(*node, value);
    case Kind::Symbol: {
      if (node->overflow)
        return fail(*node, "dimension expression left 64 bits or grew too large");
      std::optional<int64_t> found = lookup(node->text);
      if (!found) {
        error = usageError("no value for this dimension symbol", "symbol " + node->text);
        return false;
      }
      value = *found;
      return true;
    }
    case Kind::Bcast:
      return broadcast(*node, value);
    case Kind::Min:
    case Kind::Max:
      for (size_t i = 0; i < node->operands.size(); ++i) {
        int64_t v;
        if (!run(DimNode::of(node->operands[i]), v))
          return false;
        value = i == 0 ? v : node->kind == Kind::Min ? std::min(value, v) : std::max(value, v);
      }
      return true;
    case Kind::FloorDiv:
    case Kind::CeilDiv:
    case Kind::Mod:
      break;
    }
    int64_t x, y;
    if (!run(DimNode::of(node->operands[0]), x) || !run(DimNode::of(node->operands[1]), y))
      return false;
    if (y == 0)
      return fail(*node, "division by zero");
    if (x == INT64_MIN && y == -1) {
      value = 0;
      return node->kind == Kind::Mod || fail(*node, "overflow");
    }
    int64_t q = x / y, r = x % y;
    bool down = r != 0 && ((r < 0) != (y < 0)); // the quotient was rounded up
    if (node->kind == Kind::FloorDiv)
      value = q - down;
    else if (node->kind == Kind::CeilDiv)
      value = q + (r != 0 && !down);
    else
      value = down ? r + y : r;
    return true;
  }

  Status error;

private:
  bool fail(const DimNode &node, std::string message) {
    error = runtimeError(std::move(message), "dimension " + node.text.substr(0, 200));
    return false;
  }

  bool sum(const DimNode &node, int64_t &value) {
    value = 0;
    for (const Monomial &m : node.terms) {
      int64_t product = m.coefficient;
      for (const NodePtr &atom : m.atoms) {
        int64_t v;
        if (!run(atom, v))
          return false;
        if (__builtin_mul_overflow(product, v, &product))
          return fail(node, "overflow");
      }
      if (__builtin_add_overflow(value, product, &value))
        return fail(node, "overflow");
    }
    return true;
  }

  bool broadcast(const DimNode &node, int64_t &value) {
    value = 1;
    for (const DimExpr &operand : node.operands) {
      int64_t v;
      if (!run(DimNode::of(operand), v))
        return false;
      if (v == 1)
        continue;
      if (value != 1 && value != v)
        return fail(node, "sizes " + std::to_string(value) + " and " + std::to_string(v) +
                              " do not broadcast");
      value = v;
    }
    return true;
  }

  const Lookup &lookup;
};

/// Interval arithmetic; the ends of int64_t stand for infinity.
constexpr int64_t kLow = INT64_MIN, kHigh = INT64_MAX;

int64_t clamp(__int128 v) {
  return v <= kLow ? kLow : v >= kHigh ? kHigh : static_cast<int64_t>(v);
}
bool infinite(int64_t v) { return v == kLow || v == kHigh; }

DimRange addRanges(DimRange a, DimRange b) {
  DimRange r;
  r.lo = a.lo == kLow || b.lo == kLow ? kLow : clamp(static_cast<__int128>(a.lo) + b.lo);
  r.hi = a.hi == kHigh || b.hi == kHigh ? kHigh : clamp(static_cast<__int128>(a.hi) + b.hi);
  return r;
}

int64_t mulEnds(int64_t a, int64_t b) {
  if (a == 0 || b == 0)
    return 0;
  if (infinite(a) || infinite(b))
    return (a < 0) == (b < 0) ? kHigh : kLow;
  return clamp(static_cast<__int128>(a) * b);
}

DimRange mulRanges(DimRange a, DimRange b) {
  auto [lo, hi] = std::minmax({mulEnds(a.lo, b.lo), mulEnds(a.lo, b.hi), mulEnds(a.hi, b.lo),
                               mulEnds(a.hi, b.hi)});
  return {lo, hi};
}

/// x / y for y > 0, rounded; an infinite end stays infinite.
int64_t divEnds(int64_t x, int64_t y, bool up) {
  if (infinite(x))
    return x;
  if (y == kHigh)
    return up ? x > 0 : -(x < 0);
  int64_t q = x / y, r = x % y;
  return up ? q + (r > 0) : q - (r < 0);
}

DimRange divRanges(DimRange x, DimRange y, bool up) {
  if (y.lo >= 0) {
    // A divisor of zero has no value, so it does not count.
    y.lo = std::max<int64_t>(y.lo, 1);
    if (y.hi < y.lo)
      return {kLow, kHigh};
    int64_t lo = divEnds(x.lo, x.lo >= 0 ? y.hi : y.lo, up);
    int64_t hi = divEnds(x.hi, x.hi >= 0 ? y.lo : y.hi, up);
    return {lo, hi};
  }
  // The quotient is never further from zero than the dividend, but may change sign.
  int64_t magnitude = infinite(x.lo) || infinite(x.hi)
                          ? kHigh
                          : std::max(x.lo < 0 ? -x.lo : x.lo, x.hi < 0 ? -x.hi : x.hi);
  return {magnitude == kHigh ? kLow : -magnitude, magnitude};
}

DimRange modRanges(DimRange x, DimRange y) {
  if (y.lo < 0)
    return {kLow, kHigh};
  if (x.lo >= 0 && y.lo > 0 && x.hi < y.lo)
    return x;
  DimRange r{0, y.hi == kHigh ? kHigh : std::max<int64_t>(y.hi - 1, 0)};
  if (x.lo >= 0)
    r.hi = std::min(r.hi, x.hi);
  return r;
}

DimRange rangeOf(const NodePtr &node, const std::map<std::string, DimRange> &symbols) {
  auto operand = [&](size_t i) { return rangeOf(DimNode::of(node->operands[i]), symbols); };
  switch (node->kind) {
  case Kind::Sum: {
    DimRange total{0, 0};
    for (const Monomial &m : node->terms) {
      DimRange term{m.coefficient, m.coefficient};
      for (const NodePtr &atom : m.atoms)
        term = mulRanges(term, rangeOf(atom, symbols));
      total = addRanges(total, term);
    }
    return total;
  }
  case Kind::Symbol: {
    if (node->overflow)
      return {kLow, kHigh};
    auto it = symbols.find(node->text);
    return it == symbols.end() ? DimRange{} : it->second;
  }
  case Kind::FloorDiv:
    return divRanges(operand(0), operand(1), /*up=*/false);
  case Kind::CeilDiv:
    return divRanges(operand(0), operand(1), /*up=*/true);
  case Kind::Mod:
    return modRanges(operand(0), operand(1));
  case Kind::Min:
  case Kind::Max: {
    DimRange r = operand(0);
    for (size_t i = 1; i < node->operands.size(); ++i) {
      DimRange o = operand(i);
      bool isMin = node->kind == Kind::Min;
      r.lo = isMin ? std::min(r.lo, o.lo) : std::max(r.lo, o.lo);
      r.hi = isMin ? std::min(r.hi, o.hi) : std::max(r.hi, o.hi);
    }
    return r;
  }
  case Kind::Bcast: {
    // Some operand's value, and the value of each operand that cannot be 1.
    DimRange hull = operand(0), exact{kLow, kHigh};
    for (size_t i = 0; i < node->operands.size(); ++i) {
      DimRange o = operand(i);
      hull.lo = std::min(hull.lo, o.lo);
      hull.hi = std::max(hull.hi, o.hi);
      if (o.lo > 1 || o.hi < 1) {
        exact.lo = std::max(exact.lo, o.lo);
        exact.hi = std::min(exact.hi, o.hi);
      }
    }
    DimRange r{std::max(hull.lo, exact.lo), std::min(hull.hi, exact.hi)};
    return r.lo <= r.hi ? r : hull;
  }
  }
  return {kLow, kHigh};
}

DimExpr substituteIn(const NodePtr &node, const std::map<std::string, DimExpr> &by) {
  switch (node->kind) {
  case Kind::Sum: {
    DimExpr total;
    for (const Monomial &m : node->terms) {
      DimExpr term = m.coefficient;
      for (const NodePtr &atom : m.atoms)
        term = term * substituteIn(atom, by);
      total = total + term;
    }
    return total;
  }
  case Kind::Symbol: {
    auto it = node->overflow ? by.end() : by.find(node->text);
    return it == by.end() ? DimNode::wrap(node) : it->second;
  }
  default:
    break;
  }
  DimExpr result = substituteIn(DimNode::of(node->operands[0]), by);
  for (size_t i = 1; i < node->operands.size(); ++i) {
    DimExpr next = substituteIn(DimNode::of(node->operands[i]), by);
    switch (node->kind) {
    case Kind::FloorDiv:
      result = DimExpr::floorDiv(result, next);
      break;
    case Kind::CeilDiv:
      result = DimExpr::ceilDiv(result, next);
      break;
    case Kind::Mod:
      result = DimExpr::mod(result, next);
      break;
    case Kind::Min:
      result = DimExpr::min(result, next);
      break;
    case Kind::Max:
      result = DimExpr::max(result, next);
      break;
    default:
      result = DimExpr::bcast(result, next);
      break;
    }
  }
  return result;
}

void collect(const NodePtr &node, std::set<std::string> &into) {
  if (node->kind == Kind::Symbol && !node->overflow)
    into.insert(node->text);
  for (const Monomial &m : node->terms)
    for (const NodePtr &atom : m.atoms)
      collect(atom, into);
  for (const DimExpr &operand : node->operands)
    collect(DimNode::of(operand), into);
}

} // namespace

Result<int64_t> DimExpr::evaluate(const Lookup &value) const {
  Evaluator evaluator(value);
  int64_t result = 0;
  if (!evaluator.run(node, result))
    return evaluator.error;
  return result;
}

Result<int64_t> DimExpr::evaluate(const std::map<std::string, int64_t> &values) const {
  return evaluate([&](std::string_view name) -> std::optional<int64_t> {
    auto it = values.find(std::string(name));
    if (it == values.end())
      return std::nullopt;
    return it->second;
  });
}

DimExpr DimExpr::substitute(const std::map<std::string, DimExpr> &by) const {
  return by.empty() ? *this : substituteIn(node, by);
}

DimRange DimExpr::range(const std::map<std::string, DimRange> &symbols) const {
  return rangeOf(node, symbols);
}

void DimExpr::collectSymbols(std::set<std::string> &into) const { collect(node, into); }

} // namespace lathe
