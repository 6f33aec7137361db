//===- QuantizedProducts.cpp - products of 8-bit codes --------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where tensor cores take 8 bits (sm_90a), or a CPU adds products of integers in pairs, codes that both
// operands of a product dequantize are multiplied as they are, and what is the same for a whole row or
// column goes behind the product:
//
//   %a = dequantize %qa scale(%sa) zero(%za)   %i = matmul %qa, %qb : i8 x i8 -> i32
//   %b = dequantize %qb scale(%sb)          => %c = sub %i, (mul %za, sums of %qb's columns)
//   %y = matmul %a, %b                         %y = mul (mul (cast %c), %sa), %sb
//
// Integers: the sum is exact in i32, and so is everything up to the scales; float products
// whose sums might not fit into i32 stay as they are. Floats of 8 bits: products are exact,
// their sums f32 as the kernel's configuration says. Both operands are laid out with contiguous k:
// weights when compiling, others by a transpose. A CPU multiplies integers by weights alone, which it
// packs.
//
//===----------------------------------------------------------------------===//
#include "../simplify/Patterns.h"
#include "../sparsify/ZeroBlocksAttr.h"
#include "QuantizedConvs.h"
#include "TransposeWeights.h"

#include "lathe/passes/EvaluateOp.h"
#include "lathe/passes/Rewrite.h"

#include "mlir/Transforms/RegionUtils.h"

#include <cmath>

using namespace mlir;

namespace lathe {

#define GEN_PASS_DEF_QUANTIZEDPRODUCTSPASS
#include "lathe/passes/Passes.h.inc"

namespace {

bool isInteger8(Type t) {
  auto integer = dyn_cast<IntegerType>(t);
  return integer && integer.getWidth() == 8;
}
bool isFloat8(Type t) { return isa<Float8E4M3FNType, Float8E5M2Type>(t); }
bool isCode8(Type t) { return isInteger8(t) || isFloat8(t); }

/// An operand taken apart: views of (data - zero) * scales.
struct Codes {
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

  std::optional<Codes> match(Value v) {
    Codes found;
    if (!peel(v, found))
      return std::nullopt;
    return found;
  }

private:
  /// A scale or zero point may stand here: beneath views only single numbers do.
  bool isParameter(Value p, const Codes &found) const {
    if (!found.views.empty())
      return numElements(p.getType()) == DimExpr(1);
    return isConstantAlong(p, rank, k);
  }

  /// Down to the codes, through views.
  bool peel(Value v, Codes &found) {
    while (!isCode8(elementTypeOf(v))) {
      Operation *op = v.getDefiningOp();
      if (!op)
        return false;
      if (isa<ReshapeOp, TransposeOp>(op)) {
        found.views.push_back(op);
      } else if (auto codes = dyn_cast<DequantizeOp>(op)) {
        return take(codes, found);
      } else {
        return false;
      }
      v = op->getOperand(0);
    }
    found.data = v;
    return true;
  }

  bool take(DequantizeOp op, Codes &found) {
    if (!isCode8(elementTypeOf(op.getData())) || !op.getBlock().empty() || op.getCodebook() ||
        dimsOf(op.getData()) != dimsOf(op.getY()))
      return false;
    for (Value p : {op.getScale(), op.getZero()})
      if (p && !isParameter(p, found))
        return false;
    found.data = op.getData();
    found.zero = op.getZero();
    for (Value p : {op.getOuter(), op.getScale()})
      if (p)
        found.scales.push_back(p);
    return !found.zero || zeroIsInteger(found);
  }

  /// The zero point as integers; floats of 8 bits have none but 0.
  bool zeroIsInteger(Codes &found) const {
    // One that each run finds (DynamicQuantizeLinear) is a byte that was widened.
    if (auto wide = found.zero.getDefiningOp<DequantizeOp>();
        wide && !wide.getScale() && !wide.getZero() && !wide.getOuter() && !wide.getCodebook() &&
        isInteger8(elementTypeOf(wide.getData())))
      found.zero = wide.getData();
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
    return zeros || (integers && isInteger8(elementTypeOf(found.data)));
  }

  int64_t rank, k;
};

/// Rewrites one product.
class ProductOfCodes {
public:
  ProductOfCodes(ModuleOp module, const Target &target) : transposed(module), target(target) {}

  /// Multiplies codes, or leaves the product as it is and says why.
  void rewrite(MatmulOp op);

private:
  Value sumsAlongK(OpBuilder &b, Location loc, Value rowsOfK, bool asRow);
  void rewrite(MatmulOp op, const Codes &a, const Codes &b);
  static void missed(Operation *op, const Twine &reason) {
    missedRemark(op->getLoc(), "QuantizedProduct")
        << ("8-bit operands are dequantized before the product: " + reason).str();
  }

