//===- RestorePositions.cpp - constants that count become iota ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Folding turns positions into constants. A kernel would read them from memory;
// as an iota they are the index that it has anyway.
//
//   %p = constant dense<[[0], [1], [2], ...]>   =>   %p = iota {axis = 0}
//
//===----------------------------------------------------------------------===//
#include "FusionGraph.h"

#include "lathe/ir/WeightStore.h"

using namespace mlir;

namespace lathe::fuse {

/// The only dimension of a constant that counts 0, 1, 2, ... along it.
static std::optional<int64_t> countedAxis(ConstantOp op) {
  constexpr int64_t kFewest = 8;
  auto type = dyn_cast<RankedTensorType>(op.getType());
  if (!type || !type.hasStaticShape() || type.getNumElements() < kFewest ||
      !(type.getElementType().isInteger(32) || type.getElementType().isInteger(64)) ||
      type.getElementType().isUnsignedInteger())
    return std::nullopt;
  std::optional<int64_t> axis;
  for (int64_t d = 0; d < type.getRank(); ++d)
    if (type.getDimSize(d) == type.getNumElements())
      axis = d;
  if (!axis)
    return std::nullopt;
  int64_t expected = 0;
  if (auto weight = dyn_cast<WeightAttr>(op.getValue())) {
    if (WeightStore::spreadOf(weight))
      return std::nullopt;
    Result<std::span<const std::byte>> bytes =
        op->getContext()->getLoadedDialect<LatheDialect>()->weights().get(weight);
    size_t width = type.getElementTypeBitWidth() / 8;
    if (!bytes || bytes->size() != width * type.getNumElements())
      return std::nullopt;
    for (size_t at = 0; at < bytes->size(); at += width, ++expected) {
      int64_t wide = 0;
      int32_t narrow = 0;
      std::memcpy(width == 8 ? static_cast<void *>(&wide) : &narrow, bytes->data() + at, width);
      if ((width == 8 ? wide : narrow) != expected)
        return std::nullopt;
    }
    return axis;
  }
  auto dense = dyn_cast<DenseElementsAttr>(op.getValue());
  if (!dense || dense.isSplat())
    return std::nullopt;
  for (const APInt &number : dense.getValues<APInt>())
    if (number.getSExtValue() != expected++)
      return std::nullopt;
  return axis;
}

void restorePositions(func::FuncOp func) {
  func.walk([](ConstantOp op) {
    // Kernels read it beside other data; gathers and host values want it as it is.
    for (Operation *user : op->getUsers())
      if (!isClass(user, OpClass::Pointwise) && !isClass(user, OpClass::Movement))
        return;
    std::optional<int64_t> axis = countedAxis(op);
    if (!axis)
      return;
    OpBuilder b(op);
    auto iota = IotaOp::create(b, op.getLoc(), op.getType(), b.getI64IntegerAttr(*axis));
    op->replaceAllUsesWith(iota->getResults());
    op->erase();
  });
}

} // namespace lathe::fuse
