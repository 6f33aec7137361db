//===- LowerMath.cpp - math functions on the CPU ------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// exp, log, tanh and erf of f32 become polynomials (within 5 ULP, subnormal
// operands and results included); sqrt, fma,
// abs and rounding are instructions; the rest is called through the helper
// table in f64, lane by lane. No libm symbol is ever left.
//
//===----------------------------------------------------------------------===//

#include "Lowering.h"

#include "lathe/engine/KernelAbi.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "llvm/ADT/StringSwitch.h"

#include <cstddef>

using namespace mlir;

namespace lathe::codegen {
namespace {

/// Slot of a function in LatheHelpers::unary, or -1.
int unarySlot(StringRef op) {
  static constexpr const char *names[LATHE_HELPERS_UNARY] = {
      "sin",   "cos",   "tan",   "asin", "acos",  "atan", "sinh",  "cosh",
      "tanh",  "asinh", "acosh", "atanh", "exp",  "expm1", "log",  "log1p",
      "log2",  "erf",   "sqrt",  "cbrt", "floor", "ceil", "roundeven", "trunc"};
  for (int i = 0; i < LATHE_HELPERS_UNARY; ++i)
    if (op == std::string("math.") + names[i])
      return i;
  return -1;
}

int binarySlot(StringRef op) {
  return llvm::StringSwitch<int>(op)
      .Case("math.powf", 0)
      .Case("math.atan2", 1)
      .Case("arith.remf", 2)
      .Default(-1);
}

bool isInstruction(StringRef op) {
  return op == "math.sqrt" || op == "math.floor" || op == "math.ceil" || op == "math.roundeven" ||
         op == "math.trunc";
}

bool isPolynomial(StringRef op) {
  return op == "math.log" || op == "math.tanh" || op == "math.erf";
}

/// e^x of f32: x = n ln 2 + r with |r| <= ln 2 / 2, a polynomial in r, and 2^n in
/// two factors, so that subnormal results and infinity come out by rounding.
struct ExpandExp : OpRewritePattern<math::ExpOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(math::ExpOp op, PatternRewriter &b) const override {
    Type type = op.getType();
    if (!getElementTypeOrSelf(type).isF32())
      return b.notifyMatchFailure(op, "f32 only");
    Location loc = op.getLoc();
    Type i32 = b.getI32Type();
    Type ints = isa<VectorType>(type) ? Type(cast<VectorType>(type).clone(i32)) : i32;
    auto constant = [&](Type t, Attribute scalar) -> Value {
      if (auto v = dyn_cast<VectorType>(t))
        scalar = DenseElementsAttr::get(v, scalar);
      return arith::ConstantOp::create(b, loc, t, cast<TypedAttr>(scalar));
    };
    auto f = [&](double v) { return constant(type, b.getF32FloatAttr(static_cast<float>(v))); };
    auto i = [&](int32_t v) { return constant(ints, b.getI32IntegerAttr(v)); };
    auto fma = [&](Value x, Value y, Value z) -> Value { return math::FmaOp::create(b, loc, x, y, z); };
    auto less = [&](Value x, Value y) -> Value {
      return arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OLT, x, y);
    };
    auto select = [&](Value c, Value x, Value y) -> Value { return arith::SelectOp::create(b, loc, c, x, y); };
    // Clamped where the result is 0 or infinity anyway; NaN passes both.
    Value x = op.getOperand();
    x = select(less(x, f(-105)), f(-105), x);
    x = select(less(f(90), x), f(90), x);
    // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
    constexpr double kRounder = 12582912.0;
    Value shifted = fma(x, f(1.44269504088896341), f(kRounder));
    Value n = arith::SubFOp::create(b, loc, shifted, f(kRounder));
    Value r = fma(n, f(-0.693359375), x);
    r = fma(n, f(2.12194440e-4), r);
    Value p = f(1.9875691500e-4);
    for (double c : {1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1})
      p = fma(p, r, f(c));
    Value square = arith::MulFOp::create(b, loc, r, r);
    Value y = arith::AddFOp::create(b, loc, fma(p, square, r), f(1));
    Value bits = arith::BitcastOp::create(b, loc, ints, shifted);
    Value whole = arith::SubIOp::create(b, loc, bits, i(0x4b400000));
    Value half = arith::ShRSIOp::create(b, loc, whole, i(1));
    Value rest = arith::SubIOp::create(b, loc, whole, half);
    for (Value e : {half, rest}) {
      Value biased = arith::AddIOp::create(b, loc, e, i(127));
      Value power = arith::BitcastOp::create(b, loc, type, arith::ShLIOp::create(b, loc, biased, i(23)).getResult());
      y = arith::MulFOp::create(b, loc, y, power);
    }
    b.replaceOp(op, y);
    return success();
  }
};

