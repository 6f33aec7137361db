//===- ExpandPages.cpp - pages of keys and values as gathers --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Until here attention over pages is an op of its own. Fusion sees scatters into the pool, which plan
// makes in place, and attention of one token a batch over the pages that its table names: the query
// heads that share a key head are the queries, and the token's position ends the keys.
//
//   %p = kv_append %pool, %slots, %k, %v      =>   %p = scatter_nd (scatter_nd %pool, %k), %v
//   %y = paged_attention %q, %p, %tables, ..       %pages = gather %tables, %requests
//                                                  %y = attention %q, gather %p, %pages lengths %positions + 1
//
// On a GPU, where each kernel is a launch, keys and values go into the pool together, and the number of the layer
// is read from memory beside the tables, so that all layers share their kernels:
//
//   %p = scatter_nd %pool, %slots .. + %layer, concat %k, %v         %layer = constant [2 * layer + 1, 2 * layer]
//
// Pools of codes (8 or 4 bits) have scales of their own pool: what is appended is quantized, and what is gathered is
// dequantized where attention reads it (lib/ir/AttentionOperands.cpp: codedRows).
//
//===----------------------------------------------------------------------===//
#include "../Common.h"

#include "lathe/ir/Paged.h"

#include "mlir/IR/PatternMatch.h"
#include "mlir/Transforms/WalkPatternRewriteDriver.h"

using namespace mlir;

namespace lathe {

#define GEN_PASS_DEF_EXPANDPAGESPASS
#include "lathe/passes/Passes.h.inc"

namespace {

/// Builds at one op, over the sizes of its pool.
struct PageBuilder {
  PageBuilder(PatternRewriter &b, Location loc, Value pool, bool cuda)
      : b(b), loc(loc), pool(pool), dims(dimsOf(pool)), cuda(cuda) {}

  Value integer(Value like, int64_t number) {
    auto element = cast<IntegerType>(elementTypeOf(like));
    return ConstantOp::create(b, loc,
                              DenseElementsAttr::get(tensorType(element, ArrayRef<int64_t>{}),
                                                     b.getIntegerAttr(element, number)));
  }
  Value plus(Value v, int64_t number) { return number ? AddOp::create(b, loc, v, integer(v, number)) : v; }
  Value times(Value v, int64_t number) { return MulOp::create(b, loc, v, integer(v, number)); }
  Value reshape(Value v, ArrayRef<DimExpr> to) {
    return ReshapeOp::create(b, loc, tensorType(elementTypeOf(v), to), v);
  }
  Value slice(Value v, int64_t axis, int64_t at) {
    std::vector<DimExpr> part = dimsOf(v);
    SmallVector<Attribute> starts(part.size(), DimAttr::get(b.getContext(), DimExpr(0)));
    starts[axis] = DimAttr::get(b.getContext(), DimExpr(at));
    part[axis] = 1;
    return SliceOp::create(b, loc, tensorType(elementTypeOf(v), part), v, b.getArrayAttr(starts),
                           SmallVector<int64_t>(part.size(), 1));
  }
  /// The numbers of a layer's parts among all layers', those of values first: from 0 on they would be counting, which
  /// kernels do by themselves (RestorePositions), and one number would be text of the kernel.
  Value partsOf(Value like, int64_t layer) {
    auto element = cast<IntegerType>(elementTypeOf(like));
    const Attribute numbers[] = {b.getIntegerAttr(element, 2 * layer + 1), b.getIntegerAttr(element, 2 * layer)};
    return ConstantOp::create(
        b, loc, DenseElementsAttr::get(cast<ShapedType>(tensorType(element, ArrayRef<int64_t>{2})), ArrayRef(numbers)));
  }
  /// `v` plus the number of a layer's part (0: keys).
  Value plusPart(Value v, int64_t layer, int64_t part) {
    return cuda ? Value(AddOp::create(b, loc, v, slice(partsOf(v, layer), 0, 1 - part))) : plus(v, 2 * layer + part);
  }
  Value number(Type element, double v) {
    return ConstantOp::create(b, loc,
                              DenseElementsAttr::get(cast<ShapedType>(tensorType(element, ArrayRef<int64_t>{})),
                                                     Attribute(b.getFloatAttr(element, v))));
  }
  /// The scale of each row of x along the last dimension, [.., 1].
  Value scalesOf(Value x, int64_t bits) {
    Type f32 = b.getF32Type();
    Value wide = CastOp::create(b, loc, withElementType(x.getType(), f32), x, true);
    Value most = ReduceOp::create(b, loc, AbsOp::create(b, loc, wide), ReduceKind::Max,
                                  ArrayRef<int64_t>{int64_t(dimsOf(x).size()) - 1}, /*keepdims=*/true);
    return DivOp::create(b, loc, most, number(f32, bits == 8 ? 127 : 7));
  }
  /// Codes of x in the elements of the pool.
  Value codesOf(Value x, Value scales, int64_t bits) {
    std::vector<DimExpr> of = dimsOf(x);
    // Rows of zeros: 0 by the least number instead of by 0.
    Value by = MaxOp::create(b, loc, scales, number(b.getF32Type(), 1.4e-45));
    Value codes = QuantizeOp::create(b, loc, tensorType(b.getIntegerType(8), of), x, by, Value(), true,
                                     ArrayRef<int64_t>{});
    if (bits == 8)
      return codes;
    Type byte = b.getIntegerType(8, /*isSigned=*/false);
    codes = CastOp::create(b, loc, tensorType(byte, of), plus(codes, 8), true);
    auto half = [&](int64_t which) { return part(codes, which, *of.back().constant() / 2); };
    return AddOp::create(b, loc, half(0), times(half(1), 16));
  }
  /// Rows of keys or values from codes and their scales.
  Value dequantized(Value codes, Value scales, Type element, int64_t bits) {
    Value zero;
    if (bits == 4) {
      Value low = AndOp::create(b, loc, codes, integer(codes, 15)), high = ShrOp::create(b, loc, codes, integer(codes, 4));
      codes = ConcatOp::create(b, loc, ValueRange{low, high}, int64_t(dimsOf(codes).size()) - 1);
      zero = integer(codes, 8);
    }
    std::vector<DimExpr> of = dimsOf(codes);
    return DequantizeOp::create(b, loc, tensorType(element, of), codes, scales, zero, /*outer=*/Value(),
                                /*codebook=*/Value(), ArrayRef<int64_t>{});
  }
  /// `count` elements of the last dimension, the part number `which` of them.
  Value part(Value v, int64_t which, int64_t count) {
    std::vector<DimExpr> to = dimsOf(v);
    SmallVector<Attribute> starts(to.size(), DimAttr::get(b.getContext(), DimExpr(0)));
    starts.back() = DimAttr::get(b.getContext(), DimExpr(which * count));
    to.back() = count;
    return SliceOp::create(b, loc, tensorType(elementTypeOf(v), to), v, b.getArrayAttr(starts),
                           SmallVector<int64_t>(to.size(), 1));
  }
  int64_t size(PoolDim dim) const { return *dims[dim].constant(); }
  /// The rows of the pool from one token's to the next one's in another page.
  int64_t rowsOfPage() const { return size(PoolLayers) * 2 * size(PoolTokens); }

