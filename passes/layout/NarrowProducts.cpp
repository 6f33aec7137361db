//===- NarrowProducts.cpp - products of 8-bit operands --------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Models say quantized products in many ways: DequantizeLinear before MatMul or Gemm,
// MatMulInteger, QLinearMatMul, DynamicQuantizeLinear with a scale behind. After legalize
// all of them are a matmul whose operands are widened, moved by zero points and scaled.
// Where matrix units take 8 bits (sm_90a) the 8-bit data are multiplied, and what is the
// same for a whole row or column goes behind the product:
//
//   %a = mul (sub (cast %qa), %za), %sa        %i = matmul %qa, %qb : i8 x i8 -> i32
//   %b = mul (cast %qb), %sb              =>   %c = sub %i, (mul %za, sums of %qb's columns)
//   %y = matmul %a, %b                         %y = mul (mul (cast %c), %sa), %sb
//
// Integers: the sum is exact in i32, and so is everything up to the scales; float products
// whose sums might not fit into i32 stay as they are. Floats of 8 bits: products are exact,
// their sums f32 as the kernel's configuration says. Both operands are laid out with
// contiguous k, which the units need: weights when compiling, others by a transpose.
//
// Weights of 8 bits beside activations of 16 are dequantized in the registers of the product
// (lathe/ir/NarrowWeights.h). Here they, their scales and zero points only get contiguous k.
//
//===----------------------------------------------------------------------===//
#include "../Common.h"
#include "../simplify/Patterns.h"

#include "lathe/ir/NarrowWeights.h"
#include "lathe/ir/WeightStore.h"
#include "lathe/passes/EvaluateOp.h"
#include "lathe/passes/Rewrite.h"

#include "mlir/Transforms/RegionUtils.h"

#include <cmath>
#include <cstring>

using namespace mlir;

namespace lathe {
namespace {

bool isNarrowInt(Type t) {
  auto integer = dyn_cast<IntegerType>(t);
  return integer && integer.getWidth() == 8;
}
bool isNarrowFloat(Type t) { return isa<Float8E4M3FNType, Float8E5M2Type>(t); }
bool isNarrow(Type t) { return isNarrowInt(t) || isNarrowFloat(t); }

/// An operand taken apart: views of (data - zero) * scales.
struct Narrow {
  Value data;
  Value zero;                     ///< integers, or null
  SmallVector<Value> scales;      ///< floats, outermost first
  SmallVector<Operation *> views; ///< reshapes and transposes between, outermost first
};

/// Whether `p` is the same for all k of an operand of rank `rank`, whose dimension `k` that is.
bool isConstantAlong(Value p, int64_t rank, int64_t k) {
  std::vector<DimExpr> dims = dimsOf(p);
  int64_t at = k - (rank - int64_t(dims.size()));
  return int64_t(dims.size()) <= rank && (at < 0 || dims[at] == DimExpr(1));
}

class Matcher {
public:
  Matcher(int64_t rank, int64_t k) : rank(rank), k(k) {}

  std::optional<Narrow> match(Value v) {
    Narrow found;
    if (!peel(v, found, 0) || !found.data)
      return std::nullopt;
    return found;
  }

private:
  static constexpr int kMaxDepth = 12;

  /// A scale or zero point may stand here: beneath views only single numbers do.
  bool isParameter(Value p, Value beside, Value result, const Narrow &found) const {
    if (dimsOf(beside) != dimsOf(result))
      return false;
    if (!found.views.empty())
      return numElements(p.getType()) == DimExpr(1);
    return isConstantAlong(p, rank, k);
  }

