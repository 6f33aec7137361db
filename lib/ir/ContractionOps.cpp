//===- ContractionOps.cpp - reductions, contractions ----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/ir/Lathe.h"

#include "mlir/IR/Builders.h"

using namespace mlir;

#define GET_OP_CLASSES
#include "lathe/ir/LatheContractionOps.cpp.inc"

namespace lathe {

void registerContractionOps(LatheDialect &dialect) {
  struct Access : LatheDialect {
    using LatheDialect::addOperations;
  };
  static_cast<Access &>(dialect).addOperations<
#define GET_OP_LIST
#include "lathe/ir/LatheContractionOps.cpp.inc"
      >();
}

using Maps = SmallVector<AffineMap>;
using Iterators = SmallVector<utils::IteratorType>;

static int64_t rankOf(Value value) { return llvm::cast<TensorType>(value.getType()).getRank(); }

static AffineMap identityMap(Value value, unsigned dims) {
  return AffineMap::getMultiDimIdentityMap(dims, value.getContext())
      .getMajorSubMap(rankOf(value));
}

static Iterators iterators(unsigned parallel, unsigned reduction) {
  Iterators result(parallel, utils::IteratorType::parallel);
  result.append(reduction, utils::IteratorType::reduction);
  return result;
}

//===----------------------------------------------------------------------===//
// Cost: the iteration space times the work of one point
//===----------------------------------------------------------------------===//

DimExpr defaultFlops(Operation *op) {
  auto structured = llvm::cast<StructuredOpInterface>(op);
  Iterators kinds = structured.getIterators();
  Maps maps = structured.getAccessMaps();
  std::vector<std::optional<DimExpr>> extents(kinds.size());
  auto visit = [&](Value value, AffineMap map) {
    if (!map)
      return;
    std::vector<DimExpr> dims = dimsOf(value);
    for (auto [d, expr] : llvm::enumerate(map.getResults()))
      if (auto dim = llvm::dyn_cast<AffineDimExpr>(expr))
        if (!extents[dim.getPosition()])
          extents[dim.getPosition()] = dims[d];
  };
  for (auto [value, map] : llvm::zip(op->getResults(), ArrayRef(maps).drop_front(op->getNumOperands())))
    visit(value, map);
  for (auto [value, map] : llvm::zip(op->getOperands(), maps))
    visit(value, map);
  OpClass kind = structured.getOpClass();
  bool contraction = kind == OpClass::Gemm || kind == OpClass::Conv || kind == OpClass::Attention;
  if (kind == OpClass::Movement || kind == OpClass::Gather || kind == OpClass::Source)
    return 0;
  DimExpr flops = contraction ? 2 : structured.getWork();
  if (kind == OpClass::Attention) {
    // b, h, s, e; t, d: a product over d and a product over t for each query.
    auto at = [&](size_t i) { return extents[i].value_or(DimExpr(1)); };
    return flops * at(0) * at(1) * at(2) * at(4) * (at(3) + at(5));
  }
  for (const std::optional<DimExpr> &extent : extents)
    flops = flops * extent.value_or(DimExpr(1));
  return flops;
}

DimExpr defaultBytes(Operation *op) {
  DimExpr bytes = 0;
  auto add = [&](Value value) {
    if (std::optional<DType> dtype = dtypeOf(elementTypeOf(value)))
      bytes = bytes + DimExpr::ceilDiv(numElements(value.getType()) * DimExpr(bitWidth(*dtype)), 8);
  };
  llvm::for_each(op->getOperands(), add);
  llvm::for_each(op->getResults(), add);
  return bytes;
}

//===----------------------------------------------------------------------===//
// Reductions
//===----------------------------------------------------------------------===//

static LogicalResult reducedType(std::optional<Location> loc, Value x, ArrayRef<int64_t> axes,
                                 bool keepdims, Type element, SmallVectorImpl<Type> &types) {
  std::vector<DimExpr> dims = dimsOf(x), result;
  int64_t last = -1;
  for (int64_t axis : axes) {
    if (axis <= last || axis >= static_cast<int64_t>(dims.size()))
      return emitOptionalError(loc, "reduce_c1: axes are not sorted, unique and inside the rank");
    last = axis;
  }
  for (size_t d = 0; d < dims.size(); ++d) {
    if (!llvm::is_contained(axes, static_cast<int64_t>(d)))
      result.push_back(dims[d]);
    else if (keepdims)
      result.push_back(1);
  }
  types.push_back(tensorType(element, result));
  return success();
}

/// Parallel iterators are the result's dimensions; reduction iterators the reduced ones.
static Maps reductionMaps(Operation *op, Value x, ArrayRef<int64_t> axes, bool keepdims) {
  unsigned rank = rankOf(op->getResult(0)), total = rank + axes.size(), reduced = rank, kept = 0;
  SmallVector<AffineExpr> index;
  for (int64_t d = 0; d < rankOf(x); ++d) {
    bool isReduced = llvm::is_contained(axes, d);
    index.push_back(getAffineDimExpr(isReduced ? reduced++ : kept, op->getContext()));
    if (!isReduced || keepdims)
      ++kept;
  }
  return {AffineMap::get(total, 0, index, op->getContext()), identityMap(op->getResult(0), total)};
}

LogicalResult ReduceOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                         Adaptor adaptor, SmallVectorImpl<Type> &types) {
  return reducedType(loc, adaptor.getX(), adaptor.getAxes(), adaptor.getKeepdims(),
                     elementTypeOf(adaptor.getX()), types);
}
OpFoldResult ReduceOp::fold(FoldAdaptor) {
  return getAxes().empty() && getX().getType() == getY().getType() ? OpFoldResult(getX())
                                                                   : OpFoldResult();
}
OpClass ReduceOp::getOpClass() { return OpClass::Reduction; }
Iterators ReduceOp::getIterators() { return iterators(rankOf(getY()), getAxes().size()); }
Maps ReduceOp::getAccessMaps() {
  return reductionMaps(*this, getX(), getAxes(), getKeepdims());
}

