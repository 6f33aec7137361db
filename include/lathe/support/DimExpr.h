//===- DimExpr.h - symbolic sizes -------------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A dimension expression: an integer formula over named symbols (B, S, H, ...).
// Expressions are immutable and canonical: sums of products with integer
// coefficients over atoms, an atom being a symbol or one of the functions
// floordiv, ceildiv, mod, min, max, bcast. Two expressions are equal exactly
// when their canonical forms are, and equal expressions mean equal sizes.
//
// bcast(a, b) is the size of two broadcast dimensions: b where a is 1, a where b
// is 1, either where they agree (max is wrong for a dimension of zero). Sizes
// that do not broadcast have no value: evaluate() reports them, and rewrites
// need to hold for broadcastable sizes only.
//
// Division by zero has no value either, so floordiv(B*S, B) is S. A formula whose
// coefficients leave 64 bits, or that grows beyond 4,096 summands or 1 MiB of
// text, becomes one that evaluate() reports as an overflow.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_SUPPORT_DIMEXPR_H
#define LATHE_SUPPORT_DIMEXPR_H

#include "lathe/support/Status.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace lathe {

namespace detail {
struct DimNode;
}

/// Inclusive bounds of a value; a `hi` of kUnbounded and a `lo` of INT64_MIN mean
/// that there is none.
struct DimRange {
  static constexpr int64_t kUnbounded = INT64_MAX;
  int64_t lo = 0;
  int64_t hi = kUnbounded;
  bool operator==(const DimRange &) const = default;
};

class DimExpr {
public:
  enum class Kind { Sum, Symbol, FloorDiv, CeilDiv, Mod, Min, Max, Bcast };
  /// One summand: coefficient times the product of atoms (sorted by text; an
  /// atom may repeat). A constant summand has no atoms.
  struct Term;

  /// The constant 0.
  DimExpr();
  DimExpr(int64_t constant);
  /// `name` is an identifier: a letter or _, then letters, digits, _ . $.
  static DimExpr symbol(std::string_view name);

  friend DimExpr operator+(const DimExpr &, const DimExpr &);
  friend DimExpr operator-(const DimExpr &, const DimExpr &);
  friend DimExpr operator*(const DimExpr &, const DimExpr &);
  /// Rounds toward minus infinity. Simplified only where it holds for every
  /// integer value: whole multiples of the divisor leave the quotient, so that
  /// (4*S + 3) floordiv 4 = S and (H - 1) floordiv 2 = (H + 1) floordiv 2 - 1.
  static DimExpr floorDiv(const DimExpr &, const DimExpr &);
  /// Rounds toward plus infinity. For a constant d > 0 it is canonically
  /// floordiv(x + d - 1, d).
  static DimExpr ceilDiv(const DimExpr &, const DimExpr &);
  /// x - y * floordiv(x, y): the result has the sign of the divisor.
  static DimExpr mod(const DimExpr &, const DimExpr &);
  static DimExpr min(const DimExpr &, const DimExpr &);
  static DimExpr max(const DimExpr &, const DimExpr &);
  static DimExpr bcast(const DimExpr &, const DimExpr &);

  bool operator==(const DimExpr &other) const {
    return node == other.node || str() == other.str();
  }
  bool operator<(const DimExpr &other) const { return str() < other.str(); }

  /// The value, when it is a constant.
  std::optional<int64_t> constant() const;
  bool isConstant() const { return constant().has_value(); }
  /// The name, when it is exactly one symbol.
  std::optional<std::string> symbolName() const;
  void collectSymbols(std::set<std::string> &into) const;

  /// Canonical text: "B*(...)" is expanded, e.g. "2*B*S + B + 1",
  /// "floordiv(H + 1, 2)". Stable across processes and machines.
  const std::string &str() const;
  /// Parses what str() prints and ordinary spellings: integers, identifiers,
  /// + - * ( ) and the functions by name (floordiv, ceildiv, mod of two, min,
  /// max, bcast of one or more). The error names the column.
  static Result<DimExpr> parse(std::string_view text);

  /// Value under an assignment; an error names a missing symbol (Usage), a
  /// division by zero, sizes that do not broadcast or an overflow
  /// (RuntimeFailure; arithmetic is checked).
  Result<int64_t> evaluate(
      const std::function<std::optional<int64_t>(std::string_view)> &value) const;
  Result<int64_t> evaluate(const std::map<std::string, int64_t> &values) const;

  /// Replaces symbols; symbols not in the map stay.
  DimExpr substitute(const std::map<std::string, DimExpr> &by) const;

  /// Bounds that hold for all symbol values within theirs (interval
  /// arithmetic; a symbol that is not in the map is [0, unbounded]).
  DimRange range(const std::map<std::string, DimRange> &symbols = {}) const;

  /// `*this / d` when the division is exact for all values; for reshapes.
  std::optional<DimExpr> exactDiv(const DimExpr &d) const;

  Kind kind() const;
  /// Summands, the constant last (a lone atom is a sum of one term; 0 has none).
  std::vector<Term> terms() const;
  /// Operands of a function atom (min, max, bcast have two or more); empty for
  /// others.
  std::vector<DimExpr> operands() const;

private:
  friend struct detail::DimNode;
  explicit DimExpr(std::shared_ptr<const detail::DimNode> n) : node(std::move(n)) {}
  std::shared_ptr<const detail::DimNode> node;
};

struct DimExpr::Term {
  int64_t coefficient = 0;
  std::vector<DimExpr> atoms;
};

/// Product of all dimensions; 1 for none.
DimExpr product(const std::vector<DimExpr> &dims);

} // namespace lathe

template <> struct std::hash<lathe::DimExpr> {
  size_t operator()(const lathe::DimExpr &e) const { return std::hash<std::string>{}(e.str()); }
};

#endif // LATHE_SUPPORT_DIMEXPR_H
