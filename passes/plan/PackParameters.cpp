//===- PackParameters.cpp - parameters as kernels read them ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each form in which the kernels of an entry read a parameter becomes an input of the entry. Packed forms, and what
// lathe-hoist-parameters has moved, are results of `prepare`, by the same names; a parameter that is read as it
// lies is the caller's own. What nobody reads goes.
//
//   func @main(%x) {                              func @main(%x, %w {lathe.parameter = .., lathe.packing = "panels32"})
//     %w = constant #lathe.weight<"parameter:w">    .. the same
//     kernel "k" (%x, %w) { .. panels32 .. } }  =>
//   func @prepare(%w) { return }                  func @prepare(%w) { %p = custom_call "pack" (%w) {recipe = "panels32"}
//                                                                     return %p {lathe.name = "w:panels32"} }
//
//===----------------------------------------------------------------------===//
#include "../Common.h"

#include "lathe/ir/HostOps.h"
#include "lathe/ir/KernelVariants.h"
#include "lathe/ir/WeightStore.h"
#include "lathe/support/Packing.h"

#include "llvm/ADT/MapVector.h"

using namespace mlir;

namespace lathe {

#define GEN_PASS_DEF_PACKPARAMETERSPASS
#include "lathe/passes/Passes.h.inc"

namespace {

/// A parameter under a type, and the recipe that packs it or "".
using Form = std::pair<Attribute, StringAttr>;

class Packer {
public:
  Packer(ModuleOp module, func::FuncOp prepare) : module(module), prepare(prepare) {}

  LogicalResult run() {
    Operation *end = prepare.getBody().front().getTerminator();
    for (unsigned i = 0; i < prepare.getNumArguments(); ++i)
      values[inputName(prepare, i)] = prepare.getArgument(i);
    for (unsigned i = 0; i < prepare.getNumResults(); ++i)
      values[outputName(prepare, i)] = end->getOperand(i);
    for (func::FuncOp func : module.getOps<func::FuncOp>()) {
      for (unsigned i = 0; i < func.getNumArguments(); ++i)
        names.insert(inputName(func, i));
      for (unsigned i = 0; i < func.getNumResults(); ++i)
        names.insert(outputName(func, i));
    }
    llvm::BitVector all(prepare.getNumResults(), true);
    (void)prepare.eraseResults(all);
    end->setOperands({});
    for (func::FuncOp entry : module.getOps<func::FuncOp>())
      if (entry != prepare && failed(addInputs(entry)))
        return failure();
    clean();
    return success();
  }

private:
  /// The forms in which an entry reads parameters, in the order in which it does.
  FailureOr<llvm::SetVector<Form>> formsOf(func::FuncOp entry) {
    llvm::SetVector<Form> forms;
    Builder b(module.getContext());
    for (ConstantOp constant : entry.getBody().front().getOps<ConstantOp>()) {
      if (!WeightStore::parameterOf(constant.getValue()))
        continue;
      for (OpOperand &use : constant->getUses()) {
        auto kernel = dyn_cast<KernelOp>(use.getOwner());
        if (!kernel || !kernel.getVariantsAttr()) {
          forms.insert({constant.getValue(), b.getStringAttr("")});
          continue;
        }
        FailureOr<std::vector<KernelVariant>> variants = variantsOf(kernel);
        if (failed(variants))
          return failure();
        unsigned input = use.getOperandNumber();
        forms.insert({constant.getValue(), b.getStringAttr(variants->front().spec.buffers[input].packing)});
        for (const OwnPacking &own : ownPackings(*variants))
          if (own.input == input)
            forms.insert({constant.getValue(), b.getStringAttr(own.packing)});
      }
    }
    return forms;
  }

