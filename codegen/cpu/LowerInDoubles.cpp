//===- LowerInDoubles.cpp - sin, cos, expm1, log1p of f32 ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// These lose digits by cancellation where f32 computes them: f64 has the digits,
// so that results are within 0.51 ULP, as the library's are, at a twentieth of its
// time. Polynomials are minimax fits, off by less than 2^-31 of the result.
//
//===----------------------------------------------------------------------===//

#include "FloatOps.h"
#include "Lowering.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/PatternMatch.h"

#include <limits>

using namespace mlir;

namespace lathe::codegen {
namespace {

/// Added to a number below 2^51 it rounds it to an integer and leaves that in the low bits.
constexpr double kRounder = 0x1.8p52;
/// Angles from here on are left to the library: two parts of pi / 2 have too few digits for them.
constexpr double kLargeAngle = 0x1p40;

/// A function of f32 in f64: `op` of `narrow` becomes what its subclass computes of `wide`.
template <typename Op>
struct InDoubles : OpRewritePattern<Op> {
  using OpRewritePattern<Op>::OpRewritePattern;
  virtual Value compute(const FloatOps &narrow, const FloatOps &wide, Value x) const = 0;
  LogicalResult matchAndRewrite(Op op, PatternRewriter &b) const override {
    if (!getElementTypeOrSelf(op.getType()).isF32())
      return b.notifyMatchFailure(op, "f32 only");
    FloatOps narrow{b, op.getLoc(), op.getType()};
    FloatOps wide{b, op.getLoc(), narrow.of(b.getF64Type())};
    b.replaceOp(op, compute(narrow, wide, op.getOperand()));
    return success();
  }
};

Value extend(const FloatOps &wide, Value x) { return arith::ExtFOp::create(wide.b, wide.loc, wide.type, x); }
Value round(const FloatOps &narrow, Value x) { return arith::TruncFOp::create(narrow.b, narrow.loc, narrow.type, x); }
Value shiftLeft(const FloatOps &m, Value x, int by) { return arith::ShLIOp::create(m.b, m.loc, x, m.i(by)); }

/// e^x - 1: x = n ln 2 + r with |r| <= ln 2 / 2, and 2^n (e^r - 1) + (2^n - 1), whose terms do not cancel.
struct ExpandExpm1 : InDoubles<math::ExpM1Op> {
  using InDoubles::InDoubles;
  Value compute(const FloatOps &narrow, const FloatOps &wide, Value x) const override {
    // Clamped where the result is -1 or infinity anyway.
    Value y = extend(wide, narrow.clamp(x, -30, 90));
    Value shifted = wide.fma(y, wide.f(1.4426950408889634), wide.f(kRounder));
    Value n = wide.sub(shifted, wide.f(kRounder));
    Value r = wide.fma(n, wide.f(-0.6931471805599453), y);
    Value p = wide.polynomial(r, {0.00019962333054174188, 0.0013943308560662295, 0.008333219676840356,
                                  0.0416663257418798, 0.16666666903492428, 0.500000005334858});
    p = wide.fma(wide.mul(r, r), p, r);
    Value biased = arith::AddIOp::create(wide.b, wide.loc, wide.bits(shifted), wide.i(1023));
    Value power = wide.fromBits(shiftLeft(wide, biased, 52));
    // The sum makes +0 of -0.
    return narrow.copySign(round(narrow, wide.fma(power, p, wide.sub(power, wide.f(1)))), x);
  }
};

/// ln(1 + x): 1 + x = 2^n (1 + f) with 1 + f from sqrt(1/2) to sqrt(2), and 2 atanh(f / (2 + f)) + n ln 2. Where n is 0,
/// f is x itself with all of its digits.
struct ExpandLog1p : InDoubles<math::Log1pOp> {
  using InDoubles::InDoubles;
  Value compute(const FloatOps &narrow, const FloatOps &wide, Value x) const override {
    OpBuilder &b = wide.b;
    Location loc = wide.loc;
    Value y = extend(wide, x);
    Value sum = wide.bits(wide.add(y, wide.f(1)));
    // The exponent in integers of 32 bits: AVX2 neither shifts 64 bits with their sign nor converts them.
    Value high = arith::TruncIOp::create(b, loc, narrow.ints(), arith::ShRUIOp::create(b, loc, sum, wide.i(32)));
    constexpr int32_t kRootOfHalf = 0x3fe6a09e; // high word
    high = arith::SubIOp::create(b, loc, high, narrow.i(kRootOfHalf));
    Value n = arith::ShRSIOp::create(b, loc, high, narrow.i(20));
    Value scale = shiftLeft(wide, arith::ExtSIOp::create(b, loc, wide.ints(), n), 52);
    Value f = wide.sub(wide.fromBits(arith::SubIOp::create(b, loc, sum, scale)), wide.f(1));
    Value whole = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, n, narrow.i(0));
    f = wide.select(whole, y, f);
    Value s = arith::DivFOp::create(b, loc, f, wide.add(f, wide.f(2)));
    Value square = wide.mul(s, s);
    Value p = wide.mul(square, wide.polynomial(square, {0.11792154268810118, 0.14268603235590646, 0.200001682959716,
                                                        0.33333332820159667}));
    Value twice = wide.add(s, s);
    Value log = wide.fma(twice, p, twice);
    log = wide.fma(arith::SIToFPOp::create(b, loc, wide.type, n), wide.f(0.6931471805599453), log);
    Value result = narrow.copySign(round(narrow, log), x); // the sum makes +0 of -0
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    Value end = narrow.select(narrow.less(x, narrow.f(-1)), narrow.f(std::numeric_limits<double>::quiet_NaN()), narrow.f(-kInfinity));
    result = narrow.select(narrow.less(narrow.f(-1), x), result, end);
    // Infinity and NaN are their own results.
    return narrow.select(narrow.less(x, narrow.f(kInfinity)), result, x);
  }
};

/// The sine of x + `quarters` * pi / 2, for |x| below kLargeAngle: x = n pi / 2 + r with |r| <= pi / 4. pi / 2 in two parts:
/// n times the first leaves x without rounding.
Value sine(const FloatOps &narrow, const FloatOps &wide, Value x, int quarters) {
  Value y = extend(wide, x);
  Value shifted = wide.fma(y, wide.f(0.6366197723675814), wide.f(kRounder));
  Value n = wide.sub(shifted, wide.f(kRounder));
  Value r = wide.fma(n, wide.f(-1.5707963267948966), y);
  r = wide.fma(n, wide.f(-6.123233995736766e-17), r);
  Value square = wide.mul(r, r);
  Value p = wide.polynomial(square, {2.718046492620759e-06, -0.00019839304418165906, 0.00833332928053306, -0.16666666640588232});
  // r times a number beside 1, and not a sum: -0 stays.
  Value sin = wide.mul(r, wide.fma(square, p, wide.f(1)));
  Value q = wide.polynomial(square, {2.4382721753262463e-05, -0.001388667266477107, 0.04166662007288145, -0.4999999969196098});
  Value cos = wide.fma(square, q, wide.f(1));
  Value quarter = arith::AddIOp::create(wide.b, wide.loc, wide.bits(shifted), wide.i(quarters));
  Value even = arith::CmpIOp::create(wide.b, wide.loc, arith::CmpIPredicate::eq, wide.both(quarter, wide.i(1)), wide.i(0));
  Value sign = shiftLeft(wide, wide.both(quarter, wide.i(2)), 62);
  Value result = arith::XOrIOp::create(wide.b, wide.loc, wide.bits(wide.select(even, sin, cos)), sign);
  return round(narrow, wide.fromBits(result));
}

} // namespace