  TransposeWeights transposed;
  const Target &target;
};

/// Sums over k of [.., rows, K]: [.., rows, 1], or [.., 1, rows].
Value ProductOfCodes::sumsAlongK(OpBuilder &b, Location loc, Value v, bool asRow) {
  std::vector<DimExpr> dims = dimsOf(v), out = dims;
  int64_t rank = dims.size();
  out[rank - 1] = 1;
  if (asRow)
    std::swap(out[rank - 1], out[rank - 2]);
  Type i32 = b.getI32Type(), element = elementTypeOf(v);
  if (std::optional<std::vector<std::byte>> bytes = transposed.bytesOf(v)) {
    int64_t depth = cast<TensorType>(v.getType()).getShape().back();
    std::vector<int32_t> sums(depth ? bytes->size() / depth : 0);
    for (size_t row = 0; row < sums.size(); ++row)
      for (int64_t k = 0; k < depth; ++k) {
        auto code = std::to_integer<uint8_t>((*bytes)[row * depth + k]);
        sums[row] += element.isUnsignedInteger() ? int32_t(code) : int32_t(int8_t(code));
      }
    return ConstantOp::create(
        b, loc, constantAttr(tensorType(i32, out), std::as_bytes(std::span(sums)), transposed.weights));
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

/// The largest product of two elements, their zero points taken away.
int64_t largestProduct(const Codes &a, const Codes &b) {
  auto largest = [](const Codes &c) {
    return elementTypeOf(c.data).isUnsignedInteger() || c.zero ? 255 : 128;
  };
  return int64_t(largest(a)) * largest(b);
}

void ProductOfCodes::rewrite(MatmulOp op) {
  int64_t ranks[2] = {int64_t(dimsOf(op.getA()).size()), int64_t(dimsOf(op.getB()).size())};
  std::optional<Codes> a =
      Matcher(ranks[0], ranks[0] - (op.getTransposeA() ? 2 : 1)).match(op.getA());
  std::optional<Codes> b =
      Matcher(ranks[1], ranks[1] - (op.getTransposeB() ? 1 : 2)).match(op.getB());
  if (a && b)
    return rewrite(op, *a, *b);
  if (b && !isa<FloatType>(elementTypeOf(op.getY())))
    missed(op, "the left operand is not 8 bits wide");
}

void ProductOfCodes::rewrite(MatmulOp op, const Codes &a, const Codes &b) {
  Type at = elementTypeOf(a.data), bt = elementTypeOf(b.data), result = elementTypeOf(op.getY());
  bool ints = isInteger8(at) && isInteger8(bt), real = isa<FloatType>(result);
  if (!ints && !(isFloat8(at) && isFloat8(bt)))
    return missed(op, "one operand holds integers, the other floats");
  if ((!real && !result.isInteger(32)) || result.isF64())
    return missed(op, "the result is neither i32 nor a float of at most 32 bits");
  std::vector<DimExpr> dims = dimsOf(op.getA());
  DimExpr depth = dims[dims.size() - (op.getTransposeA() ? 2 : 1)];
  std::optional<int64_t> k = depth.constant();
  if (target.isCuda() ? !depth.exactDiv(DimExpr(16)) || k == 0 : k == 0)
    return missed(op, "rows of " + depth.str() + " elements are not whole pieces of 16 bytes");
  if (!target.isCuda() && !(ints && transposed.bytesOf(b.data)))
    return missed(op, "the right operand is no weight of integers, which could be packed in pairs");
  if (ints && real && (!k || *k > INT32_MAX / largestProduct(a, b)))
    return missed(op, "sums over " + depth.str() + " elements might not fit into 32 bits");
  if (a.zero && b.zero && !k)
    return missed(op, "two zero points need a known depth");

  OpBuilder builder(op);
  Location loc = op.getLoc();
  auto lay = [&](const Codes &n, bool alongK) {
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
  auto product = MatmulOp::create(builder, loc, withElementType(op.getY().getType(), sumType), x, w, false, true);
  if (op->hasAttr(kTwoOfFourAttr)) // found in the codes
    product->setAttr(kTwoOfFourAttr, builder.getUnitAttr());
  Value y = product;

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
                                          std::as_bytes(std::span(&count, 1)), transposed.weights));
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
  passedRemark(loc, "QuantizedProduct") << "8-bit operands are multiplied as they are";
  op.getY().replaceAllUsesWith(y);
  op.erase();
}

struct QuantizedProductsPass : impl::QuantizedProductsPassBase<QuantizedProductsPass> {
  void runOnOperation() override {
    for (ModuleOp module : targetModules(getOperation())) {
      FailureOr<Target> target = targetOf(module);
      if (failed(target))
        return signalPassFailure();
      if (!target->hasWgmma() && !target->hasPairProducts())
        continue;
      SmallVector<MatmulOp> products;
      module.walk([&](MatmulOp op) { products.push_back(op); });
      ProductOfCodes codes(module, *target);
      for (MatmulOp op : products)
        codes.rewrite(op);
      rewriteQuantizedConvs(module, *target);
      IRRewriter rewriter(&getContext());
      (void)runRegionDCE(rewriter, module->getRegions());
    }
    // Known scales and sums of columns are now constants of constants; folding leaves one scale of a sum, which
    // takes in that of the codes behind it.
    if (failed(foldConstants()))
      return signalPassFailure();
    bool rescaled = false;
    for (ModuleOp module : targetModules(getOperation()))
      if (FailureOr<Target> target = targetOf(module); succeeded(target)) {
        foldRescales(module, /*windowsAlone=*/target->isCuda());
        rescaled = true;
      }
    if (rescaled && failed(foldConstants()))
      return signalPassFailure();
  }

private:
  LogicalResult foldConstants() {
    RewritePatternSet patterns(&getContext());
    populateConstantPatterns(patterns, /*keepCodes=*/true, /*keepFilters=*/false);
    return rewriteToTheEnd(getOperation(), FrozenRewritePatternSet(std::move(patterns)));
  }
};

} // namespace

} // namespace lathe
