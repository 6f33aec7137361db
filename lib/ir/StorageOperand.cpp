//===- StorageOperand.cpp - weights in the form in which they are stored --===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/ir/StorageOperand.h"

using namespace mlir;

namespace lathe {

//===----------------------------------------------------------------------===//
// Formats
//===----------------------------------------------------------------------===//

using Has = StorageFormat::Has;

static constexpr DType kBytes[] = {DType::I8, DType::UI8};
static constexpr DType kNibbles[] = {DType::I4, DType::UI4};
static constexpr DType kFloats8[] = {DType::F8E4M3FN, DType::F8E5M2};
static constexpr DType kFloats[] = {DType::F32, DType::F16, DType::BF16};
static constexpr DType kFloats4[] = {DType::F4E2M1};
static constexpr DType kExponents[] = {DType::F8E8M0}, kE4M3[] = {DType::F8E4M3FN};

// A new format is a line here: types and blocks decide, and code generation decodes by type.
static constexpr StorageFormat kFormats[] = {
    {"int8", kBytes, kFloats, 0, Has::Maybe},
    {"fp8", kFloats8, kFloats, 0, Has::Maybe},
    {"int4", kNibbles, kFloats, 0, Has::Maybe},
    {"mxfp4", kFloats4, kExponents, 32},
    {"nvfp4", kFloats4, kE4M3, 16, Has::No, Has::Yes},
    {"nf4", kNibbles, kFloats, 0, Has::No, Has::Maybe, Has::Yes}, // and any other table of 16 numbers
};

std::span<const StorageFormat> storageFormats() { return kFormats; }

static bool isOf(std::span<const DType> types, Value v) {
  std::optional<DType> type = dtypeOf(elementTypeOf(v));
  return type && llvm::is_contained(types, *type);
}

static bool agrees(Has has, Value part) {
  return has == Has::Maybe || (has == Has::Yes) == bool(part);
}

static bool isIn(DequantizeOp op, const StorageFormat &format) {
  if (!isOf(format.codes, op.getData()) || (op.getScale() && !isOf(format.scales, op.getScale())) ||
      !agrees(format.zero, op.getZero()) || !agrees(format.outer, op.getOuter()) ||
      !agrees(format.codebook, op.getCodebook()))
    return false;
  if (format.block == 0)
    return true;
  // One dimension has the blocks, the others none.
  ArrayRef<int64_t> block = op.getBlock();
  return op.getScale() && llvm::count(block, format.block) == 1 &&
         llvm::count(block, 1) + 1 == int64_t(block.size());
}

std::optional<StorageOperand> storageOperand(Value weights, std::string *why) {
  auto none = [&](const Twine &reason) {
    if (why)
      *why = reason.str();
    return std::nullopt;
  };
  auto op = weights.getDefiningOp<DequantizeOp>();
  if (!op)
    return none("the operand is not dequantized");
  std::vector<DimExpr> dims = dimsOf(weights);
  if (dims.size() != 2 || dimsOf(op.getData()) != dims)
    return none("the codes are no matrix of the operand's sizes");
  if (!isa<BlockArgument>(op.getData()) && !op.getData().getDefiningOp<ConstantOp>())
    return none("the codes are computed");
  for (const StorageFormat &format : kFormats)
    if (isIn(op, format))
      return StorageOperand{op, &format};
  return none("no known format has these codes, scales and blocks");
}

//===----------------------------------------------------------------------===//
// Parameters
//===----------------------------------------------------------------------===//

/// Whether a parameter of a matrix has one element for all along dimension `depth`.
static bool isSameAlong(Value parameter, int64_t depth) {
  std::vector<DimExpr> dims = dimsOf(parameter);
  int64_t skip = 2 - int64_t(dims.size());
  return depth < skip || dims[depth - skip] == DimExpr(1);
}

bool StorageOperand::isEvenAlong(int64_t depth, int64_t piece) {
  bool blocks = !op.getBlock().empty() && op.getBlock()[depth] % piece == 0;
  return llvm::all_of(llvm::ArrayRef<Value>{op.getScale(), op.getZero()}, [&](Value p) {
    return !p || blocks || isSameAlong(p, depth);
  });
}

Value StorageOperand::scaleOfSums(int64_t depth) {
  if (op.getOuter())
    return op.getOuter();
  // A zero point may be anything: with it numbers stay in f16's range by their scale alone.
  bool inRange = !op.getZero() || !elementTypeOf(op.getY()).isF16();
  bool columns = op.getScale() && isSameAlong(op.getScale(), depth);
  if (columns && !op.getBlock().empty()) // of blocks along the other dimension only single columns
    columns = numElements(op.getScale().getType()) == DimExpr(1) || op.getBlock()[1 - depth] == 1;
  return inRange && columns ? op.getScale() : Value();
}

bool StorageOperand::isBare(int64_t depth) {
  return !op.getZero() && !op.getOuter() && !op.getCodebook() && bits() == 8 &&
         (!op.getScale() || scaleOfSums(depth));
}

int64_t StorageOperand::integerGroup(int64_t depth) {
  if (isBare(depth) && !llvm::isa<FloatType>(elementTypeOf(op.getData())))
    return 0;
  auto type = dyn_cast<IntegerType>(elementTypeOf(op.getData()));
  std::optional<int64_t> length = dimsOf(op.getData())[depth].constant();
  if (!type || type.getWidth() != 4 || op.getCodebook() || op.getOuter() || !op.getScale() || !length)
    return -1;
  if (Value zero = op.getZero()) {
    auto integer = dyn_cast<IntegerType>(elementTypeOf(zero));
    bool small = integer && integer.getWidth() == 4;
    if (auto constant = zero.getDefiningOp<ConstantOp>(); constant && integer && !small)
      if (auto number = dyn_cast<SplatElementsAttr>(constant.getValue()))
        if (APInt value = number.getSplatValue<APInt>(); value.getBitWidth() <= 64) {
          int64_t z = integer.isUnsigned() ? int64_t(value.getZExtValue()) : value.getSExtValue();
          small = z >= -8 && z <= 15;
        }
    if (!small)
      return -1;
  }
  bool whole = isSameAlong(op.getScale(), depth) && (!op.getZero() || isSameAlong(op.getZero(), depth));
  if (whole)
    return scaleOfSums(depth) && (!op.getZero() || op.getZero().getDefiningOp<ConstantOp>()) ? 0 : *length;
  return op.getBlock().empty() ? -1 : op.getBlock()[depth];
}

} // namespace lathe
