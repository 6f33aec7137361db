//===- CollectiveOps.cpp - what ranks exchange ----------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/ir/Collective.h"

#include "lathe/ir/WeightStore.h"

#include "mlir/IR/Builders.h"

#include "llvm/ADT/TypeSwitch.h"

#include <cstring>

using namespace mlir;

#define GET_OP_CLASSES
#include "lathe/ir/LatheCollectiveOps.cpp.inc"

namespace lathe {

void registerCollectiveOps(LatheDialect &dialect) {
  struct Access : LatheDialect {
    using LatheDialect::addOperations;
  };
  static_cast<Access &>(dialect).addOperations<
#define GET_OP_LIST
#include "lathe/ir/LatheCollectiveOps.cpp.inc"
      >();
}

LogicalResult AllReduceOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                            Adaptor adaptor, SmallVectorImpl<Type> &types) {
  if (int64_t(adaptor.getRanks()) < 1)
    return emitOptionalError(loc, "all_reduce_c1: ranks is not positive");
  types.push_back(tensorType(elementTypeOf(adaptor.getX()), dimsOf(adaptor.getX())));
  return success();
}

LogicalResult AllGatherOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                            Adaptor adaptor, SmallVectorImpl<Type> &types) {
  std::vector<DimExpr> dims = dimsOf(adaptor.getX());
  int64_t dim = adaptor.getDim(), ranks = adaptor.getRanks();
  if (dim < 0 || dim >= int64_t(dims.size()) || ranks < 1)
    return emitOptionalError(loc, "all_gather_c1: dim is outside the rank, or ranks is not positive");
  dims[dim] = dims[dim] * DimExpr(ranks);
  types.push_back(tensorType(elementTypeOf(adaptor.getX()), dims));
  return success();
}

LogicalResult ReduceScatterOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                                Adaptor adaptor, SmallVectorImpl<Type> &types) {
  std::vector<DimExpr> dims = dimsOf(adaptor.getX());
  int64_t dim = adaptor.getDim(), ranks = adaptor.getRanks();
  if (dim < 0 || dim >= int64_t(dims.size()) || ranks < 1)
    return emitOptionalError(loc,
                             "reduce_scatter_c1: dim is outside the rank, or ranks is not positive");
  std::optional<int64_t> size = dims[dim].constant();
  if (!size || *size % ranks)
    return emitOptionalError(loc, "reduce_scatter_c2: ", dims[dim].str(), " elements for ", ranks,
                             " ranks");
  dims[dim] = *size / ranks;
  types.push_back(tensorType(elementTypeOf(adaptor.getX()), dims));
  return success();
}

std::optional<Collective> collectiveOf(Operation *op) {
  if (auto all = dyn_cast<AllReduceOp>(op))
    return Collective{"all_reduce", all.getKind(), 0};
  if (auto all = dyn_cast<AllGatherOp>(op))
    return Collective{"all_gather", ReduceKind::Sum, int64_t(all.getDim())};
  if (auto part = dyn_cast<ReduceScatterOp>(op))
    return Collective{"reduce_scatter", part.getKind(), int64_t(part.getDim())};
  return std::nullopt;
}

std::optional<ReduceKind> combinerOf(Operation *op) {
  return llvm::TypeSwitch<Operation *, std::optional<ReduceKind>>(op)
      .Case<AddOp>([](auto) { return ReduceKind::Sum; })
      .Case<MulOp>([](auto) { return ReduceKind::Prod; })
      .Case<MaxOp>([](auto) { return ReduceKind::Max; })
      .Case<MinOp>([](auto) { return ReduceKind::Min; })
      .Default([](Operation *) { return std::nullopt; });
}

int64_t shardSize(int64_t block, int64_t parts) { return (block + parts - 1) / parts; }

int64_t shardBegin(int64_t block, int64_t parts, int64_t rank) {
  return isShared(block, parts) ? rank * block / parts : std::min(block, rank * shardSize(block, parts));
}

