//===- RandomRules.cpp - random bits, and the normal quantile ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What every target computes bit for bit alike: integers, and floats in which a product that a sum
// takes is said to be a fused multiply-add, so that no compiler has a choice.
//
//===----------------------------------------------------------------------===//
#include "Rules.h"

#include <bit>
#include <limits>

using namespace mlir;

namespace lathe::codegen {
namespace {

//===- Philox4x32-10 ------------------------------------------------------------===//

/// Words of 32 bits in i64, whose products with the multipliers are whole there.
struct Words {
  Evaluator &e;

  template <typename OpTy> Value both(Value x, Value y) const {
    e.unify(x, y);
    return e.make<OpTy>(x, y);
  }
  Value number(Value like, int64_t c) const {
    Value k = e.constantInt(e.scalarType(like), c);
    return e.isVector(like) ? e.splat(k) : k;
  }
  Value low(Value x) const { return both<arith::AndIOp>(x, number(x, 0xffffffff)); }
  Value high(Value x) const { return both<arith::ShRUIOp>(x, number(x, 32)); }
  Value mixed(Value x, Value y) const { return both<arith::XOrIOp>(x, y); }
  Value times(Value x, int64_t c) const { return both<arith::MulIOp>(x, number(x, c)); }
  Value stepped(Value x, int64_t c) const { return low(both<arith::AddIOp>(x, number(x, c))); }
};

/// lathe/support/Philox.h.
Value randomBitsRule(Evaluator &e, OpResult r, const Indices &idx) {
  auto op = cast<RandomBitsOp>(r.getOwner());
  auto at = [&](Value v) { return e.eval(v, operandIndex(e, v, r, idx)); };
  Value element = at(op.getElement()), run = at(op.getRun()), seed = at(op.getSeed());
  Words w{e};
  Value c0 = w.low(element), c1 = w.high(element), c2 = w.low(run), c3 = w.high(run);
  Value k0 = w.low(seed), k1 = w.mixed(w.high(seed), w.number(seed, int64_t(op.getStream())));
  for (int round = 0; round < 10; ++round) {
    Value a = w.times(c0, 0xD2511F53), b = w.times(c2, 0xCD9E8D57);
    c0 = w.mixed(w.mixed(w.high(b), c1), k0);
    c1 = w.low(b);
    c2 = w.mixed(w.mixed(w.high(a), c3), k1);
    c3 = w.low(a);
    k0 = w.stepped(k0, 0x9E3779B9);
    k1 = w.stepped(k1, 0xBB67AE85);
  }
  return w.both<arith::OrIOp>(w.both<arith::ShLIOp>(c1, w.number(c1, 32)), c0);
}

//===- The normal quantile --------------------------------------------------------===//

struct Floats {
  Evaluator &e;
  Value like;
  bool single = e.scalarType(like).isF32();

  Value f(double c) const {
    Value k = e.constant(e.scalarType(like), c);
    return e.isVector(like) ? e.splat(k) : k;
  }
  Type ints() const { return e.b.getIntegerType(single ? 32 : 64); }
  Value i(int64_t c) const {
    Value k = e.constantInt(ints(), c);
    return e.isVector(like) ? e.splat(k) : k;
  }
  Value fma(Value x, Value y, Value z) const { return e.make<math::FmaOp>(x, y, z); }
  Value add(Value x, Value y) const { return e.make<arith::AddFOp>(x, y); }
  Value sub(Value x, Value y) const { return e.make<arith::SubFOp>(x, y); }
  Value mul(Value x, Value y) const { return e.make<arith::MulFOp>(x, y); }
  Value div(Value x, Value y) const {
    Value quotient = e.make<arith::DivFOp>(x, y);
    quotient.getDefiningOp()->setAttr("tile.exact", e.b.getUnitAttr());
    return quotient;
  }
  Value less(Value x, Value y) const {
    return e.make<arith::CmpFOp>(arith::CmpFPredicate::OLT, x, y);
  }
  Value same(Value x, Value y) const {
    return e.make<arith::CmpFOp>(arith::CmpFPredicate::OEQ, x, y);
  }
  /// The sum of c[i] x^(n - i).
  Value polynomial(Value x, ArrayRef<double> c) const {
    Value p = f(c[0]);
    for (double next : c.drop_front())
      p = fma(p, x, f(next));
    return p;
  }

