//===- SplitTargets.cpp - one nested module a target ----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From here on every target goes its own way: layouts, kernels and plans differ.
//
//   module {                        module {
//     func @main                =>    module @cpu_x86_64_v4 attributes {lathe.target = ...} {
//   }                                   func @main }
//                                     module @sm_90a attributes {...} { func @main } }
//
//===----------------------------------------------------------------------===//
#include "../Common.h"

using namespace mlir;

namespace lathe {

#define GEN_PASS_DEF_SPLITTARGETSPASS
#include "lathe/passes/Passes.h.inc"

namespace {

struct SplitTargetsPass : impl::SplitTargetsPassBase<SplitTargetsPass> {
  void runOnOperation() override {
    ModuleOp top = getOperation();
    if (!targetModules(top).empty())
      return;
    SmallVector<std::string> names = optionStrings(top, "targets");
    if (names.empty())
      names.push_back("native");
    SmallVector<Operation *> originals;
    for (Operation &op : *top.getBody())
      originals.push_back(&op);
    OpBuilder builder = OpBuilder::atBlockEnd(top.getBody());
    for (const std::string &name : names) {
      auto target = Target::parse(name);
      if (!target.ok()) {
        top.emitError(target.status().message());
        return signalPassFailure();
      }
      std::string symbol = target->isCuda() ? "" : "cpu_";
      for (char c : target->name)
        symbol += isalnum(static_cast<unsigned char>(c)) ? c : '_';
      if (SymbolTable::lookupSymbolIn(top, symbol)) {
        top.emitError("the target '") << name << "' is given twice";
        return signalPassFailure();
      }
      auto module = ModuleOp::create(builder, top.getLoc(), StringRef(symbol));
      module->setAttr(kTargetAttr, builder.getStringAttr(target->name));
      OpBuilder inside = OpBuilder::atBlockEnd(module.getBody());
      for (Operation *op : originals)
        inside.clone(*op);
    }
    for (Operation *op : llvm::reverse(originals))
      op->erase();
  }
};

} // namespace

} // namespace lathe
