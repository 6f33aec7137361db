//===- LowerMath.cpp - math functions on the CPU ------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// exp, log, tanh and erf of f32 become polynomials (within 5 ULP, subnormal
// operands and results included), sin, cos, expm1 and log1p ones in f64
// (LowerInDoubles.cpp); sqrt, fma, abs and rounding are instructions; the rest is
// called through the helper table in f64, lane by lane, which the function's
// attribute kLibraryCallsAttr lists.
// No libm symbol is ever left.
//
//===----------------------------------------------------------------------===//

#include "FloatOps.h"
#include "Lowering.h"

#include "lathe/codegen/Codegen.h"
#include "lathe/codegen/Uncontracted.h"
#include "lathe/engine/KernelAbi.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"
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
  return op == "math.log" || op == "math.tanh";
}

/// erf of f32, odd: below 1 a polynomial in x^2 times x, from there on one in |x| up to where the
/// result is 1. Both are minimax fits, within 1.6 ULP together; the second is rounded almost
/// correctly, because 1 + erf(x) cancels where GELU is small.
struct ExpandErf : OpRewritePattern<math::ErfOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(math::ErfOp op, PatternRewriter &b) const override {
    if (!getElementTypeOrSelf(op.getType()).isF32())
      return b.notifyMatchFailure(op, "f32 only");
    FloatOps m{b, op.getLoc(), op.getType()};
    Value x = op.getOperand();
    Value square = m.mul(x, x);
    Value near = m.fma(x, m.polynomial(square, {-5.631422391161323e-4, 4.917551297694445e-3,
                                                -2.671131119132042e-2, 1.1280179768800735e-1,
                                                -3.7612324953079224e-1, 1.2837912142276764e-1}),
                       x);
    constexpr double kOne = 3.925, kMiddle = 2.4677734375; // whose erf is almost a float
    Value size = m.size(x);
    Value until = m.select(m.less(m.f(kOne), size), m.f(kOne), size); // NaN passes
    Value from = m.sub(until, m.f(kMiddle));
    Value far = m.polynomial(
        from, {1.0782097206174512e-6, 2.1434684072119126e-7, -1.720412547001615e-5,
               2.3080772734829225e-5, 7.756838022032753e-5, -2.936001983471215e-4,
               3.3554527908563614e-4, 4.8074169899336994e-4, -2.9118552338331938e-3,
               6.663205102086067e-3, -9.652475826442242e-3, 9.528250433504581e-3,
               -6.308796815574169e-3, 2.5564113166183233e-3, 9.995169043540955e-1});
    far = m.select(m.less(m.f(1), far), m.f(1), far);
    far = m.copySign(far, x);
    b.replaceOp(op, m.select(m.less(size, m.f(1)), near, far));
    return success();
  }
};

/// e^x of f32: x = n ln 2 + r with |r| <= ln 2 / 2, a polynomial in r, and 2^n in
/// two factors, so that subnormal results and infinity come out by rounding. No sum behind it may take in the last
/// product: it would see a number where e^x is infinity.
struct ExpandExp : OpRewritePattern<math::ExpOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(math::ExpOp op, PatternRewriter &b) const override {
    Type type = op.getType();
    if (!getElementTypeOrSelf(type).isF32())
      return b.notifyMatchFailure(op, "f32 only");
    Location loc = op.getLoc();
    FloatOps m{b, loc, type};
    // Clamped where the result is 0 or infinity anyway; NaN passes both.
    Value x = m.clamp(op.getOperand(), -105, 90);
    // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
    constexpr double kRounder = 12582912.0;
    Value shifted = m.fma(x, m.f(1.44269504088896341), m.f(kRounder));
    Value n = m.sub(shifted, m.f(kRounder));
    Value r = m.fma(n, m.f(-0.693359375), x);
    r = m.fma(n, m.f(2.12194440e-4), r);
    Value p = m.polynomial(r, {1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2,
                               1.6666665459e-1, 5.0000001201e-1});
    Value square = m.mul(r, r);
    Value y = m.add(m.fma(p, square, r), m.f(1));
    Value whole = arith::SubIOp::create(b, loc, m.bits(shifted), m.i(0x4b400000));
    Value half = arith::ShRSIOp::create(b, loc, whole, m.i(1));
    Value rest = arith::SubIOp::create(b, loc, whole, half);
    for (Value e : {half, rest}) {
      Value biased = arith::AddIOp::create(b, loc, e, m.i(127));
      Value power = m.fromBits(arith::ShLIOp::create(b, loc, biased, m.i(23)));
      y = m.mul(y, power);
    }
    y.getDefiningOp()->setDiscardableAttr(kUncontracted, b.getUnitAttr());
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
    FloatOps m{b, loc, type};
    Value x = op.getOperand();
    Value small = m.less(x, m.f(0x1p-126));
    op.setOperand(m.select(small, m.mul(x, m.f(0x1p23)), x));
    b.setInsertionPointAfter(op);
    Value less = m.sub(op, m.f(15.942385152878742));
    Value result = m.select(small, less, op);
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
  lowerSines(module);
  RewritePatternSet patterns(module.getContext());
  patterns.add<ExpandErf, ExpandExp>(module.getContext());
  addInDoubles(patterns);
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
    llvm::SetVector<StringRef> names;
    for (Operation *op : calls)
      names.insert(op->getName().stripDialect());
    if (!names.empty()) {
      Builder b(fn.getContext());
      Attribute pair[] = {b.getStringAttr(kLibraryCallsAttr),
                          b.getStringAttr(llvm::join(names, ","))};
      fn->setAttr("passthrough", b.getArrayAttr(b.getArrayAttr(pair)));
    }
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
