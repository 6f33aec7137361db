//===- DimExpr.cpp - canonical form of symbolic sizes ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Construction keeps every expression canonical: sums are merged and sorted
// (graded lexicographic order, which is also the order of polynomial division)
// and products are expanded. The functions are in DimFunctions.cpp.
//
//===----------------------------------------------------------------------===//
#include "DimNode.h"

#include <algorithm>

namespace lathe {

using Kind = DimExpr::Kind;
using namespace detail;

namespace {

const NodePtr &overflowNode() {
  static const NodePtr node = [] {
    auto n = std::make_shared<DimNode>();
    n->kind = Kind::Symbol;
    n->text = "overflow!";
    n->overflow = true;
    return n;
  }();
  return node;
}

/// Graded lexicographic: higher degree first, then the smaller atoms first.
int compareAtoms(const std::vector<NodePtr> &a, const std::vector<NodePtr> &b) {
  if (a.size() != b.size())
    return a.size() > b.size() ? -1 : 1;
  for (size_t i = 0; i < a.size(); ++i)
    if (int c = compareNodes(a[i], b[i]))
      return c;
  return 0;
}

std::string printTerms(const Terms &terms) {
  if (terms.empty())
    return "0";
  std::string text;
  for (const Monomial &m : terms) {
    bool negative = m.coefficient < 0;
    uint64_t magnitude = negative ? 0 - static_cast<uint64_t>(m.coefficient) : m.coefficient;
    if (text.empty())
      text += negative ? "-" : "";
    else
      text += negative ? " - " : " + ";
    if (magnitude != 1 || m.atoms.empty()) {
      text += std::to_string(magnitude);
      if (!m.atoms.empty())
        text += '*';
    }
    for (size_t i = 0; i < m.atoms.size(); ++i) {
      if (i)
        text += '*';
      text += m.atoms[i]->text;
      if (text.size() > kMaxText)
        return text;
    }
  }
  return text;
}

} // namespace

namespace detail {

DimExpr overflowExpr() { return DimNode::wrap(overflowNode()); }

DimExpr fromTerms(Terms terms) {
  std::sort(terms.begin(), terms.end(), [](const Monomial &a, const Monomial &b) {
    return compareAtoms(a.atoms, b.atoms) < 0;
  });
  Terms merged;
  merged.reserve(terms.size());
  for (Monomial &m : terms) {
    if (!merged.empty() && compareAtoms(merged.back().atoms, m.atoms) == 0) {
      if (__builtin_add_overflow(merged.back().coefficient, m.coefficient,
                                 &merged.back().coefficient))
        return overflowExpr();
    } else {
      merged.push_back(std::move(m));
    }
  }
  std::erase_if(merged, [](const Monomial &m) { return m.coefficient == 0; });
  if (merged.size() == 1 && merged[0].coefficient == 1 && merged[0].atoms.size() == 1)
    return DimNode::wrap(merged[0].atoms[0]);
  if (merged.size() > kMaxTerms)
    return overflowExpr();
  auto node = std::make_shared<DimNode>();
  node->text = printTerms(merged);
  if (node->text.size() > kMaxText)
    return overflowExpr();
  node->terms = std::move(merged);
  return DimNode::wrap(std::move(node));
}

Terms termsOf(const DimExpr &e) {
  const NodePtr &node = DimNode::of(e);
  if (node->kind == Kind::Sum)
    return node->terms;
  return {Monomial{1, {node}}};
}

std::optional<std::vector<NodePtr>> removeAtoms(const std::vector<NodePtr> &a,
                                                const std::vector<NodePtr> &b) {
  std::vector<NodePtr> rest;
  size_t j = 0;
  for (const NodePtr &atom : a) {
    if (j < b.size() && compareNodes(atom, b[j]) == 0)
      ++j;
    else
      rest.push_back(atom);
  }
  if (j != b.size())
    return std::nullopt;
  return rest;
}

} // namespace detail

namespace {

bool multiply(const Monomial &a, const Monomial &b, Monomial &into) {
  if (__builtin_mul_overflow(a.coefficient, b.coefficient, &into.coefficient))
    return false;
  into.atoms.clear();
  std::merge(a.atoms.begin(), a.atoms.end(), b.atoms.begin(), b.atoms.end(),
             std::back_inserter(into.atoms),
             [](const NodePtr &x, const NodePtr &y) { return compareNodes(x, y) < 0; });
  return true;
}

} // namespace

DimExpr::DimExpr() : DimExpr(0) {}

DimExpr::DimExpr(int64_t constant) {
  auto make = [](int64_t value) {
    auto n = std::make_shared<DimNode>();
    if (value)
      n->terms.push_back({value, {}});
    n->text = std::to_string(value);
    return NodePtr(std::move(n));
  };
  // The constants that programs are full of share their nodes.
  static const NodePtr zero = make(0), one = make(1);
  node = constant == 0 ? zero : constant == 1 ? one : make(constant);
}

DimExpr DimExpr::symbol(std::string_view name) {
  auto n = std::make_shared<DimNode>();
  n->kind = Kind::Symbol;
  n->text = name;
  return DimExpr(std::move(n));
}

DimExpr operator+(const DimExpr &a, const DimExpr &b) {
  if (anyOverflow(a, b))
    return overflowExpr();
  Terms terms = termsOf(a);
  if (terms.empty())
    return b;
  Terms other = termsOf(b);
  if (other.empty())
    return a;
  terms.insert(terms.end(), std::make_move_iterator(other.begin()),
               std::make_move_iterator(other.end()));
  return fromTerms(std::move(terms));
}

DimExpr operator-(const DimExpr &a, const DimExpr &b) { return a + b * DimExpr(-1); }

DimExpr operator*(const DimExpr &a, const DimExpr &b) {
  if (anyOverflow(a, b))
    return overflowExpr();
  Terms x = termsOf(a), y = termsOf(b), result;
  if (x.size() * y.size() > kMaxTerms)
    return overflowExpr();
  result.reserve(x.size() * y.size());
  for (const Monomial &m : x)
    for (const Monomial &n : y) {
      Monomial p;
      if (!multiply(m, n, p))
        return overflowExpr();
      result.push_back(std::move(p));
    }
  return fromTerms(std::move(result));
}

std::optional<int64_t> DimExpr::constant() const {
  if (node->kind != Kind::Sum)
    return std::nullopt;
  if (node->terms.empty())
    return 0;
  if (node->terms.size() == 1 && node->terms[0].atoms.empty())
    return node->terms[0].coefficient;
  return std::nullopt;
}

std::optional<std::string> DimExpr::symbolName() const {
  if (node->kind == Kind::Symbol && !node->overflow)
    return node->text;
  return std::nullopt;
}

const std::string &DimExpr::str() const { return node->text; }

Kind DimExpr::kind() const { return node->kind; }

std::vector<DimExpr::Term> DimExpr::terms() const {
  std::vector<Term> result;
  for (const Monomial &m : termsOf(*this)) {
    Term t;
    t.coefficient = m.coefficient;
    for (const NodePtr &atom : m.atoms)
      t.atoms.push_back(DimExpr(atom));
    result.push_back(std::move(t));
  }
  return result;
}

std::vector<DimExpr> DimExpr::operands() const { return node->operands; }

std::optional<DimExpr> DimExpr::exactDiv(const DimExpr &d) const {
  if (anyOverflow(*this, d))
    return std::nullopt;
  Terms divisor = termsOf(d), rest = termsOf(*this), quotient;
  if (divisor.empty())
    return std::nullopt;
  // Polynomial long division by the leading term; each step removes the leading
  // term of the rest, so it ends.
  while (!rest.empty()) {
    if (quotient.size() > kMaxTerms)
      return std::nullopt;
    const Monomial &lead = rest.front();
    auto atoms = removeAtoms(lead.atoms, divisor[0].atoms);
    if (!atoms || lead.coefficient == INT64_MIN ||
        lead.coefficient % divisor[0].coefficient != 0)
      return std::nullopt;
    Monomial q{lead.coefficient / divisor[0].coefficient, std::move(*atoms)};
    DimExpr next = fromTerms(rest) - fromTerms({q}) * d;
    if (anyOverflow(next))
      return std::nullopt;
    quotient.push_back(std::move(q));
    rest = termsOf(next);
  }
  return fromTerms(std::move(quotient));
}

DimExpr product(const std::vector<DimExpr> &dims) {
  DimExpr result = 1;
  for (const DimExpr &d : dims)
    result = result * d;
  return result;
}

} // namespace lathe