  bool peel(Value v, Narrow &found, int depth) {
    Type element = elementTypeOf(v);
    if (isNarrow(element)) {
      found.data = v;
      return true;
    }
    Operation *op = v.getDefiningOp();
    if (!op || depth > kMaxDepth)
      return false;
    if (auto cast = dyn_cast<CastOp>(op)) {
      Type from = elementTypeOf(cast.getX());
      bool fits = isNarrow(from) || (isa<FloatType>(from) && isa<FloatType>(element) &&
                                     from.getIntOrFloatBitWidth() >= 16);
      return fits && peel(cast.getX(), found, depth + 1);
    }
    if (isa<ReshapeOp>(op) || isa<TransposeOp>(op)) {
      found.views.push_back(op);
      return peel(op->getOperand(0), found, depth + 1);
    }
    if (auto sub = dyn_cast<SubOp>(op)) {
      if (found.zero || !isParameter(sub.getB(), sub.getA(), v, found))
        return false;
      found.zero = sub.getB();
      return peel(sub.getA(), found, depth + 1) && zeroIsInteger(found);
    }
    if (auto mul = dyn_cast<MulOp>(op); mul && isa<FloatType>(element) && !found.zero)
      for (bool swap : {false, true}) {
        Value x = swap ? mul.getB() : mul.getA(), scale = swap ? mul.getA() : mul.getB();
        if (!isParameter(scale, x, v, found))
          continue;
        Narrow inner = found;
        inner.scales.push_back(scale);
        if (peel(x, inner, depth + 1)) {
          found = std::move(inner);
          return true;
        }
      }
    return false;
  }

  /// The zero point as integers; floats of 8 bits have none but 0.
  bool zeroIsInteger(Narrow &found) const {
    while (isa<FloatType>(elementTypeOf(found.zero)))
      if (auto cast = found.zero.getDefiningOp<CastOp>())
        found.zero = cast.getX();
      else
        break;
    bool zeros = false, integers = isa<IntegerType>(elementTypeOf(found.zero));
    if (auto constant = found.zero.getDefiningOp<ConstantOp>()) {
      auto host = hostTensorOf(constant.getValue(), constant.getType(), found.zero.getContext());
      if (!host.ok())
        return false;
      zeros = integers = true;
      for (int64_t i = 0, n = host->count(); i < n; ++i) {
        double v =
            isa<FloatType>(elementTypeOf(found.zero)) ? host->real(i) : double(host->integer(i));
        zeros &= v == 0;
        integers &= v == std::floor(v) && std::abs(v) <= 255;
      }
    }
    if (zeros)
      found.zero = {};
    return zeros || (integers && isNarrowInt(elementTypeOf(found.data)));
  }

  int64_t rank, k;
};

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

class Narrower {
public:
  Narrower(ModuleOp module)
      : weights(module.getContext()->getLoadedDialect<LatheDialect>()->weights()) {}

  void rewrite(MatmulOp op);
  /// f32 operands, of which the units read the upper 19 bits.
  void layOutForTf32(MatmulOp op);
  /// 8-bit weights that a product dequantizes as it reads them.
  void layOutNarrowWeights(MatmulOp op, const Target &target,
                           const std::map<std::string, DimRange> &symbols,
                           const std::map<std::string, int64_t> &optima);

private:
  struct Side {
    Narrow parts;
    Value data; ///< rows of m or n with contiguous k
    bool constant = false;
  };
  Value transposed(OpBuilder &b, Location loc, Value v);
  Value swapLastTwo(OpBuilder &b, Location loc, Value v);
  Value turnedWeights(OpBuilder &b, Value v);
  Value turnedParameter(OpBuilder &b, Value p, ArrayRef<DimExpr> dims);
  Value sumsAlongK(OpBuilder &b, Location loc, Value rowsOfK, bool asRow);
  std::optional<std::vector<std::byte>> bytesOf(Value v);
  static LogicalResult missed(Operation *op, const Twine &reason) {
    missedRemark(op->getLoc(), "NarrowProduct")
        << ("8-bit operands are widened before the product: " + reason).str();
    return failure();
  }
  LogicalResult tryRewrite(MatmulOp op, const Narrow &a, const Narrow &b);