LogicalResult ArgReduceOp::inferReturnTypes(MLIRContext *context, std::optional<Location> loc,
                                            Adaptor adaptor, SmallVectorImpl<Type> &types) {
  return reducedType(loc, adaptor.getX(), {int64_t(adaptor.getAxis())}, adaptor.getKeepdims(),
                     IntegerType::get(context, 64), types);
}
OpClass ArgReduceOp::getOpClass() { return OpClass::Reduction; }
Iterators ArgReduceOp::getIterators() { return iterators(rankOf(getY()), 1); }
Maps ArgReduceOp::getAccessMaps() {
  return reductionMaps(*this, getX(), {static_cast<int64_t>(getAxis())}, getKeepdims());
}

LogicalResult ScanOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor,
                                       SmallVectorImpl<Type> &types) {
  if (int64_t(adaptor.getAxis()) < 0 || int64_t(adaptor.getAxis()) >= rankOf(adaptor.getX()))
    return emitOptionalError(loc, "scan_c1: axis is outside the rank");
  types.push_back(tensorType(elementTypeOf(adaptor.getX()), dimsOf(adaptor.getX())));
  return success();
}
OpClass ScanOp::getOpClass() { return OpClass::Scan; }
Iterators ScanOp::getIterators() { return iterators(rankOf(getY()), 0); }
Maps ScanOp::getAccessMaps() { return {AffineMap(), identityMap(getY(), rankOf(getY()))}; }
OperandAccess ScanOp::getAccess(unsigned) { return OperandAccess::rows({int64_t(getAxis())}); }

//===----------------------------------------------------------------------===//
// Composites: expanded into reductions and pointwise ops before fusion
//===----------------------------------------------------------------------===//

/// Same sizes as x; the axis must be inside the rank.
static LogicalResult inferRowOp(std::optional<Location> loc, Value x, int64_t axis,
                                StringRef constraint, SmallVectorImpl<Type> &types) {
  if (axis < 0 || axis >= rankOf(x))
    return emitOptionalError(loc, constraint, ": axis is outside the rank");
  types.push_back(tensorType(elementTypeOf(x), dimsOf(x)));
  return success();
}

