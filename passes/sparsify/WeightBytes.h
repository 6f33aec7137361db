//===- WeightBytes.h - the bytes of a constant where they lie ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_PASSES_SPARSIFY_WEIGHTBYTES_H
#define LATHE_PASSES_SPARSIFY_WEIGHTBYTES_H

#include "lathe/ir/Lathe.h"
#include "lathe/ir/WeightStore.h"

#include <optional>
#include <span>
#include <vector>

namespace lathe {

/// The bytes of a constant in the weight store, or of one in the module, which `inlined` then holds; none where they are
/// not there (a missing file, random weights).
inline std::optional<std::span<const std::byte>> weightBytes(ConstantOp constant, std::vector<std::byte> &inlined) {
  WeightStore &store = constant.getContext()->getLoadedDialect<LatheDialect>()->weights();
  if (auto weight = mlir::dyn_cast<WeightAttr>(constant.getValue())) {
    if (WeightStore::spreadOf(weight))
      return std::nullopt;
    Result<std::span<const std::byte>> bytes = store.get(weight);
    return bytes ? std::optional(*bytes) : std::nullopt;
  }
  Result<std::vector<std::byte>> bytes = constantBytes(constant.getValue(), store);
  if (!bytes)
    return std::nullopt;
  inlined = std::move(*bytes);
  return std::span<const std::byte>(inlined);
}

} // namespace lathe

#endif // LATHE_PASSES_SPARSIFY_WEIGHTBYTES_H
