//===- RecognizeDequantize.cpp - raise codes that were taken apart --------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Exporters write the dequantizing of an operand as casts, subtractions, products and look-ups in
// a table. Here, and nowhere behind, these spellings become lathe.dequantize. Scales are multiplied
// in f32 before they come to the codes.
//
//   %f = cast %q : i8 -> f32
//   %c = sub %f, %zero               =>   %w = dequantize %q scale(%scale) zero(%zero)
//   %w = mul %c, %scale
//
//   %i = cast %q : ui4 -> i64
//   %v = gather %table, %i           =>   %w = dequantize %q scale(%scale) codebook(%table)
//   %w = mul %v, %scale
//
//   %b = broadcast_to %scale : [G, 1, H] -> [G, 128, H]
//   %r = reshape %b : [G * 128, H]             =>   %w = dequantize %q scale(%scale) {block = [128, 128]}
//   %w = dequantize %q scale(%r) {block = [1, 128]}
//
// Only what reaches a product is raised. An operand whose codes stop short of it is named in
// a remark with the reason.
//
//===----------------------------------------------------------------------===//
#include "Patterns.h"

#include "lathe/ir/WeightStore.h"
#include "lathe/passes/EvaluateOp.h"
#include "lathe/passes/Rewrite.h"

#include "mlir/IR/PatternMatch.h"

using namespace mlir;