static Maps compositeMaps(Operation *op) {
  Maps maps(op->getNumOperands(), AffineMap());
  maps.push_back(identityMap(op->getResult(0), rankOf(op->getResult(0))));
  return maps;
}

#define LATHE_COMPOSITE(OP, LABEL)                                                                 \
  LogicalResult OP::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor,  \
                                     SmallVectorImpl<Type> &types) {                               \
    return inferRowOp(loc, adaptor.getX(), adaptor.getAxis(), LABEL, types);                       \
  }                                                                                                \
  OpClass OP::getOpClass() { return OpClass::Composite; }                                          \
  Iterators OP::getIterators() { return iterators(rankOf(getY()), 0); }                            \
  Maps OP::getAccessMaps() { return compositeMaps(*this); }
/// Dimensions of x from `axis` on; the parameters of a norm are read whole.
static OperandAccess rowsFrom(Operation *op, unsigned operand, int64_t axis) {
  SmallVector<int64_t> dims;
  for (int64_t d = axis; d < rankOf(op->getOperand(0)); ++d)
    dims.push_back(d);
  return operand == 0 ? OperandAccess::rows(dims) : OperandAccess();
}
OperandAccess SoftmaxOp::getAccess(unsigned) { return OperandAccess::rows({int64_t(getAxis())}); }
OperandAccess LayerNormOp::getAccess(unsigned operand) { return rowsFrom(*this, operand, getAxis()); }
OperandAccess RmsNormOp::getAccess(unsigned operand) { return rowsFrom(*this, operand, getAxis()); }

LATHE_COMPOSITE(SoftmaxOp, "softmax_c1")
LATHE_COMPOSITE(LayerNormOp, "layer_norm_c1")
LATHE_COMPOSITE(RmsNormOp, "rms_norm_c1")
#undef LATHE_COMPOSITE

//===----------------------------------------------------------------------===//
// Matmul
//===----------------------------------------------------------------------===//

LogicalResult MatmulOp::inferReturnTypes(MLIRContext *context, std::optional<Location> loc,
                                         Adaptor adaptor, SmallVectorImpl<Type> &types) {
  std::vector<DimExpr> a = dimsOf(adaptor.getA()), b = dimsOf(adaptor.getB());
  if (a.size() < 2 || b.size() < 2)
    return emitOptionalError(loc, "matmul_c1: operands have ranks ", a.size(), " and ", b.size());
  if (adaptor.getTransposeA())
    std::swap(a[a.size() - 1], a[a.size() - 2]);
  if (adaptor.getTransposeB())
    std::swap(b[b.size() - 1], b[b.size() - 2]);
  const DimExpr &ka = a.back(), &kb = b[b.size() - 2];
  if (ka.isConstant() && kb.isConstant() && ka != kb)
    return emitOptionalError(loc, "matmul_c2: depth ", ka.str(), " against ", kb.str());
  std::optional<std::vector<DimExpr>> batch =
      broadcastDims({std::vector<DimExpr>(a.begin(), a.end() - 2),
                     std::vector<DimExpr>(b.begin(), b.end() - 2)});
  if (!batch)
    return emitOptionalError(loc, "matmul_c3: batch dimensions do not broadcast");
  batch->push_back(a[a.size() - 2]);
  batch->push_back(b.back());
  Type element = elementTypeOf(adaptor.getA());
  if (auto integer = llvm::dyn_cast<IntegerType>(element))
    if (integer.getWidth() <= 8)
      element = IntegerType::get(context, 32);
  if (llvm::isa<FloatType>(element) && element.getIntOrFloatBitWidth() <= 8)
    element = Float32Type::get(context);
  types.push_back(tensorType(element, *batch));
  return success();
}
OpClass MatmulOp::getOpClass() { return OpClass::Gemm; }
Iterators MatmulOp::getIterators() { return iterators(rankOf(getY()), 1); }
Maps MatmulOp::getAccessMaps() {
  unsigned rank = rankOf(getY()), total = rank + 1;
  auto dim = [&](unsigned d) { return getAffineDimExpr(d, getContext()); };
  auto map = [&](Value operand, AffineExpr row, AffineExpr column, bool transposed) {
    auto type = llvm::cast<TensorType>(operand.getType());
    SmallVector<AffineExpr> index;
    for (int64_t d = 0; d < type.getRank() - 2; ++d)
      index.push_back(type.getDimSize(d) == 1 ? getAffineConstantExpr(0, getContext())
                                              : dim(rank - type.getRank() + d));
    index.push_back(transposed ? column : row);
    index.push_back(transposed ? row : column);
    return AffineMap::get(total, 0, index, getContext());
  };
  return {map(getA(), dim(rank - 2), dim(rank), getTransposeA()),
          map(getB(), dim(rank), dim(rank - 1), getTransposeB()), identityMap(getY(), total)};
}

