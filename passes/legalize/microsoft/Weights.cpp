//===- Weights.cpp - products and tables of weights in few bits -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// onnxruntime packs codes of 2 and 4 bits into bytes. A constant of such bytes becomes one of the codes'
// own type, and the product reads a lathe.dequantize of it: nothing is unpacked in a run.
//
//===----------------------------------------------------------------------===//
#include "Families.h"

#include "lathe/ir/WeightStore.h"
#include "lathe/support/NormalFloat.h"

using namespace mlir;

namespace lathe::legal::microsoft {
namespace {

Type unsignedOf(Emitter &e, int64_t bits) { return e.b.getIntegerType(bits, /*isSigned=*/false); }

/// Rows of codes that `bits` wide lie in the bytes of a constant, the lower bits first (or the upper
/// ones): [rows, count] of a type of so many bits. A row begins at a byte; what is behind its `count`
/// codes is dropped. Null, after a report, where the operand is no constant.
Value codesOf(Node &n, unsigned operand, int64_t bits, int64_t rows, int64_t count,
              bool upperFirst = false) {
  Emitter &e = n.e;
  Value bytes = n.in(operand);
  auto constant = bytes ? bytes.getDefiningOp<ConstantOp>() : ConstantOp();
  if (!bytes)
    return {};
  if (!constant) {
    (void)n.unknown({operand}, "codes of weights");
    return {};
  }
  auto &weights = n.op->getContext()->getOrLoadDialect<LatheDialect>()->weights();
  Result<std::vector<std::byte>> packed = constantBytes(constant.getValue(), weights);
  if (!packed)
    return e.fail(packed.status().message());
  const int64_t perByte = 8 / bits, mask = (1 << bits) - 1;
  const int64_t stride = rows > 0 ? int64_t(packed->size()) / rows : 0;
  if (rows < 1 || count < 0 || stride * rows != int64_t(packed->size()) || stride * perByte < count)
    return e.fail("operand " + llvm::Twine(operand) + " has too few codes");
  auto type = RankedTensorType::get({rows, count}, unsignedOf(e, bits));
  std::vector<std::byte> codes;
  if (!upperFirst && stride * perByte == count) {
    codes = std::move(*packed); // as they lie
  } else {
    codes.assign(size_t((rows * count * bits + 7) / 8), std::byte(0));
    for (int64_t r = 0, at = 0; r < rows; ++r)
      for (int64_t i = 0; i < count; ++i, ++at) {
        int64_t place = upperFirst ? perByte - 1 - i % perByte : i % perByte;
        int64_t code = int64_t((*packed)[size_t(r * stride + i / perByte)]) >> (place * bits) & mask;
        codes[size_t(at / perByte)] |= std::byte(code << (at % perByte * bits));
      }
  }
  return ConstantOp::create(e.b, e.loc, constantAttr(type, codes, weights));
}

bool isWidth(int64_t bits) { return bits == 2 || bits == 4 || bits == 8; }

/// A (B - zero) * scale, B transposed: [N, K] in blocks along K.
LogicalResult matmulNBits(Node &n) {
  Emitter &e = n.e;
  int64_t K = n.intAttr("K", 0), N = n.intAttr("N", 0), bits = n.intAttr("bits", 4),
          block = n.intAttr("block_size", 0);
  Value a = n.in(0), scales = n.in(2);
  if (!a || !scales || K < 1 || N < 1 || block < 1 || !isWidth(bits))
    return n.fail("attribute", "these bits, block_size, K or N", "2, 4 or 8 bits, positive sizes");
  if (n.has(4))
    return n.fail("attribute", "the operand g_idx", "codes whose blocks lie in order");
  if (n.intAttr("weight_prepacked", 0))
    return n.fail("attribute", "weights packed for one accelerator", "weight_prepacked = 0");
  int64_t blocks = (K + block - 1) / block;
  Value codes = codesOf(n, 1, bits, N, K), zero;
  if (n.has(3)) {
    Value given = n.in(3);
    if (given && isFloat(elementTypeOf(given)))
      zero = e.reshape(given, {N, blocks});
    else
      zero = codesOf(n, 3, bits, N, blocks);
    if (!zero)
      return failure();
  } else {
    zero = e.ints({int64_t(1) << (bits - 1)}, {1, 1}, unsignedOf(e, 8));
  }
  Value b = e.dequantize(codes, e.reshape(scales, {N, blocks}), zero, elementTypeOf(a), {1, block});
  if (!b)
    return failure();
  n.unify(dimOf(a, rankOf(a) - 1), K);
  Value y = e.matmul(a, b, false, true);
  return n.done(n.has(5) ? e.add(y, n.in(5)) : y);
}

/// What a code of four bits means, in units of the block's greatest magnitude: bitsandbytes' FP4.
constexpr double kFp4[] = {0.0,  5.208333333e-03,  0.66666667,  1.0,  0.33333333,  0.5,  0.16666667,  0.25,
                           -0.0, -5.208333333e-03, -0.66666667, -1.0, -0.33333333, -0.5, -0.16666667, -0.25};

/// A B, or A B^T, where B is [N, K] of codes that a table explains, in blocks over its flat order.
LogicalResult matmulBnb4(Node &n) {
  Emitter &e = n.e;
  int64_t K = n.intAttr("K", 0), N = n.intAttr("N", 0), block = n.intAttr("block_size", 0),
          kind = n.intAttr("quant_type", 1);
  Value a = n.in(0), greatest = n.in(2);
  if (!a || !greatest || K < 1 || N < 1 || block < 1 || kind < 0 || kind > 1)
    return n.fail("attribute", "this quant_type, block_size, K or N", "FP4 (0) and NF4 (1)");
  bool perRow = K % block == 0;
  Value codes = codesOf(n, 1, 4, 1, N * K, /*upperFirst=*/true);
  Dims sizes = perRow ? Dims{N, K} : Dims{N * K};
  Ints blocks = perRow ? Ints{1, block} : Ints{block};
  if (!codes)
    return failure();
  codes = e.reshape(codes, sizes);
  Value scale =
      e.reshape(greatest, perRow ? Dims{N, K / block} : Dims{(N * K + block - 1) / block});
  Value table = e.floats(kind == 0 ? ArrayRef(kFp4) : ArrayRef(kNf4), {16}, e.b.getF32Type());
  if (!codes || !scale)
    return failure();
  Value b = DequantizeOp::create(e.b, e.loc, tensorType(elementTypeOf(a), sizes), codes, scale,
                                 /*zero=*/Value(), /*outer=*/Value(), table,
                                 e.b.getDenseI64ArrayAttr(blocks));
  if (!perRow)
    b = e.reshape(b, {N, K});
  return n.done(e.matmul(a, b, false, n.intAttr("transB", 1) != 0));
}

/// Rows of a table of codes, times their scales. Only what is picked is decoded, unless blocks lie along the
/// axis that is picked from.
LogicalResult gatherBlockQuantized(Node &n) {
  Emitter &e = n.e;
  Value data = n.in(0), indices = n.in(1), scales = n.in(2);
  if (!data || !indices || !scales || rankOf(scales) != rankOf(data))
    return n.invalid("shape", "data and scales differ in rank");
  int64_t rank = rankOf(data), block = n.intAttr("block_size", 128), bits = n.intAttr("bits", 4);
  std::optional<int64_t> from = n.axis(n.intAttr("gather_axis", 0), rank),
                         along = n.axis(n.intAttr("quantize_axis", 1), rank);
  if (!from || !along)
    return failure();
  Value zero = n.has(3) ? n.in(3) : Value();
  if (n.has(3) && !zero)
    return failure();
  bool bytes = elementTypeOf(data).isUnsignedInteger(8);
  if (bytes) {
    if (!isWidth(bits))
      return n.fail("attribute", "bits = " + llvm::Twine(bits), "2, 4 or 8");
    if (bits < 8) {
      // Packed along the last dimension.
      auto unpack = [&](unsigned operand, Value packed, const DimExpr &last) -> Value {
        Dims dims = dimsOf(packed);
        std::optional<int64_t> count = last.constant();
        std::optional<int64_t> rows = product(Dims(dims.begin(), dims.end() - 1)).constant();
        if (!count || !rows)
          return e.fail("a table of a symbolic size");
        dims.back() = last;
        Value codes = codesOf(n, operand, bits, *rows, *count);
        return codes ? e.reshape(codes, dims) : Value();
      };
      if (zero)
        zero = unpack(3, zero, dimOf(scales, rank - 1));
      data = unpack(0, data, dimOf(data, rank - 1) * DimExpr(8 / bits));
      if (!data || (n.has(3) && !zero))
        return failure();
    }
    if (!zero)
      zero = e.ints({int64_t(1) << (bits - 1)}, Ints(rank, 1), unsignedOf(e, 8));
  }
  if (block == 0) // of floats: a scale a row
    block = dimOf(data, *along).constant().value_or(0);
  if (block < 1)
    return n.fail("attribute", "this block_size", "a positive number");
  Type element = elementTypeOf(scales);
  auto take = [&](Value v) -> Value {
    // What is one for all rows stays so.
    if (!v || dimOf(v, *from) != dimOf(n.in(0), *from)) {
      if (!v)
        return {};
      Dims dims = dimsOf(v);
      dims.erase(dims.begin() + *from);
      dims.insert(dims.begin() + *from, size_t(rankOf(indices)), DimExpr(1));
      return e.reshape(v, dims);
    }
    return e.infer<GatherOp>(v, indices, uint64_t(*from));
  };
  Ints blocks(rank, 1);
  blocks[*along] = block;
  if (*from == *along) {
    Value all = e.dequantize(data, scales, zero, element, blocks);
    return n.done(e.infer<GatherOp>(all, indices, uint64_t(*from)));
  }
  Value rows = e.infer<GatherOp>(data, indices, uint64_t(*from));
  blocks.erase(blocks.begin() + *from);
  blocks.insert(blocks.begin() + *from, size_t(rankOf(indices)), 1);
  return n.done(e.dequantize(rows, take(scales), zero ? take(zero) : Value(), element, blocks));
}

} // namespace

void addWeights(Handlers &h) {
  h["com.microsoft.GatherBlockQuantized"] = gatherBlockQuantized;
  h["com.microsoft.MatMulBnb4"] = matmulBnb4;
  h["com.microsoft.MatMulNBits"] = matmulNBits;
}

} // namespace lathe::legal::microsoft
