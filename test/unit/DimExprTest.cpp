//===- DimExprTest.cpp - symbolic sizes ------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Identities by hand, then random expressions against a naive evaluation.
//
//===----------------------------------------------------------------------===//
#include "lathe/support/DimExpr.h"

#include <gtest/gtest.h>
#include <random>

using lathe::DimExpr;
using lathe::DimRange;
using lathe::ErrorCode;
using lathe::Result;

namespace {

DimExpr parse(std::string_view text) {
  Result<DimExpr> e = DimExpr::parse(text);
  EXPECT_TRUE(e.ok()) << text << ": " << e.status().str();
  return e ? *e : DimExpr();
}
std::string canon(std::string_view text) { return parse(text).str(); }

TEST(DimExpr, CanonicalText) {
  EXPECT_EQ(canon("1 + B*(2*S + 1)"), "2*B*S + B + 1");
  EXPECT_EQ(canon("S*B - B*S"), "0");
  EXPECT_EQ(canon("(A + B)*(A - B)"), "A*A - B*B");
  EXPECT_EQ(canon("-(A - 3)"), "-A + 3");
  EXPECT_EQ(canon("--A"), "A");
  EXPECT_EQ(canon("-9223372036854775808"), "-9223372036854775808");
  EXPECT_EQ(canon("B*-2"), "-2*B");
}

TEST(DimExpr, Division) {
  EXPECT_EQ(canon("floordiv(4*S + 3, 4)"), "S");
  EXPECT_EQ(canon("floordiv(H - 1, 2)"), "floordiv(H + 1, 2) - 1");
  EXPECT_EQ(canon("floordiv(6*S + 3, 4)"), "S + floordiv(S + 1, 2)");
  EXPECT_EQ(canon("floordiv(floordiv(H + 1, 2) + 1, 2)"), "floordiv(H + 3, 4)");
  EXPECT_EQ(canon("floordiv(12*B*S, B*S)"), "12");
  EXPECT_EQ(canon("floordiv(2*A*C, 2*B*C)"), "floordiv(A, B)");
  EXPECT_EQ(canon("floordiv(A*B + C, B)"), "A + floordiv(C, B)");
  EXPECT_EQ(canon("floordiv(A*A - B*B, A + B)"), "A - B");
  EXPECT_EQ(canon("ceildiv(S, 16)"), "floordiv(S + 15, 16)");
  EXPECT_EQ(canon("ceildiv(A*B + C, B)"), "A + ceildiv(C, B)");
  EXPECT_EQ(canon("floordiv(-7, 2)"), "-4");
  EXPECT_EQ(canon("ceildiv(-7, 2)"), "-3");
}

TEST(DimExpr, Modulo) {
  EXPECT_EQ(canon("mod(4*S + 7, 4)"), "3");
  EXPECT_EQ(canon("mod(6*S + 3, 4)"), "2*mod(S + 1, 2) + 1");
  EXPECT_EQ(canon("mod(mod(S, 8) + 1, 4)"), "mod(S + 1, 4)");
  EXPECT_EQ(canon("mod(-7, 4)"), "1");
  EXPECT_EQ(canon("mod(7, -4)"), "-1");
  EXPECT_EQ(canon("mod(A*B + C, B)"), "mod(C, B)");
}

TEST(DimExpr, Extrema) {
  EXPECT_EQ(canon("max(S, S + 3)"), "S + 3");
  EXPECT_EQ(canon("min(S, S + 3)"), "S");
  EXPECT_EQ(canon("max(T, max(S, T))"), "max(S, T)");
  EXPECT_EQ(canon("max(S + 1, T + 1)"), "max(S, T) + 1");
  EXPECT_EQ(canon("max(max(S, T) + 1, U)"), canon("max(U, S + 1, T + 1)"));
}

TEST(DimExpr, Broadcast) {
  EXPECT_EQ(canon("bcast(A, 1)"), "A");
  EXPECT_EQ(canon("bcast(1, 1)"), "1");
  EXPECT_EQ(canon("bcast(B, bcast(A, B))"), "bcast(A, B)");
  EXPECT_EQ(canon("bcast(A, 5)"), "5");
  EXPECT_EQ(canon("bcast(0, 1)"), "0");
  Result<int64_t> bad = parse("bcast(A, B)").evaluate({{"A", 2}, {"B", 3}});
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().code(), ErrorCode::RuntimeFailure);
  EXPECT_EQ(*parse("bcast(A, B)").evaluate({{"A", 1}, {"B", 0}}), 0);
}