  PatternRewriter &b;
  Location loc;
  Value pool;
  std::vector<DimExpr> dims;
  const bool cuda;
};

struct ExpandAppend : OpRewritePattern<KvAppendOp> {
  ExpandAppend(MLIRContext *context, bool cuda) : OpRewritePattern(context), cuda(cuda) {}
  LogicalResult matchAndRewrite(KvAppendOp op, PatternRewriter &rewriter) const override {
    PageBuilder p(rewriter, op.getLoc(), op.getPool(), cuda);
    // Rows of keys or values of a token: those of a layer's part lie page by page.
    const int64_t tokens = p.size(PoolTokens);
    DimExpr rows = p.dims[PoolPages] * DimExpr(p.rowsOfPage());
    Value pool = p.reshape(op.getPool(), {rows, p.dims[PoolHeads], p.dims[PoolDepth]});
    Value slots = op.getSlots(), page = DivOp::create(rewriter, p.loc, slots, p.integer(slots, tokens));
    Value first = AddOp::create(rewriter, p.loc, slots, p.times(page, p.rowsOfPage() - tokens));
    const Value added[] = {op.getK(), op.getV()};
    if (op.getScales()) {
      appendCodes(op, p, page, first, pool);
      return success();
    }
    if (cuda) {
      std::vector<DimExpr> rowsOf = dimsOf(op.getK());
      rowsOf.insert(rowsOf.begin() + 1, DimExpr(1));
      Value values = p.reshape(op.getV(), rowsOf), keys = p.reshape(op.getK(), rowsOf);
      Value both = ConcatOp::create(rewriter, p.loc, ValueRange{values, keys}, /*axis=*/1);
      Value parts = p.times(p.reshape(p.partsOf(slots, op.getLayer()), {DimExpr(1), DimExpr(2), DimExpr(1)}), tokens);
      Value at = AddOp::create(rewriter, p.loc, p.reshape(first, {dimOf(slots, 0), DimExpr(1), DimExpr(1)}), parts);
      pool = ScatterNdOp::create(rewriter, p.loc, pool, at, both, ReduceKindAttr());
      rewriter.replaceOp(op, p.reshape(pool, p.dims));
      return success();
    }
    for (auto [part, rowsOfTokens] : llvm::enumerate(added)) {
      Value at = p.reshape(p.plus(first, (int64_t(op.getLayer()) * 2 + part) * tokens),
                           {dimOf(slots, 0), DimExpr(1)});
      pool = ScatterNdOp::create(rewriter, p.loc, pool, at, rowsOfTokens, ReduceKindAttr());
    }
    rewriter.replaceOp(op, p.reshape(pool, p.dims));
    return success();
  }

private:
  /// Keys and values together as codes, values first (partsOf); each head of a token has its scale in a pool of
  /// [pages, layers, 2, heads, tokens].
  static void appendCodes(KvAppendOp op, PageBuilder &p, Value page, Value first, Value pool) {
    const int64_t tokens = p.size(PoolTokens), heads = p.size(PoolHeads), bits = codeBitsOf(op.getPool());
    std::vector<DimExpr> rows = dimsOf(op.getK());
    rows.insert(rows.begin() + 1, DimExpr(1));
    Value both = ConcatOp::create(p.b, p.loc, ValueRange{p.reshape(op.getV(), rows), p.reshape(op.getK(), rows)}, /*axis=*/1);
    Value scales = p.scalesOf(both, bits), codes = p.codesOf(both, scales, bits);
    DimExpr count = rows[0];
    auto perPart = [&](Value v) { return p.reshape(v, {count, DimExpr(1), DimExpr(1)}); };
    Value parts = p.reshape(p.partsOf(op.getSlots(), op.getLayer()), {DimExpr(1), DimExpr(2), DimExpr(1)});
    Value at = AddOp::create(p.b, p.loc, perPart(first), p.times(parts, tokens));
    pool = ScatterNdOp::create(p.b, p.loc, pool, at, codes, ReduceKindAttr());
    // The same for scales, number by number.
    const int64_t ofPart = heads * tokens, ofPage = p.size(PoolLayers) * 2 * ofPart;
    Value slots = op.getSlots();
    Value place = AddOp::create(p.b, p.loc, slots, p.times(page, ofPage - tokens));
    Value head = IotaOp::create(p.b, p.loc, tensorType(elementTypeOf(slots), {DimExpr(1), DimExpr(1), DimExpr(heads)}),
                                p.b.getI64IntegerAttr(2));
    Value to = AddOp::create(p.b, p.loc, AddOp::create(p.b, p.loc, perPart(place), p.times(parts, ofPart)), p.times(head, tokens));
    Value flat = p.reshape(op.getScales(), {p.dims[PoolPages] * DimExpr(ofPage)});
    flat = ScatterNdOp::create(p.b, p.loc, flat, p.reshape(to, {count, DimExpr(2), DimExpr(heads), DimExpr(1)}),
                               p.reshape(scales, {count, DimExpr(2), DimExpr(heads)}), ReduceKindAttr());
    p.b.replaceOp(op, ValueRange{p.reshape(pool, p.dims), p.reshape(flat, dimsOf(op.getScales()))});
  }