LogicalResult ShardedAttr::verify(function_ref<InFlightDiagnostic()> emitError, int64_t axis,
                                  int64_t parts, ArrayRef<int64_t> blocks, Attribute value, Type type) {
  auto typed = dyn_cast_or_null<TypedAttr>(value);
  auto whole = typed ? dyn_cast<RankedTensorType>(typed.getType()) : RankedTensorType();
  auto local = dyn_cast_or_null<RankedTensorType>(type);
  if (!isa_and_nonnull<WeightAttr, DenseElementsAttr>(value) || !whole || !local ||
      !local.hasStaticShape() || whole.getElementType() != local.getElementType())
    return emitError() << "a sharded constant is one of static type, and so is its part";
  if (axis < 0 || axis >= whole.getRank() || parts < 1)
    return emitError() << "a sharded constant is cut along one of its dimensions";
  int64_t sum = 0, part = 0;
  for (int64_t block : blocks) {
    if (block < 1)
      return emitError() << "blocks of a sharded constant are not empty";
    sum += block;
    part += shardSize(block, parts);
  }
  SmallVector<int64_t> shape(whole.getShape());
  if (sum != shape[axis])
    return emitError() << "blocks of a sharded constant have " << sum << " elements, it has "
                       << shape[axis];
  shape[axis] = part;
  SmallVector<int64_t> merged(shape);
  if (axis + 1 < whole.getRank()) {
    merged[axis] *= merged[axis + 1];
    merged.erase(merged.begin() + axis + 1);
  }
  if (ArrayRef<int64_t>(shape) != local.getShape() && ArrayRef<int64_t>(merged) != local.getShape())
    return emitError() << "the type of a sharded constant is not that of a part";
  return success();
}

Result<std::vector<std::byte>> shardBytes(ShardedAttr sharded, int64_t rank, WeightStore &store) {
  auto whole = cast<RankedTensorType>(cast<TypedAttr>(sharded.getValue()).getType());
  const int64_t axis = sharded.getAxis(), parts = sharded.getParts(),
                bits = bitWidth(*dtypeOf(whole.getElementType()));
  int64_t rows = 1, run = 1; // ahead of the axis, behind it
  for (int64_t d = 0; d < whole.getRank(); ++d)
    (d < axis ? rows : run) *= d == axis ? 1 : whole.getDimSize(d);
  if (run * bits % 8)
    return unsupportedError("elements of " + std::to_string(bits) +
                            " bits are not cut along their last dimension");
  run = run * bits / 8;
  std::vector<std::byte> owned;
  std::span<const std::byte> from;
  if (auto weight = dyn_cast<WeightAttr>(sharded.getValue())) {
    Result<std::span<const std::byte>> bytes = store.get(weight);
    if (!bytes)
      return bytes.status();
    from = *bytes;
  } else {
    Result<std::vector<std::byte>> bytes = constantBytes(sharded.getValue(), store);
    if (!bytes)
      return bytes.status();
    owned = std::move(*bytes);
    from = owned;
  }
  int64_t localPitch = 0;
  for (int64_t block : sharded.getBlocks())
    localPitch += shardSize(block, parts);
  const int64_t pitch = whole.getDimSize(axis);
  std::vector<std::byte> out(size_t(rows * localPitch * run));
  for (int64_t row = 0; row < rows && run; ++row) {
    int64_t begin = row * pitch, to = row * localPitch;
    for (int64_t block : sharded.getBlocks()) {
      const int64_t part = shardSize(block, parts), first = shardBegin(block, parts, rank),
                    count = std::min(part, block - first);
      if (count > 0)
        std::memcpy(out.data() + to * run, from.data() + (begin + first) * run, size_t(count * run));
      begin += block;
      to += part;
    }
  }
  return out;
}

int64_t shardsOf(Attribute constant) {
  if (auto sharded = dyn_cast<ShardedAttr>(constant))
    return sharded.getParts();
  int64_t shards = 0;
  if (auto joined = dyn_cast<JoinedAttr>(constant))
    for (Attribute part : joined.getParts())
      shards = std::max(shards, shardsOf(part));
  return shards;
}

Result<std::vector<std::byte>> bytesOnRank(Attribute constant, int64_t rank, WeightStore &store) {
  if (auto sharded = dyn_cast<ShardedAttr>(constant))
    return shardBytes(sharded, rank, store);
  auto joined = dyn_cast<JoinedAttr>(constant);
  return joined ? joinedBytes(joined, [&](Attribute part) { return bytesOnRank(part, rank, store); })
                : constantBytes(constant, store);
}

