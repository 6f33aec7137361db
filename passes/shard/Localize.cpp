//===- Localize.cpp - an entry as each rank runs it -----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What differs from rank to rank is data: constants of which each has a part
// (`#lathe.sharded`). A part of a value that all ranks have is gathered by such indices, so that the
// program is the same for all.
//
//===----------------------------------------------------------------------===//
#include "Localize.h"

#include "Queries.h"

#include "lathe/ir/Collective.h"
#include "lathe/ir/WeightStore.h"

using namespace mlir;

namespace lathe::shard {
namespace {

class Localizer {
public:
  Localizer(func::FuncOp func, int64_t ranks, const Strategies &chosen)
      : func(func), ranks(ranks), chosen(chosen), builder(func.getContext()) {}

  void run() {
    Block &block = func.getBody().front();
    SmallVector<Operation *> old;
    for (Operation &op : block.without_terminator())
      old.push_back(&op);
    builder.setInsertionPoint(block.getTerminator());
    for (BlockArgument argument : func.getArguments())
      lie(argument, argument, {});
    for (Operation *op : old)
      if (!isa<ConstantOp>(op))
        rewrite(op, chosen.find(op)->second);
    for (OpOperand &output : block.getTerminator()->getOpOperands())
      output.set(as(output.get(), {}, output.get().getLoc()));
    for (Operation *op : llvm::reverse(old))
      op->erase();
  }

private:
  void lie(Value whole, Value local, const Layout &layout) {
    layouts[whole] = layout;
    made[{whole, layout}] = local;
  }

  void rewrite(Operation *op, const Strategy &way) {
    SmallVector<Value> operands;
    for (auto [operand, layout] : llvm::zip(op->getOperands(), way.operands))
      operands.push_back(as(operand, layout, op->getLoc()));
    if (auto attention = dyn_cast<AttentionOp>(op); attention && isOfQueries(way.operands[0])) {
      SmallVector<Value> results = attendToParts(builder, attention, operands, way.operands, ranks);
      for (auto [whole, result, layout] : llvm::zip(op->getResults(), results, way.results))
        lie(whole, result, layout);
      return;
    }
    Operation *local = builder.clone(*op);
    local->setOperands(operands);
    for (auto [whole, result, layout] : llvm::zip(op->getResults(), local->getResults(), way.results)) {
      if (layout.isSplit())
        result.setType(localType(whole.getType(), layout, ranks));
      lie(whole, result, layout);
    }
    if (auto slice = dyn_cast<SliceOp>(local); slice && !way.operands.empty() && way.operands[0].isSplit())
      moveStart(slice, way.operands[0]);
  }

  /// A slice of whole blocks begins where a rank's parts of them do.
  void moveStart(SliceOp slice, const Layout &layout) {
    SmallVector<Attribute> starts(slice.getStarts().getValue());
    int64_t start = cast<DimAttr>(starts[layout.dim]).expr().constant().value_or(0), at = 0, local = 0;
    for (int64_t block : layout.parts.blocks) {
      if (at == start)
        break;
      at += block * layout.parts.unit;
      local += shardSize(block, ranks) * layout.parts.unit;
    }
    starts[layout.dim] = DimAttr::get(builder.getContext(), DimExpr(start ? local : 0));
    slice.setStartsAttr(builder.getArrayAttr(starts));
  }

  /// What a rank has of a value in this layout.
  Value as(Value whole, const Layout &want, Location loc) {
    if (auto known = made.find({whole, want}); known != made.end())
      return known->second;
    Value value;
    if (auto constant = whole.getDefiningOp<ConstantOp>()) // whose padding is zeros
      value = partOf(constant.getValue(), want, constant.getLoc());
    else
      value = convert(whole, want, loc);
    made[{whole, want}] = value;
    return value;
  }

  Value convert(Value whole, const Layout &want, Location loc) {
    const Layout have = layouts.find(whole)->second;
    Value local = made.find({whole, have})->second;
    if (have.isSplit() && have.withZeros() == want)
      return withZeros(local, want, loc);
    if (want.isSplit() && have.kind == Layout::Kind::Partial && want.parts.blocks.size() == 1 &&
        want.parts.isEven(ranks))
      return ReduceScatterOp::create(builder, loc, local, have.reduction, want.dim, ranks);
    if (want.isSplit()) { // of what all ranks have
      if (want.zeroed)
        return withZeros(as(whole, want.withZeros(false), loc), want, loc);
      return partOf(as(whole, {}, loc), want, loc);
    }
    if (have.kind == Layout::Kind::Partial)
      return AllReduceOp::create(builder, loc, local, have.reduction, ranks);
    Value gathered = AllGatherOp::create(builder, loc, local, have.dim, ranks);
    const Parts &parts = have.parts;
    if (parts.blocks.size() == 1 && parts.isEven(ranks))
      return gathered;
    if (parts.isInOrder(ranks)) { // only the padding goes
      std::vector<DimExpr> dims = dimsOf(whole);
      SmallVector<Attribute> starts(dims.size(), DimAttr::get(builder.getContext(), DimExpr(0)));
      SmallVector<int64_t> steps(dims.size(), 1);
      return SliceOp::create(builder, loc, tensorType(elementTypeOf(whole), dims), gathered,
                             builder.getArrayAttr(starts), steps);
    }
    // The ranks' parts stand one after another: back to one block after another, each element once.
    SmallVector<int64_t> places(parts.size());
    for (int64_t rank = ranks; rank-- > 0;)
      for (auto [i, place] : llvm::enumerate(parts.placesOf(ranks, rank)))
        if (place >= 0)
          places[place] = rank * parts.localSize(ranks) + int64_t(i);
    Value indices = ConstantOp::create(builder, loc, indicesAttr(places));
    return GatherOp::create(builder, loc, gathered, indices, uint64_t(have.dim));
  }