  WeightStore &weights;
  DenseMap<Value, Value> laidOut; ///< weights that were transposed
};

std::optional<std::vector<std::byte>> Narrower::bytesOf(Value v) {
  auto constant = v.getDefiningOp<ConstantOp>();
  auto type = cast<TensorType>(v.getType());
  if (!constant || !type.hasStaticShape() || isNumber(constant))
    return std::nullopt;
  auto bytes = constantBytes(constant.getValue(), weights);
  if (!bytes.ok())
    return std::nullopt;
  return std::move(*bytes);
}

Value Narrower::swapLastTwo(OpBuilder &b, Location loc, Value v) {
  int64_t rank = dimsOf(v).size();
  SmallVector<int64_t> perm;
  for (int64_t d = 0; d < rank; ++d)
    perm.push_back(d);
  std::swap(perm[rank - 1], perm[rank - 2]);
  return TransposeOp::create(b, loc, v, perm);
}

/// A weight is transposed here and now, anything else when the model runs.
Value Narrower::transposed(OpBuilder &b, Location loc, Value v) {
  if (auto before = v.getDefiningOp<TransposeOp>()) { // there and back
    SmallVector<int64_t> perm(before.getPerm());
    std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
    if (llvm::is_sorted(perm))
      return before.getX();
  }
  Value &made = laidOut[v];
  if (made)
    return made;
  std::optional<std::vector<std::byte>> bytes = bytesOf(v);
  if (!bytes)
    return swapLastTwo(b, loc, v);
  auto type = cast<TensorType>(v.getType());
  ArrayRef<int64_t> shape = type.getShape();
  int64_t rank = shape.size(), rows = shape[rank - 2], columns = shape[rank - 1];
  int64_t width = type.getElementTypeBitWidth() / 8;
  std::vector<std::byte> out(bytes->size());
  for (int64_t at = 0; at < int64_t(out.size()); at += rows * columns * width)
    (width == 1   ? transposeMatrix<uint8_t>
     : width == 2 ? transposeMatrix<uint16_t>
                  : transposeMatrix<uint32_t>)(bytes->data() + at, out.data() + at, rows, columns);
  std::vector<DimExpr> dims = dimsOf(v);
  std::swap(dims[rank - 1], dims[rank - 2]);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointAfterValue(v);
  made = ConstantOp::create(b, v.getLoc(),
                            constantAttr(tensorType(type.getElementType(), dims), out, weights));
  return made;
}

/// Sums over k of [.., rows, K]: [.., rows, 1], or [.., 1, rows].
Value Narrower::sumsAlongK(OpBuilder &b, Location loc, Value v, bool asRow) {
  std::vector<DimExpr> dims = dimsOf(v), out = dims;
  int64_t rank = dims.size();
  out[rank - 1] = 1;
  if (asRow)
    std::swap(out[rank - 1], out[rank - 2]);
  Type i32 = b.getI32Type(), element = elementTypeOf(v);
  if (std::optional<std::vector<std::byte>> bytes = bytesOf(v)) {
    int64_t depth = cast<TensorType>(v.getType()).getShape().back();
    std::vector<int32_t> sums(depth ? bytes->size() / depth : 0);
    for (size_t row = 0; row < sums.size(); ++row)
      for (int64_t k = 0; k < depth; ++k) {
        auto code = std::to_integer<uint8_t>((*bytes)[row * depth + k]);
        sums[row] += element.isUnsignedInteger() ? int32_t(code) : int32_t(int8_t(code));
      }
    return ConstantOp::create(
        b, loc, constantAttr(tensorType(i32, out), std::as_bytes(std::span(sums)), weights));
  }
  Value wide = CastOp::create(b, loc, tensorType(i32, dims), v, true);
  Value sums = ReduceOp::create(b, loc, wide, ReduceKind::Sum, ArrayRef<int64_t>{rank - 1}, true);
  return asRow ? ReshapeOp::create(b, loc, tensorType(i32, out), sums) : sums;
}

/// A scale or zero point of an operand as one of the result. In the operand's frame k has
/// size 1, so that changing places with it is a view.
Value forResult(OpBuilder &b, Location loc, Value p, Type element, bool swap) {
  std::vector<DimExpr> dims = dimsOf(p);
  if (elementTypeOf(p) != element)
    p = CastOp::create(b, loc, tensorType(element, dims), p, true);
  if (!swap || product(dims) == DimExpr(1))
    return p;
  if (dims.size() == 1)
    dims.insert(dims.begin(), DimExpr(1));
  std::swap(dims[dims.size() - 1], dims[dims.size() - 2]);
  return ReshapeOp::create(b, loc, tensorType(element, dims), p);
}

/// The largest product of two elements.
int64_t largestProduct(Type a, Type b) {
  auto largest = [](Type t) { return t.isUnsignedInteger() ? 255 : 128; };
  return int64_t(largest(a)) * largest(b);
}

void Narrower::rewrite(MatmulOp op) {
  int64_t ranks[2] = {int64_t(dimsOf(op.getA()).size()), int64_t(dimsOf(op.getB()).size())};
  std::optional<Narrow> a =
      Matcher(ranks[0], ranks[0] - (op.getTransposeA() ? 2 : 1)).match(op.getA());
  std::optional<Narrow> b =
      Matcher(ranks[1], ranks[1] - (op.getTransposeB() ? 1 : 2)).match(op.getB());
  if (a && b)
    (void)tryRewrite(op, *a, *b);
  else if (b && !isa<FloatType>(elementTypeOf(op.getY())))
    (void)missed(op, "the left operand is not 8 bits wide");
}

LogicalResult Narrower::tryRewrite(MatmulOp op, const Narrow &a, const Narrow &b) {
  Type at = elementTypeOf(a.data), bt = elementTypeOf(b.data), result = elementTypeOf(op.getY());
  bool ints = isNarrowInt(at) && isNarrowInt(bt), real = isa<FloatType>(result);
  if (!ints && !(isNarrowFloat(at) && isNarrowFloat(bt)))
    return missed(op, "one operand holds integers, the other floats");
  if ((!real && !result.isInteger(32)) || result.isF64())
    return missed(op, "the result is neither i32 nor a float of at most 32 bits");
  std::vector<DimExpr> dims = dimsOf(op.getA());
  DimExpr depth = dims[dims.size() - (op.getTransposeA() ? 2 : 1)];
  std::optional<int64_t> k = depth.constant();
  if (!depth.exactDiv(DimExpr(16)) || k == 0)
    return missed(op, "rows of " + depth.str() + " elements are not whole pieces of 16 bytes");
  if (ints && real && (!k || *k > INT32_MAX / largestProduct(at, bt)))
    return missed(op, "sums over " + depth.str() + " elements might not fit into 32 bits");
  if (a.zero && b.zero && !k)
    return missed(op, "two zero points need a known depth");

  OpBuilder builder(op);
  Location loc = op.getLoc();
  auto lay = [&](const Narrow &n, bool alongK) {
    Value data = n.data;
    for (Operation *view : llvm::reverse(n.views)) {
      Type type = withElementType(view->getResult(0).getType(), elementTypeOf(n.data));
      if (auto transpose = dyn_cast<TransposeOp>(view))
        data = TransposeOp::create(builder, loc, data, transpose.getPerm());
      else
        data = ReshapeOp::create(builder, loc, type, data);
    }
    return alongK ? data : transposed(builder, loc, data);
  };
  Value x = lay(a, !op.getTransposeA()), w = lay(b, op.getTransposeB());
  Type sumType = ints ? Type(builder.getI32Type()) : Type(builder.getF32Type());
  Value y = MatmulOp::create(builder, loc, withElementType(op.getY().getType(), sumType), x, w,
                             false, true);

  // (x - zx)(w - zw) = x w - zx (sums of w - K zw) - zw (sums of x)
  Value zx = a.zero ? forResult(builder, loc, a.zero, sumType, op.getTransposeA()) : Value();
  Value zw = b.zero ? forResult(builder, loc, b.zero, sumType, op.getTransposeB()) : Value();
  if (zx) {
    Value columns = sumsAlongK(builder, loc, w, true);
    if (zw) {
      int32_t count = static_cast<int32_t>(*k);
      Value depthValue =
          ConstantOp::create(builder, loc,
                             constantAttr(tensorType(sumType, ArrayRef<int64_t>()),
                                          std::as_bytes(std::span(&count, 1)), weights));
      columns = SubOp::create(builder, loc, columns, MulOp::create(builder, loc, zw, depthValue));
    }
    y = SubOp::create(builder, loc, y, MulOp::create(builder, loc, columns, zx));
  }
  if (zw)
    y = SubOp::create(builder, loc, y,
                      MulOp::create(builder, loc, sumsAlongK(builder, loc, x, false), zw));

  if (real) {
    Type f32 = builder.getF32Type();
    if (ints)
      y = CastOp::create(builder, loc, withElementType(y.getType(), f32), y, true);
    SmallVector<Value> scales;
    for (Value s : a.scales)
      scales.push_back(forResult(builder, loc, s, f32, op.getTransposeA()));
    for (Value s : b.scales)
      scales.push_back(forResult(builder, loc, s, f32, op.getTransposeB()));
    // Scales that are known become one; others are multiplied one after another in registers.
    Value known;
    for (Value s : scales) {
      if (!s.getDefiningOp<ConstantOp>())
        y = MulOp::create(builder, loc, y, s);
      else
        known = known ? Value(MulOp::create(builder, loc, known, s)) : s;
    }
    if (known)
      y = MulOp::create(builder, loc, y, known);
    if (result != f32)
      y = CastOp::create(builder, loc, withElementType(y.getType(), result), y, true);
  }
  passedRemark(loc, "NarrowProduct") << "8-bit operands are multiplied as they are";
  op.getY().replaceAllUsesWith(y);
  op.erase();
  return success();
}

/// A scale or zero point of weights [K, N] for the same as [N, K]. Null where it is none of: one
/// number, one a row or column, one a block of k.
Value Narrower::turnedParameter(OpBuilder &b, Value p, ArrayRef<DimExpr> dims) {
  std::vector<DimExpr> of = dimsOf(p);
  Location loc = p.getLoc();
  Type element = elementTypeOf(p);
  if (product(of) == DimExpr(1))
    return ReshapeOp::create(b, loc, tensorType(element, ArrayRef<int64_t>()), p);
  std::vector<DimExpr> matrix = of;
  if (matrix.size() == 1)
    matrix.insert(matrix.begin(), DimExpr(1));
  if (matrix.size() != 2)
    return {};
  std::swap(matrix[0], matrix[1]);
  if (matrix[0] == DimExpr(1) || matrix[1] == DimExpr(1))
    return ReshapeOp::create(b, loc, tensorType(element, matrix), p);
  // slice (reshape (broadcast_to %blocks : [G, 1, N] -> [G, size, N]))
  Value v = p;
  if (auto slice = v.getDefiningOp<SliceOp>()) {
    for (Attribute start : slice.getStarts())
      if (cast<DimAttr>(start).expr() != DimExpr(0))
        return {};
    if (llvm::any_of(slice.getSteps(), [](int64_t step) { return step != 1; }))
      return {};
    v = slice.getX();
  }
  auto joined = v.getDefiningOp<ReshapeOp>();
  auto wide = joined ? joined.getX().getDefiningOp<BroadcastToOp>() : BroadcastToOp();
  if (!wide)
    return {};
  std::vector<DimExpr> blocks = dimsOf(wide.getY()), one = dimsOf(wide.getX());
  if (blocks.size() != 3 || one != std::vector<DimExpr>{blocks[0], 1, blocks[2]} ||
      blocks[2] != dims[1] ||
      dimsOf(joined.getY()) != std::vector<DimExpr>{blocks[0] * blocks[1], blocks[2]})
    return {};
  // Seen through what only widens or reshapes it, the constant is turned.
  Value base = wide.getX();
  while (Operation *op = base.getDefiningOp()) {
    if (!isa<CastOp, ReshapeOp>(op))
      break;
    base = op->getOperand(0);
  }
  std::optional<std::vector<std::byte>> bytes = bytesOf(base);
  if (!bytes || product(dimsOf(base)) != blocks[0] * blocks[2])
    return {};
  Type inner = elementTypeOf(base);
  Value turned = ConstantOp::create(
      b, loc,
      constantAttr(tensorType(inner, std::vector<DimExpr>{blocks[0], blocks[2]}), *bytes, weights));
  turned = transposed(b, loc, turned);
  if (inner != element)
    turned = CastOp::create(b, loc, tensorType(element, dimsOf(turned)), turned, true);
  auto to = [&](DimExpr x, DimExpr y, DimExpr z) {
    return tensorType(element, std::vector<DimExpr>{x, y, z});
  };
  Value split = ReshapeOp::create(b, loc, to(blocks[2], blocks[0], 1), turned);
  Value repeated = BroadcastToOp::create(b, loc, to(blocks[2], blocks[0], blocks[1]), split);
  DimExpr depth = blocks[0] * blocks[1];
  Value rows = ReshapeOp::create(b, loc,
                                 tensorType(element, std::vector<DimExpr>{blocks[2], depth}), repeated);
  if (depth == dims[0])
    return rows;
  Attribute none = DimAttr::get(b.getContext(), DimExpr(0));
  return SliceOp::create(b, loc, tensorType(element, std::vector<DimExpr>{blocks[2], dims[0]}), rows,
                         b.getArrayAttr({none, none}), b.getDenseI64ArrayAttr({1, 1}));
}

/// The chain of narrowWeights(v) over [N, K]; null where a parameter cannot be turned.
Value Narrower::turnedWeights(OpBuilder &b, Value v) {
  if (isNarrow(elementTypeOf(v)))
    return transposed(b, v.getLoc(), v);
  Operation *op = v.getDefiningOp();
  Value inner = narrowOperand(op), turned = turnedWeights(b, inner);
  if (!turned)
    return {};
  std::vector<DimExpr> dims = dimsOf(turned);
  if (auto cast = dyn_cast<CastOp>(op))
    return CastOp::create(b, op->getLoc(), tensorType(elementTypeOf(v), dims), turned,
                          cast.getSaturate());
  Value parameter = op->getOperand(op->getOperand(0) == inner ? 1 : 0);
  parameter = turnedParameter(b, parameter, dimsOf(v));
  if (!parameter)
    return {};
  if (isa<SubOp>(op))
    return SubOp::create(b, op->getLoc(), turned, parameter);
  return MulOp::create(b, op->getLoc(), turned, parameter);
}

void Narrower::layOutNarrowWeights(MatmulOp op, const Target &target,
                                   const std::map<std::string, DimRange> &symbols,
                                   const std::map<std::string, int64_t> &optima) {
  if (op.getTransposeB() || !takesNarrowWeights(op, target, symbols, optima, /*turned=*/true) ||
      !bytesOf(narrowWeights(op.getB())))
    return;
  OpBuilder builder(op);
  Value turned = turnedWeights(builder, op.getB());
  if (!turned) {
    (void)missed(op, "a scale or zero point is none of the whole, of a row, of a column or of a block");
    return;
  }
  op.getBMutable().assign(turned);
  op.setTransposeB(true);
}

void Narrower::layOutForTf32(MatmulOp op) {
  if (!elementTypeOf(op.getA()).isF32() || !elementTypeOf(op.getB()).isF32() || op.getTransposeB())
    return;
  if (!bytesOf(op.getB())) {
    missedRemark(op.getLoc(), "Tf32")
        << "computed in f32: the right operand is no weight and has contiguous n";
    return;
  }
  OpBuilder builder(op);
  Value w = transposed(builder, op.getLoc(), op.getB());
  op.getBMutable().assign(w);
  op.setTransposeB(true);
}

struct NarrowProductsPass : ModulePass<NarrowProductsPass> {
  static constexpr llvm::StringLiteral kName = "lathe-narrow-products";
  static constexpr llvm::StringLiteral kSummary =
      "Multiply 8-bit operands as they are where matrix units can";

