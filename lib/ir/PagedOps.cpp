//===- PagedOps.cpp - keys and values in pages ----------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/ir/Paged.h"

#include "mlir/IR/Builders.h"

using namespace mlir;

#define GET_OP_CLASSES
#include "lathe/ir/LathePagedOps.cpp.inc"

namespace lathe {

void registerPagedOps(LatheDialect &dialect) {
  struct Access : LatheDialect {
    using LatheDialect::addOperations;
  };
  static_cast<Access &>(dialect).addOperations<
#define GET_OP_LIST
#include "lathe/ir/LathePagedOps.cpp.inc"
      >();
}

using Maps = SmallVector<AffineMap>;
using Iterators = SmallVector<utils::IteratorType>;

static bool isPool(Value pool) {
  std::vector<DimExpr> dims = dimsOf(pool);
  return dims.size() == PoolRank && dims[PoolParts] == DimExpr(2) &&
         llvm::all_of(ArrayRef(dims).drop_front(), [](const DimExpr &dim) {
           return dim.constant().value_or(0) > 0;
         });
}
/// Elements of a head, which may be codes.
static DimExpr depthOf(Value pool, Value scales) {
  return scales && codeBitsOf(pool) == 4 ? dimOf(pool, PoolDepth) * DimExpr(2) : dimOf(pool, PoolDepth);
}
/// Whether keys, values or queries of a pool are of the type that they are to be.
static bool isElement(Type element, Value pool, Value scales) {
  return scales ? isa<FloatType>(element) : element == elementTypeOf(pool);
}
static bool areScales(Value scales, Value pool) {
  std::vector<DimExpr> dims = dimsOf(pool);
  return codeBitsOf(pool) != 0 && elementTypeOf(scales).isF32() &&
         dimsOf(scales) ==
             std::vector<DimExpr>{dims[PoolPages], dims[PoolLayers], DimExpr(2), dims[PoolHeads], dims[PoolTokens]};
}
static bool hasLayer(Value pool, int64_t layer) {
  return layer >= 0 && layer < *dimOf(pool, PoolLayers).constant();
}
static bool areIntegers(Value value, ArrayRef<DimExpr> dims) {
  return isa<IntegerType>(elementTypeOf(value)) && ArrayRef(dimsOf(value)) == dims;
}

LogicalResult KvAppendOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor,
                                           SmallVectorImpl<Type> &types) {
  Value pool = adaptor.getPool();
  if (!isPool(pool))
    return emitOptionalError(loc, "kv_append_c1: the pool is not [pages, layers, 2, tokens, heads, size]");
  if (!hasLayer(pool, adaptor.getLayer()))
    return emitOptionalError(loc, "kv_append_c2: the pool has no layer ", adaptor.getLayer());
  std::vector<DimExpr> k = dimsOf(adaptor.getK());
  for (Value rows : {adaptor.getK(), adaptor.getV()})
    if (dimsOf(rows) != k || k.size() != 3 || k[1] != dimOf(pool, PoolHeads) ||
        k[2] != depthOf(pool, adaptor.getScales()) || !isElement(elementTypeOf(rows), pool, adaptor.getScales()))
      return emitOptionalError(loc, "kv_append_c3: keys or values are not [tokens, heads, size] as in the pool");
  if (!areIntegers(adaptor.getSlots(), {k[0]}))
    return emitOptionalError(loc, "kv_append_c4: slots are not an integer for each token");
  types.push_back(pool.getType());
  if (Value scales = adaptor.getScales()) {
    if (!areScales(scales, pool))
      return emitOptionalError(loc, "kv_append_c5: scales are not f32 [pages, layers, 2, heads, tokens] of a pool of i8 or ui8");
    types.push_back(scales.getType());
  }
  return success();
}
OpClass KvAppendOp::getOpClass() { return OpClass::Composite; }
Iterators KvAppendOp::getIterators() { return parallelIterators(getOperation()); }
Maps KvAppendOp::getAccessMaps() { // the pool where it is, but for the slots
  Maps maps(getOperation()->getNumOperands(), AffineMap());
  maps.push_back(AffineMap::getMultiDimIdentityMap(PoolRank, getContext()));
  maps.resize(maps.size() + getOperation()->getNumResults() - 1, AffineMap()); // scales have sizes of their own
  return maps;
}
OperandAccess KvAppendOp::getAccess(unsigned operand) {
  OperandAccess access;
  access.kind = operand == getSlotsMutable().getOperandNumber() ? OperandAccess::Kind::Whole
                                                                : OperandAccess::Kind::Data;
  return access;
}