  LogicalResult addInputs(func::FuncOp entry) {
    FailureOr<llvm::SetVector<Form>> forms = formsOf(entry);
    if (failed(forms))
      return failure();
    Builder b(module.getContext());
    llvm::StringMap<unsigned> unpacked; // several types of one parameter are views of one input
    for (const Form &form : *forms) {
      StringRef name = *WeightStore::parameterOf(form.first);
      Value from = values.lookup(name);
      if (!from)
        return entry.emitError("reads a parameter '") << name << "' that prepare does not make";
      if (form.second.empty() && !unpacked.try_emplace(name, 0).second)
        continue;
      FailureOr<std::pair<std::string, Type>> input = inputOf(entry, form, from);
      if (failed(input))
        return failure();
      SmallVector<NamedAttribute> attrs = {b.getNamedAttr("lathe.name", b.getStringAttr(input->first)),
                                           b.getNamedAttr(kParameterAttr, form.first)};
      if (!form.second.empty())
        attrs.push_back(b.getNamedAttr(kPackingAttr, form.second));
      (void)entry.insertArgument(entry.getNumArguments(), input->second, b.getDictionaryAttr(attrs), from.getLoc());
    }
    return success();
  }

  /// Name and type of the input for a form, which `prepare` makes unless it is the caller's own.
  FailureOr<std::pair<std::string, Type>> inputOf(func::FuncOp entry, const Form &form, Value from) {
    StringRef name = *WeightStore::parameterOf(form.first);
    if (form.second.empty()) {
      if (!isa<BlockArgument>(from))
        addResult(name.str(), from);
      return std::pair(name.str(), from.getType());
    }
    auto [it, isNew] = packed.try_emplace(form);
    if (!isNew)
      return std::pair(it->second.first, it->second.second.getType());
    auto type = cast<RankedTensorType>(cast<TypedAttr>(form.first).getType());
    Result<WeightPacker> packer =
        WeightPacker::of(form.second.getValue(), *dtypeOf(type.getElementType()), std::vector<int64_t>(type.getShape()));
    if (!packer)
      return entry.emitError("parameter '") << name << "': " << packer.status().message();
    OpBuilder b(prepare.getBody().front().getTerminator());
    if (from.getType() != type)
      from = ReshapeOp::create(b, from.getLoc(), type, from);
    Type to = RankedTensorType::get({packer->elements()}, type.getElementType());
    auto call = CustomCallOp::create(b, from.getLoc(), to, from, b.getStringAttr("pack"),
                                     b.getDictionaryAttr(b.getNamedAttr("recipe", form.second)));
    call->setAttr(kHostOpAttr, b.getUnitAttr());
    std::string base = (name + ":" + form.second.getValue()).str(), unique = base;
    for (int i = 2; results.count(unique) || names.count(unique); ++i) // under another type
      unique = base + "." + std::to_string(i);
    addResult(unique, call.getResult(0));
    it->second = {unique, call.getResult(0)};
    return std::pair(unique, to);
  }

  void addResult(const std::string &name, Value value) {
    if (!results.insert(name).second)
      return;
    Builder b(module.getContext());
    (void)prepare.insertResult(prepare.getNumResults(), value.getType(),
                               b.getDictionaryAttr(b.getNamedAttr("lathe.name", b.getStringAttr(name))));
    Operation *end = prepare.getBody().front().getTerminator();
    end->insertOperands(end->getNumOperands(), value);
  }

  /// Erases what no result of `prepare` needs; itself where it has none.
  void clean() {
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(prepare.getBody().front())))
      if (op.use_empty() && !op.hasTrait<OpTrait::IsTerminator>())
        op.erase();
    for (unsigned i = prepare.getNumArguments(); i-- > 0;)
      if (prepare.getArgument(i).use_empty())
        (void)prepare.eraseArgument(i);
    if (prepare.getNumResults() == 0)
      prepare.erase();
  }

  ModuleOp module;
  func::FuncOp prepare;
  llvm::StringMap<Value> values; ///< in `prepare`, of each parameter
  llvm::DenseMap<Form, std::pair<std::string, Value>> packed; ///< name and value of each packed form
  std::set<std::string> results; ///< names of those of `prepare` so far
  std::set<std::string> names;   ///< of inputs and outputs as the module came
};

struct PackParametersPass : impl::PackParametersPassBase<PackParametersPass> {
  void runOnOperation() override {
    for (ModuleOp module : targetModules(getOperation()))
      if (func::FuncOp prepare = prepareEntry(module))
        if (failed(Packer(module, prepare).run()))
          return signalPassFailure();
  }
};

} // namespace

} // namespace lathe
