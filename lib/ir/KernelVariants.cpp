//===- KernelVariants.cpp - variants of a kernel as values ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "lathe/ir/KernelVariants.h"

#include "mlir/IR/Builders.h"

using namespace mlir;

namespace lathe {

constexpr llvm::StringLiteral kGuard = "guard", kSpec = "spec", kOtherwise = "otherwise",
                              kSource = "source";

DictionaryAttr attrOf(MLIRContext *context, const KernelVariant &variant) {
  NamedAttrList entries;
  auto text = [&](StringRef s) { return StringAttr::get(context, s); };
  entries.set(kGuard, text(variant.guard.empty() ? "" : str(variant.guard)));
  if (!variant.otherwise.empty()) {
    SmallVector<Attribute> others;
    for (const KernelSpec &other : variant.otherwise)
      others.push_back(text(other.str()));
    entries.set(kOtherwise, ArrayAttr::get(context, others));
  }
  entries.set(kSpec, text(variant.spec.str()));
  return entries.getDictionary(context);
}

ArrayAttr attrOf(MLIRContext *context, const std::vector<KernelVariant> &variants) {
  return ArrayAttr::get(context, llvm::map_to_vector(variants, [&](const KernelVariant &v) {
                          return Attribute(attrOf(context, v));
                        }));
}

Result<KernelVariant> parseVariant(Attribute attr) {
  auto entries = dyn_cast_or_null<DictionaryAttr>(attr);
  auto guard = entries ? entries.getAs<StringAttr>(kGuard) : StringAttr();
  auto spec = entries ? entries.getAs<StringAttr>(kSpec) : StringAttr();
  if (!guard || !spec)
    return invalidError("a variant has the texts 'guard' and 'spec'");
  KernelVariant variant;
  if (!guard.empty()) {
    Result<std::vector<DimCondition>> conditions = parseGuard(guard.getValue());
    if (!conditions)
      return conditions.status();
    variant.guard = std::move(*conditions);
  }
  Result<KernelSpec> parsed = KernelSpec::parse(spec.getValue());
  if (!parsed)
    return parsed.status();
  variant.spec = std::move(*parsed);
  if (auto others = entries.getAs<ArrayAttr>(kOtherwise))
    for (Attribute other : others) {
      auto text = dyn_cast<StringAttr>(other);
      if (!text)
        return invalidError("'otherwise' lists texts");
      Result<KernelSpec> one = KernelSpec::parse(text.getValue());
      if (!one)
        return one.status();
      variant.otherwise.push_back(std::move(*one));
    }
  return variant;
}

FailureOr<std::vector<KernelVariant>> parseVariants(Operation *op, ArrayAttr variants) {
  std::vector<KernelVariant> list;
  for (Attribute attr : variants) {
    Result<KernelVariant> variant = parseVariant(attr);
    if (!variant)
      return op->emitError(variant.status().message());
    list.push_back(std::move(*variant));
  }
  return list;
}

std::vector<OwnPacking> ownPackings(ArrayRef<KernelVariant> variants) {
  std::vector<OwnPacking> own;
  for (const KernelVariant &variant : variants)
    for (int i = 0; i < variant.spec.numInputs; ++i) {
      const std::string &packing = variant.spec.buffers[i].packing;
      bool known = packing == variants.front().spec.buffers[i].packing ||
                   llvm::any_of(own, [&](const OwnPacking &o) {
                     return o.input == size_t(i) && o.packing == packing;
                   });
      if (!known)
        own.push_back({size_t(i), packing});
    }
  return own;
}

size_t operandOf(const KernelVariant &variant, size_t input, ArrayRef<OwnPacking> own,
                 ArrayRef<KernelVariant> variants, size_t operands) {
  if (input >= size_t(variant.spec.numInputs))
    return input;
  const std::string &packing = variant.spec.buffers[input].packing;
  if (packing == variants.front().spec.buffers[input].packing)
    return input;
  for (auto [n, o] : llvm::enumerate(own))
    if (o.input == input && o.packing == packing)
      return operands + n;
  return input;
}

StringAttr sourceOf(Attribute variant) {
  return cast<DictionaryAttr>(variant).getAs<StringAttr>(kSource);
}

DictionaryAttr withSource(Attribute variant, StringRef source) {
  NamedAttrList entries(cast<DictionaryAttr>(variant));
  entries.set(kSource, StringAttr::get(variant.getContext(), source));
  return entries.getDictionary(variant.getContext());
}

Result<DimCondition> parseComparison(StringRef text) {
  Result<std::vector<DimCondition>> conditions = parseGuard(text);
  if (!conditions)
    return conditions.status();
  if (conditions->size() != 1)
    return invalidError("not one comparison: '" + text.str() + "'");
  return conditions->front();
}

} // namespace lathe
