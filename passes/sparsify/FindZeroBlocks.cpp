//===- FindZeroBlocks.cpp - zeros in the weights of products --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Counts in each constant matrix that products multiply by, once, which of its blocks
// are all zero, finds whether it is 2:4 sparse, and notes it at the products. Weights in
// which a sample finds neither are not read. Nothing else changes: whether zeros are left
// out is decided by select, where the target and the sizes are known.
//
//   %w = constant : 768x3072, 80 % of 1x16 zero
//   %y = matmul %x, %w    =>    %y = matmul %x, %w {lathe.nonzero_blocks = array<i64: 29491, 22118>}
//
//   %w = constant : 768x3072 of 16 bits, half of 64x64 zero
//   %y = matmul %x, %w    =>    %y = matmul %x, %w {lathe.block_steps = array<i64: 288, 216>, ..}
//
//   %w = constant : 768x3072, at most two of four neighbours along 768 other than zero
//   %y = matmul %x, %w    =>    %y = matmul %x, %w {lathe.two_of_four}
//
// Codes of 8 bits may be dequantized on the way where 0 means 0: codes are what tensor cores multiply.
//
// Products of inputs that are often zero are noted beside (InactiveInputs.cpp):
//
//   %y = matmul (select %small, 0, %x), %w    =>    %y = matmul .., %w {lathe.inactive_inputs}
//
//===----------------------------------------------------------------------===//
#include "InactiveInputs.h"
#include "WeightBytes.h"
#include "ZeroBlocksAttr.h"

#include "../Common.h"