namespace lathe {

#define GEN_PASS_DEF_RECOGNIZEDEQUANTIZEPASS
#include "lathe/passes/Passes.h.inc"

namespace {

/// A rewrite that gives its reason where it declines.
struct Rule {
  /// Null with `why` set, or what takes the place of the op's result. Changes nothing but by
  /// creating ops through `b`; without one it only says whether it applies (and gives any value).
  Value (*apply)(Operation *op, OpBuilder *b, std::string &why);
};

bool isCode(Type t) {
  return t.isIntOrFloat() && t.getIntOrFloatBitWidth() <= 8 && !t.isInteger(1);
}

bool isOne(Value v) { return v && numElements(v.getType()) == DimExpr(1); }

/// Which dimensions of `from` take in the next one, of blocks, so that `to` is what is left; none where that is
/// not so, or parameters differ within the blocks.
std::optional<SmallVector<size_t>> mergedDims(ArrayRef<DimExpr> from, ArrayRef<DimExpr> to, ArrayRef<Value> parts) {
  auto isBlock = [&](size_t d) {
    return from[d].isConstant() && llvm::all_of(parts, [&](Value p) {
             std::vector<DimExpr> dims = p ? dimsOf(p) : std::vector<DimExpr>();
             return !p || isOne(p) || (dims.size() == from.size() && dims[d] == DimExpr(1));
           });
  };
  SmallVector<size_t> merged;
  size_t d = 0;
  for (const DimExpr &size : to) {
    if (d + 1 < from.size() && from[d] * from[d + 1] == size && isBlock(d + 1)) {
      merged.push_back(d);
      d += 2;
    } else if (d < from.size() && from[d] == size) {
      ++d;
    } else {
      return std::nullopt;
    }
  }
  if (d != from.size() || merged.empty())
    return std::nullopt;
  return merged;
}

/// A parameter as a dequantize takes it: with an element a block where it was repeated for each
/// element of the block.
struct Parameter {
  Value base;                 ///< before it was repeated
  std::vector<DimExpr> dims;  ///< of the parameter, aligned with the data
  SmallVector<int64_t> block; ///< of each dimension of the data; empty: not repeated
};

/// slice (reshape (broadcast_to %p : [.., G, 1, ..] -> [.., G, size, ..])) over data of `rank`, for one dimension or
/// several.
Parameter parameterOf(Value p, int64_t rank) {
  Parameter plain{p, dimsOf(p), {}};
  Value v = p;
  if (auto slice = v.getDefiningOp<SliceOp>()) {
    for (auto [start, step] : llvm::zip(slice.getStarts(), slice.getSteps()))
      if (cast<DimAttr>(start).expr() != DimExpr(0) || step != 1)
        return plain;
    v = slice.getX();
  }
  auto joined = v.getDefiningOp<ReshapeOp>();
  Value before = joined ? joined.getX() : Value();
  while (auto reshape = before ? before.getDefiningOp<ReshapeOp>() : ReshapeOp())
    before = reshape.getX();
  auto wide = before ? before.getDefiningOp<BroadcastToOp>() : BroadcastToOp();
  if (!wide || int64_t(plain.dims.size()) != rank)
    return plain;
  std::vector<DimExpr> one = dimsOf(wide.getX()), wideDims = dimsOf(wide.getY());
  std::optional<SmallVector<size_t>> merged = mergedDims(wideDims, dimsOf(joined.getY()), wide.getX());
  if (!merged || one.size() != wideDims.size())
    return plain;
  SmallVector<int64_t> block(rank, 1);
  for (auto [i, d] : llvm::enumerate(*merged)) {
    block[d - i] = *wideDims[d + 1].constant();
    if (block[d - i] < 2)
      return plain;
  }
  for (size_t d : llvm::reverse(*merged)) {
    one.erase(one.begin() + d + 1);
    wideDims.erase(wideDims.begin() + d + 1);
  }
  return one == wideDims ? Parameter{wide.getX(), one, block} : plain;
}

Value materialized(OpBuilder &b, const Parameter &p) {
  if (dimsOf(p.base) == p.dims)
    return p.base;
  return ReshapeOp::create(b, p.base.getLoc(), tensorType(elementTypeOf(p.base), p.dims), p.base);
}

/// Whether a parameter has an element a block, or one along a dimension.
bool fits(ArrayRef<DimExpr> parameter, ArrayRef<DimExpr> data, ArrayRef<int64_t> block) {
  if (parameter.size() > data.size())
    return false;
  size_t skip = data.size() - parameter.size();
  for (auto [d, size] : llvm::enumerate(parameter))
    if (size != DimExpr(1) &&
        size != DimExpr::ceilDiv(data[skip + d], DimExpr(block.empty() ? 1 : block[skip + d])))
      return false;
  return true;
}

/// The blocks of a dequantize that gets one more parameter; none where the two do not agree.
std::optional<SmallVector<int64_t>> commonBlock(DequantizeOp op, const Parameter &p) {
  std::vector<DimExpr> dims = dimsOf(op.getData());
  SmallVector<int64_t> block(op.getBlock());
  if (!p.block.empty() && !block.empty() && ArrayRef<int64_t>(p.block) != ArrayRef<int64_t>(block))
    return std::nullopt;
  if (block.empty())
    block = p.block;
  for (Value other : {op.getScale(), op.getZero()})
    if (other && !fits(dimsOf(other), dims, block))
      return std::nullopt;
  return fits(p.dims, dims, block) ? std::make_optional(block) : std::nullopt;
}

/// Fewer elements than the codes: what an activation is multiplied with is no scale.
bool isParameter(const Parameter &p, Value codes) {
  return !p.block.empty() || numElements(p.base.getType()) != numElements(codes.getType());
}

DequantizeOp codesOf(Value v) {
  auto op = v.getDefiningOp<DequantizeOp>();
  return op && dimsOf(op.getData()) == dimsOf(v) ? op : DequantizeOp();
}

std::optional<int64_t> numberIn(Value v) {
  auto constant = v.getDefiningOp<ConstantOp>();
  std::optional<double> number = constant && isNumber(constant) ? numberOf(v) : std::nullopt;
  return number ? std::optional<int64_t>(int64_t(*number)) : std::nullopt;
}

/// Whether integers of a dequantize are codes less their zero point, without wrapping.
bool isExact(DequantizeOp codes) {
  Value zero = codes.getZero();
  if (!zero)
    return true;
  constexpr int64_t kFar = 64;
  if (std::optional<int64_t> number = numberIn(zero); number && std::abs(*number) <= kFar)
    return elementTypeOf(codes.getData()).getIntOrFloatBitWidth() < 8 ||
           elementTypeOf(codes.getY()).getIntOrFloatBitWidth() > 8;
  if (auto cast = zero.getDefiningOp<CastOp>())
    zero = cast.getX();
  return elementTypeOf(zero).getIntOrFloatBitWidth() <= 8 &&
         elementTypeOf(codes.getY()).getIntOrFloatBitWidth() > 8;
}

Value raiseCast(Operation *op, OpBuilder *b, std::string &why) {
  auto cast = dyn_cast<CastOp>(op);
  if (!cast)
    return {};
  Type to = elementTypeOf(cast.getY());
  if (auto codes = codesOf(cast.getX())) {
    // One rounding at the end is the same as one behind f32.
    Type from = elementTypeOf(codes.getY());
    bool integer = isa<IntegerType>(from) && isa<FloatType>(to);
    if (integer ? !isExact(codes) : !(from.isF32() && (to.isF16() || to.isBF16()))) {
      why = integer ? "codes less their zero point may wrap" : "a conversion rounds the numbers between";
      return {};
    }
    return b ? DequantizeOp::create(*b, op->getLoc(), cast.getY().getType(), codes.getData(),
                                    codes.getScale(), codes.getZero(), codes.getOuter(),
                                    codes.getCodebook(), codes.getBlock())
                   .getY()
             : cast.getY();
  }
  unsigned bits = elementTypeOf(cast.getX()).getIntOrFloatBitWidth();
  bool wide = to.isIntOrFloat() && to.getIntOrFloatBitWidth() >= (bits < 8 ? 8 : 16) &&
              !to.isUnsignedInteger();
  if (!isCode(elementTypeOf(cast.getX())) || !wide || !reachesProduct(cast.getY()))
    return {};
  return b ? DequantizeOp::create(*b, op->getLoc(), cast.getY().getType(), cast.getX(), Value(),
                                  Value(), Value(), Value(), ArrayRef<int64_t>())
                 .getY()
           : cast.getY();
}

Value raiseSub(Operation *op, OpBuilder *b, std::string &why) {
  auto sub = dyn_cast<SubOp>(op);
  DequantizeOp codes = sub ? codesOf(sub.getA()) : DequantizeOp();
  if (!codes || dimsOf(sub.getY()) != dimsOf(codes.getY()))
    return {};
  Parameter p = parameterOf(sub.getB(), dimsOf(codes.getY()).size());
  // A zero point of integers is the same as a float, and products of codes ask for integers. Its cast
  // may have been raised already.
  auto zeros = codesOf(p.base);
  if (auto cast = p.base.getDefiningOp<CastOp>(); cast && isCode(elementTypeOf(cast.getX())))
    p.base = cast.getX();
  else if (zeros && !zeros.getScale() && !zeros.getZero() && !zeros.getCodebook())
    p.base = zeros.getData();
  std::optional<SmallVector<int64_t>> block = commonBlock(codes, p);
  if (codes.getScale() || codes.getZero() || codes.getCodebook())
    why = "something is subtracted behind a scale or zero point";
  else if (!isParameter(p, codes.getY()))
    why = "what is subtracted differs from element to element";
  else if (!block)
    why = "zero points and scales have other blocks";
  if (!why.empty())
    return {};
  return b ? DequantizeOp::create(*b, op->getLoc(), sub.getY().getType(), codes.getData(), Value(),
                                  materialized(*b, p), Value(), Value(), *block)
                 .getY()
           : sub.getY();
}

Value raiseMul(Operation *op, OpBuilder *b, std::string &why) {
  auto mul = dyn_cast<MulOp>(op);
  if (!mul || !isa<FloatType>(elementTypeOf(mul.getY())))
    return {};
  bool second = !codesOf(mul.getA());
  DequantizeOp codes = codesOf(second ? mul.getB() : mul.getA());
  if (!codes || dimsOf(mul.getY()) != dimsOf(codes.getY()))
    return {};
  Parameter p = parameterOf(second ? mul.getA() : mul.getB(), dimsOf(codes.getY()).size());
  std::optional<SmallVector<int64_t>> block = commonBlock(codes, p);
  Value scale = codes.getScale();
  bool outer = scale && !codes.getOuter() && (isOne(p.base) || isOne(scale));
  if (scale && !outer)
    why = "two scales differ from element to element";
  else if (!isParameter(p, codes.getY()))
    why = "a factor differs from element to element";
  else if (!block)
    why = "zero points and scales have other blocks";
  if (!why.empty())
    return {};
  if (!b)
    return mul.getY();
  Value by = materialized(*b, p);
  if (scale && isOne(p.base))
    std::swap(scale, by); // `by` varies
  return DequantizeOp::create(*b, op->getLoc(), mul.getY().getType(), codes.getData(), by,
                              codes.getZero(), scale, codes.getCodebook(), *block);
}

/// Groups that stand in a dimension of their own, [.., G, size, ..] with parameters [.., G, 1, ..].
Value raiseReshape(Operation *op, OpBuilder *b, std::string &why) {
  auto reshape = dyn_cast<ReshapeOp>(op);
  DequantizeOp codes = reshape ? codesOf(reshape.getX()) : DequantizeOp();
  if (!codes || !reachesProduct(reshape.getY()))
    return {};
  std::vector<DimExpr> from = dimsOf(codes.getY()), to = dimsOf(reshape.getY());
  SmallVector<Value> parts{codes.getScale(), codes.getZero()};
  bool single = llvm::all_of(parts, [](Value p) { return !p || isOne(p); });
  std::optional<SmallVector<size_t>> at; // the dimensions that take the next one in
  if (!single)
    at = mergedDims(from, to, parts);
  if (!single && (!at || !codes.getBlock().empty())) {
    why = "a reshape takes the blocks of a scale or zero point apart";
    return {};
  }
  if (!b)
    return reshape.getY();
  auto resized = [&](Value v, const std::vector<DimExpr> &dims) -> Value {
    return ReshapeOp::create(*b, op->getLoc(), tensorType(elementTypeOf(v), dims), v);
  };
  SmallVector<int64_t> block;
  if (!single) {
    block.assign(to.size(), 1);
    for (auto [i, d] : llvm::enumerate(*at))
      block[d - i] = *from[d + 1].constant();
  }
  for (Value &p : parts) {
    if (!p)
      continue;
    std::vector<DimExpr> dims = dimsOf(p);
    if (isOne(p))
      dims.clear();
    else
      for (size_t d : llvm::reverse(*at))
        dims.erase(dims.begin() + d + 1);
    p = resized(p, dims);
  }
  return DequantizeOp::create(*b, op->getLoc(), reshape.getY().getType(),
                              resized(codes.getData(), to), parts[0], parts[1], codes.getOuter(),
                              codes.getCodebook(), block);
}

/// Codes that are transposed before the rest of their spelling, as weights [n, k] are that a scale
/// follows: the codes themselves are transposed, and their parameters with them.
Value raiseTranspose(Operation *op, OpBuilder *b, std::string &why) {
  auto transpose = dyn_cast<TransposeOp>(op);
  DequantizeOp codes = transpose ? codesOf(transpose.getX()) : DequantizeOp();
  auto goesOn = [](Operation *user) { return isa<CastOp, SubOp, MulOp, ReshapeOp>(user); };
  if (!codes || !reachesProduct(transpose.getY()) || !llvm::all_of(op->getUsers(), goesOn))
    return {};
  ArrayRef<int64_t> perm = transpose.getPerm();
  auto varies = [&](Value p) { return p && !isOne(p); };
  auto whole = [&](Value p) { return !varies(p) || dimsOf(p).size() == perm.size(); };
  if (!whole(codes.getScale()) || !whole(codes.getZero())) {
    why = "a transpose takes the dimension of a scale or zero point from the end";
    return {};
  }
  if (!b)
    return transpose.getY();
  auto transposed = [&](Value v) -> Value { return TransposeOp::create(*b, op->getLoc(), v, perm); };
  auto parameter = [&](Value p) { return varies(p) ? transposed(p) : p; };
  SmallVector<int64_t> block;
  if (!codes.getBlock().empty())
    for (int64_t d : perm)
      block.push_back(codes.getBlock()[d]);
  return DequantizeOp::create(*b, op->getLoc(), transpose.getY().getType(), transposed(codes.getData()),
                              parameter(codes.getScale()), parameter(codes.getZero()), codes.getOuter(),
                              codes.getCodebook(), block);
}

/// Integers that are codes less their zero point, scaled behind.
Value raiseCodes(Operation *op, OpBuilder *b, std::string &why) {
  auto outer = dyn_cast<DequantizeOp>(op);
  DequantizeOp codes = outer ? codesOf(outer.getData()) : DequantizeOp();
  if (!codes || outer.getZero() || outer.getCodebook() || codes.getScale() || codes.getCodebook())
    return {};
  Parameter zero = codes.getZero() ? Parameter{codes.getZero(), dimsOf(codes.getZero()),
                                               SmallVector<int64_t>(codes.getBlock())}
                                   : Parameter{};
  std::optional<SmallVector<int64_t>> block =
      codes.getZero() ? commonBlock(outer, zero) : SmallVector<int64_t>(outer.getBlock());
  if (!isExact(codes))
    why = "codes less their zero point may wrap";
  else if (!block)
    why = "zero points and scales have other blocks";
  if (!why.empty())
    return {};
  return b ? DequantizeOp::create(*b, op->getLoc(), outer.getY().getType(), codes.getData(),
                                  outer.getScale(), codes.getZero(), outer.getOuter(), Value(), *block)
                 .getY()
           : outer.getY();
}

/// Bytes that hold numbers below 16 as a constant of ui4; null where some are larger.
Value asNibbles(OpBuilder *b, Value codes) {
  auto constant = codes.getDefiningOp<ConstantOp>();
  auto type = dyn_cast<IntegerType>(elementTypeOf(codes));
  if (!constant || !type || type.getWidth() != 8)
    return {};
  auto &weights = codes.getContext()->getLoadedDialect<LatheDialect>()->weights();
  auto bytes = constantBytes(constant.getValue(), weights);
  if (!bytes.ok() || llvm::any_of(*bytes, [](std::byte code) { return code > std::byte(15); }))
    return {};
  if (!b)
    return codes;
  std::vector<std::byte> nibbles((bytes->size() + 1) / 2);
  for (auto [i, code] : llvm::enumerate(*bytes))
    nibbles[i / 2] |= i % 2 ? code << 4 : code;
  Type ui4 = IntegerType::get(codes.getContext(), 4, IntegerType::Unsigned);
  return ConstantOp::create(*b, constant.getLoc(),
                            constantAttr(tensorType(ui4, dimsOf(codes)), nibbles, weights));
}

/// Codes that choose numbers from a table. Codes below 0 count from the table's end, and a codebook
/// has the same numbers in these places.
Value raiseGather(Operation *op, OpBuilder *b, std::string &why) {
  auto gather = dyn_cast<GatherOp>(op);
  DequantizeOp codes = gather ? codesOf(gather.getIndices()) : DequantizeOp();
  if (!codes || !isTable(gather))
    return {};
  std::optional<int64_t> size = dimsOf(gather.getX())[0].constant();
  unsigned bits = elementTypeOf(codes.getData()).getIntOrFloatBitWidth();
  Value data = codes.getData();
  if (size == 16 && bits == 8)
    if (Value nibbles = asNibbles(b, data))
      data = nibbles, bits = 4;
  if (codes.getScale() || codes.getZero() || codes.getCodebook())
    why = "a table is read at places that are more than codes";
  else if (!isa<IntegerType>(elementTypeOf(data)) || !isa<FloatType>(elementTypeOf(gather.getY())))
    why = "a table that is not of floats, or is not read at integers";
  else if (size != int64_t(1) << bits)
    why = "a table does not have a number for each code";
  if (!why.empty())
    return {};
  return b ? DequantizeOp::create(*b, op->getLoc(), gather.getY().getType(), data, Value(), Value(),
                                  Value(), gather.getX(), ArrayRef<int64_t>())
                 .getY()
           : gather.getY();
}

/// A constant that has the same for each `run` neighbours along a dimension, without the repetitions; null where
/// it is not so.
Value withoutRuns(OpBuilder *b, Value v, size_t dim, int64_t run) {
  auto constant = v.getDefiningOp<ConstantOp>();
  auto type = cast<TensorType>(v.getType());
  if (!constant || !type.hasStaticShape() || type.getDimSize(dim) < 2 || type.getElementTypeBitWidth() < 8)
    return {};
  auto &weights = v.getContext()->getLoadedDialect<LatheDialect>()->weights();
  auto bytes = constantBytes(constant.getValue(), weights);
  if (!bytes.ok())
    return {};
  int64_t inner = type.getElementTypeBitWidth() / 8, outer = 1, size = type.getDimSize(dim);
  for (int64_t d = 0; d < type.getRank(); ++d)
    (d < int64_t(dim) ? outer : inner) *= d == int64_t(dim) ? 1 : type.getDimSize(d);
  if (int64_t(bytes->size()) != outer * size * inner)
    return {}; // one number for all, which has no runs
  std::vector<std::byte> firsts;
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < size; ++i) {
      auto of = [&](int64_t place) { return std::span<const std::byte>(*bytes).subspan((o * size + place) * inner, inner); };
      if (i % run == 0)
        firsts.insert(firsts.end(), of(i).begin(), of(i).end());
      else if (!std::ranges::equal(of(i), of(i - i % run)))
        return {};
    }
  if (!b)
    return v;
  std::vector<DimExpr> dims = dimsOf(v);
  dims[dim] = DimExpr((size + run - 1) / run);
  return ConstantOp::create(*b, constant.getLoc(), constantAttr(tensorType(elementTypeOf(v), dims), firsts, weights));
}

/// Scales that were repeated for each element along a dimension, or are constants with such repetitions: blocks of
/// two dimensions, which DequantizeLinear has no way to say.
Value raiseRepeats(Operation *op, OpBuilder *b, std::string &) {
  constexpr int64_t kRun = 128; // of fp8 with blocks of 128 x 128
  auto codes = dyn_cast<DequantizeOp>(op);
  if (!codes || !codes.getScale() || codes.getZero() || !isCode(elementTypeOf(codes.getData())) ||
      dimsOf(codes.getData()) != dimsOf(codes.getY()) || !reachesProduct(codes.getY()))
    return {};
  const size_t rank = dimsOf(codes.getY()).size();
  SmallVector<int64_t> block(codes.getBlock());
  if (block.empty())
    block.assign(rank, 1);
  Parameter p = parameterOf(codes.getScale(), rank);
  Value scale;
  if (!p.block.empty()) {
    for (size_t d = 0; d < rank; ++d)
      block[d] *= p.block[d];
    if (!fits(p.dims, dimsOf(codes.getData()), block))
      return {};
    scale = b ? materialized(*b, p) : p.base;
  } else if (isa<Float8E4M3FNType, Float8E5M2Type>(elementTypeOf(codes.getData())) && dimsOf(codes.getScale()).size() == rank) {
    for (size_t d = 0; d < rank && !scale; ++d)
      if (block[d] == 1 && (scale = withoutRuns(b, codes.getScale(), d, kRun)))
        block[d] = kRun;
  }
  if (!scale)
    return {};
  return b ? DequantizeOp::create(*b, op->getLoc(), codes.getY().getType(), codes.getData(), scale, Value(), codes.getOuter(),
                                  codes.getCodebook(), block)
                 .getY()
           : codes.getY();
}

constexpr Rule kRules[] = {{raiseCast},      {raiseSub},   {raiseMul},    {raiseReshape},
                           {raiseTranspose}, {raiseCodes}, {raiseGather}, {raiseRepeats}};

struct Raise : RewritePattern {
  Raise(MLIRContext *context) : RewritePattern(MatchAnyOpTypeTag(), 1, context) {}
  LogicalResult matchAndRewrite(Operation *op, PatternRewriter &rewriter) const override {
    std::string why = "is no part of a spelled dequantize";
    for (const Rule &rule : kRules) {
      std::string reason;
      if (Value raised = rule.apply(op, &rewriter, reason)) {
        rewriter.replaceOp(op, raised);
        return success();
      }
      if (!reason.empty())
        why = reason;
    }
    return rewriter.notifyMatchFailure(op, why);
  }
};

/// cast(cast(ui4)) through a wider integer is one cast.
struct CastOfCodes : OpRewritePattern<CastOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(CastOp op, PatternRewriter &rewriter) const override {
    auto inner = op.getX().getDefiningOp<CastOp>();
    auto code = inner ? dyn_cast<IntegerType>(elementTypeOf(inner.getX())) : IntegerType();
    auto between = inner ? dyn_cast<IntegerType>(elementTypeOf(inner.getY())) : IntegerType();
    Type to = elementTypeOf(op.getY());
    if (!code || !between || code.getWidth() != 4 || between.getWidth() < 8 ||
        !(code.isUnsigned() || !between.isUnsigned()) || to.getIntOrFloatBitWidth() < 8)
      return rewriter.notifyMatchFailure(op, "no codes of 4 bits through a wider integer");
    rewriter.replaceOpWithNewOp<CastOp>(op, op.getY().getType(), inner.getX(), true);
    return success();
  }
};