  /// The same part, with zeros where it is padded.
  Value withZeros(Value local, const Layout &layout, Location loc) {
    auto type = cast<TensorType>(local.getType());
    std::vector<DimExpr> dims(type.getRank(), DimExpr(1));
    dims[layout.dim] = layout.parts.size();
    auto &store = builder.getContext()->getOrLoadDialect<LatheDialect>()->weights();
    const std::vector<uint8_t> ones(size_t(layout.parts.size()), 1); // and zeros where a part lacks elements
    Value isThere = partOf(constantAttr(tensorType(builder.getI1Type(), dims), std::as_bytes(std::span(ones)), store),
                           layout, loc);
    auto scalar = RankedTensorType::get({}, type.getElementType());
    Value zero = ConstantOp::create(builder, loc, cast<TypedAttr>(Attribute(DenseElementsAttr::get(
                                                      scalar, ArrayRef<Attribute>(builder.getZeroAttr(type.getElementType()))))));
    return SelectOp::create(builder, loc, isThere, local, zero);
  }

  TypedAttr indicesAttr(ArrayRef<int64_t> places) {
    auto &store = builder.getContext()->getOrLoadDialect<LatheDialect>()->weights();
    auto type = tensorType(builder.getI64Type(), ArrayRef<int64_t>{int64_t(places.size())});
    return constantAttr(type, std::as_bytes(std::span(places.data(), places.size())), store);
  }

  /// Of what all ranks have.
  Value partOf(Value all, const Layout &layout, Location loc) {
    SmallVector<int64_t> places;
    for (int64_t rank = 0; rank < ranks; ++rank)
      for (int64_t place : layout.parts.placesOf(ranks, rank))
        places.push_back(std::max<int64_t>(place, 0)); // nobody reads padding
    Value indices = partOf(indicesAttr(places), Layout::split(0, int64_t(places.size())), loc);
    return GatherOp::create(builder, loc, all, indices, uint64_t(layout.dim));
  }

  Value partOf(TypedAttr value, const Layout &layout, Location loc) {
    if (!layout.isSplit())
      return ConstantOp::create(builder, loc, value);
    TensorType type = localType(value.getType(), layout, ranks);
    const Parts &parts = layout.parts;
    if (auto dense = dyn_cast<DenseElementsAttr>(value); dense && dense.isSplat() && !layout.zeroed)
      return ConstantOp::create(builder, loc, cast<TypedAttr>(Attribute(dense.resizeSplat(type))));
    if (parts.mirrored)
      return partOf(ConstantOp::create(builder, loc, value), layout, loc);
    if (parts.unit > 1) { // units as a dimension of their own
      std::vector<DimExpr> dims = dimsOf(value.getType());
      dims[layout.dim] = parts.size() / parts.unit;
      dims.insert(dims.begin() + layout.dim + 1, DimExpr(parts.unit));
      value = withType(value, tensorType(cast<TensorType>(value.getType()).getElementType(), dims));
    }
    auto part = ShardedAttr::get(builder.getContext(), layout.dim, ranks, parts.blocks, value, type);
    return ConstantOp::create(builder, loc, cast<TypedAttr>(Attribute(part)));
  }

  /// The constant under other sizes of as many elements.
  static TypedAttr withType(TypedAttr value, TensorType type) {
    if (auto weight = dyn_cast<WeightAttr>(value))
      return cast<TypedAttr>(Attribute(WeightAttr::get(type.getContext(), weight.getKey(), weight.getOffset(),
                                                       weight.getBytes(), weight.getHash(), type)));
    return cast<TypedAttr>(Attribute(cast<DenseElementsAttr>(value).reshape(cast<ShapedType>(type))));
  }

  func::FuncOp func;
  const int64_t ranks;
  const Strategies &chosen;
  OpBuilder builder;
  llvm::DenseMap<Value, Layout> layouts; ///< as the producer leaves it
  struct Less {
    bool operator()(const std::pair<Value, Layout> &a, const std::pair<Value, Layout> &b) const {
      return std::pair(a.first.getAsOpaquePointer(), a.second) <
             std::pair(b.first.getAsOpaquePointer(), b.second);
    }
  };
  std::map<std::pair<Value, Layout>, Value, Less> made;
};

} // namespace

void localize(func::FuncOp func, int64_t ranks, const Strategies &chosen) {
  Localizer(func, ranks, chosen).run();
}

} // namespace lathe::shard
