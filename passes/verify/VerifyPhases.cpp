//===- VerifyPhases.cpp - what must hold between phases -------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each check runs after the phase whose promise it is, so that a defect shows
// where it was made and hand-written input of a later phase is refused with a
// located message.
//
//   legalized: no onnx op is left; every size is declared
//   fused:     outside kernels only constants, views, states and host calls
//   planned:   only kernels and programs; launches fit their kernels
//
//===----------------------------------------------------------------------===//
#include "../Common.h"

#include "lathe/ir/Collective.h"
#include "lathe/ir/KernelVariants.h"
#include "lathe/ir/Loops.h"
#include "lathe/ir/Onnx.h"

using namespace mlir;

namespace lathe {

#define GEN_PASS_DEF_VERIFYLEGALIZEDPASS
#define GEN_PASS_DEF_VERIFYFUSEDPASS
#define GEN_PASS_DEF_VERIFYPLANNEDPASS
#include "lathe/passes/Passes.h.inc"

namespace {

/// Every symbol of a size has a lathe.symbol in the module.
LogicalResult verifySymbols(ModuleOp module) {
  std::set<std::string> declared;
  for (SymbolOp symbol : module.getOps<SymbolOp>())
    declared.insert(symbol.getSymName().str());
  for (func::FuncOp func : module.getOps<func::FuncOp>()) {
    if (func.isExternal())
      continue;
    WalkResult walked = func.walk([&](Operation *op) {
      std::set<std::string> used;
      for (Type type : op->getResultTypes())
        for (const DimExpr &dim : dimsOf(type))
          dim.collectSymbols(used);
      for (const std::string &name : used)
        if (!declared.count(name)) {
          op->emitError("the size '") << name << "' is not declared by a lathe.symbol";
          return WalkResult::interrupt();
        }
      return WalkResult::advance();
    });
    if (walked.wasInterrupted())
      return failure();
  }
  return success();
}

struct VerifyLegalizedPass : impl::VerifyLegalizedPassBase<VerifyLegalizedPass> {
  void runOnOperation() override {
    bool ok = succeeded(verifySymbols(getOperation()));
    getOperation().walk([&](Operation *op) {
      if (op->getName().getDialectNamespace() == "onnx") {
        op->emitError("is left after legalize");
        ok = false;
      }
    });
    if (!ok)
      signalPassFailure();
  }
};

struct VerifyFusedPass : impl::VerifyFusedPassBase<VerifyFusedPass> {
  void runOnOperation() override {
    for (ModuleOp module : targetModules(getOperation())) {
      if (failed(verifySymbols(module)))
        return signalPassFailure();
      for (func::FuncOp func : module.getOps<func::FuncOp>())
        for (Operation &op : func.getBody().front().without_terminator())
          if (!isa<KernelOp, ConstantOp, StateReadOp, StateAppendOp, BindDimsOp, DimFromOp,
                   CustomCallOp, ChooseOp, LoopBeginOp, LoopEndOp>(op) &&
              !isView(&op) && !collectiveOf(&op)) {
            op.emitError("stands between kernels after fuse");
            return signalPassFailure();
          }
    }
  }
};

struct VerifyPlannedPass : impl::VerifyPlannedPassBase<VerifyPlannedPass> {
  void runOnOperation() override {
    for (ModuleOp module : targetModules(getOperation())) {
      SymbolTable symbols(module);
      for (Operation &op : *module.getBody())
        if (!isa<SymbolOp, StateOp, exec::KernelOp, exec::ProgramOp>(op)) {
          op.emitError("has no place in a plan");
          return signalPassFailure();
        }
      WalkResult walked = module.walk([&](exec::LaunchOp launch) {
        auto kernel = symbols.lookup<exec::KernelOp>(launch.getKernel());
        if (!kernel) {
          launch.emitOpError("launches a kernel that does not exist");
          return WalkResult::interrupt();
        }
        return failed(verifyLaunch(launch, kernel)) ? WalkResult::interrupt() : WalkResult::advance();
      });
      if (walked.wasInterrupted())
        return signalPassFailure();
    }
  }

  /// Whether both are the memory of one arena buffer.
  static bool sharesArena(Value a, Value b) {
    auto rootOf = [](Value buffer) {
      auto op = buffer.getDefiningOp<exec::BufferOp>();
      while (op && op.getBase())
        op = op.getBase().getDefiningOp<exec::BufferOp>();
      return op;
    };
    exec::BufferOp root = rootOf(a);
    return root && root == rootOf(b) && root.getKind() == exec::BufferKind::Arena;
  }

  static LogicalResult verifyLaunch(exec::LaunchOp launch, exec::KernelOp kernel) {
    FailureOr<std::vector<KernelVariant>> variants = variantsOf(kernel);
    if (failed(variants))
      return failure();
    for (const KernelVariant &variant : *variants) {
      const KernelSpec *spec = &variant.spec;
      size_t needed = spec->numInputs + spec->numOutputs;
      size_t given = launch.getBuffers().size() - ownPackings(*variants).size();
      if (given != needed && given != needed + 1)
        return launch.emitOpError("gives ") << given << " buffers, the kernel takes " << needed;
      for (const std::string &symbol : spec->symbols)
        if (!launch.getSymbols().contains(symbol))
          return launch.emitOpError("gives no value to the size '") << symbol << "'";
      for (size_t i = 0; i < needed; ++i) {
        auto have = dtypeOf(elementTypeOf(launch.getBuffers()[i]));
        if (have != spec->buffers[i].dtype)
          return launch.emitOpError("buffer ") << i << " has another element type than the kernel's";
      }
      for (size_t out = spec->numInputs; out < needed; ++out)
        for (size_t in = 0; in < size_t(spec->numInputs); ++in)
          if (sharesArena(launch.getBuffers()[out], launch.getBuffers()[in]) &&
              spec->buffers[out].aliases != int(in))
            return launch.emitOpError("writes buffer ")
                   << out << " over buffer " << in << ", which its kernel does not allow";
    }
    return success();
  }
};

} // namespace

} // namespace lathe
