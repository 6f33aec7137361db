//===- DimFunctions.cpp - floordiv, mod, max and the like ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Functions of dimension expressions, reduced by identities that hold for all
// integers for which the function has a value.
//
//===----------------------------------------------------------------------===//
#include "DimNode.h"

#include <algorithm>
#include <numeric>

namespace lathe {

using Kind = DimExpr::Kind;
using namespace detail;

namespace detail {
const char *functionName(Kind kind) {
  switch (kind) {
  case Kind::FloorDiv:
    return "floordiv";
  case Kind::CeilDiv:
    return "ceildiv";
  case Kind::Mod:
    return "mod";
  case Kind::Min:
    return "min";
  case Kind::Max:
    return "max";
  case Kind::Bcast:
    return "bcast";
  case Kind::Sum:
  case Kind::Symbol:
    break;
  }
  return "";
}
} // namespace detail

namespace {

int64_t floorQuotient(int64_t a, int64_t positive) {
  int64_t q = a / positive;
  return q - (a % positive < 0);
}

DimExpr makeFunction(Kind kind, std::vector<DimExpr> operands) {
  auto node = std::make_shared<DimNode>();
  node->kind = kind;
  node->text = detail::functionName(kind);
  node->text += '(';
  for (size_t i = 0; i < operands.size(); ++i) {
    if (i)
      node->text += ", ";
    node->text += operands[i].str();
    if (node->text.size() > kMaxText)
      return overflowExpr();
  }
  node->text += ')';
  node->operands = std::move(operands);
  return DimNode::wrap(std::move(node));
}

/// x = divisor * quotient + rest, with as much in the quotient as holds for all values.
struct Split {
  Terms quotient, rest;
};

/// `floorCoefficients`: remainders of all coefficients in [0, d) (mod); otherwise
/// those of atoms keep their sign (which keeps ranges tight) and the constant's
/// is in [0, d).
Split splitConstant(const Terms &terms, int64_t d, bool floorCoefficients) {
  Split s;
  for (const Monomial &m : terms) {
    int64_t q = m.atoms.empty() || floorCoefficients ? floorQuotient(m.coefficient, d)
                                                     : m.coefficient / d;
    int64_t r = m.coefficient - q * d;
    if (q)
      s.quotient.push_back({q, m.atoms});
    if (r)
      s.rest.push_back({r, m.atoms});
  }
  return s;
}

Split splitMonomial(const Terms &terms, const Monomial &d) {
  Split s;
  for (const Monomial &m : terms) {
    auto atoms = removeAtoms(m.atoms, d.atoms);
    bool exactSign = !(m.coefficient == INT64_MIN && d.coefficient == -1);
    int64_t q = atoms && exactSign ? m.coefficient / d.coefficient : 0;
    int64_t r = m.coefficient - q * d.coefficient;
    if (q)
      s.quotient.push_back({q, *atoms});
    if (r)
      s.rest.push_back({r, m.atoms});
  }
  return s;
}

/// The largest monomial that divides every term of both (positive coefficient).
Monomial commonFactor(const Terms &a, const Terms &b) {
  Monomial common;
  bool first = true;
  for (const Terms *terms : {&a, &b})
    for (const Monomial &m : *terms) {
      uint64_t magnitude =
          m.coefficient < 0 ? 0 - static_cast<uint64_t>(m.coefficient) : m.coefficient;
      uint64_t g = std::gcd(static_cast<uint64_t>(common.coefficient), magnitude);
      common.coefficient = g > INT64_MAX ? 1 : static_cast<int64_t>(g);
      if (first) {
        common.atoms = m.atoms;
      } else {
        std::vector<NodePtr> both;
        std::set_intersection(
            common.atoms.begin(), common.atoms.end(), m.atoms.begin(), m.atoms.end(),
            std::back_inserter(both),
            [](const NodePtr &x, const NodePtr &y) { return compareNodes(x, y) < 0; });
        common.atoms = std::move(both);
      }
      first = false;
    }
  return common;
}

Terms divideTerms(const Terms &terms, const Monomial &d) {
  Terms result;
  for (const Monomial &m : terms)
    result.push_back({m.coefficient / d.coefficient, *removeAtoms(m.atoms, d.atoms)});
  return result;
}

bool isUnit(const Monomial &m) { return m.coefficient == 1 && m.atoms.empty(); }

/// floordiv and ceildiv by something that is not a constant.
DimExpr divideSymbolic(Kind kind, const DimExpr &x, const DimExpr &y) {
  if (std::optional<DimExpr> q = x.exactDiv(y))
    return *q;
  Terms divisor = termsOf(y);
  Split s;
  if (divisor.size() == 1)
    s = splitMonomial(termsOf(x), divisor[0]);
  else
    s.rest = termsOf(x);
  Monomial common = commonFactor(s.rest, divisor);
  DimExpr outside = fromTerms(std::move(s.quotient));
  if (!isUnit(common)) {
    DimExpr n = fromTerms(divideTerms(s.rest, common));
    DimExpr d = fromTerms(divideTerms(divisor, common));
    return outside + (kind == Kind::FloorDiv ? DimExpr::floorDiv(n, d) : DimExpr::ceilDiv(n, d));
  }
  return outside + makeFunction(kind, {fromTerms(std::move(s.rest)), y});
}

} // namespace

DimExpr DimExpr::floorDiv(const DimExpr &x, const DimExpr &y) {
  if (anyOverflow(x, y))
    return overflowExpr();
  std::optional<int64_t> d = y.constant();
  if (!d)
    return divideSymbolic(Kind::FloorDiv, x, y);
  if (*d == 0)
    return makeFunction(Kind::FloorDiv, {x, y});
  if (*d < 0)
    return *d == INT64_MIN ? overflowExpr() : floorDiv(x * DimExpr(-1), DimExpr(-*d));

  Split s = splitConstant(termsOf(x), *d, /*floorCoefficients=*/false);
  DimExpr outside = fromTerms(std::move(s.quotient));
  int64_t g = *d, rest = 0;
  for (const Monomial &m : s.rest) {
    if (m.atoms.empty())
      rest = m.coefficient;
    else
      g = std::gcd(g, m.coefficient);
  }
  if (s.rest.empty() || (s.rest.size() == 1 && rest != 0))
    return outside; // a constant rest is in [0, d)
  for (Monomial &m : s.rest)
    m.coefficient = m.atoms.empty() ? rest / g : m.coefficient / g;
  int64_t divisor = *d / g, constantRest = rest / g;
  // floordiv(floordiv(x, a) + c, d) = floordiv(x + a*c, a*d)
  for (const Monomial &m : s.rest) {
    if (m.atoms.empty() || m.coefficient != 1 || m.atoms.size() != 1 ||
        m.atoms[0]->kind != Kind::FloorDiv || s.rest.size() > (rest ? 2u : 1u))
      continue;
    std::optional<int64_t> a = m.atoms[0]->operands[1].constant();
    int64_t product, shift;
    if (a && *a > 0 && !__builtin_mul_overflow(*a, divisor, &product) &&
        !__builtin_mul_overflow(*a, constantRest, &shift))
      return outside + floorDiv(m.atoms[0]->operands[0] + DimExpr(shift), DimExpr(product));
  }
  return outside + makeFunction(Kind::FloorDiv, {fromTerms(std::move(s.rest)), DimExpr(divisor)});
}

DimExpr DimExpr::ceilDiv(const DimExpr &x, const DimExpr &y) {
  if (anyOverflow(x, y))
    return overflowExpr();
  std::optional<int64_t> d = y.constant();
  if (!d)
    return divideSymbolic(Kind::CeilDiv, x, y);
  if (*d == 0)
    return makeFunction(Kind::CeilDiv, {x, y});
  if (*d < 0)
    return *d == INT64_MIN ? overflowExpr() : ceilDiv(x * DimExpr(-1), DimExpr(-*d));
  return floorDiv(x + DimExpr(*d - 1), y);
}

DimExpr DimExpr::mod(const DimExpr &x, const DimExpr &y) {
  if (anyOverflow(x, y))
    return overflowExpr();
  std::optional<int64_t> d = y.constant();
  if (!d) {
    if (x.exactDiv(y))
      return 0;
    Terms divisor = termsOf(y);
    Terms rest =
        divisor.size() == 1 ? splitMonomial(termsOf(x), divisor[0]).rest : termsOf(x);
    Monomial common = commonFactor(rest, divisor);
    if (!isUnit(common))
      return fromTerms({common}) *
             mod(fromTerms(divideTerms(rest, common)), fromTerms(divideTerms(divisor, common)));
    return makeFunction(Kind::Mod, {fromTerms(std::move(rest)), y});
  }
  if (*d == 0)
    return makeFunction(Kind::Mod, {x, y});
  if (*d < 0)
    return *d == INT64_MIN ? overflowExpr()
                           : DimExpr(-1) * mod(x * DimExpr(-1), DimExpr(-*d));

  // mod(mod(x, a*d) + r, d) = mod(x + r, d)
  for (const Monomial &m : termsOf(x)) {
    if (m.atoms.size() != 1 || m.atoms[0]->kind != Kind::Mod)
      continue;
    std::optional<int64_t> inner = m.atoms[0]->operands[1].constant();
    if (inner && *inner != 0 && *inner % *d == 0)
      return mod(x + DimExpr(m.coefficient) *
                         (m.atoms[0]->operands[0] - DimExpr(m.atoms[0])), y);
  }
  Terms rest = splitConstant(termsOf(x), *d, /*floorCoefficients=*/true).rest;
  int64_t g = *d, constantRest = 0;
  for (const Monomial &m : rest) {
    if (m.atoms.empty())
      constantRest = m.coefficient;
    else
      g = std::gcd(g, m.coefficient);
  }
  if (rest.empty() || (rest.size() == 1 && constantRest != 0))
    return constantRest;
  // mod(g*r + c, g*e) = g*mod(r + floor(c/g), e) + mod(c, g)
  for (Monomial &m : rest)
    m.coefficient /= g;
  return DimExpr(g) * makeFunction(Kind::Mod, {fromTerms(std::move(rest)), DimExpr(*d / g)}) +
         DimExpr(constantRest % g);
}

namespace {

int64_t constantPart(const DimExpr &e) {
  const NodePtr &node = DimNode::of(e);
  if (node->kind != Kind::Sum || node->terms.empty() || !node->terms.back().atoms.empty())
    return 0;
  return node->terms.back().coefficient;
}

void flatten(Kind kind, const DimExpr &e, std::vector<DimExpr> &into) {
  if (e.kind() != kind) {
    into.push_back(e);
    return;
  }
  for (const DimExpr &operand : e.operands())
    into.push_back(operand);
}

/// min and max: of operands that differ by a constant only one can win, and a
/// constant common to all stands outside.
DimExpr extremum(Kind kind, const DimExpr &a, const DimExpr &b) {
  if (anyOverflow(a, b))
    return overflowExpr();
  // A nested extremum may stand under its constant: max(max(S, T) + 1, U).
  std::vector<DimExpr> flat;
  for (const DimExpr *e : {&a, &b}) {
    DimExpr shift = constantPart(*e);
    std::vector<DimExpr> inner;
    flatten(kind, *e - shift, inner);
    for (const DimExpr &i : inner)
      flat.push_back(i + shift);
  }
  std::map<DimExpr, int64_t> best;
  for (const DimExpr &e : flat) {
    if (anyOverflow(e))
      return overflowExpr();
    int64_t c = constantPart(e);
    auto [it, fresh] = best.try_emplace(e - DimExpr(c), c);
    if (!fresh)
      it->second = kind == Kind::Max ? std::max(it->second, c) : std::min(it->second, c);
  }
  if (best.size() == 1)
    return best.begin()->first + DimExpr(best.begin()->second);
  int64_t common = INT64_MAX;
  for (auto &[variable, c] : best)
    common = std::min(common, c);
  std::vector<DimExpr> operands;
  for (auto &[variable, c] : best) {
    operands.push_back(variable + (DimExpr(c) - DimExpr(common)));
    if (anyOverflow(operands.back()))
      return overflowExpr();
  }
  std::sort(operands.begin(), operands.end());
  return makeFunction(kind, std::move(operands)) + DimExpr(common);
}

} // namespace

DimExpr DimExpr::min(const DimExpr &a, const DimExpr &b) { return extremum(Kind::Min, a, b); }
DimExpr DimExpr::max(const DimExpr &a, const DimExpr &b) { return extremum(Kind::Max, a, b); }

DimExpr DimExpr::bcast(const DimExpr &a, const DimExpr &b) {
  if (anyOverflow(a, b))
    return overflowExpr();
  std::vector<DimExpr> operands;
  flatten(Kind::Bcast, a, operands);
  flatten(Kind::Bcast, b, operands);
  std::erase_if(operands, [](const DimExpr &e) { return e.constant() == 1; });
  std::sort(operands.begin(), operands.end());
  operands.erase(std::unique(operands.begin(), operands.end()), operands.end());
  if (operands.empty())
    return 1;
  // Beside a constant the others are it or 1. Two constants never broadcast:
  // evaluate() says so.
  auto symbolic = [](const DimExpr &e) { return !e.isConstant(); };
  if (!std::all_of(operands.begin(), operands.end(), symbolic))
    std::erase_if(operands, symbolic);
  if (operands.size() == 1)
    return operands[0];
  return makeFunction(Kind::Bcast, std::move(operands));
}

} // namespace lathe
