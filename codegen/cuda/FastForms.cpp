//===- FastForms.cpp - idioms as one device function -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A kernel whose results have 16 bits and that spends thirty instructions an
// element is slower than memory. Activations that exporters write in parts have
// forms of half as many that also keep the digits of the negative tail:
//
//   mulf (mulf %x, 0.5), (addf (erf (mulf %x, 0.7071)), 1)   =>   fastGelu(x), or that of a type
//   mulf (mulf %x, 0.5), (addf (tanh %u), 1)                 =>   x * fastSigmoid(2 u)
//
// A number that is merely near the one of the formula is another function: it stays. What was taken is a
// remark.
//
//===----------------------------------------------------------------------===//

#include "Printer.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/Remarks.h"

#include <cmath>

using namespace mlir;

namespace lathe::codegen {
namespace {

std::optional<double> numberOf(Value v) {
  auto constant = v.getDefiningOp<arith::ConstantOp>();
  if (!constant) {
    if (auto all = v.getDefiningOp<vector::BroadcastOp>())
      return numberOf(all.getSource());
    return std::nullopt;
  }
  if (auto number = dyn_cast<FloatAttr>(constant.getValue()))
    return number.getValueAsDouble();
  auto dense = dyn_cast<DenseElementsAttr>(constant.getValue());
  if (dense && dense.isSplat() && isa<FloatType>(dense.getElementType()))
    return dense.getSplatValue<APFloat>().convertToDouble();
  return std::nullopt;
}

/// The floats of 16 bits that a kernel reads, computes or stores.
struct Halves {
  bool f16 = false, bf16 = false;

  explicit Halves(func::FuncOp fn) {
    auto look = [&](TypeRange types) {
      for (Type type : types) {
        f16 |= getElementTypeOrSelf(type).isF16();
        bf16 |= getElementTypeOrSelf(type).isBF16();
      }
    };
    fn.walk([&](Operation *op) {
      look(op->getResultTypes());
      look(op->getOperandTypes());
    });
  }

  /// The GELU that suits the values: one of their type, where there is but one.
  StringRef gelu() const { return f16 == bf16 ? "fastGelu" : f16 ? "fastGeluF16" : "fastGeluBF16"; }

  /// Whether the value is the number as the graph's types have it, and not one beside it.
  bool isRounded(Value v, double number) const {
    std::optional<double> n = numberOf(v);
    auto in = [&](const llvm::fltSemantics &type) {
      APFloat rounded(number);
      bool exact;
      rounded.convert(type, APFloat::rmNearestTiesToEven, &exact);
      return n == rounded.convertToDouble();
    };
    return n && (in(APFloat::IEEEsingle()) || (f16 && in(APFloat::IEEEhalf())) ||
                 (bf16 && in(APFloat::BFloat())));
  }
};

void factorsOf(Value v, SmallVectorImpl<Value> &factors) {
  auto mul = v.getDefiningOp<arith::MulFOp>();
  if (!mul || factors.size() > 4) {
    factors.push_back(v);
    return;
  }
  factorsOf(mul.getLhs(), factors);
  factorsOf(mul.getRhs(), factors);
}

/// The other addend of `1 + y`.
Value besideOne(Value v) {
  auto add = v.getDefiningOp<arith::AddFOp>();
  if (!add)
    return {};
  return numberOf(add.getRhs()) == 1.0   ? add.getLhs()
         : numberOf(add.getLhs()) == 1.0 ? add.getRhs()
                                         : Value();
}

/// Whether `v` is x / sqrt(2).
bool isScaled(Value v, Value x, const Halves &halves) {
  if (auto mul = v.getDefiningOp<arith::MulFOp>())
    return (mul.getLhs() == x && halves.isRounded(mul.getRhs(), M_SQRT1_2)) ||
           (mul.getRhs() == x && halves.isRounded(mul.getLhs(), M_SQRT1_2));
  auto div = v.getDefiningOp<arith::DivFOp>();
  return div && div.getLhs() == x && halves.isRounded(div.getRhs(), M_SQRT2);
}

void recognised(Operation *op, StringRef what) {
  remark::passed(op->getLoc(), remark::RemarkOpts::name("FastForm").category("lathe")) << what;
}

void rewrite(arith::MulFOp op, const Halves &halves) {
  // Three factors: the number 0.5, 1 + something, and x.
  SmallVector<Value> factors;
  factorsOf(op, factors);
  if (factors.size() != 3)
    return;
  Value x, something;
  bool half = false;
  for (Value f : factors) {
    if (!half && numberOf(f) == 0.5)
      half = true;
    else if (Value y = something ? Value() : besideOne(f);
             y && (y.getDefiningOp<math::ErfOp>() || y.getDefiningOp<math::TanhOp>()))
      something = y;
    else
      x = f;
  }
  if (!half || !something || !x)
    return;
  OpBuilder b(op);
  Type type = op.getType();
  auto call = [&](StringRef name, Value argument) {
    return func::CallOp::create(b, op.getLoc(), name, TypeRange(type), ValueRange(argument))
        .getResult(0);
  };
  Value result;
  if (auto erf = something.getDefiningOp<math::ErfOp>()) {
    if (!isScaled(erf.getOperand(), x, halves))
      return;
    result = call(halves.gelu(), x);
    recognised(op, ("x / 2 * (1 + erf(x / sqrt 2)) is computed as GELU by " + halves.gelu()).str());
  } else {
    Value u = something.getDefiningOp<math::TanhOp>().getOperand();
    Value twice = arith::AddFOp::create(b, op.getLoc(), u, u);
    result = arith::MulFOp::create(b, op.getLoc(), x, call("fastSigmoid", twice));
    recognised(op, "x / 2 * (1 + tanh(u)) is computed as x * sigmoid(2 u) by fastSigmoid");
  }
  op.replaceAllUsesWith(result);
}

} // namespace

void useFastForms(func::FuncOp fn) {
  SmallVector<arith::MulFOp> products;
  fn.walk([&](arith::MulFOp op) {
    if (getElementTypeOrSelf(op.getType()).isF32())
      products.push_back(op);
  });
  const Halves halves(fn);
  for (arith::MulFOp op : products)
    rewrite(op, halves);
  // What only the old form needed; uses come behind definitions.
  SmallVector<Operation *> ops;
  fn.walk([&](Operation *op) { ops.push_back(op); });
  for (Operation *op : llvm::reverse(ops))
    if (op->use_empty() && op->getNumResults() > 0 && op->getNumRegions() == 0 &&
        isMemoryEffectFree(op))
      op->erase();
}

} // namespace lathe::codegen