  void runOnOperation() override {
    bool tf32 = llvm::is_contained(optionStrings(getOperation(), "allow"), "tf32");
    for (ModuleOp module : targetModules(getOperation())) {
      FailureOr<Target> target = targetOf(module);
      if (failed(target))
        return signalPassFailure();
      if (!target->isCuda() || target->smVersion != 90 || !target->archSpecific)
        continue;
      SmallVector<MatmulOp> products;
      module.walk([&](MatmulOp op) { products.push_back(op); });
      Narrower narrower(module);
      std::map<std::string, DimRange> symbols = symbolRanges(module);
      std::map<std::string, int64_t> optima = symbolOptima(module);
      for (MatmulOp op : products) {
        if (tf32)
          narrower.layOutForTf32(op);
        narrower.layOutNarrowWeights(op, *target, symbols, optima);
        narrower.rewrite(op);
      }
      IRRewriter rewriter(&getContext());
      (void)runRegionDCE(rewriter, module->getRegions());
    }
    // What was kept apart for this pass, and no product took, is folded like all else.
    RewritePatternSet patterns(&getContext());
    populateConstantPatterns(patterns, /*keepNarrow=*/false);
    if (failed(rewriteToTheEnd(getOperation(), FrozenRewritePatternSet(std::move(patterns)))))
      signalPassFailure();
  }
};

} // namespace

std::unique_ptr<Pass> createNarrowProductsPass() { return std::make_unique<NarrowProductsPass>(); }

} // namespace lathe