#include "lathe/ir/WeightStore.h"
#include "lathe/support/BlockSteps.h"
#include "lathe/support/TwoOfFour.h"

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
      Weights weights = weightsOf(op);
      if (!weights.constant)
        return;
      const Zeros &zeros = zerosOf(weights);
      if (zeros.offence)
        missedRemark(op.getLoc(), "SparseWeights")
            << ("its weights are 2:4 sparse but for some groups of four, the first of which has its third element other than "
                "zero at k " +
                std::to_string(zeros.offence->k) + ", column " + std::to_string(zeros.offence->n) +
                ": they are multiplied as they are");
      if (!zeros.blocks && !zeros.twoOfFour)
        return;
      if (divided) { // the zeros of a part are others
        missedRemark(op.getLoc(), "SparseWeights")
            << (zeros.blocks ? "its weights have blocks of zeros, which ranks of a mesh multiply"
                             : "its weights are 2:4 sparse, which ranks of a mesh multiply as they are");
        return;
      }
      if (zeros.blocks)
        op->setAttr(kNonzeroBlocksAttr, zeros.blocks);
      if (zeros.blockSteps)
        op->setAttr(kBlockStepsAttr, zeros.blockSteps);
      if (zeros.twoOfFour)
        op->setAttr(kTwoOfFourAttr, UnitAttr::get(&getContext()));
    });
    if (!divided)
      noteInactiveInputs(getOperation(), /*relu=*/sparseWeights(getOperation()) == "always");
  }

  struct Zeros {
    DenseI64ArrayAttr blocks; ///< null where a matrix has no blocks of zeros, or its bytes are not there
    DenseI64ArrayAttr blockSteps; ///< null where no block of 64 x 64 is left out, or elements have other than 16 bits
    bool twoOfFour = false;
    std::optional<TwoOfFourOffence> offence; ///< of a matrix that is almost 2:4
  };

  struct Weights {
    ConstantOp constant;
    bool transposed = false; ///< it is [N, K]
  };

  static bool isByte(Type element) { return element.isInteger(8) || isa<Float8E4M3FNType, Float8E5M2Type>(element); }

  /// The constant behind a right operand: numbers, maybe cast to another type on the way (a cast keeps zeros), or codes of
  /// 8 bits of which 0 means 0. Null where there is none.
  Weights weightsOf(MatmulOp op) {
    Weights weights{{}, op.getTransposeB()};
    Value b = op.getB();
    bool codesOnly = false;
    for (;;) {
      if (auto cast = b.getDefiningOp<CastOp>()) {
        b = cast.getX();
      } else if (auto codes = b.getDefiningOp<DequantizeOp>(); codes && !codes.getCodebook() && isZeroAtZero(codes)) {
        b = codes.getData();
        codesOnly = true;
      } else if (auto turned = b.getDefiningOp<TransposeOp>(); turned && turned.getPerm() == ArrayRef<int64_t>{1, 0}) {
        b = turned.getX();
        weights.transposed = !weights.transposed;
        codesOnly = true;
      } else {
        break;
      }
    }
    auto constant = b.getDefiningOp<ConstantOp>();
    if (constant && !isNumber(constant) && (!codesOnly || isByte(elementTypeOf(constant))))
      weights.constant = constant;
    return weights;
  }

  /// Whether there is no zero point, or none but zeros.
  bool isZeroAtZero(DequantizeOp codes) {
    if (!codes.getZero())
      return true;
    auto zero = codes.getZero().getDefiningOp<ConstantOp>();
    if (!zero)
      return false;
    WeightStore &store = getContext().getLoadedDialect<LatheDialect>()->weights();
    Result<std::vector<std::byte>> bytes = constantBytes(zero.getValue(), store);
    return bytes && llvm::all_of(*bytes, [](std::byte b) { return b == std::byte{0}; });
  }

  const Zeros &zerosOf(const Weights &weights) {
    auto [known, isNew] = found[weights.transposed].try_emplace(weights.constant);
    if (isNew)
      known->second = find(weights.constant, weights.transposed);
    return known->second;
  }

  Zeros find(ConstantOp weights, bool transposed) {
    auto type = cast<TensorType>(weights.getValue().getType());
    Type element = type.getElementType();
    const bool bytes = isByte(element);
    if (!(bytes || element.isF32() || element.isF16() || element.isBF16()) || !type.hasStaticShape() || type.getRank() < 2)
      return {};
    MatrixBytes matrix;
    matrix.bits = element.getIntOrFloatBitWidth();
    matrix.transposed = transposed;
    matrix.integers = isa<IntegerType>(element);
    ArrayRef<int64_t> shape = type.getShape();
    matrix.depth = shape[shape.size() - (matrix.transposed ? 1 : 2)];
    matrix.columns = shape[shape.size() - (matrix.transposed ? 2 : 1)];
    if (type.getNumElements() != matrix.depth * matrix.columns || type.getNumElements() == 0)
      return {};
    std::vector<std::byte> inlined;
    std::optional<std::span<const std::byte>> values = weightBytes(weights, inlined);
    if (!values)
      return {};
    matrix.bytes = *values;
    Zeros zeros;
    constexpr double kMeant = 0.8; // of groups of four have just two: somebody made them so
    if (matrix.bits <= 16 && matrix.depth % kGroupOfFour == 0) {
      const TwoOfFourSample sample = sampledTwoOfFour(matrix);
      const bool meant = sample.full >= kMeant;
      if (sample.good == 1 || meant) {
        std::optional<TwoOfFourOffence> offence = firstOffence(matrix);
        zeros.twoOfFour = !offence;
        if (meant)
          zeros.offence = offence;
      }
    }
    if (bytes || sampledZeroRows(matrix) == 0)
      return zeros;
    std::vector<uint8_t> flags = nonzeroRows(matrix);
    zeros.blocks = DenseI64ArrayAttr::get(&getContext(),
                                          {countNonzeroBlocks(flags, matrix.depth, 1),
                                           matrix.depth % 4 ? -1 : countNonzeroBlocks(flags, matrix.depth, 4)});
    if (matrix.bits != 16)
      return zeros;
    const BlockSteps steps = BlockSteps::of(flags, matrix.depth, matrix.columns);
    const int64_t panels = (matrix.columns + kBlockSide - 1) / kBlockSide;
    if (steps.blocks < panels * ((matrix.depth + kBlockSide - 1) / kBlockSide))
      zeros.blockSteps = DenseI64ArrayAttr::get(&getContext(), {steps.blocks, int64_t(steps.steps.size())});
    return zeros;
  }

  llvm::DenseMap<Operation *, Zeros> found[2]; ///< by constant; as it lies and transposed
};

} // namespace

} // namespace lathe
