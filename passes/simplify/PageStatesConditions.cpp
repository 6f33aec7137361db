//===- PageStatesConditions.cpp - conditions of sizes and indices ---------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Conditions that follow from 0 <= query < S, 0 <= key < keys, B, S >= 1 and P >= 0 alone are true; of several,
// one that follows from another is left out. So masks that say the same in other words become the same.
//
//===----------------------------------------------------------------------===//
#include "PageStates.h"

using namespace mlir;

namespace lathe::paging {

std::string Condition::str() const {
  switch (kind) {
  case Kind::True:
    return "true";
  case Kind::False:
    return "false";
  case Kind::AtMostZero:
    return expr.str() + " <= 0";
  case Kind::And:
  case Kind::Or:
    break;
  }
  std::string text;
  for (const Condition &part : parts)
    text += (text.empty() ? "(" : kind == Kind::And ? " and " : " or ") + part.str();
  return text + ")";
}

/// The coefficient of a symbol where it stands alone.
static int64_t coefficientOf(const DimExpr &expr, StringRef symbol) {
  int64_t sum = 0;
  for (const DimExpr::Term &term : expr.terms())
    if (term.atoms.size() == 1 && term.atoms[0].symbolName() == symbol.str())
      sum += term.coefficient;
  return sum;
}

std::optional<int64_t> Elements::upperBound(DimExpr expr) const {
  // Indices at the end of their ranges that makes most of the expression.
  const std::pair<const char *, DimExpr> indices[] = {{kKey, decoder.keys}, {kQuery, decoder.tokens}};
  for (const auto &[name, size] : indices) {
    int64_t factor = coefficientOf(expr, name);
    expr = expr + DimExpr(factor) * ((factor > 0 ? size - DimExpr(1) : DimExpr(0)) - DimExpr::symbol(name));
  }
  // Caches have room for those of before.
  if (auto name = decoder.room ? decoder.room->symbolName() : std::nullopt)
    if (int64_t factor = coefficientOf(expr, *name); factor < 0)
      expr = expr + DimExpr(factor) * (decoder.past - *decoder.room);
  int64_t number = 0, past = 0, tokens = 0;
  for (const DimExpr::Term &term : expr.terms()) {
    if (term.atoms.empty()) {
      number += term.coefficient;
      continue;
    }
    auto name = term.atoms.size() == 1 ? term.atoms[0].symbolName() : std::nullopt;
    int64_t *into = !name                                 ? nullptr
                    : name == decoder.past.symbolName()   ? &past
                    : name == decoder.tokens.symbolName() ? &tokens
                    : name == decoder.batch.symbolName()  ? &tokens // both are 1 or more
                                                          : nullptr;
    if (!into)
      return std::nullopt;
    *into += term.coefficient;
  }
  if (auto most = decoder.room ? decoder.room->constant() : std::nullopt; most && past > 0) {
    number += past * *most;
    past = 0;
  }
  if (past > 0 || tokens > 0)
    return std::nullopt;
  return number + tokens; // P = 0, S = 1
}

DimExpr Elements::known(const DimExpr &expr) const {
  DimExpr sum(0);
  for (const DimExpr::Term &term : expr.substitute(decoder.known).terms()) {
    DimExpr product(term.coefficient);
    for (const DimExpr &atom : term.atoms) {
      const DimExpr::Kind kind = atom.kind();
      std::vector<DimExpr> operands = atom.operands();
      if (operands.empty()) {
        product = product * atom;
        continue;
      }
      DimExpr value = known(operands[0]);
      for (const DimExpr &operand : ArrayRef(operands).drop_front()) {
        DimExpr other = known(operand);
        if (kind == DimExpr::Kind::Min || kind == DimExpr::Kind::Max) {
          auto above = upperBound(value - other), below = upperBound(other - value);
          const bool least = kind == DimExpr::Kind::Min;
          value = above && *above <= 0   ? (least ? value : other)
                  : below && *below <= 0 ? (least ? other : value)
                  : least                ? DimExpr::min(value, other)
                                         : DimExpr::max(value, other);
        } else {
          value = kind == DimExpr::Kind::FloorDiv  ? DimExpr::floorDiv(value, other)
                  : kind == DimExpr::Kind::CeilDiv ? DimExpr::ceilDiv(value, other)
                  : kind == DimExpr::Kind::Mod     ? DimExpr::mod(value, other)
                                                   : DimExpr::bcast(value, other);
        }
      }
      product = product * value;
    }
    sum = sum + product;
  }
  return sum;
}

Condition Elements::atMostZero(const DimExpr &expr) const {
  if (auto most = upperBound(expr); most && *most <= 0)
    return {};
  if (auto least = upperBound(DimExpr(1) - expr); least && *least <= 0)
    return {Condition::Kind::False, {}, {}};
  return {Condition::Kind::AtMostZero, expr, {}};
}

static bool sameCondition(const Condition &a, const Condition &b) {
  return a.kind == b.kind && a.expr == b.expr && a.str() == b.str();
}

/// Whether a condition holds wherever another does, as far as bounds show.
bool Elements::follows(const Condition &part, const Condition &from) const {
  using Kind = Condition::Kind;
  auto partFollows = [&](const Condition &p) { return follows(p, from); };
  auto followsFrom = [&](const Condition &f) { return follows(part, f); };
  if (part.kind == Kind::AtMostZero && from.kind == Kind::AtMostZero) {
    auto most = upperBound(part.expr - from.expr);
    return most && *most <= 0;
  }
  if (from.kind == Kind::Or)
    return llvm::all_of(from.parts, followsFrom);
  if (part.kind == Kind::And)
    return llvm::all_of(part.parts, partFollows);
  return (from.kind == Kind::And && llvm::any_of(from.parts, followsFrom)) ||
         (part.kind == Kind::Or && llvm::any_of(part.parts, partFollows));
}

Condition Elements::join(Condition::Kind kind, Condition a, Condition b) const {
  const bool all = kind == Condition::Kind::And;
  const auto neutral = all ? Condition::Kind::True : Condition::Kind::False;
  const auto decided = all ? Condition::Kind::False : Condition::Kind::True;
  if (a.kind == decided || b.kind == decided)
    return {decided, {}, {}};
  if (a.kind == neutral)
    return b;
  if (b.kind == neutral)
    return a;
  Condition joined{kind, {}, {}};
  for (Condition *side : {&a, &b})
    for (Condition &part : side->kind == kind ? side->parts : std::vector<Condition>{*side})
      if (llvm::none_of(joined.parts, [&](const Condition &known) { return sameCondition(known, part); }))
        joined.parts.push_back(part);
  // p or (q and r) is p or q where r holds without p; p and (q or r) is p and q where r fails with p.
  for (size_t i = 0; i < joined.parts.size(); ++i) {
    Condition &inner = joined.parts[i];
    if (inner.kind != (all ? Condition::Kind::Or : Condition::Kind::And))
      continue;
    auto spare = [&](const Condition &r) {
      return llvm::any_of(joined.parts, [&](const Condition &p) {
        return &p != &inner && p.kind == Condition::Kind::AtMostZero && r.kind == p.kind &&
               (all ? follows(negated(r), p) : follows(r, negated(p)));
      });
    };
    std::vector<Condition> rest;
    for (const Condition &r : inner.parts)
      if (!spare(r))
        rest.push_back(r);
    if (rest.empty()) // all of them: true of a conjunction, false of a disjunction
      return {decided, {}, {}};
    if (rest.size() < inner.parts.size()) {
      Condition less = rest[0];
      for (const Condition &r : ArrayRef(rest).drop_front())
        less = join(inner.kind, std::move(less), r);
      std::vector<Condition> others = joined.parts;
      others.erase(others.begin() + i);
      for (const Condition &other : others)
        less = join(kind, std::move(less), other);
      return less;
    }
  }
  // One that follows from another says nothing more of all, and the other nothing more of any.
  for (size_t i = 0; i < joined.parts.size();) {
    bool spare = false;
    for (size_t k = 0; k < joined.parts.size() && !spare; ++k)
      spare = k != i && (all ? follows(joined.parts[i], joined.parts[k]) : follows(joined.parts[k], joined.parts[i]));
    spare ? void(joined.parts.erase(joined.parts.begin() + i)) : void(++i);
  }
  return joined.parts.size() == 1 ? joined.parts[0] : joined;
}
Condition Elements::both(Condition a, Condition b) const {
  return join(Condition::Kind::And, std::move(a), std::move(b));
}
Condition Elements::either(Condition a, Condition b) const {
  return join(Condition::Kind::Or, std::move(a), std::move(b));
}
Condition Elements::negated(const Condition &condition) const {
  switch (condition.kind) {
  case Condition::Kind::True:
    return {Condition::Kind::False, {}, {}};
  case Condition::Kind::False:
    return {};
  case Condition::Kind::AtMostZero: // x > 0 is 1 - x <= 0
    return atMostZero(DimExpr(1) - condition.expr);
  case Condition::Kind::And:
  case Condition::Kind::Or:
    break;
  }
  const bool all = condition.kind == Condition::Kind::And;
  Condition joined = negated(condition.parts[0]);
  for (const Condition &part : ArrayRef(condition.parts).drop_front())
    joined = all ? either(joined, negated(part)) : both(joined, negated(part));
  return joined;
}

Condition Elements::given(const Condition &condition, ArrayRef<DimExpr> facts) const {
  switch (condition.kind) {
  case Condition::Kind::True:
  case Condition::Kind::False:
    return condition;
  case Condition::Kind::AtMostZero:
    for (const DimExpr &fact : facts) {
      if (auto most = upperBound(condition.expr - fact); most && *most <= 0)
        return {};
      if (auto most = upperBound(DimExpr(1) - condition.expr - fact); most && *most <= 0)
        return {Condition::Kind::False, {}, {}};
    }
    return condition;
  case Condition::Kind::And:
  case Condition::Kind::Or:
    break;
  }
  Condition joined = given(condition.parts[0], facts);
  for (const Condition &part : ArrayRef(condition.parts).drop_front())
    joined = join(condition.kind, joined, given(part, facts));
  return joined;
}

Element Elements::given(const Element &element, ArrayRef<DimExpr> facts) const {
  if (element.kind != Element::Kind::Choice)
    return element;
  return choose(given(element.truth, facts), given(*element.yes, facts), given(*element.no, facts));
}

/// What holds where a condition does, as expressions that are at most 0.
static std::vector<DimExpr> factsOf(const Condition &condition) {
  std::vector<DimExpr> facts;
  if (condition.kind == Condition::Kind::AtMostZero)
    facts.push_back(condition.expr);
  if (condition.kind == Condition::Kind::And)
    for (const Condition &part : condition.parts)
      if (part.kind == Condition::Kind::AtMostZero)
        facts.push_back(part.expr);
  return facts;
}

Element Elements::choose(const Condition &condition, const Element &yes, const Element &no) const {
  if (condition.kind == Condition::Kind::True)
    return yes;
  if (condition.kind == Condition::Kind::False)
    return no;
  using Kind = Element::Kind;
  // Where x is never below 0 and x <= 0 chooses, both agree if x divides their difference.
  if (yes.kind == Kind::Integer && no.kind == Kind::Integer) {
    auto times = condition.kind == Condition::Kind::AtMostZero
                     ? (no.integer - yes.integer).exactDiv(condition.expr)
                     : std::nullopt;
    auto least = times ? upperBound(DimExpr(0) - condition.expr) : std::nullopt;
    if (no.integer == yes.integer || (least && *least <= 0))
      return no;
  }
  Element chosen{Kind::Choice, {}, 0, condition, {}, {}, {}, {}};
  auto branch = [&](const Element &element, const Condition &holds) {
    std::vector<DimExpr> facts = factsOf(holds);
    return std::make_shared<Element>(facts.empty() ? element : given(element, facts));
  };
  chosen.yes = branch(yes, condition);
  chosen.no = branch(no, negated(condition));
  return chosen;
}

} // namespace lathe::paging
