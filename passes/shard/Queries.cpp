//===- Queries.cpp - attention whose queries ranks share ------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each rank has all keys and a part of the queries. Where a query sees the keys up to its own place, the last ranks
// would have most to do: so a rank has a part of the first half of the queries and the mirrored one of the second half.
// Each is an attention of its own, which begins at a place that is data: the program is the same for all ranks.
//
//   %y = attention %q, %k, %v {causal}  =>  %a = attention %q[first half], %k, %v offset %begin0 {causal}
//                                           %b = attention %q[second half], %k, %v offset %begin1 {causal}
//                                           %y = concat %a, %b
//
// With 2 ranks and 8 queries rank 0 has 0, 1, 6, 7 and rank 1 has 2, 3, 4, 5: begin0 is 0 and 2, begin1 6 and 4.
//
//===----------------------------------------------------------------------===//
#include "Queries.h"

#include "lathe/ir/Collective.h"
#include "lathe/ir/WeightStore.h"

#include <algorithm>

using namespace mlir;

namespace lathe::shard {
namespace {

constexpr int64_t kQueries = 2, kKeys = 2; ///< dimensions of q and k

bool seesByPlace(AttentionOp op) { return op.endsPerQuery() || op.getWindowLeft(); }

/// What the place of the first query is computed from: integers for each batch, or nothing.
Value placeOperand(AttentionOp op) { return op.getOffset() ? op.getOffset() : op.getLengths(); }

/// A tensor of one element, of which each rank has its own.
Value perRank(OpBuilder &builder, Location loc, Type element, ArrayRef<int64_t> numbers) {
  auto &store = builder.getContext()->getOrLoadDialect<LatheDialect>()->weights();
  const auto ranks = int64_t(numbers.size());
  auto bytesOf = [](const auto &values) { return std::as_bytes(std::span(values.data(), values.size())); };
  auto type = tensorType(element, ArrayRef<int64_t>{ranks}), one = tensorType(element, ArrayRef<int64_t>{1});
  SmallVector<int32_t> narrow(numbers.begin(), numbers.end());
  TypedAttr all = constantAttr(type, element.isInteger(32) ? bytesOf(narrow) : bytesOf(numbers), store);
  auto part = ShardedAttr::get(builder.getContext(), 0, ranks, {ranks}, all, one);
  return ConstantOp::create(builder, loc, cast<TypedAttr>(Attribute(part)));
}

Value slice(OpBuilder &builder, Location loc, Value x, int64_t dim, int64_t begin, int64_t size) {
  std::vector<DimExpr> dims = dimsOf(x);
  SmallVector<Attribute> starts(dims.size(), DimAttr::get(builder.getContext(), DimExpr(0)));
  starts[dim] = DimAttr::get(builder.getContext(), DimExpr(begin));
  dims[dim] = size;
  return SliceOp::create(builder, loc, tensorType(elementTypeOf(x), dims), x, builder.getArrayAttr(starts),
                         SmallVector<int64_t>(dims.size(), 1));
}

Value concat(OpBuilder &builder, Location loc, ArrayRef<Value> pieces) {
  return pieces.size() == 1 ? pieces[0] : ConcatOp::create(builder, loc, pieces, kQueries).getResult();
}

} // namespace

bool mayDivideQueries(AttentionOp op) {
  if (!dimOf(op.getQ(), kQueries).isConstant())
    return false;
  if (!seesByPlace(op))
    return true;
  Value places = placeOperand(op);
  return places ? elementTypeOf(places).isSignlessInteger(32) || elementTypeOf(places).isSignlessInteger(64)
                : dimOf(op.getK(), kKeys).isConstant();
}

bool mayDivideQueries(AttentionOp op, const Parts &parts) {
  return mayDivideQueries(op) && (!seesByPlace(op) || (parts.unit == 1 && parts.blocks.size() <= 2));
}

bool isOfQueries(const Layout &layout) { return layout.isSplit() && layout.dim == kQueries; }

std::optional<Parts> zigzagQueries(AttentionOp op, int64_t ranks) {
  std::optional<int64_t> queries = dimOf(op.getQ(), kQueries).constant();
  if (!queries || *queries / 2 < ranks || !op.endsPerQuery() || !mayDivideQueries(op))
    return std::nullopt;
  return Parts{{*queries - *queries / 2, *queries / 2}, 1, true};
}

int64_t piecesOf(AttentionOp op, const Layout &queries) {
  return isOfQueries(queries) && seesByPlace(op) ? int64_t(queries.parts.blocks.size()) : 1;
}

double largestShare(AttentionOp op, const Layout &queries, int64_t ranks) {
  if (!isOfQueries(queries) || !op.endsPerQuery())
    return 1 / double(ranks);
  // Keys ahead of each query, as if the first saw one: what stands ahead of all makes shares more equal.
  double all = 0, largest = 0;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    double seen = 0;
    for (int64_t place : queries.parts.placesOf(ranks, rank))
      seen += double(place + 1);
    all += seen;
    largest = std::max(largest, seen);
  }
  return all > 0 ? largest / all : 1;
}

SmallVector<Value> attendToParts(OpBuilder &builder, AttentionOp op, ValueRange operands, ArrayRef<Layout> layouts,
                                 int64_t ranks) {
  Location loc = op.getLoc();
  const Parts &parts = layouts[0].parts;
  auto clone = [&](ValueRange of) {
    auto local = cast<AttentionOp>(builder.clone(*op));
    local->setOperands(of);
    return local;
  };
  auto setSizes = [&](AttentionOp local) {
    for (Value result : local->getResults()) {
      std::vector<DimExpr> dims = dimsOf(result);
      dims[kQueries] = dimOf(local.getQ(), kQueries);
      result.setType(tensorType(elementTypeOf(result), dims));
    }
    return local;
  };
  if (!seesByPlace(op))
    return SmallVector<Value>(setSizes(clone(operands))->getResults());
  SmallVector<SmallVector<Value>> pieces(op->getNumResults());
  int64_t at = 0, begin = 0; // in the part, among all queries
  for (auto [number, block] : llvm::enumerate(parts.blocks)) {
    const int64_t size = shardSize(block, ranks);
    SmallVector<Value> mine(operands);
    if (parts.blocks.size() > 1)
      for (auto [operand, layout] : llvm::zip(mine, layouts))
        if (layout.isSplit())
          operand = slice(builder, loc, operand, layout.dim, at, size);
    auto local = setSizes(clone(mine));
    // Without an operand for it the first query of all is so many places ahead of the end of the keys.
    Value places = placeOperand(local);
    const int64_t first = op.getOffset() ? 0 : (places ? 0 : *dimOf(op.getK(), kKeys).constant()) - parts.size();
    SmallVector<int64_t> begins;
    for (int64_t rank = 0; rank < ranks; ++rank)
      begins.push_back(first + begin + shardBegin(block, ranks, parts.rankIn(number, ranks, rank)));
    builder.setInsertionPoint(local);
    Value offset = perRank(builder, loc, places ? elementTypeOf(places) : builder.getI64Type(), begins);
    if (places)
      offset = AddOp::create(builder, loc, places, offset);
    local.getOffsetMutable().assign(offset);
    builder.setInsertionPointAfter(local);
    for (auto [result, into] : llvm::zip(local->getResults(), pieces))
      into.push_back(result);
    at += size;
    begin += block;
  }
  SmallVector<Value> results;
  for (ArrayRef<Value> of : pieces)
    results.push_back(concat(builder, loc, of));
  return results;
}

} // namespace lathe::shard