//===----------------------------------------------------------------------===//
// Convolution and pooling
//===----------------------------------------------------------------------===//

namespace {

/// Positions of batch, channel and first spatial dimension.
struct ImageDims {
  ImageDims(ConvLayout layout, size_t rank)
      : channel(layout == ConvLayout::ChannelsFirst ? 1 : rank - 1),
        spatial(layout == ConvLayout::ChannelsFirst ? 2 : 1), count(rank - 2) {}
  size_t channel, spatial, count;
};

/// Windows of a convolution: floor((size + low + high - extent) / stride) + 1. That the
/// window fits at all is a guard of plan.
DimExpr windowCount(const DimExpr &size, int64_t low, int64_t high, int64_t kernel, int64_t stride,
                    int64_t dilation) {
  return DimExpr::floorDiv(size + DimExpr(low + high - (kernel - 1) * dilation - 1), stride) + 1;
}

/// Windows of a pooling: as onnxruntime counts them, rounding toward zero or up, so that a
/// window a little larger than the padded image is there once. Its elements outside the image
/// do not count.
DimExpr poolCount(const DimExpr &size, int64_t low, int64_t high, int64_t kernel, int64_t stride,
                  int64_t dilation, bool ceilMode) {
  int64_t room = low + high - (kernel - 1) * dilation - 1;
  DimExpr span = size + DimExpr(room);
  DimExpr rounded = DimExpr::ceilDiv(span, stride) + 1;
  if (ceilMode) // a window may not start in the high padding
    return DimExpr::min(rounded, DimExpr::floorDiv(size + DimExpr(low - 1), stride) + 1);
  DimExpr count = windowCount(size, low, high, kernel, stride, dilation);
  // A pooled image is not empty (a guard of plan).
  int64_t least = std::max<int64_t>(size.range().lo, 1) + room;
  if (stride == 1 || least >= 0)
    return count;
  return DimExpr::max(count, least > -stride ? DimExpr(1) : DimExpr::min(1, rounded));
}

Maps windowMaps(Operation *op, ConvLayout layout, ArrayRef<int64_t> strides,
                ArrayRef<int64_t> pads, ArrayRef<int64_t> dilations, bool hasWeights) {
  MLIRContext *context = op->getContext();
  unsigned rank = rankOf(op->getResult(0));
  ImageDims image(layout, rank);
  unsigned total = rank + image.count + (hasWeights ? 1 : 0);
  auto dim = [&](unsigned d) { return getAffineDimExpr(d, context); };
  SmallVector<AffineExpr> x(rank), w;
  x[0] = dim(0);
  // Window iterators follow the parallel ones; the input channel comes last.
  x[image.channel] = hasWeights ? dim(total - 1) : dim(image.channel);
  for (size_t i = 0; i < image.count; ++i)
    x[image.spatial + i] =
        dim(image.spatial + i) * strides[i] + dim(rank + i) * dilations[i] - pads[i];
  Maps maps = {AffineMap::get(total, 0, x, context)};
  if (hasWeights) {
    w = {dim(image.channel), dim(total - 1)};
    for (size_t i = 0; i < image.count; ++i)
      w.push_back(dim(rank + i));
    maps.push_back(AffineMap::get(total, 0, w, context));
  }
  maps.push_back(identityMap(op->getResult(0), total));
  return maps;
}

} // namespace

