//===- ToLLVM.cpp - tile functions to LLVM IR text ----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each kernel becomes two functions: `<name>.body`, private and inlined, with
// buffers as `noalias` pointers, and `<name>`, exported, which unpacks
// LatheCpuArgs and runs the body for every block in [begin, end).
//
//===----------------------------------------------------------------------===//

#include "Lowering.h"

#include "lathe/codegen/Codegen.h"
#include "lathe/codegen/Uncontracted.h"
#include "lathe/engine/KernelAbi.h"

#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVMPass.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/UBToLLVM/UBToLLVM.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVMPass.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Operator.h"
#include "llvm/Support/raw_ostream.h"

#include <cstddef>

using namespace mlir;

namespace lathe::codegen {
namespace {

/// The exported function of a body.
void makeEntry(LLVM::LLVMFuncOp body, int64_t buffers) {
  OpBuilder b(body);
  MLIRContext *context = body.getContext();
  Location loc = body.getLoc();
  auto ptr = LLVM::LLVMPointerType::get(context);
  Type i64 = b.getI64Type();
  auto type = LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(context), {ptr, i64, i64});
  StringRef name = body.getName();
  name.consume_back(".body");
  auto fn = LLVM::LLVMFuncOp::create(b, loc, name, type);
  Block *entry = fn.addEntryBlock(b);
  Value args = entry->getArgument(0), begin = entry->getArgument(1), end = entry->getArgument(2);
  b.setInsertionPointToStart(entry);
  auto field = [&](Value base, size_t byte, Type type) -> Value {
    Value at = LLVM::GEPOp::create(b, loc, ptr, b.getI8Type(), base,
                                   ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(byte)});
    auto load = LLVM::LoadOp::create(b, loc, type, at, 8);
    return load;
  };
  Value bufferTable = field(args, offsetof(LatheCpuArgs, buffers), ptr);
  Value symbolTable = field(args, offsetof(LatheCpuArgs, symbols), ptr);
  SmallVector<Value> operands;
  int64_t symbols = body.getNumArguments() - kNumBodyArguments - buffers;
  for (int64_t i = 0; i < buffers; ++i)
    operands.push_back(field(bufferTable, 8 * i, ptr));
  for (int64_t i = 0; i < symbols; ++i)
    operands.push_back(field(symbolTable, 8 * i, i64));
  operands.push_back(field(args, offsetof(LatheCpuArgs, helpers), ptr));
  operands.push_back(field(args, offsetof(LatheCpuArgs, status), ptr));
  operands.push_back(field(args, offsetof(LatheCpuArgs, scratch), ptr));
  operands.push_back(field(args, offsetof(LatheCpuArgs, team), ptr));
  operands.push_back(begin);

  Block *head = fn.addBlock(), *loop = fn.addBlock(), *exit = fn.addBlock();
  Value id = head->addArgument(i64, loc);
  LLVM::BrOp::create(b, loc, ValueRange{begin}, head);
  b.setInsertionPointToStart(head);
  Value more = LLVM::ICmpOp::create(b, loc, LLVM::ICmpPredicate::slt, id, end);
  LLVM::CondBrOp::create(b, loc, more, loop, exit);
  b.setInsertionPointToStart(loop);
  operands.push_back(id);
  LLVM::CallOp::create(b, loc, body, operands);
  Value one = LLVM::ConstantOp::create(b, loc, i64, b.getI64IntegerAttr(1));
  Value next = LLVM::AddOp::create(b, loc, id, one);
  LLVM::BrOp::create(b, loc, ValueRange{next}, head);
  b.setInsertionPointToStart(exit);
  LLVM::ReturnOp::create(b, loc, ValueRange{});
  body.setLinkage(LLVM::Linkage::Internal);
  body.setAlwaysInline(true);
}

/// Attributes and flags that MLIR has no place for.
void decorate(llvm::Module &module, const Target &target) {
  std::string bits = std::to_string(target.vectorBits);
  for (llvm::Function &f : module) {
    if (f.isDeclaration())
      continue;
    f.addFnAttr(llvm::Attribute::NoUnwind);
    // No loop may become a call of memset or memcpy: an image has no undefined symbol.
    f.addFnAttr("no-builtins");
    f.addFnAttr("prefer-vector-width", bits);
    f.addFnAttr("min-legal-vector-width", bits);
  }
}

/// Sums may take products in as fused multiply-adds, but where an op says otherwise.
void allowContraction(ModuleOp module) {
  auto allow = [](auto op) {
    op.setFastmathFlags(op.getFastmathFlags() | LLVM::FastmathFlags::contract);
  };
  module.walk([&](Operation *op) {
    if (op->hasAttr(kUncontracted))
      return;
    llvm::TypeSwitch<Operation *>(op).Case<LLVM::FAddOp, LLVM::FSubOp, LLVM::FMulOp>(allow);
  });
}

} // namespace

LogicalResult lowerToLLVMDialect(ModuleOp module) {
  PassManager pm(module.getContext());
  arith::ArithExpandOpsPassOptions expand;
  expand.includeBf16 = true;
  expand.includeF8E8M0 = true;
  pm.addPass(arith::createArithExpandOpsPass(expand));
  pm.addPass(createSCFToControlFlowPass());
  pm.addPass(createConvertVectorToLLVMPass());
  pm.addPass(createConvertMathToLLVMPass());
  pm.addPass(createArithToLLVMConversionPass());
  pm.addPass(createConvertFuncToLLVMPass());
  pm.addPass(createConvertControlFlowToLLVMPass());
  pm.addPass(createUBToLLVMConversionPass());
  pm.addPass(createReconcileUnrealizedCastsPass());
  if (failed(pm.run(module)))
    return failure();
  allowContraction(module);
  for (auto fn : llvm::make_early_inc_range(module.getOps<LLVM::LLVMFuncOp>()))
    if (auto buffers = fn->getAttrOfType<IntegerAttr>("lathe.buffers"))
      makeEntry(fn, buffers.getInt());
  return success();
}

FailureOr<std::string> tileToLLVMText(ModuleOp tileModule, const Target &target) {
  OwningOpRef<ModuleOp> module(cast<ModuleOp>(tileModule->clone()));
  module->getContext()->loadDialect<LLVM::LLVMDialect>();
  registerBuiltinDialectTranslation(*module->getContext());
  registerLLVMDialectTranslation(*module->getContext());
  if (failed(lowerTileOps(*module)) || failed(lowerMath(*module)) ||
      failed(lowerSmallFloats(*module)) || failed(lowerToLLVMDialect(*module)))
    return failure();
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> llvmModule =
      translateModuleToLLVMIR(*module, context, "kernel", /*disableVerification=*/false);
  if (!llvmModule)
    return failure();
  llvmModule->setTargetTriple(llvm::Triple(target.triple));
  decorate(*llvmModule, target);
  std::string text;
  llvm::raw_string_ostream os(text);
  llvmModule->print(os, nullptr);
  return text;
}

} // namespace lathe::codegen