namespace {

std::vector<RandomPart> randomPartsOfShard(ShardedAttr sharded, int64_t rank) {
  auto weight = dyn_cast<WeightAttr>(sharded.getValue());
  std::optional<RandomSpread> spread = weight ? WeightStore::spreadOf(weight) : std::nullopt;
  if (!spread)
    return {};
  auto whole = cast<RankedTensorType>(weight.getType());
  const int64_t axis = sharded.getAxis(), parts = sharded.getParts();
  uint64_t rows = 1, run = 1, localPitch = 0; // ahead of the axis, behind it
  for (int64_t d = 0; d < whole.getRank(); ++d)
    (d < axis ? rows : run) *= d == axis ? 1 : whole.getDimSize(d);
  for (int64_t block : sharded.getBlocks())
    localPitch += shardSize(block, parts);
  std::vector<RandomPart> found;
  uint64_t begin = 0, to = 0;
  for (int64_t block : sharded.getBlocks()) {
    const int64_t part = shardSize(block, parts), first = shardBegin(block, parts, rank),
                  count = std::min(part, block - first);
    if (count > 0 && rows * run > 0)
      found.push_back({*spread, rows, count * run, to * run, localPitch * run, (begin + first) * run,
                       uint64_t(whole.getDimSize(axis)) * run});
    begin += block;
    to += part;
  }
  return found;
}

/// The part, whose places are those of a tensor with rows of `columns`, in one with rows of `pitch`, from `first` on:
/// whole rows, or pieces of rows.
std::optional<RandomPart> moved(RandomPart part, uint64_t columns, uint64_t first, uint64_t pitch) {
  if (part.rows == 1 || part.pitch == part.columns) {
    // One run of elements; where it is more than a row, its numbers run on.
    const uint64_t count = part.rows * part.columns;
    const bool runsOn = part.rows == 1 || part.numberPitch() == part.columns;
    if (part.first % columns == 0 && count % columns == 0 && runsOn) {
      part.rows = count / columns;
      part.columns = part.fromPitch = columns;
      part.first = part.first / columns * pitch + first;
      part.pitch = pitch;
      return part;
    }
  }
  if (part.pitch != columns || part.first % columns + part.columns > columns)
    return std::nullopt;
  part.first = part.first / columns * pitch + part.first % columns + first;
  part.pitch = pitch;
  return part;
}

} // namespace

std::vector<RandomPart> randomPartsOf(Attribute constant, int64_t rank) {
  if (auto sharded = dyn_cast<ShardedAttr>(constant))
    return randomPartsOfShard(sharded, rank);
  auto type = cast<RankedTensorType>(cast<TypedAttr>(constant).getType());
  const uint64_t count = type.getNumElements();
  if (auto weight = dyn_cast<WeightAttr>(constant)) {
    std::optional<RandomSpread> spread = WeightStore::spreadOf(weight);
    return spread && count ? std::vector<RandomPart>{{*spread, 1, count, 0, count}} : std::vector<RandomPart>();
  }
  auto joined = dyn_cast<JoinedAttr>(constant);
  if (!joined || !count)
    return {};
  uint64_t rows = 1, first = 0;
  for (int64_t d = 0; d < joined.getAxis(); ++d)
    rows *= type.getDimSize(d);
  std::vector<RandomPart> found;
  for (Attribute piece : joined.getParts()) {
    const uint64_t columns = cast<RankedTensorType>(cast<TypedAttr>(piece).getType()).getNumElements() / rows;
    std::vector<RandomPart> parts = randomPartsOf(piece, rank);
    if (parts.empty() || !columns)
      return {};
    for (const RandomPart &part : parts) {
      std::optional<RandomPart> there = rows == 1 ? std::optional(part) : moved(part, columns, first, count / rows);
      if (!there)
        return {};
      if (rows == 1)
        there->first += first;
      found.push_back(*there);
    }
    first += columns;
  }
  return found;
}

} // namespace lathe