  const bool cuda;
};

struct ExpandAttention : OpRewritePattern<PagedAttentionOp> {
  ExpandAttention(MLIRContext *context, bool cuda) : OpRewritePattern(context), cuda(cuda) {}
  LogicalResult matchAndRewrite(PagedAttentionOp op, PatternRewriter &rewriter) const override {
    PageBuilder p(rewriter, op.getLoc(), op.getPool(), cuda);
    DimExpr tokens = dimOf(op.getQ(), 0), heads = p.dims[PoolHeads], depth = dimOf(op.getQ(), 2);
    DimExpr shared(*dimOf(op.getQ(), 1).constant() / p.size(PoolHeads)), pages = dimOf(op.getTables(), 1);
    // Pages of one layer and part, of all tokens.
    const int64_t parts = p.size(PoolLayers) * 2;
    Value pool = p.reshape(op.getPool(), {p.dims[PoolPages] * DimExpr(parts), p.dims[PoolTokens], heads, p.dims[PoolDepth]});
    Value scalePool = op.getScales();
    if (scalePool)
      scalePool = p.reshape(scalePool, {p.dims[PoolPages] * DimExpr(parts), heads, p.dims[PoolTokens]});
    Value table = GatherOp::create(rewriter, p.loc, op.getTables(), op.getRequests(), /*axis=*/0);
    Value first = p.times(table, parts);
    auto rows = [&](int64_t part) -> Value {
      DimExpr keys = pages * p.dims[PoolTokens];
      Value numbers = p.plusPart(first, op.getLayer(), part);
      Value found = GatherOp::create(rewriter, p.loc, pool, numbers, /*axis=*/0); // [T, M, P, G, D]
      found = TransposeOp::create(rewriter, p.loc, found, ArrayRef<int64_t>{0, 3, 1, 2, 4});
      found = p.reshape(found, {tokens, heads, keys, p.dims[PoolDepth]});
      if (!scalePool)
        return found;
      Value scales = GatherOp::create(rewriter, p.loc, scalePool, numbers, /*axis=*/0); // [T, M, G, P]
      scales = TransposeOp::create(rewriter, p.loc, scales, ArrayRef<int64_t>{0, 2, 1, 3});
      scales = p.reshape(scales, {tokens, heads, keys, DimExpr(1)});
      return p.dequantized(found, scales, elementTypeOf(op.getQ()), codeBitsOf(op.getPool()));
    };
    Value q = p.reshape(op.getQ(), {tokens, heads, shared, depth});
    Value keys = rows(0), values = rows(1), starts, mask;
    Value lengths = p.plus(op.getPositions(), 1);
    if (std::optional<uint64_t> window = op.getWindowLeft())
      starts = p.plus(op.getPositions(), -int64_t(*window)); // below 0: all from the first on
    if (std::optional<uint64_t> first = op.getFirstKeys()) {
      Value key = keyNumbers(p, op);
      Value recent = CompareOp::create(rewriter, p.loc, key, p.reshape(starts, {tokens, DimExpr(1), DimExpr(1), DimExpr(1)}), Predicate::Ge);
      mask = OrOp::create(rewriter, p.loc, recent, CompareOp::create(rewriter, p.loc, key, p.integer(key, int64_t(*first)), Predicate::Lt));
      starts = {};
    }
    Value sink = op.getSink();
    if (sink)
      sink = p.reshape(sink, {DimExpr(1), heads, shared, DimExpr(1)});
    Value bias;
    if (Value slopes = op.getSlopes()) {
      Value behind = SubOp::create(rewriter, p.loc, keyNumbers(p, op),
                                   p.reshape(op.getPositions(), {tokens, DimExpr(1), DimExpr(1), DimExpr(1)}));
      behind = CastOp::create(rewriter, p.loc, withElementType(behind.getType(), elementTypeOf(slopes)), behind, true);
      bias = MulOp::create(rewriter, p.loc, p.reshape(slopes, {DimExpr(1), heads, shared, DimExpr(1)}), behind);
    }
    auto attention = AttentionOp::create(
        rewriter, p.loc, q.getType(), /*lse=*/Type(), q, keys, values, bias, mask, starts,
        lengths, /*offset=*/Value(), /*query_documents=*/Value(), /*key_documents=*/Value(), sink,
        op.getScaleAttr(), op.getSoftcapAttr(), /*causal=*/UnitAttr(), /*window_left=*/IntegerAttr(),
        /*window_right=*/IntegerAttr(), /*zero_masked_rows=*/UnitAttr(), /*log_sum_exp=*/UnitAttr());
    rewriter.replaceOp(op, p.reshape(attention.getY(), dimsOf(op.getY())));
    return success();
  }

private:
  /// [1, 1, 1, keys of a row of the tables]
  static Value keyNumbers(PageBuilder &p, PagedAttentionOp op) {
    const DimExpr one(1), keys = dimOf(op.getTables(), 1) * p.dims[PoolTokens];
    return IotaOp::create(p.b, p.loc, tensorType(elementTypeOf(op.getPositions()), {one, one, one, keys}),
                          p.b.getI64IntegerAttr(3));
  }

  const bool cuda;
};

struct ExpandPagesPass : impl::ExpandPagesPassBase<ExpandPagesPass> {
  void runOnOperation() override {
    for (ModuleOp module : targetModules(getOperation())) {
      FailureOr<Target> target = targetOf(module);
      if (failed(target))
        return signalPassFailure();
      RewritePatternSet patterns(&getContext());
      patterns.add<ExpandAppend, ExpandAttention>(&getContext(), target->isCuda());
      FrozenRewritePatternSet frozen(std::move(patterns));
      walkAndApplyPatterns(module, frozen);
    }
  }
};

} // namespace

} // namespace lathe
