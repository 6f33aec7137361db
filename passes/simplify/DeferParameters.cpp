//===- DeferParameters.cpp - inputs that change seldom as constants -------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Parameters are inputs whose values stay the same for many runs. They become constants without bytes, so that
// whatever is done for weights is done for them: packing, Winograd, views. The entry `prepare` has them as inputs;
// lathe-hoist-parameters and lathe-pack-parameters say what it computes.
//
//   parameters = ["w"]                      func @main(%x) { %w = constant #lathe.weight<"parameter:w", ..>
//   func @main(%x, %w) {              =>                     %y = matmul %x, %w .. }
//     %y = matmul %x, %w .. }               func @prepare(%w) {lathe.prepare} { return }
//
//===----------------------------------------------------------------------===//
#include "../Common.h"

#include "lathe/ir/HostOps.h"
#include "lathe/ir/WeightStore.h"

using namespace mlir;

namespace lathe {

#define GEN_PASS_DEF_DEFERPARAMETERSPASS
#include "lathe/passes/Passes.h.inc"

namespace {

struct DeferParametersPass : impl::DeferParametersPassBase<DeferParametersPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    SmallVector<std::string> names = optionStrings(module, kParametersOption);
    if (names.empty() || prepareEntry(module))
      return; // none, or text that has been through here
    SmallVector<func::FuncOp> entries(module.getOps<func::FuncOp>());
    if (entries.empty() || failed(check(module, names, entries)))
      return signalPassFailure();
    OpBuilder builder(module.getBody(), std::next(Block::iterator(entries.back())));
    auto prepare = func::FuncOp::create(builder, module.getLoc(), kPrepareEntry, builder.getFunctionType({}, {}));
    prepare->setAttr("lathe.entry", builder.getUnitAttr());
    prepare->setAttr(kPrepareAttr, builder.getUnitAttr());
    builder.createBlock(&prepare.getBody());
    func::ReturnOp::create(builder, module.getLoc());
    std::set<std::string> known;
    for (func::FuncOp entry : entries)
      for (unsigned i = entry.getNumArguments(); i-- > 0;)
        if (std::string name = inputName(entry, i); llvm::is_contained(names, name) && isDeferrable(entry, i)) {
          if (known.insert(name).second)
            (void)prepare.insertArgument(
                0, entry.getArgumentTypes()[i],
                builder.getDictionaryAttr(builder.getNamedAttr("lathe.name", builder.getStringAttr(name))),
                entry.getArgument(i).getLoc());
          makeConstant(entry, i, name);
        }
  }

private:
  static LogicalResult check(ModuleOp module, ArrayRef<std::string> names, ArrayRef<func::FuncOp> entries) {
    if (module.lookupSymbol(kPrepareEntry))
      return module.emitError("usage: an engine with parameters has an entry '") << kPrepareEntry << "' of its own";
    if (meshRanks(module) > 1)
      return module.emitError("usage: ranks of a mesh hold shards of constants; parameters are inputs");
    if (!optionStrings(module, kPagedOption).empty())
      return module.emitError("usage: weights of a paged decoder are constants, no parameters");
    SmallVector<std::string> targets = optionStrings(module, "targets");
    if (targets.size() > 1)
      return module.emitError("usage: with parameters an engine is of one target: each packs in its own way");
    for (const std::string &text : targets)
      if (auto target = Target::parse(text); target.ok() && target->isCuda())
        return module.emitError("usage: parameters are of CPUs; kernels of a GPU (") << text
               << ") read inputs as they lie";
    for (const std::string &name : names) {
      bool found = false;
      for (func::FuncOp entry : entries)
        for (unsigned i = 0; i < entry.getNumArguments(); ++i) {
          if (inputName(entry, i) != name)
            continue;
          found = true;
          auto type = cast<TensorType>(entry.getArgumentTypes()[i]);
          std::optional<DType> dtype = dtypeOf(type.getElementType());
          if (!type.hasStaticShape())
            return entry.emitError("usage: parameter '") << name << "': its size varies";
          if (!dtype || *dtype == DType::String || entry.getArgAttr(i, kStringsAttr))
            return entry.emitError("usage: parameter '") << name << "': its elements are no numbers";
          if (llvm::any_of(optionStrings(module, "donate"), [&](StringRef pair) {
                return pair.split('=').first == name || pair.split('=').second == name;
              }))
            return entry.emitError("usage: parameter '") << name << "': it is donated, so each run changes it";
        }
      if (!found)
        return module.emitError("usage: parameter '") << name << "': no input is called so";
    }
    return success();
  }

  /// Sizes that are read from an input are the host's: it stays one.
  static bool isDeferrable(func::FuncOp entry, unsigned index) {
    BlockArgument argument = entry.getArgument(index);
    if (llvm::none_of(argument.getUsers(), llvm::IsaPred<DimFromOp>))
      return true;
    missedRemark(argument.getLoc(), "Parameters") << inputName(entry, index) + " is a plain input: sizes follow from it";
    return false;
  }

  static void makeConstant(func::FuncOp entry, unsigned index, StringRef name) {
    BlockArgument argument = entry.getArgument(index);
    if (!argument.use_empty()) {
      OpBuilder builder = OpBuilder::atBlockBegin(&entry.getBody().front());
      WeightAttr value = WeightStore::parameter(cast<TensorType>(argument.getType()), name);
      argument.replaceAllUsesWith(ConstantOp::create(builder, argument.getLoc(), cast<TypedAttr>(Attribute(value))));
    }
    (void)entry.eraseArgument(index);
  }
};

} // namespace

} // namespace lathe