void addInDoubles(RewritePatternSet &patterns) { patterns.add<ExpandExpm1, ExpandLog1p>(patterns.getContext()); }

void lowerSines(ModuleOp module) {
  SmallVector<Operation *> ops;
  module.walk([&](Operation *op) {
    if (isa<math::SinOp, math::CosOp>(op) && getElementTypeOrSelf(op->getResult(0)).isF32())
      ops.push_back(op);
  });
  for (Operation *op : ops) {
    OpBuilder b(op);
    Location loc = op->getLoc();
    FloatOps narrow{b, loc, op->getResult(0).getType()};
    FloatOps wide{b, loc, narrow.of(b.getF64Type())};
    Value x = op->getOperand(0), y = sine(narrow, wide, x, isa<math::CosOp>(op));
    Value large = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OGE, narrow.size(x), narrow.f(kLargeAngle));
    Value any = isa<VectorType>(narrow.type) ? vector::ReductionOp::create(b, loc, vector::CombiningKind::OR, large) : large;
    auto branch = scf::IfOp::create(
        b, loc, any,
        [&](OpBuilder &then, Location) {
          Operation *called = then.clone(*op);
          // By lane: what a lane gets does not depend on its neighbours.
          scf::YieldOp::create(then, loc, arith::SelectOp::create(then, loc, large, called->getResult(0), y).getResult());
        },
        [&](OpBuilder &otherwise, Location) { scf::YieldOp::create(otherwise, loc, y); });
    op->getResult(0).replaceAllUsesWith(branch.getResult(0));
    op->erase();
  }
}

} // namespace lathe::codegen
