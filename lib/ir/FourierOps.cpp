//===- FourierOps.cpp - Fourier transforms --------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/ir/Fourier.h"

#include "mlir/IR/Builders.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

#define GET_OP_CLASSES
#include "lathe/ir/LatheFourierOps.cpp.inc"

namespace lathe {

void registerFourierOps(LatheDialect &dialect) {
  struct Access : LatheDialect {
    using LatheDialect::addOperations;
  };
  static_cast<Access &>(dialect).addOperations<
#define GET_OP_LIST
#include "lathe/ir/LatheFourierOps.cpp.inc"
      >();
}

LogicalResult DftOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor, SmallVectorImpl<Type> &types) {
  std::vector<DimExpr> dims = dimsOf(adaptor.getX());
  const Type element = elementTypeOf(adaptor.getX());
  const bool parts = dims.size() >= 2 && dims[dims.size() - 2].isConstant() && (dims.back() == DimExpr(1) || dims.back() == DimExpr(2));
  if (!parts || !(element.isF32() || element.isF64()))
    return emitOptionalError(loc, "dft_c1: x is no tensor of f32 or f64 [.., T, 1 or 2] of a known T");
  const int64_t length = adaptor.getLength();
  if (length < 1 || dimsOf(adaptor.getRoots()) != std::vector<DimExpr>{length, 2} || !elementTypeOf(adaptor.getRoots()).isF64())
    return emitOptionalError(loc, "dft_c2: a length of ", length, " needs as many roots, of f64");
  const bool half = adaptor.getOnesided(), inverse = adaptor.getInverse();
  dims[dims.size() - 2] = half && !inverse ? length / 2 + 1 : length;
  dims.back() = half && inverse ? 1 : 2;
  types.push_back(tensorType(element, dims));
  return success();
}
OpClass DftOp::getOpClass() { return OpClass::Scan; }
SmallVector<utils::IteratorType> DftOp::getIterators() { return parallelIterators(*this); }
SmallVector<AffineMap> DftOp::getAccessMaps() {
  // An element of x is asked for once.
  AffineMap each = AffineMap::getMultiDimIdentityMap(dimsOf(getY()).size(), getContext());
  return {each, AffineMap(), each};
}
OperandAccess DftOp::getAccess(unsigned operand) {
  const int64_t rank = dimsOf(getX()).size();
  return operand == 0 ? OperandAccess::rows({rank - 2, rank - 1}) : OperandAccess();
}
DimExpr DftOp::getFlops() {
  std::vector<DimExpr> outer = dimsOf(getX());
  outer.resize(outer.size() - 2);
  const int64_t length = getLength();
  return product(outer) * DimExpr(5 * length * std::max<int64_t>(1, llvm::Log2_64_Ceil(length)));
}
bool DftOp::isComplex() { return !fromHalf() && dimsOf(getX()).back() == DimExpr(2); }

std::optional<TransformSizes> transformOf(Block &body) {
  for (DftOp op : body.getOps<DftOp>()) {
    std::vector<DimExpr> outer = dimsOf(op.getX());
    outer.resize(outer.size() - 2);
    return TransformSizes{product(outer), int64_t(op.getLength()), op.isComplex(), elementTypeOf(op.getX()).getIntOrFloatBitWidth() / 8};
  }
  return std::nullopt;
}

} // namespace lathe
