//===- SamplingOps.cpp - read at places that values name ------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/ir/Sampling.h"

#include "mlir/IR/Builders.h"

using namespace mlir;

#define GET_OP_CLASSES
#include "lathe/ir/LatheSamplingOps.cpp.inc"

namespace lathe {

void registerSamplingOps(LatheDialect &dialect) {
  struct Access : LatheDialect {
    using LatheDialect::addOperations;
  };
  static_cast<Access &>(dialect).addOperations<
#define GET_OP_LIST
#include "lathe/ir/LatheSamplingOps.cpp.inc"
      >();
}

using Maps = SmallVector<AffineMap>;
using Iterators = SmallVector<utils::IteratorType>;

static bool fits(Value v, size_t rank) { return dimsOf(v).size() == rank; }
static bool differ(const DimExpr &a, const DimExpr &b) {
  return a.isConstant() && b.isConstant() && a != b;
}
/// No map for operands, whose elements are chosen on the way; the result as it is.
static Maps wholeOperands(Operation *op) {
  Maps maps(op->getNumOperands(), AffineMap());
  maps.push_back(AffineMap::getMultiDimIdentityMap(dimsOf(op->getResult(0)).size(), op->getContext()));
  return maps;
}

LogicalResult ArgPoolOp::verify() {
  size_t rank = dimsOf(getX()).size(), count = getKernel().size();
  if (rank < 3 || !fits(getY(), rank) || !elementTypeOf(getY()).isSignlessInteger(64))
    return emitOpError("arg_pool_c1: ranks are equal, 3 or more, and the result is i64");
  if (count != rank - 2 || getStrides().size() != count || getDilations().size() != count ||
      getPads().size() != 2 * count)
    return emitOpError("arg_pool_c2: attributes do not match ") << rank - 2 << " spatial dimensions";
  for (size_t d = 0; d < count; ++d)
    if (getKernel()[d] < 1 || getStrides()[d] < 1 || getDilations()[d] < 1)
      return emitOpError("arg_pool_c3: windows, strides and dilations are positive");
  return success();
}
OpClass ArgPoolOp::getOpClass() { return OpClass::Window; }
Iterators ArgPoolOp::getIterators() { return parallelIterators(*this); }
Maps ArgPoolOp::getAccessMaps() { return wholeOperands(*this); }

LogicalResult RoiAlignOp::verify() {
  if (!fits(getX(), 4) || !fits(getRois(), 2) || !fits(getBatch(), 1) || !fits(getY(), 4))
    return emitOpError("roi_align_c1: ranks are 4, 2, 1 and 4");
  std::vector<DimExpr> y = dimsOf(getY());
  if (differ(dimOf(getRois(), 1), 4) || differ(dimOf(getRois(), 0), y[0]) ||
      differ(dimOf(getBatch(), 0), y[0]) || differ(dimOf(getX(), channelDim()), y[channelDim()]))
    return emitOpError("roi_align_c2: regions have four corners, and sizes agree");
  Type element = elementTypeOf(getX());
  if (!isa<FloatType>(element) || elementTypeOf(getRois()) != element || elementTypeOf(getY()) != element ||
      !elementTypeOf(getBatch()).isInteger())
    return emitOpError("roi_align_c3: images, regions and the result are floats of one type");
  if (int64_t(getSamples()) < 0)
    return emitOpError("roi_align_c4: samples are not negative");
  return success();
}
// Where neighbours are channels of one place, a kernel of its own reads them together.
OpClass RoiAlignOp::getOpClass() { return getChannelsLast() ? OpClass::Window : OpClass::Gather; }
Iterators RoiAlignOp::getIterators() { return parallelIterators(*this); }
Maps RoiAlignOp::getAccessMaps() { return wholeOperands(*this); }

LogicalResult TreeWalkOp::verify() {
  Value splits = getSplits();
  if (!fits(getX(), 2) || !fits(getNodes(), 2) || !fits(getRoots(), 1) || !fits(getY(), 2) ||
      (splits && (!fits(splits, 1) || differ(dimOf(getNodes(), 0), dimOf(splits, 0)))) || differ(dimOf(getNodes(), 1), 4) ||
      differ(dimOf(getX(), 0), dimOf(getY(), 0)) || differ(dimOf(getRoots(), 0), dimOf(getY(), 1)))
    return emitOpError("tree_walk_c1: ranks are 2, 2, 1, 1 and 2, and sizes agree");
  Type element = elementTypeOf(getX());
  const bool among = element.isF32() || element.isSignlessInteger(32); // splits are
  if (!(isa<FloatType>(element) || among) || !elementTypeOf(getNodes()).isSignlessInteger(32) || !elementTypeOf(getRoots()).isSignlessInteger(32) ||
      !elementTypeOf(getY()).isSignlessInteger(32))
    return emitOpError("tree_walk_c2: numbers are i32, and x has floats or i32");
  if (among ? bool(splits) : !splits || elementTypeOf(splits) != element)
    return emitOpError("tree_walk_c3: splits of f32 and i32 are among the nodes, others apart");
  return success();
}
OpClass TreeWalkOp::getOpClass() { return getWalksApart() ? OpClass::Window : OpClass::Gather; }
Iterators TreeWalkOp::getIterators() { return parallelIterators(*this); }
Maps TreeWalkOp::getAccessMaps() { return wholeOperands(*this); }
OperandAccess TreeWalkOp::getAccess(unsigned) { return {}; } // a walk reads many elements of a row

bool walksTrees(Block &body) { return !body.getOps<TreeWalkOp>().empty(); }

} // namespace lathe