LogicalResult ConvOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor,
                                       SmallVectorImpl<Type> &types) {
  std::vector<DimExpr> x = dimsOf(adaptor.getX()), w = dimsOf(adaptor.getW());
  if (x.size() < 3 || x.size() != w.size())
    return emitOptionalError(loc, "conv_c1: ranks of input ", x.size(), " and weights ", w.size());
  ImageDims image(adaptor.getLayout(), x.size());
  if (adaptor.getStrides().size() != image.count || adaptor.getDilations().size() != image.count ||
      adaptor.getPads().size() != 2 * image.count)
    return emitOptionalError(loc, "conv_c3: attributes do not match ", image.count,
                             " spatial dimensions");
  int64_t group = adaptor.getGroup();
  DimExpr channels = w[1] * DimExpr(group);
  if (x[image.channel].isConstant() && channels.isConstant() && x[image.channel] != channels)
    return emitOptionalError(loc, "conv_c2: ", x[image.channel].str(), " channels for weights of ",
                             channels.str());
  if (group < 1 || (w[0].isConstant() && *w[0].constant() % group))
    return emitOptionalError(loc, "conv_c4: outputs are not divisible by the group");
  std::vector<DimExpr> dims = x;
  dims[image.channel] = w[0];
  for (size_t i = 0; i < image.count; ++i) {
    std::optional<int64_t> kernel = w[2 + i].constant();
    if (!kernel || adaptor.getStrides()[i] < 1)
      return emitOptionalError(loc, "conv_c5: window sizes are constants and strides positive");
    dims[image.spatial + i] =
        windowCount(x[image.spatial + i], adaptor.getPads()[i], adaptor.getPads()[image.count + i],
                    *kernel, adaptor.getStrides()[i], adaptor.getDilations()[i]);
  }
  Type element = elementTypeOf(adaptor.getX());
  if (element.isInteger(8)) // sums of bytes
    element = IntegerType::get(element.getContext(), 32);
  types.push_back(tensorType(element, dims));
  return success();
}
OpClass ConvOp::getOpClass() { return OpClass::Conv; }
Iterators ConvOp::getIterators() { return iterators(rankOf(getY()), rankOf(getY()) - 1); }
Maps ConvOp::getAccessMaps() {
  Maps maps = windowMaps(*this, getLayout(), getStrides(), getPads(), getDilations(), true);
  auto weights = llvm::cast<TensorType>(getW().getType());
  if (getGroup() == 1 || weights.isDynamicDim(0) || weights.isDynamicDim(1))
    return maps;
  // Output channel m reads the channels of its group alone.
  unsigned channel = unsigned(ImageDims(getLayout(), rankOf(getY())).channel);
  int64_t outputs = weights.getDimSize(0) / int64_t(getGroup());
  SmallVector<AffineExpr> x(maps[0].getResults());
  AffineExpr m = maps[1].getResult(0), c = maps[1].getResult(1);
  x[channel] = m.floorDiv(outputs) * weights.getDimSize(1) + c;
  maps[0] = AffineMap::get(maps[0].getNumDims(), 0, x, getContext());
  return maps;
}

/// The window lies inside the padded image, and a pooled image is not empty: onnxruntime runs neither
/// otherwise.
template <typename WindowOp>
static void windowRules(WindowOp op, ArrayRef<int64_t> kernel, SmallVectorImpl<SizeRule> &rules) {
  constexpr bool pooled = std::is_same_v<WindowOp, PoolOp>;
  size_t first = op.getLayout() == ConvLayout::ChannelsLast ? 1 : 2;
  for (auto [i, size] : llvm::enumerate(kernel)) {
    int64_t needed = (size - 1) * op.getDilations()[i] + 1 - op.getPads()[i] -
                     op.getPads()[kernel.size() + i];
    if (needed > 1) // a window of one element may slide over an empty image
      rules.push_back({SizeRule::Kind::LessEqual, pooled ? 1 : needed, dimOf(op.getX(), first + i),
                       pooled ? "the pooled image is empty" : "the window is larger than the image"});
  }
}
void ConvOp::getSizeRules(SmallVectorImpl<SizeRule> &rules) {
  windowRules(*this, llvm::cast<TensorType>(getW().getType()).getShape().drop_front(2), rules);
}
void PoolOp::getSizeRules(SmallVectorImpl<SizeRule> &rules) { windowRules(*this, getKernel(), rules); }
std::optional<ReduceKind> PoolOp::getCombiner() {
  return getKind() == PoolKind::Max ? ReduceKind::Max : ReduceKind::Sum;
}