/// The polynomial of log takes normal numbers: smaller ones are scaled before and
/// the scale's logarithm is taken off after.
void scaleSmallLogs(ModuleOp module) {
  SmallVector<math::LogOp> logs;
  module.walk([&](math::LogOp op) {
    if (getElementTypeOrSelf(op.getType()).isF32())
      logs.push_back(op);
  });
  for (math::LogOp op : logs) {
    OpBuilder b(op);
    Location loc = op.getLoc();
    Type type = op.getType();
    auto f = [&](double v) -> Value {
      Attribute scalar = b.getF32FloatAttr(static_cast<float>(v));
      if (auto vector = dyn_cast<VectorType>(type))
        scalar = DenseElementsAttr::get(vector, scalar);
      return arith::ConstantOp::create(b, loc, type, cast<TypedAttr>(scalar));
    };
    Value x = op.getOperand();
    Value small = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OLT, x, f(0x1p-126));
    Value scaled = arith::MulFOp::create(b, loc, x, f(0x1p23));
    op.setOperand(arith::SelectOp::create(b, loc, small, scaled, x));
    b.setInsertionPointAfter(op);
    Value less = arith::SubFOp::create(b, loc, op, f(15.942385152878742));
    Value result = arith::SelectOp::create(b, loc, small, less, op);
    op.getResult().replaceUsesWithIf(result, [&](OpOperand &use) {
      return use.getOwner() != less.getDefiningOp() && use.getOwner() != result.getDefiningOp();
    });
  }
}

/// Calls the helper for every lane.
void callHelper(Operation *op, int slot, size_t tableOffset, Value table) {
  OpBuilder b(op);
  Location loc = op->getLoc();
  Type f64 = b.getF64Type();
  auto ptr = LLVM::LLVMPointerType::get(op->getContext());
  int32_t byte = static_cast<int32_t>(tableOffset + 8 * slot);
  Value place = LLVM::GEPOp::create(b, loc, ptr, b.getI8Type(), table, ArrayRef<LLVM::GEPArg>{byte});
  Value function = LLVM::LoadOp::create(b, loc, ptr, place, 8);
  Type type = op->getResult(0).getType(), element = getElementTypeOrSelf(type);
  SmallVector<Type> params(op->getNumOperands(), f64);
  auto signature = LLVM::LLVMFunctionType::get(f64, params);
  auto call = [&](ValueRange scalars) -> Value {
    SmallVector<Value> args{function};
    for (Value v : scalars)
      args.push_back(element == f64 ? v : arith::ExtFOp::create(b, loc, f64, v));
    Value r = LLVM::CallOp::create(b, loc, signature, args).getResult();
    return element == f64 ? r : arith::TruncFOp::create(b, loc, element, r);
  };
  Value result;
  if (auto vec = dyn_cast<VectorType>(type)) {
    Value zero = arith::ConstantOp::create(b, loc, b.getZeroAttr(vec));
    auto index = [&](int64_t i) -> Value { return arith::ConstantIndexOp::create(b, loc, i); };
    auto loop = scf::ForOp::create(b, loc, index(0), index(vec.getNumElements()), index(1),
                                   ValueRange{zero});
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    OpFoldResult l = loop.getInductionVar();
    SmallVector<Value> scalars;
    for (Value v : op->getOperands())
      scalars.push_back(vector::ExtractOp::create(b, loc, v, l));
    Value next = vector::InsertOp::create(b, loc, call(scalars), loop.getRegionIterArg(0), l);
    scf::YieldOp::create(b, loc, next);
    result = loop.getResult(0);
  } else {
    result = call(op->getOperands());
  }
  op->getResult(0).replaceAllUsesWith(result);
  op->erase();
}

} // namespace

LogicalResult lowerMath(ModuleOp module) {
  scaleSmallLogs(module);
  RewritePatternSet patterns(module.getContext());
  patterns.add<ExpandExp>(module.getContext());
  populateMathPolynomialApproximationPatterns(patterns,
                                              [](StringRef op) { return isPolynomial(op); });
  // The patterns match f32 alone; folding and cleaning is left to LLVM, because
  // canonical forms of long vectors are bad for it.
  GreedyRewriteConfig config;
  config.enableFolding(false);
  if (failed(applyPatternsGreedily(module, std::move(patterns), config)))
    return failure();
  for (auto fn : module.getOps<func::FuncOp>()) {
    auto buffers = fn->getAttrOfType<IntegerAttr>("lathe.buffers");
    if (!buffers)
      continue;
    Value table = fn.getArgument(fn.getNumArguments() - kNumBodyArguments + kHelpers);
    SmallVector<Operation *> calls;
    fn.walk([&](Operation *op) {
      StringRef name = op->getName().getStringRef();
      if ((unarySlot(name) >= 0 && !isInstruction(name)) || binarySlot(name) >= 0)
        calls.push_back(op);
    });
    for (Operation *op : calls) {
      StringRef name = op->getName().getStringRef();
      if (int slot = binarySlot(name); slot >= 0)
        callHelper(op, slot, offsetof(LatheHelpers, binary), table);
      else
        callHelper(op, unarySlot(name), offsetof(LatheHelpers, unary), table);
    }
  }
  return success();
}

} // namespace lathe::codegen