TEST(DimExpr, Errors) {
  for (const char *text : {"", "A +", "3 4", "floordiv(A)", "foo(A)", "(A", "A B", "1..2", "*",
                           "9223372036854775808", "max()", "A,B", "mod(1,2,3)"}) {
    Result<DimExpr> e = DimExpr::parse(text);
    ASSERT_FALSE(e.ok()) << text;
    EXPECT_NE(e.status().location().find("column"), std::string::npos);
  }
  EXPECT_FALSE(DimExpr::parse(std::string(100000, '(')).ok());
  EXPECT_FALSE(DimExpr::parse(std::string(100000, '-')).ok());
  EXPECT_EQ(DimExpr::parse("A + 3 $").status().location(), "column 7");

  Result<int64_t> missing = parse("A + B").evaluate({{"A", 1}});
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.status().location(), "symbol B");
  EXPECT_FALSE(parse("floordiv(A, B)").evaluate({{"A", 1}, {"B", 0}}).ok());
  EXPECT_FALSE(parse("mod(A, 0)").evaluate({{"A", 1}}).ok());
  EXPECT_FALSE(parse("A*A").evaluate({{"A", INT64_MAX / 2}}).ok());
}

TEST(DimExpr, OverflowIsReportedNotWrapped) {
  DimExpr big = DimExpr(INT64_MAX) + DimExpr(1);
  EXPECT_FALSE(big.isConstant());
  EXPECT_FALSE(big.evaluate(std::map<std::string, int64_t>{}).ok());
  EXPECT_FALSE((big - big).isConstant());
  DimExpr huge = 1;
  for (int i = 0; i < 40; ++i)
    huge = huge * (DimExpr::symbol("A" + std::to_string(i)) + DimExpr::symbol("B"));
  EXPECT_FALSE(huge.evaluate([](std::string_view) { return std::optional<int64_t>(0); }).ok());
}

TEST(DimExpr, ExactDivision) {
  EXPECT_EQ(parse("6*A*B + 4*A").exactDiv(parse("2*A")), parse("3*B + 2"));
  EXPECT_EQ(parse("A*B + 2*A + B + 2").exactDiv(parse("A + 1")), parse("B + 2"));
  EXPECT_FALSE(parse("A*B + 1").exactDiv(parse("A")).has_value());
  EXPECT_FALSE(parse("3*A").exactDiv(parse("2")).has_value());
  EXPECT_FALSE(parse("A").exactDiv(0).has_value());
}

TEST(DimExpr, Ranges) {
  std::map<std::string, DimRange> r{{"A", {1, 8}}, {"B", {2, 4}}};
  EXPECT_EQ(parse("2*A - B").range(r), (DimRange{-2, 14}));
  EXPECT_EQ(parse("floordiv(A, B)").range(r), (DimRange{0, 4}));
  EXPECT_EQ(parse("mod(A, 3)").range(r), (DimRange{0, 2}));
  EXPECT_EQ(parse("S*B + 1").range(r), (DimRange{1, DimRange::kUnbounded}));
  EXPECT_EQ(parse("bcast(A, B)").range(r), (DimRange{2, 4}));
}

TEST(DimExpr, Structure) {
  EXPECT_EQ(parse("B").symbolName(), "B");
  EXPECT_FALSE(parse("2*B").symbolName().has_value());
  std::vector<DimExpr::Term> terms = parse("2*A*B + 3").terms();
  ASSERT_EQ(terms.size(), 2u);
  EXPECT_EQ(terms[0].coefficient, 2);
  EXPECT_EQ(terms[0].atoms.size(), 2u);
  EXPECT_TRUE(terms[1].atoms.empty());
  std::set<std::string> symbols;
  parse("floordiv(A*B, C) + max(D, 1)").collectSymbols(symbols);
  EXPECT_EQ(symbols, (std::set<std::string>{"A", "B", "C", "D"}));
}

/// An expression kept as written, evaluated without any rewriting.
struct Naive {
  enum Op { Const, Sym, Add, Sub, Mul, Floor, Ceil, Mod, Min, Max, Bcast } op = Const;
  int64_t value = 0;
  std::vector<Naive> sub;

  DimExpr build() const {
    switch (op) {
    case Const:
      return value;
    case Sym:
      return DimExpr::symbol(std::string(1, 'A' + value));
    case Add:
      return sub[0].build() + sub[1].build();
    case Sub:
      return sub[0].build() - sub[1].build();
    case Mul:
      return sub[0].build() * sub[1].build();
    case Floor:
      return DimExpr::floorDiv(sub[0].build(), sub[1].build());
    case Ceil:
      return DimExpr::ceilDiv(sub[0].build(), sub[1].build());
    case Mod:
      return DimExpr::mod(sub[0].build(), sub[1].build());
    case Min:
      return DimExpr::min(sub[0].build(), sub[1].build());
    case Max:
      return DimExpr::max(sub[0].build(), sub[1].build());
    case Bcast:
      return DimExpr::bcast(sub[0].build(), sub[1].build());
    }
    return 0;
  }