LogicalResult PagedAttentionOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor,
                                                 SmallVectorImpl<Type> &types) {
  Value pool = adaptor.getPool(), q = adaptor.getQ();
  if (!isPool(pool))
    return emitOptionalError(loc,
                             "paged_attention_c1: the pool is not [pages, layers, 2, tokens, heads, size]");
  if (!hasLayer(pool, adaptor.getLayer()))
    return emitOptionalError(loc, "paged_attention_c2: the pool has no layer ", adaptor.getLayer());
  std::vector<DimExpr> dims = dimsOf(q);
  std::optional<int64_t> heads = dims.size() == 3 ? dims[1].constant() : std::nullopt;
  if (!heads || *heads % *dimOf(pool, PoolHeads).constant() || dims[2] != depthOf(pool, adaptor.getScales()) ||
      !isElement(elementTypeOf(q), pool, adaptor.getScales()))
    return emitOptionalError(loc, "paged_attention_c3: queries are not [tokens, heads, size] as in the pool");
  std::vector<DimExpr> tables = dimsOf(adaptor.getTables());
  if (tables.size() != 2 || !isa<IntegerType>(elementTypeOf(adaptor.getTables())) ||
      !areIntegers(adaptor.getRequests(), {dims[0]}) || !areIntegers(adaptor.getPositions(), {dims[0]}))
    return emitOptionalError(loc, "paged_attention_c4: tables are not [requests, pages] of integers, or "
                                  "requests and positions not an integer for each token");
  if (int64_t(adaptor.getWindowLeft().value_or(0)) < 0)
    return emitOptionalError(loc, "paged_attention_c5: a window is negative");
  if (std::optional<uint64_t> first = adaptor.getFirstKeys(); first && (int64_t(*first) < 1 || !adaptor.getWindowLeft()))
    return emitOptionalError(loc, "paged_attention_c5: first keys are none, or without a window");
  for (Value perHead : {adaptor.getSink(), adaptor.getSlopes()})
    if (perHead && (!isa<FloatType>(elementTypeOf(perHead)) ||
                    dimsOf(perHead) != std::vector<DimExpr>{DimExpr(*heads)}))
      return emitOptionalError(loc, "paged_attention_c6: sink or slopes are not a float for each head of queries");
  if (adaptor.getScales() && !areScales(adaptor.getScales(), pool))
    return emitOptionalError(loc, "paged_attention_c7: scales are not f32 [pages, layers, 2, heads, tokens] of a pool of i8 or ui8");
  types.push_back(q.getType());
  return success();
}
OpClass PagedAttentionOp::getOpClass() { return OpClass::Composite; }
Iterators PagedAttentionOp::getIterators() { return parallelIterators(getOperation()); }
Maps PagedAttentionOp::getAccessMaps() {
  // A head reads a whole row of its query, and the keys that tables say.
  Maps maps(getOperation()->getNumOperands(), AffineMap());
  maps.push_back(AffineMap::getMultiDimIdentityMap(3, getContext()));
  AffineExpr token = getAffineDimExpr(0, getContext());
  for (unsigned operand : {getRequestsMutable().getOperandNumber(), getPositionsMutable().getOperandNumber()})
    maps[operand] = AffineMap::get(3, 0, token);
  for (auto [i, operand] : llvm::enumerate(getOperation()->getOperands()))
    if (operand == getSink() || operand == getSlopes())
      maps[i] = AffineMap::get(3, 0, getAffineDimExpr(1, getContext()));
  return maps;
}
OperandAccess PagedAttentionOp::getAccess(unsigned operand) {
  if (operand == getQMutable().getOperandNumber())
    return OperandAccess::rows({2});
  OperandAccess access;
  access.map = getAccessMaps()[operand];
  access.kind = access.map ? OperandAccess::Kind::Affine : OperandAccess::Kind::Data;
  return access;
}

} // namespace lathe
