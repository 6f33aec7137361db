//===- ImportGraph.cpp - a graph as text, with weights beside it ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/import/Import.h"

#include "lathe/ir/Aten.h"
#include "lathe/ir/States.h"
#include "lathe/ir/WeightStore.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;

namespace lathe {
namespace {

constexpr const char *kWhere = "the graph";

/// The constant of the bytes that were given under a name.
Result<TypedAttr> weightOf(StringAttr name, Type wanted, const llvm::StringMap<std::span<const std::byte>> &given,
                           WeightStore &store) {
  std::string place = "weight '" + (name ? name.str() : "") + "'";
  auto type = dyn_cast_or_null<RankedTensorType>(wanted);
  std::optional<DType> dtype = type && type.hasStaticShape() ? dtypeOf(type.getElementType()) : std::nullopt;
  auto bytes = name ? given.find(name.getValue()) : given.end();
  if (!dtype)
    return invalidError("has no type that lathe can store", place);
  if (bytes == given.end())
    return invalidError("is not given", place);
  if (bytes->second.size() != byteSize(*dtype, type.getNumElements()))
    return invalidError("has " + std::to_string(bytes->second.size()) + " bytes; its type needs " +
                            std::to_string(byteSize(*dtype, type.getNumElements())),
                        place);
  // Small ones stand in the text, as those of ONNX files do; the others are not copied.
  return bytes->second.size() <= 256 ? constantAttr(type, bytes->second, store)
                                     : TypedAttr(store.add(type, bytes->second, nullptr));
}

/// `aten.weight {name}` becomes a constant of the bytes that were given under this name, and the first value of a
/// state likewise.
Status resolveWeights(ModuleOp module, const GraphText &graph) {
  llvm::StringMap<std::span<const std::byte>> given;
  for (const GraphWeight &weight : graph.weights)
    if (!given.try_emplace(weight.name, weight.bytes).second)
      return invalidError("is given twice", "weight '" + weight.name + "'");
  WeightStore &store = module.getContext()->getOrLoadDialect<LatheDialect>()->weights();
  SmallVector<Operation *> found;
  module.walk([&](Operation *op) {
    if (op->getName().getStringRef() == "aten.weight")
      found.push_back(op);
  });
  for (Operation *op : found) {
    Type type = op->getNumResults() == 1 ? op->getResult(0).getType() : Type();
    Result<TypedAttr> value = weightOf(op->getAttrOfType<StringAttr>("name"), type, given, store);
    if (!value)
      return value.status();
    OpBuilder b(op);
    op->replaceAllUsesWith(ConstantOp::create(b, op->getLoc(), *value));
    op->erase();
  }
  for (StateOp state : module.getOps<StateOp>())
    if (auto name = state->getAttrOfType<StringAttr>(kInitialAttr)) {
      Result<TypedAttr> value = weightOf(name, state.getType(), given, store);
      if (!value)
        return value.status();
      state->setAttr(kInitialAttr, *value);
    }
  return okStatus();
}

} // namespace

Result<OwningOpRef<ModuleOp>> importGraph(MLIRContext &context, const GraphText &graph,
                                          const ImportOptions &options) {
  context.loadDialect<LatheDialect, atenir::AtenDialect, func::FuncDialect>();
  if (!options.constants.empty())
    return usageError("inputs become constants when an ONNX file is imported", "--const");
  if (!options.lengths.empty())
    return usageError("the graph has no sequences", "--shape");
  std::string problem;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    if (problem.empty())
      llvm::raw_string_ostream(problem) << diagnostic.getLocation() << ": " << diagnostic;
    return success();
  });
  OwningOpRef<ModuleOp> module =
      parseSourceString<ModuleOp>(graph.text, ParserConfig(&context), "graph");
  if (!module)
    return invalidError(problem.empty() ? "does not parse" : problem, kWhere);
  auto main = module->lookupSymbol<func::FuncOp>("main");
  if (!main || main.isExternal())
    return invalidError("there is no function 'main'", kWhere);
  LATHE_RETURN_IF_ERROR(resolveWeights(*module, graph));
  LATHE_RETURN_IF_ERROR(bindDims(*module, options));
  if (failed(verify(*module)))
    return invalidError(problem, kWhere);
  return std::move(module);
}

} // namespace lathe