  /// Nothing where the formula has no value.
  std::optional<int64_t> evaluate(const int64_t *symbols) const {
    if (op == Const)
      return value;
    if (op == Sym)
      return symbols[value];
    auto x = sub[0].evaluate(symbols), y = sub[1].evaluate(symbols);
    if (!x || !y)
      return std::nullopt;
    auto floorDiv = [](int64_t a, int64_t b) {
      int64_t q = a / b;
      return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
    };
    switch (op) {
    case Add:
      return *x + *y;
    case Sub:
      return *x - *y;
    case Mul:
      return *x * *y;
    case Min:
      return std::min(*x, *y);
    case Max:
      return std::max(*x, *y);
    case Bcast:
      if (*x != *y && *x != 1 && *y != 1)
        return std::nullopt;
      return *x == 1 ? *y : *x;
    default:
      break;
    }
    if (*y == 0)
      return std::nullopt;
    if (op == Floor)
      return floorDiv(*x, *y);
    if (op == Ceil)
      return -floorDiv(-*x, *y);
    return *x - *y * floorDiv(*x, *y);
  }
};

class Random {
public:
  explicit Random(unsigned seed) : rng(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(rng() % n); }

  Naive expression(int depth) {
    Naive n;
    if (depth == 0 || below(6) == 0) {
      n.op = below(3) == 0 ? Naive::Const : Naive::Sym;
      n.value = n.op == Naive::Const ? below(21) - 6 : below(4);
      return n;
    }
    static constexpr Naive::Op ops[] = {Naive::Add, Naive::Add,   Naive::Sub, Naive::Mul,
                                        Naive::Mul, Naive::Floor, Naive::Ceil, Naive::Mod,
                                        Naive::Min, Naive::Max,   Naive::Bcast};
    n.op = ops[below(std::size(ops))];
    n.sub = {expression(depth - 1), expression(depth - 1)};
    bool divides = n.op == Naive::Floor || n.op == Naive::Ceil || n.op == Naive::Mod;
    if (divides && below(3) != 0) {
      n.sub[1] = Naive{Naive::Const, below(12) - 2, {}};
    }
    return n;
  }

private:
  std::mt19937 rng;
};

TEST(DimExpr, RandomExpressions) {
  Random random(20240);
  int valued = 0;
  for (int i = 0; i < 10000; ++i) {
    Naive naive = random.expression(1 + i % 4);
    DimExpr e = naive.build();

    Result<DimExpr> again = DimExpr::parse(e.str());
    ASSERT_TRUE(again.ok()) << e.str() << ": " << again.status().str();
    ASSERT_EQ(again->str(), e.str());

    for (int k = 0; k < 6; ++k) {
      int64_t s[4];
      std::map<std::string, int64_t> values;
      std::map<std::string, DimExpr> constants, shifted;
      std::map<std::string, DimRange> ranges;
      for (int j = 0; j < 4; ++j) {
        s[j] = random.below(12) - (k == 0 ? 4 : 0);
        std::string name(1, 'A' + j);
        values[name] = s[j];
        constants.emplace(name, s[j]);
        shifted.emplace(name, DimExpr::symbol(name) + DimExpr::symbol("Z") * DimExpr(j) -
                                  DimExpr(2 * j));
        ranges[name] = {s[j] - random.below(3), s[j] + random.below(3)};
      }
      std::optional<int64_t> expected = naive.evaluate(s);
      if (!expected)
        continue;
      ++valued;
      Result<int64_t> value = e.evaluate(values);
      ASSERT_TRUE(value.ok()) << e.str() << ": " << value.status().str();
      ASSERT_EQ(*value, *expected) << e.str();

      ASSERT_EQ(e.substitute(constants).constant(), expected) << e.str();

      // Under Z = 2 the shifts cancel out.
      values["Z"] = 2;
      Result<int64_t> moved = e.substitute(shifted).evaluate(values);
      ASSERT_TRUE(moved.ok()) << e.str();
      ASSERT_EQ(*moved, *expected) << e.str();

      DimRange r = e.range(ranges);
      ASSERT_LE(r.lo, *expected) << e.str();
      ASSERT_GE(r.hi, *expected) << e.str();
    }
  }
  EXPECT_GT(valued, 15000);
}

} // namespace