//===----------------------------------------------------------------------===//
// Declines
//===----------------------------------------------------------------------===//

/// Whether the value is made of constant codes alone, by spellings of a dequantize.
bool isOfCodes(Value v, int depth = 0) {
  constexpr int kMaxDepth = 6;
  Operation *op = v.getDefiningOp();
  if (!op || depth == kMaxDepth)
    return false;
  if (isa<CastOp, DequantizeOp>(op) && isCode(elementTypeOf(op->getOperand(0))) &&
      op->getOperand(0).getDefiningOp<ConstantOp>())
    return numElements(op->getOperand(0).getType()) == numElements(v.getType());
  return isa<CastOp, SubOp, MulOp, ReshapeOp, TransposeOp, DequantizeOp>(op) &&
         llvm::any_of(op->getOperands(), [&](Value x) { return isOfCodes(x, depth + 1); });
}

/// Says why codes above an operand of a product are not its own, where there are some.
void explain(MatmulOp product, Value operand) {
  std::string why;
  Operation *at = nullptr;
  constexpr int kMaxSteps = 16;
  Value v = operand;
  for (int step = 0; step < kMaxSteps; ++step) {
    Operation *op = v.getDefiningOp();
    if (!op || (isa<DequantizeOp>(op) && !codesOf(op->getOperand(0))))
      break;
    if (!isa<CastOp, SubOp, MulOp, ReshapeOp, TransposeOp, GatherOp, DequantizeOp>(op)) {
      if (llvm::any_of(op->getOperands(), [](Value x) { return isOfCodes(x); }))
        missedRemark(op->getLoc(), "Dequantize")
            << ("codes are not raised up to the product: " + op->getName().getStringRef() + " stands between").str();
      return;
    }
    if (isa<TransposeOp>(op))
      why = "a transpose stands between", at = op;
    for (const Rule &rule : kRules) {
      std::string reason;
      (void)rule.apply(op, nullptr, reason);
      if (!reason.empty())
        why = reason, at = op;
    }
    auto above = [](Value x) {
      Operation *producer = x.getDefiningOp();
      return producer &&
             isa<DequantizeOp, CastOp, SubOp, MulOp, ReshapeOp, TransposeOp, GatherOp>(producer);
    };
    bool second = isa<GatherOp>(op) || (op->getNumOperands() == 2 && !above(op->getOperand(0)));
    v = op->getOperand(second ? 1 : 0);
  }
  if (at && v.getDefiningOp<DequantizeOp>())
    missedRemark(at->getLoc(), "Dequantize")
        << ("codes are not raised up to the product: " + why);
}

struct RecognizeDequantizePass : impl::RecognizeDequantizePassBase<RecognizeDequantizePass> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<Raise, CastOfCodes>(&getContext());
    if (failed(rewriteToTheEnd(getOperation(), FrozenRewritePatternSet(std::move(patterns)))))
      return signalPassFailure();
    getOperation().walk([&](MatmulOp product) {
      explain(product, product.getA());
      explain(product, product.getB());
    });
  }
};

} // namespace

} // namespace lathe
