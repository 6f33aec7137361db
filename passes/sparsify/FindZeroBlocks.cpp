//===- FindZeroBlocks.cpp - zeros in the weights of products --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Counts in each constant matrix that products multiply by, once, which of its blocks
// are all zero, and notes it at the products. Weights in which a sample finds no such
// block are not read. Nothing else changes: whether blocks are left out is decided
// by select, where the target and the sizes are known.
//
//   %w = constant : 768x3072, 80 % of 1x16 zero
//   %y = matmul %x, %w    =>    %y = matmul %x, %w {lathe.nonzero_blocks = array<i64: 29491, 22118>}
//
//===----------------------------------------------------------------------===//
#include "ZeroBlocksAttr.h"

#include "../Common.h"

#include "lathe/ir/WeightStore.h"
#include "lathe/support/ZeroBlocks.h"

#include "llvm/ADT/DenseMap.h"

using namespace mlir;

namespace lathe {

#define GEN_PASS_DEF_FINDZEROBLOCKSPASS
#include "lathe/passes/Passes.h.inc"

namespace {

struct FindZeroBlocksPass : impl::FindZeroBlocksPassBase<FindZeroBlocksPass> {
  void runOnOperation() override {
    if (sparseWeights(getOperation()) == "never")
      return;
    const bool divided = meshRanks(getOperation()) > 1;
    getOperation()->walk([&](MatmulOp op) {
      ConstantOp weights = weightsOf(op.getB());
      if (!weights)
        return;
      DenseI64ArrayAttr counts = count(op, weights);
      if (!counts)
        return;
      if (divided) // the blocks of a part are others
        missedRemark(op.getLoc(), "SparseWeights") << "its weights have blocks of zeros, which ranks of a mesh multiply";
      else
        op->setAttr(kNonzeroBlocksAttr, counts);
    });
  }

  /// The constant behind a right operand, maybe of 16 bits that become more on the way.
  static ConstantOp weightsOf(Value b) {
    if (auto cast = b.getDefiningOp<CastOp>())
      b = cast.getX();
    auto constant = b.getDefiningOp<ConstantOp>();
    return constant && !isNumber(constant) ? constant : ConstantOp();
  }

  /// Null where a matrix has no blocks of zeros, or its bytes are not there.
  DenseI64ArrayAttr count(MatmulOp op, ConstantOp weights) {
    auto [known, isNew] = counted[op.getTransposeB()].try_emplace(weights);
    if (!isNew)
      return known->second;
    auto type = cast<TensorType>(weights.getValue().getType());
    Type element = type.getElementType();
    if (!(element.isF32() || element.isF16() || element.isBF16()) || !type.hasStaticShape() || type.getRank() < 2)
      return {};
    MatrixBytes matrix;
    matrix.bits = element.getIntOrFloatBitWidth();
    matrix.transposed = op.getTransposeB();
    ArrayRef<int64_t> shape = type.getShape();
    matrix.depth = shape[shape.size() - (matrix.transposed ? 1 : 2)];
    matrix.columns = shape[shape.size() - (matrix.transposed ? 2 : 1)];
    if (type.getNumElements() != matrix.depth * matrix.columns || type.getNumElements() == 0)
      return {};
    WeightStore &store = getContext().getLoadedDialect<LatheDialect>()->weights();
    std::vector<std::byte> inlined;
    if (auto weight = dyn_cast<WeightAttr>(weights.getValue())) {
      Result<std::span<const std::byte>> bytes = WeightStore::spreadOf(weight)
                                                     ? unsupportedError("random weights have no zeros")
                                                     : store.get(weight);
      if (!bytes)
        return {};
      matrix.bytes = *bytes;
    } else {
      Result<std::vector<std::byte>> bytes = constantBytes(weights.getValue(), store);
      if (!bytes)
        return {};
      inlined = std::move(*bytes);
      matrix.bytes = inlined;
    }
    if (sampledZeroRows(matrix) == 0)
      return {};
    std::vector<uint8_t> flags = nonzeroRows(matrix);
    return counted[op.getTransposeB()][weights] = DenseI64ArrayAttr::get(
               &getContext(), {countNonzeroBlocks(flags, matrix.depth, 1),
                               matrix.depth % 4 ? -1 : countNonzeroBlocks(flags, matrix.depth, 4)});
  }

  llvm::DenseMap<Operation *, DenseI64ArrayAttr> counted[2]; ///< by constant; as it lies and transposed
};

} // namespace

} // namespace lathe