LogicalResult PoolOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor,
                                       SmallVectorImpl<Type> &types) {
  std::vector<DimExpr> dims = dimsOf(adaptor.getX());
  if (dims.size() < 3)
    return emitOptionalError(loc, "pool_c2: the input has rank ", dims.size());
  ImageDims image(adaptor.getLayout(), dims.size());
  if (adaptor.getKernel().size() != image.count || adaptor.getStrides().size() != image.count ||
      adaptor.getDilations().size() != image.count || adaptor.getPads().size() != 2 * image.count)
    return emitOptionalError(loc, "pool_c1: attributes do not match ", image.count,
                             " spatial dimensions");
  for (size_t i = 0; i < image.count; ++i) {
    if (adaptor.getStrides()[i] < 1 || adaptor.getKernel()[i] < 1)
      return emitOptionalError(loc, "pool_c3: window sizes and strides are positive");
    dims[image.spatial + i] = poolCount(
        dims[image.spatial + i], adaptor.getPads()[i], adaptor.getPads()[image.count + i],
        adaptor.getKernel()[i], adaptor.getStrides()[i], adaptor.getDilations()[i],
        adaptor.getCeilMode());
  }
  types.push_back(tensorType(elementTypeOf(adaptor.getX()), dims));
  return success();
}
OpClass PoolOp::getOpClass() { return OpClass::Window; }
Iterators PoolOp::getIterators() { return iterators(rankOf(getY()), rankOf(getY()) - 2); }
Maps PoolOp::getAccessMaps() {
  return windowMaps(*this, getLayout(), getStrides(), getPads(), getDilations(), false);
}

std::vector<DimExpr> OverlapAddOp::places(ArrayRef<DimExpr> image, ArrayRef<int64_t> window,
                                          ArrayRef<int64_t> strides, ArrayRef<int64_t> pads,
                                          ArrayRef<int64_t> dilations) {
  std::vector<DimExpr> counts;
  for (size_t d = 0; d < image.size(); ++d) {
    DimExpr room = image[d] + DimExpr(pads[d] + pads[image.size() + d] - dilations[d] * (window[d] - 1) - 1);
    counts.push_back(DimExpr::max(DimExpr::floorDiv(room, strides[d]) + DimExpr(1), 0));
  }
  return counts;
}

LogicalResult OverlapAddOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                             Adaptor adaptor, SmallVectorImpl<Type> &types) {
  std::vector<DimExpr> x = dimsOf(adaptor.getX()), image;
  if (x.size() != 3)
    return emitOptionalError(loc, "overlap_add_c1: the operand has rank ", x.size());
  for (Attribute dim : adaptor.getImage())
    image.push_back(llvm::cast<DimAttr>(dim).expr());
  ArrayRef<int64_t> window = adaptor.getWindow(), strides = adaptor.getStrides(),
                    pads = adaptor.getPads(), dilations = adaptor.getDilations();
  if (window.size() != image.size() || strides.size() != image.size() ||
      dilations.size() != image.size() || pads.size() != 2 * image.size())
    return emitOptionalError(loc, "overlap_add_c2: attributes do not match ", image.size(),
                             " dimensions of the image");
  DimExpr taps = 1;
  for (size_t d = 0; d < image.size(); ++d) {
    if (window[d] < 1 || strides[d] < 1 || dilations[d] < 1 || pads[d] < 0 ||
        pads[image.size() + d] < 0)
      return emitOptionalError(loc, "overlap_add_c3: window, strides and dilations are positive, "
                                    "pads not negative");
    taps = taps * DimExpr(window[d]);
  }
  std::optional<DimExpr> channels = x[1].exactDiv(taps);
  if (!channels)
    return emitOptionalError(loc, "overlap_add_c4: ", x[1].str(), " rows are no multiple of ",
                             taps.str(), " window elements");
  DimExpr columns = product(places(image, window, strides, pads, dilations));
  if (columns.isConstant() && x[2].isConstant() && columns != x[2])
    return emitOptionalError(loc, "overlap_add_c5: ", x[2].str(), " columns for ", columns.str(),
                             " places of the window");
  image.insert(image.begin(), {x[0], *channels});
  types.push_back(tensorType(elementTypeOf(adaptor.getX()), image));
  return success();
}
OpClass OverlapAddOp::getOpClass() { return OpClass::Window; }
Iterators OverlapAddOp::getIterators() { return iterators(rankOf(getY()), getWindow().size()); }
Maps OverlapAddOp::getAccessMaps() { return {AffineMap(), identityMap(getY(), getIterators().size())}; }

