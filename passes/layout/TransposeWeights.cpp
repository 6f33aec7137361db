//===- TransposeWeights.cpp - matrices of weights the other way -----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "TransposeWeights.h"

#include <cstring>

using namespace mlir;

namespace lathe {
namespace {

/// Rows of a matrix of T become columns.
template <typename T>
void transposeMatrix(const std::byte *from, std::byte *to, int64_t rows, int64_t columns) {
  constexpr int64_t kBlock = 64; // both sides stay in the first-level cache
  for (int64_t i = 0; i < rows; i += kBlock)
    for (int64_t j = 0; j < columns; j += kBlock)
      for (int64_t c = j; c < std::min(columns, j + kBlock); ++c)
        for (int64_t r = i; r < std::min(rows, i + kBlock); ++r)
          std::memcpy(to + (c * rows + r) * sizeof(T), from + (r * columns + c) * sizeof(T),
                      sizeof(T));
}

/// The same of matrices of codes below a byte, the first lowest.
void transposeCodes(ArrayRef<std::byte> from, MutableArrayRef<std::byte> to, unsigned bits,
                    int64_t rows, int64_t columns) {
  const int64_t each = 8 / bits, count = int64_t(from.size()) * each;
  const uint8_t mask = (1 << bits) - 1;
  for (int64_t matrix = 0; matrix + rows * columns <= count && rows * columns; matrix += rows * columns)
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c) {
        int64_t at = matrix + r * columns + c, put = matrix + c * rows + r;
        uint8_t code = std::to_integer<uint8_t>(from[at / each]) >> (at % each * bits) & mask;
        to[put / each] |= std::byte(code << (put % each * bits));
      }
}

Value swapLastTwo(OpBuilder &b, Location loc, Value v) {
  int64_t rank = dimsOf(v).size();
  SmallVector<int64_t> perm;
  for (int64_t d = 0; d < rank; ++d)
    perm.push_back(d);
  std::swap(perm[rank - 1], perm[rank - 2]);
  return TransposeOp::create(b, loc, v, perm);
}

} // namespace

std::optional<std::vector<std::byte>> TransposeWeights::bytesOf(Value v) {
  auto constant = v.getDefiningOp<ConstantOp>();
  auto type = cast<TensorType>(v.getType());
  if (!constant || !type.hasStaticShape() || isNumber(constant))
    return std::nullopt;
  auto bytes = constantBytes(constant.getValue(), weights);
  if (!bytes.ok())
    return std::nullopt;
  return std::move(*bytes);
}

Value TransposeWeights::operator()(OpBuilder &b, Location loc, Value v) {
  if (auto before = v.getDefiningOp<TransposeOp>()) { // there and back
    SmallVector<int64_t> perm(before.getPerm());
    std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
    if (llvm::is_sorted(perm))
      return before.getX();
  }
  Value &made = done[v];
  if (made)
    return made;
  auto type = cast<TensorType>(v.getType());
  int64_t rank = type.getRank();
  std::vector<DimExpr> dims = dimsOf(v);
  std::swap(dims[rank - 1], dims[rank - 2]);
  if (auto constant = v.getDefiningOp<ConstantOp>())
    if (auto splat = dyn_cast<DenseElementsAttr>(constant.getValue()); splat && splat.isSplat())
      return ConstantOp::create(
          b, loc,
          DenseElementsAttr::get(cast<ShapedType>(tensorType(type.getElementType(), dims)),
                                 splat.getSplatValue<Attribute>()));
  std::optional<std::vector<std::byte>> bytes = bytesOf(v);
  if (!bytes)
    return swapLastTwo(b, loc, v);
  ArrayRef<int64_t> shape = type.getShape();
  int64_t rows = shape[rank - 2], columns = shape[rank - 1];
  int64_t width = type.getElementTypeBitWidth() / 8;
  std::vector<std::byte> out(bytes->size());
  if (width == 0)
    transposeCodes(*bytes, out, type.getElementTypeBitWidth(), rows, columns);
  else
    for (int64_t at = 0; at < int64_t(out.size()); at += rows * columns * width)
      (width == 1   ? transposeMatrix<uint8_t>
       : width == 2 ? transposeMatrix<uint16_t>
                    : transposeMatrix<uint32_t>)(bytes->data() + at, out.data() + at, rows, columns);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointAfterValue(v);
  made = ConstantOp::create(b, v.getLoc(),
                            constantAttr(tensorType(type.getElementType(), dims), out, weights));
  return made;
}

} // namespace lathe
