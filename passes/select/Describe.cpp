//===- Describe.cpp - a kernel region as a KernelDesc ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Describe.h"

#include "../layout/SpreadConvs.h"

#include "lathe/ir/AttentionOperands.h"
#include "lathe/ir/BlockExtremes.h"
#include "lathe/ir/HeadPairs.h"
#include "lathe/ir/NarrowWeights.h"

using namespace mlir;

namespace lathe {

namespace {

KernelDesc::Kind kindOf(RegionKind kind) { return static_cast<KernelDesc::Kind>(kind); }
static_assert(int(RegionKind::Custom) == int(KernelDesc::Kind::Custom));
static_assert(int(RegionKind::Attention) == int(KernelDesc::Kind::Attention));

/// Alignment of a result: one that is stored into a larger tensor begins at a multiple of
/// the stride of the dimension that it grows along.
int64_t alignmentOf(const BufferArg &arg) {
  int64_t alignment = arg.alignment;
  DimExpr stride = int64_t(std::max(8u, bitWidth(arg.dtype)) / 8);
  for (size_t d = arg.dims.size(); d-- > 0; stride = stride * arg.physical[d])
    if (arg.dims[d] != arg.physical[d])
      for (const DimExpr::Term &term : stride.terms())
        while (alignment > 1 && term.coefficient % alignment)
          alignment /= 2;
  return alignment;
}

FailureOr<BufferArg> bufferOf(KernelOp kernel, Type type, BufferArg::Access access) {
  BufferArg arg;
  std::optional<DType> dtype = dtypeOf(cast<TensorType>(type).getElementType());
  if (!dtype || *dtype == DType::String)
    return kernel.emitError("no buffer can hold elements of ") << type;
  // Several elements of a byte are written by one thread: pointwise kernels alone see to that.
  if (bitWidth(*dtype) < 8 && access == BufferArg::Access::Write &&
      kernel.getKind() != RegionKind::Pointwise && kernel.getKind() != RegionKind::Copy)
    return kernel.emitError("unsupported: only pointwise kernels write elements of ")
           << cast<TensorType>(type).getElementType();
  arg.dtype = *dtype;
  arg.access = access;
  arg.dims = dimsOf(type);
  arg.physical = physicalDimsOf(type);
  if (access == BufferArg::Access::Write)
    arg.alignment = alignmentOf(arg);
  return arg;
}

/// The heart's sizes, iterator by iterator.
std::vector<DimExpr> extentsOf(StructuredOpInterface heart) {
  Operation *op = heart.getOperation();
  SmallVector<AffineMap> maps = heart.getAccessMaps();
  std::vector<DimExpr> extents(heart.getIterators().size(), DimExpr(1));
  std::vector<bool> known(extents.size());
  auto visit = [&](Value value, AffineMap map) {
    if (!map)
      return;
    std::vector<DimExpr> dims = dimsOf(value);
    for (auto [d, expr] : llvm::enumerate(map.getResults()))
      if (auto dim = dyn_cast<AffineDimExpr>(expr))
        if (!known[dim.getPosition()]) {
          extents[dim.getPosition()] = dims[d];
          known[dim.getPosition()] = true;
        }
  };
  for (auto [value, map] :
       llvm::zip(op->getResults(), ArrayRef(maps).drop_front(op->getNumOperands())))
    visit(value, map);
  for (auto [value, map] : llvm::zip(op->getOperands(), maps))
    visit(value, map);
  return extents;
}

/// The contraction of the region, or its first reduction.
Operation *heartOf(KernelOp kernel) {
  auto find = [&](OpClass wanted) -> Operation * {
    for (Operation &op : kernel.getBodyBlock())
      if (isClass(&op, wanted))
        return &op;
    return nullptr;
  };
  switch (kernel.getKind()) {
  case RegionKind::Gemm:
    return find(OpClass::Gemm);
  case RegionKind::Conv: { // behind a depthwise one, if there are two
    Operation *last = nullptr;
    for (Operation &op : kernel.getBodyBlock())
      last = isClass(&op, OpClass::Conv) ? &op : last;
    return last;
  }
  case RegionKind::Attention:
    return find(OpClass::Attention);
  case RegionKind::Reduction:
    return find(OpClass::Reduction);
  case RegionKind::Scan:
    return find(OpClass::Scan);
  default:
    return nullptr;
  }
}

/// KernelDesc::resultExtremes.
bool hasExtremes(KernelOp kernel) {
  return kernel.getNumResults() == 2 && blockExtremes(kernel.getBodyBlock().getTerminator()->getOperand(1));
}

/// Whether the only result, extremes aside, has the heart's elements in their order: it follows from a
/// value of these sizes by reshapes alone.
bool isInPlace(KernelOp kernel, const std::vector<DimExpr> &space) {
  if (kernel.getNumResults() != 1 && !hasExtremes(kernel))
    return false;
  Value v = kernel.getBodyBlock().getTerminator()->getOperand(0);
  while (dimsOf(v) != space) {
    auto reshape = v.getDefiningOp<ReshapeOp>();
    if (!reshape)
      return false;
    v = reshape->getOperand(0);
  }
  return true;
}

/// KernelDesc::resultHeads.
std::vector<DimExpr> headsOf(KernelOp kernel, const std::vector<DimExpr> &space) {
  auto turn = kernel.getBodyBlock().getTerminator()->getOperand(0).getDefiningOp<TransposeOp>();
  auto split = turn ? turn.getX().getDefiningOp<ReshapeOp>() : ReshapeOp();
  if (!split || kernel.getNumResults() != 1 || space.size() != 3 || dimsOf(split.getX()) != space ||
      turn.getPerm() != ArrayRef<int64_t>({0, 2, 1, 3}))
    return {};
  std::vector<DimExpr> dims = dimsOf(split.getY());
  if (dims[0] != space[0] || dims[1] != space[1])
    return {};
  return {dims[1], dims[2], dims[3]};
}

/// Whether results are the heart's elements, moved or rounded.
bool isBare(KernelOp kernel, Operation *heart) {
  for (Value v : kernel.getBodyBlock().getTerminator()->getOperands()) {
    while (v.getDefiningOp() && isa<ReshapeOp, TransposeOp, CastOp>(v.getDefiningOp()))
      v = v.getDefiningOp()->getOperand(0);
    if (v != heart->getResult(0))
      return false;
  }
  return true;
}

/// Whether a mask is likely to hide keys: it is boolean, holds the number of a key that is not seen,
/// or is read from memory for many heads. A bias for each head is none that is worth looking at.
bool hidesKeys(Value mask, int64_t heads) {
  if (elementTypeOf(mask).isInteger(1))
    return true;
  std::vector<DimExpr> dims = dimsOf(mask);
  bool shared = dims.size() < 3 || dims[dims.size() - 3] == DimExpr(1);
  bool hides = false;
  SmallVector<Value> todo{mask};
  llvm::SmallPtrSet<Value, 8> seen;
  while (!todo.empty() && !hides) {
    Value v = todo.pop_back_val();
    if (!seen.insert(v).second)
      continue;
    if (isa<BlockArgument>(v)) {
      constexpr int64_t kMany = 4;
      hides = shared && heads >= kMany && dimsOf(v).size() >= 2 && elementTypeOf(v).isFloat() &&
              product(dimsOf(v)) == product(dims);
      continue;
    }
    std::optional<double> number = numberOf(v);
    hides = number && *number == -std::numeric_limits<double>::infinity();
    llvm::append_range(todo, v.getDefiningOp()->getOperands());
  }
  return hides;
}

/// Half of the columns of a product, when nothing but slices of its halves reads it.
std::optional<DimExpr> halfColumns(MatmulOp matmul) {
  std::optional<DimExpr> half;
  for (Operation *user : matmul.getResult().getUsers()) {
    auto slice = dyn_cast<SliceOp>(user);
    if (!slice || dimsOf(slice.getY()).back() == dimsOf(matmul.getResult()).back())
      return std::nullopt;
    half = dimsOf(slice.getY()).back();
  }
  return half;
}

/// An input of 16-bit floats with an element for each of the heart's, read point by point.
int besideOf(KernelOp kernel, Operation *heart) {
  Block &body = kernel.getBodyBlock();
  for (BlockArgument argument : body.getArguments()) {
    Type element = elementTypeOf(argument);
    bool pointwise = !argument.use_empty() && llvm::all_of(argument.getUsers(), [&](Operation *user) {
      return isClass(user, OpClass::Pointwise) && dimsOf(user->getResult(0)) == dimsOf(argument);
    });
    if (pointwise && (element.isF16() || element.isBF16()) &&
        dimsOf(argument) == dimsOf(heart->getResult(0)))
      return static_cast<int>(argument.getArgNumber());
  }
  return -1;
}

/// Whether weights, their scales and zero points (narrowWeights) are all constants.
bool isKnownChain(KernelOp kernel, Value weights) {
  SmallVector<Value> todo{weights};
  while (!todo.empty()) {
    Value v = todo.pop_back_val();
    if (auto argument = dyn_cast<BlockArgument>(v)) {
      v = kernel.getInputs()[argument.getArgNumber()];
      while (v.getDefiningOp() && isView(v.getDefiningOp()))
        v = v.getDefiningOp()->getOperand(0);
      if (!v.getDefiningOp<ConstantOp>())
        return false;
    } else {
      llvm::append_range(todo, v.getDefiningOp()->getOperands());
    }
  }
  return true;
}

/// Whether all that an operand is made of, beside constants, are inputs of the program.
bool isFromOutside(KernelOp kernel, Value operand) {
  SmallVector<Value> todo{operand};
  while (!todo.empty()) {
    Value v = todo.pop_back_val();
    auto argument = dyn_cast<BlockArgument>(v);
    if (!argument) {
      llvm::append_range(todo, v.getDefiningOp()->getOperands());
      continue;
    }
    v = kernel.getInputs()[argument.getArgNumber()];
    while (v.getDefiningOp() && isView(v.getDefiningOp()))
      v = v.getDefiningOp()->getOperand(0);
    auto input = dyn_cast<BlockArgument>(v);
    auto program = input ? dyn_cast<func::FuncOp>(input.getOwner()->getParentOp()) : func::FuncOp();
    if (!v.getDefiningOp<ConstantOp>() && !(program && program.isPublic()))
      return false;
  }
  return true;
}

/// KernelDesc::headResults.
void describeHeads(KernelOp kernel, HeadPairs &heads, KernelDesc &desc) {
  if (dimsOf(heads.split.getY()).size() != 4 || heads.axis != 2)
    return;
  for (Value output : kernel.getBodyBlock().getTerminator()->getOperands()) {
    std::optional<HeadPlace> place = headPlace(output, heads);
    if (!place) {
      desc.headResults.clear();
      return;
    }
    auto dimOfSplit = [&](int64_t d) -> size_t { return llvm::find(place->dims, d) - place->dims.begin(); };
    KernelDesc::HeadResult found{place->first, place->count, dimOfSplit(0), dimOfSplit(1),
                                 dimOfSplit(2)};
    if (place->dims.size() != 4 || std::max({found.batches, found.tokens, found.heads}) > 2) {
      desc.headResults.clear();
      return;
    }
    desc.headResults.push_back(found);
  }
}

void describeContraction(KernelOp kernel, Operation *heart, KernelDesc &desc) {
  if (auto matmul = dyn_cast<MatmulOp>(heart)) {
    if (std::optional<DimExpr> half = halfColumns(matmul)) {
      desc.resultPair = true;
      desc.parallel.back() = *half;
    }
    if (std::optional<HeadPairs> heads = headPairs(matmul, /*inKernel=*/true)) {
      desc.resultPair = !heads->neighbours;
      desc.pairHead = heads->size;
      if (desc.resultPair)
        desc.parallel.back() = DimExpr(heads->heads * heads->size / 2);
      describeHeads(kernel, *heads, desc);
    }
  }
  if (isa<MatmulOp, ConvOp>(heart))
    desc.beside = besideOf(kernel, heart);
  desc.resultExtremes = isa<MatmulOp>(heart) && hasExtremes(kernel);
  desc.resultInPlace = isInPlace(kernel, desc.resultPair ? desc.parallel : dimsOf(heart->getResult(0)));
  if (isa<MatmulOp>(heart) && !desc.resultPair)
    desc.resultHeads = headsOf(kernel, dimsOf(heart->getResult(0)));
  desc.resultBare = isBare(kernel, heart);
  auto gemm = dyn_cast<MatmulOp>(heart);
  FailureOr<Target> target = targetOf(kernel->getParentOfType<ModuleOp>());
  bool cuda = failed(target) || target->isCuda();
  for (auto [i, operand] : llvm::enumerate(heart->getOperands())) {
    ContractionOperand described;
    described.dtype = dtypeOf(elementTypeOf(operand)).value_or(DType::F32);
    Value read = operand;
    if (Value rows = tokensFirst(operand); rows && isa<AttentionOp>(heart) && i < 3) {
      read = rows;
      described.tokensFirst = true;
    }
    if (auto attention = dyn_cast<AttentionOp>(heart); attention && i == 3)
      if (Value mask = maskParts(attention).mask) // without a sink beside it
        read = mask;
    if (auto cast = operand.getDefiningOp<CastOp>(); cast && gemm && i == 1 && !cuda) {
      read = cast.getX(); // the product widens what it reads
      described.dtype = dtypeOf(elementTypeOf(read)).value_or(DType::F32);
    }
    if (auto argument = dyn_cast<BlockArgument>(read)) {
      described.buffer = argument.getArgNumber();
      described.isWeight =
          isa_and_nonnull<ConstantOp>(kernel.getInputs()[described.buffer].getDefiningOp());
    }
    if (auto data = dyn_cast_or_null<BlockArgument>(gemm && i == 1 && cuda ? narrowWeights(operand)
                                                                            : Value())) {
      described.narrow = data.getArgNumber();
      described.narrowBare = narrowFactors(operand).bare;
      described.isWeight = isKnownChain(kernel, operand);
    }
    if (auto turned = operand.getDefiningOp<TransposeOp>(); turned && isa<ConvOp>(heart) && i == 0)
      if (auto planes = dyn_cast<BlockArgument>(turned.getX()))
        if (turned.getPerm().back() == 1 && llvm::is_sorted(turned.getPerm().drop_back()))
          described.planes = planes.getArgNumber();
    if (gemm)
      described.transposed = i == 0 ? gemm.getTransposeA() : gemm.getTransposeB();
    desc.operands.push_back(described);
  }
  if (isa<AttentionOp>(heart))
    desc.keysFromOutside = llvm::all_of(heart->getOperands().drop_front(), [&](Value operand) {
      return !operand || isFromOutside(kernel, operand);
    });
  if (auto conv = dyn_cast<ConvOp>(heart)) {
    std::vector<DimExpr> w = dimsOf(conv.getW());
    for (size_t d = 2; d < w.size(); ++d)
      desc.window.push_back(*w[d].constant());
    desc.strides.assign(conv.getStrides().begin(), conv.getStrides().end());
    desc.pads.assign(conv.getPads().begin(), conv.getPads().end());
    desc.dilations.assign(conv.getDilations().begin(), conv.getDilations().end());
    desc.group = conv.getGroup();
    desc.groupChannels = w[1].constant().value_or(0);
    desc.channelsLast = conv.getLayout() == ConvLayout::ChannelsLast;
    for (ConvOp before : kernel.getBodyBlock().getOps<ConvOp>())
      if (auto filters = dyn_cast<BlockArgument>(before.getW()); filters && before != conv) {
        ContractionOperand depthwise;
        depthwise.dtype = dtypeOf(elementTypeOf(filters)).value_or(DType::F32);
        depthwise.buffer = filters.getArgNumber();
        depthwise.isWeight = true;
        desc.operands.push_back(depthwise);
      }
    if (auto parts = conv->getAttrOfType<DenseI64ArrayAttr>(kPartsAttr))
      desc.parts.assign(parts.asArrayRef().begin(), parts.asArrayRef().end());
    // Channels go last whatever the layout of memory.
    if (!desc.channelsLast) {
      DimExpr channels = desc.parallel[1];
      desc.parallel.erase(desc.parallel.begin() + 1);
      desc.parallel.push_back(channels);
    }
  } else if (auto attention = dyn_cast<AttentionOp>(heart)) {
    auto heads = dimOf(attention.getQ(), 1).constant(), groups = dimOf(attention.getK(), 1).constant();
    desc.headGroup = *heads / std::max<int64_t>(1, *groups);
    MaskParts parts = maskParts(attention);
    desc.plainScores = parts.onlyEnds && !attention.getSoftcap();
    if (Value mask = parts.mask; mask && !parts.onlyEnds) {
      desc.maskDims = dimsOf(mask);
      while (desc.maskDims.size() < 4)
        desc.maskDims.insert(desc.maskDims.begin(), DimExpr(1));
      desc.maskHides = !parts.sinkInMask && hidesKeys(mask, *heads);
      desc.maskFlags = elementTypeOf(mask).isInteger(1);
      desc.keyMask = isKeyMask(attention, parts);
    }
    for (size_t i : {1, 2}) {
      std::optional<RowsInMemory> rows = rowsInMemory(attention->getOperand(i));
      auto argument = rows ? dyn_cast<BlockArgument>(rows->memory) : BlockArgument();
      if (!argument || !rows->gathered)
        continue;
      const BufferArg &memory = desc.buffers[argument.getArgNumber()];
      ContractionOperand &operand = desc.operands[i];
      operand.sixteens = memory.packing.empty() && memory.alignment % 16 == 0 &&
                         memory.physical.back().exactDiv(DimExpr(8));
      operand.pages = argument.getArgNumber();
      ArrayRef<DimExpr> physical(memory.physical);
      operand.pageStride = product(physical.drop_front(rows->dim + 1).vec());
      operand.pageRows = product(physical.take_front(rows->dim + 1).vec());
    }
  }
}

/// A transpose of the output's sizes that moves the last dimension: the input's neighbours are
/// not the output's.
void describeTranspose(KernelOp kernel, KernelDesc &desc) {
  if (kernel.getNumResults() != 1)
    return;
  for (TransposeOp op : kernel.getBodyBlock().getOps<TransposeOp>()) {
    int64_t rank = op.getPerm().size();
    if (rank < 2 || op.getPerm()[rank - 1] == rank - 1 || dimsOf(op.getResult()) != desc.parallel)
      continue;
    desc.inputContiguous = llvm::find(op.getPerm(), rank - 1) - op.getPerm().begin();
    desc.inputContiguousType = dtypeOf(elementTypeOf(op.getResult())).value_or(DType::F32);
    return;
  }
}

/// How many dimensions lie behind those that the kernel's one reduction takes together, if
/// nothing but what is kept leaves the kernel (KernelDesc::columnDims).
int64_t columnDimsOf(KernelOp kernel, const KernelDesc &desc) {
  ReduceOp op;
  for (ReduceOp candidate : kernel.getBodyBlock().getOps<ReduceOp>())
    op = candidate;
  if (!op || desc.numReductions != 1 || desc.dataIndices)
    return 0;
  ArrayRef<int64_t> axes = op.getAxes();
  bool neighbours = !axes.empty() && axes.back() - axes.front() + 1 == int64_t(axes.size());
  Type element = elementTypeOf(op.getX());
  if (!neighbours || element.isUnsignedInteger() || element.getIntOrFloatBitWidth() < 8)
    return 0;
  DimExpr kept = product(dimsOf(op.getResult()));
  for (Type type : kernel.getResultTypes())
    if (product(dimsOf(type)) != kept)
      return 0;
  return int64_t(dimsOf(op.getX()).size()) - 1 - axes.back();
}

} // namespace

FailureOr<KernelDesc> describe(KernelOp kernel, const std::map<std::string, DimRange> &ranges) {
  KernelDesc desc;
  desc.name = kernel.getName().str();
  desc.kind = kindOf(kernel.getKind());
  desc.numInputs = kernel.getInputs().size();
  desc.numOutputs = kernel.getNumResults();
  for (Value input : kernel.getInputs()) {
    auto arg = bufferOf(kernel, input.getType(), BufferArg::Access::Read);
    if (failed(arg))
      return failure();
    desc.buffers.push_back(*arg);
  }
  for (Type type : kernel.getResultTypes()) {
    auto arg = bufferOf(kernel, type, BufferArg::Access::Write);
    if (failed(arg))
      return failure();
    desc.buffers.push_back(*arg);
  }
  for (const std::string &symbol : symbolsOf(kernel.getBodyBlock(), kernel.getResultTypes())) {
    auto range = ranges.find(symbol);
    if (range == ranges.end())
      return kernel.emitError("uses the size '") << symbol << "', which the module does not declare";
    desc.symbols.insert(*range);
  }

  for (Operation &op : kernel.getBodyBlock()) {
    std::optional<OpClass> kind = classOf(&op);
    desc.numReductions += kind == OpClass::Reduction;
    desc.dataIndices |= kind == OpClass::Gather || kind == OpClass::Scatter;
    desc.serial |= kind == OpClass::Scatter;
  }

  for (RecurrentOp op : kernel.getBodyBlock().getOps<RecurrentOp>()) {
    desc.parallel = {dimOf(op.getH(), 0)};
    desc.reduction = {dimOf(op.getX(), 0), dimOf(op.getH(), 1)};
    for (int i : {0, 1})
      desc.operands.push_back({.buffer = i, .isWeight = i == 1, .dtype = desc.buffers[i].dtype});
    return desc;
  }

  Operation *heart = heartOf(kernel);
  if (!heart) {
    desc.parallel = dimsOf(kernel.getResult(0).getType());
    describeTranspose(kernel, desc);
    return desc;
  }
  auto structured = cast<StructuredOpInterface>(heart);
  std::vector<DimExpr> extents = extentsOf(structured);
  for (auto [kind, extent] : llvm::zip(structured.getIterators(), extents))
    (kind == utils::IteratorType::parallel ? desc.parallel : desc.reduction).push_back(extent);
  if (desc.kind == KernelDesc::Kind::Reduction) {
    // Sizes of one that keep the rank are no part of the rows.
    if (AffineMap map = structured.getAccessMaps().front()) {
      desc.parallel.clear();
      desc.reduction.clear();
      std::vector<DimExpr> dims = dimsOf(heart->getOperand(0));
      size_t count = llvm::count(structured.getIterators(), utils::IteratorType::parallel);
      bool lastIsReduced = true;
      for (auto [d, expr] : llvm::enumerate(map.getResults())) {
        auto dim = dyn_cast<AffineDimExpr>(expr);
        bool reduced = dim && dim.getPosition() >= count;
        (reduced ? desc.reduction : desc.parallel).push_back(dims[d]);
        if (!reduced && !desc.reduction.empty())
          lastIsReduced = false;
      }
      desc.rowsContiguous = lastIsReduced;
      desc.columnDims = columnDimsOf(kernel, desc);
    }
  } else if (desc.kind != KernelDesc::Kind::Scan) {
    describeContraction(kernel, heart, desc);
  }
  return desc;
}

} // namespace lathe