LogicalResult WindowSquaresOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                            Adaptor adaptor, SmallVectorImpl<Type> &types) {
  int64_t axis = adaptor.getAxis(), size = adaptor.getSize(), before = adaptor.getBefore();
  if (axis < 0 || axis >= rankOf(adaptor.getX()))
    return emitOptionalError(loc, "window_squares_c1: axis is outside the rank");
  if (size < 1 || before < 0 || before >= size)
    return emitOptionalError(loc, "window_squares_c2: size is positive, before from 0 to size - 1");
  types.push_back(adaptor.getX().getType());
  return success();
}
OpClass WindowSquaresOp::getOpClass() { return OpClass::Window; }
Iterators WindowSquaresOp::getIterators() { return iterators(rankOf(getY()), 1); }
Maps WindowSquaresOp::getAccessMaps() {
  unsigned rank = rankOf(getY());
  SmallVector<AffineExpr> index;
  for (unsigned d = 0; d < rank; ++d)
    index.push_back(getAffineDimExpr(d, getContext()));
  index[getAxis()] = index[getAxis()] + getAffineDimExpr(rank, getContext()) - int64_t(getBefore());
  return {AffineMap::get(rank + 1, 0, index, getContext()), identityMap(getY(), rank + 1)};
}

//===----------------------------------------------------------------------===//
// Recurrent
//===----------------------------------------------------------------------===//

// All is read step after step: nothing finer than Whole is promised.
OpClass RecurrentOp::getOpClass() { return OpClass::Scan; }
Iterators RecurrentOp::getIterators() { return iterators(rankOf(getOutputs()[0]), 0); }
Maps RecurrentOp::getAccessMaps() {
  Maps maps(getNumOperands() + getNumResults(), AffineMap());
  maps[getNumOperands()] = identityMap(getOutputs()[0], rankOf(getOutputs()[0]));
  return maps;
}
DimExpr RecurrentOp::getFlops() { // a product with r for each step and row
  return DimExpr(2) * dimOf(getX(), 0) * dimOf(getX(), 1) * numElements(getR().getType());
}

LogicalResult RecurrentOp::verify() {
  std::vector<DimExpr> x = dimsOf(getX()), r = dimsOf(getR()), h = dimsOf(getH());
  int64_t gates = getC() ? 4 : 3;
  if (x.size() != 3 || r.size() != 2 || h.size() != 2 || x[1] != h[0] || r[1] != h[1] ||
      r[0] != h[1] * DimExpr(gates) || x[2] != r[0])
    return emitOpError("recurrent_c1: x is [S, B, ") << gates << " H], r [" << gates
                                                     << " H, H], h [B, H]";
  if ((getC() && dimsOf(getC()) != h) || getOutputs().size() != (getC() ? 2 : 1) ||
      dimsOf(getOutputs()[0]) != std::vector<DimExpr>{x[0], h[0], h[1]} ||
      (getC() && dimsOf(getOutputs()[1]) != h))
    return emitOpError("recurrent_c1: ys is [S, B, H], a cell [B, H]");
  if (getBias() && (!getResetLast() || dimsOf(getBias()) != std::vector<DimExpr>{h[1]}))
    return emitOpError("recurrent_c2: a bias [H] goes with reset_last");
  if (getResetLast() && getC())
    return emitOpError("recurrent_c2: an LSTM resets nothing");
  return success();
}

} // namespace lathe