  /// ln x of positive x: of x = 2^k m with m around 1 it is k ln 2 + 2 artanh((m - 1) / (m + 1)).
  Value log(Value x) const {
    const int digits = single ? 23 : 52;
    Value small = less(x, f(single ? 0x1p-126 : 0x1p-1022));
    x = e.select(small, mul(x, f(single ? 0x1p24 : 0x1p54)), x);
    Type to = e.like(like, ints());
    Value bits = e.make<arith::BitcastOp>(to, x);
    // From the square root of 1/2 on, an exponent has the number that it has above 1.
    int64_t root = single ? std::bit_cast<int32_t>(0x1.6a09e6p-1f)
                          : std::bit_cast<int64_t>(0x1.6a09e667f3bcdp-1);
    Value k = e.make<arith::ShRSIOp>(e.make<arith::SubIOp>(bits, i(root)), i(digits));
    Value rest = e.make<arith::SubIOp>(bits, e.make<arith::ShLIOp>(k, i(digits)));
    Value m = e.make<arith::BitcastOp>(like.getType(), rest);
    k = e.make<arith::SubIOp>(k, e.select(small, i(single ? 24 : 54), i(0)));
    Value s = div(sub(m, f(1)), add(m, f(1))), square = mul(s, s), twice = add(s, s);
    SmallVector<double> series; // |s| < 0.172
    for (int odd = single ? 11 : 23; odd >= 3; odd -= 2)
      series.push_back(1.0 / odd);
    Value part = fma(twice, mul(square, polynomial(square, series)), twice);
    return fma(e.make<arith::SIToFPOp>(like.getType(), k), f(0.693147180559945309417), part);
  }
};

/// Wichura's PPND16: of q = x - 1/2 a rational function in q^2 near 0, elsewhere one of sqrt(-ln
/// min(x, 1 - x)), in two ranges.
Value probitRule(Evaluator &e, OpResult r, const Indices &idx) {
  Value x = e.eval(r.getOwner()->getOperand(0), idx);
  Floats m{e, x};
  constexpr double kInf = std::numeric_limits<double>::infinity();
  Value q = m.sub(x, m.f(0.5)), zero = m.f(0), one = m.f(1);
  Value left = m.less(q, zero), size = e.make<math::AbsFOp>(q);
  Value isTail = m.less(m.f(0.425), size);
  Value central = m.fma(e.make<arith::NegFOp>(q), q, m.f(0.180625));
  Value above = m.mul(
      q, m.polynomial(central, {2509.0809287301226727, 33430.575583588128105, 67265.770927008700853,
                                45921.953931549871457, 13731.693765509461125, 1971.5909503065514427,
                                133.14166789178437745, 3.387132872796366608}));
  Value below =
      m.polynomial(central, {5226.495278852545925, 28729.085735721942674, 39307.89580009271061,
                             21213.794301586595867, 5394.1960214247511077, 687.1870074920579083,
                             42.313330701600911252, 1});
  Value root = e.make<math::SqrtOp>(e.make<arith::NegFOp>(m.log(e.select(left, x, m.sub(one, x)))));
  Value far = m.less(m.f(5), root);
  Value near = m.sub(root, m.f(1.6)), beyond = m.sub(root, m.f(5));
  Value tailAbove = e.select(
      far,
      m.polynomial(beyond,
                   {2.01033439929228813265e-7, 2.71155556874348757815e-5, 0.0012426609473880784386,
                    0.026532189526576123093, 0.29656057182850489123, 1.7848265399172913358,
                    5.4637849111641143699, 6.6579046435011037772}),
      m.polynomial(near, {7.7454501427834140764e-4, 0.0227238449892691845833,
                          0.24178072517745061177, 1.27045825245236838258, 3.64784832476320460504,
                          5.7694972214606914055, 4.6303378461565452959, 1.42343711074968357734}));
  Value tailBelow = e.select(
      far,
      m.polynomial(beyond,
                   {2.04426310338993978564e-15, 1.4215117583164458887e-7, 1.8463183175100546818e-5,
                    7.868691311456132591e-4, 0.0148753612908506148525, 0.13692988092273580531,
                    0.59983220655588793769, 1}),
      m.polynomial(near, {1.05075007164441684324e-9, 5.475938084995344946e-4,
                          0.0151986665636164571966, 0.14810397642748007459, 0.68976733498510000455,
                          1.6763848301838038494, 2.05319162663775882187, 1}));
  Value y = m.div(e.select(isTail, tailAbove, above), e.select(isTail, tailBelow, below));
  y = e.select(e.make<arith::AndIOp>(isTail, left), e.make<arith::NegFOp>(y), y);
  y = e.select(m.same(x, zero), m.f(-kInf), e.select(m.same(x, one), m.f(kInf), y));
  Value inside = m.less(size, m.f(0.5));
  inside = e.make<arith::OrIOp>(inside, m.same(size, m.f(0.5)));
  return e.select(inside, y, m.f(std::numeric_limits<double>::quiet_NaN()));
}

} // namespace

void addRandomRules(RuleTable &t) {
  t["lathe.random_bits"] = randomBitsRule;
  t["lathe.probit"] = probitRule;
}

} // namespace lathe::codegen
