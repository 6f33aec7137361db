//===- Common.cpp - what passes share -------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Common.h"

#include "lathe/ir/WeightStore.h"
#include "lathe/support/HostTensor.h"

#include "mlir/IR/AttrTypeSubElements.h"

using namespace mlir;

namespace lathe {

SmallVector<ModuleOp> targetModules(ModuleOp top) {
  SmallVector<ModuleOp> modules;
  if (top->hasAttr(kTargetAttr))
    modules.push_back(top);
  for (ModuleOp nested : top.getOps<ModuleOp>())
    if (nested->hasAttr(kTargetAttr))
      modules.push_back(nested);
  return modules;
}

FailureOr<Target> targetOf(ModuleOp module) {
  auto name = module->getAttrOfType<StringAttr>(kTargetAttr);
  if (!name)
    return module.emitError("the module has no '") << kTargetAttr << "' text";
  auto target = Target::parse(std::string_view(name.data(), name.size()));
  if (!target.ok())
    return module.emitError(target.status().message());
  return *target;
}

SmallVector<std::string> optionStrings(ModuleOp module, StringRef key) {
  SmallVector<std::string> strings;
  auto options = module->getAttrOfType<DictionaryAttr>(kOptionsAttr);
  if (!options)
    return strings;
  if (auto list = options.getAs<ArrayAttr>(key))
    for (Attribute item : list)
      if (auto text = dyn_cast<StringAttr>(item))
        strings.push_back(text.str());
  return strings;
}

std::string sparseWeights(ModuleOp top) {
  SmallVector<std::string> given = optionStrings(top, kSparseWeightsOption);
  return given.empty() ? "auto" : given[0];
}

std::map<std::string, DimRange> symbolRanges(ModuleOp module) {
  std::map<std::string, DimRange> ranges;
  for (SymbolOp symbol : module.getOps<SymbolOp>()) {
    int64_t max = symbol.getMax();
    ranges[symbol.getSymName().str()] = {int64_t(symbol.getMin()),
                                         max < 0 ? DimRange::kUnbounded : max};
  }
  return ranges;
}

std::map<std::string, int64_t> symbolOptima(ModuleOp module) {
  std::map<std::string, int64_t> optima;
  for (SymbolOp symbol : module.getOps<SymbolOp>())
    optima[symbol.getSymName().str()] = symbol.getOpt();
  return optima;
}

int64_t meshRanks(ModuleOp module) {
  ModuleOp top = module;
  while (auto outer = top->getParentOfType<ModuleOp>())
    top = outer;
  int64_t ranks = 1;
  for (const std::string &axis : optionStrings(top, kMeshOption)) {
    int64_t size = 1;
    if (!StringRef(axis).split('=').second.getAsInteger(10, size))
      ranks *= size;
  }
  return ranks;
}

std::set<std::string> symbolsOf(Block &body, TypeRange results) {
  std::set<std::string> symbols;
  AttrTypeWalker walker;
  walker.addWalk([&](DimAttr dim) { dim.expr().collectSymbols(symbols); });
  for (Type type : results)
    walker.walk(type);
  for (BlockArgument argument : body.getArguments())
    walker.walk(argument.getType());
  for (Operation &op : body) {
    walker.walk(op.getAttrDictionary());
    for (Type type : op.getResultTypes())
      walker.walk(type);
  }
  return symbols;
}

std::optional<OpClass> classOf(Operation *op) {
  if (auto structured = dyn_cast<StructuredOpInterface>(op))
    return structured.getOpClass();
  if (isa<ConstantOp>(op))
    return OpClass::Source;
  return std::nullopt;
}

bool isNumber(Operation *op) {
  auto constant = dyn_cast<ConstantOp>(op);
  if (!constant)
    return false;
  auto type = cast<TensorType>(constant.getType());
  auto dense = dyn_cast<DenseElementsAttr>(constant.getValue());
  return dense && (dense.isSplat() || type.getNumElements() == 1);
}

std::optional<double> numberOf(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op || !isNumber(op))
    return std::nullopt;
  auto dense = cast<DenseElementsAttr>(cast<ConstantOp>(op).getValue());
  Type element = dense.getElementType();
  if (isa<FloatType>(element))
    return (*dense.getValues<APFloat>().begin()).convertToDouble();
  if (auto integer = dyn_cast<IntegerType>(element)) {
    APInt bits = *dense.getValues<APInt>().begin();
    bool zeroExtend = integer.isUnsigned() || integer.getWidth() == 1;
    return zeroExtend ? double(bits.getZExtValue()) : double(bits.getSExtValue());
  }
  return std::nullopt;
}

bool isView(Operation *op) { return isa<ReshapeOp>(op) || op->hasAttr(kViewAttr); }

func::FuncOp prepareEntry(ModuleOp module) {
  for (func::FuncOp func : module.getOps<func::FuncOp>())
    if (func->hasAttr(kPrepareAttr))
      return func;
  return {};
}

static std::string portName(DictionaryAttr attrs, const char *prefix, unsigned index) {
  if (attrs)
    for (const char *key : {"lathe.name", "onnx.name"})
      if (auto name = attrs.getAs<StringAttr>(key))
        return name.str();
  return prefix + std::to_string(index);
}

std::string inputName(func::FuncOp func, unsigned index) {
  return portName(func.getArgAttrDict(index), "input", index);
}

std::string outputName(func::FuncOp func, unsigned index) {
  return portName(func.getResultAttrDict(index), "output", index);
}

} // namespace lathe
