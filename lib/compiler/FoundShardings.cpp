//===- FoundShardings.cpp - how the search divides a model ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/compiler/FoundShardings.h"

#include "lathe/compiler/Compilation.h"
#include "lathe/ir/Collective.h"
#include "lathe/passes/Passes.h"

#include "mlir/IR/Builders.h"

using namespace mlir;

namespace lathe {

Result<FoundPlan> foundShardings(const std::string &model, const CompileOptions &options) {
  Result<std::unique_ptr<Compilation>> compilation = Compilation::open(model, options);
  if (!compilation)
    return compilation.status();
  ModuleOp module = (*compilation)->module();
  module->setAttr(kFoundShardingsAttr, Builder(module.getContext()).getArrayAttr({}));
  LATHE_RETURN_IF_ERROR((*compilation)->runTo(Phase::Shard));
  FoundPlan plan;
  plan.ranks = meshRanks(module);
  auto list = module->getAttrOfType<ArrayAttr>(kFoundShardingsAttr);
  if (!list)
    return plan;
  for (auto one : list.getAsRange<DictionaryAttr>()) {
    FoundSharding found;
    found.name = cast<StringAttr>(one.get("name")).str();
    const ArrayRef<int64_t> dims = cast<DenseI64ArrayAttr>(one.get("dims")).asArrayRef();
    found.dims.assign(dims.begin(), dims.end());
    if (auto dim = one.getAs<IntegerAttr>("dim"))
      found.dim = dim.getInt();
    if (auto cannot = one.getAs<StringAttr>("cannot"))
      found.cannot = cannot.str();
    plan.shardings.push_back(std::move(found));
  }
  return plan;
}

} // namespace lathe
