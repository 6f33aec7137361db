//===- LowerMath.cpp - math functions on the CPU ------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// exp, log, tanh and erf of f32 become polynomials (within 5 ULP); sqrt, fma,
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
  return op == "math.exp" || op == "math.log" || op == "math.tanh" || op == "math.erf";
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
  RewritePatternSet patterns(module.getContext());
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
