//===- Describe.cpp - a kernel region as a KernelDesc ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The question to codegen/select, free of MLIR: buffers from the types, sizes
// from the anchor's access maps, and the roles that fuse has written down
// (lathe/ir/KernelRoles.h) in the question's words.
//
//   kernel (.., roles = <anchor = 0, operands = [buffer 0, buffer 1 weight], residual = 2>)
//   =>  KernelDesc{parallel = {M, N}, reduction = {K}, operands = {..}, residual = 2}
//
//===----------------------------------------------------------------------===//
#include "Describe.h"

#include "../layout/SpreadConvs.h"
#include "../sparsify/ZeroBlocksAttr.h"

#include "lathe/ir/AttentionOperands.h"
#include "lathe/ir/Fourier.h"
#include "lathe/ir/Interpolation.h"
#include "lathe/ir/MergedTranspose.h"
#include "lathe/ir/Roles.h"
#include "lathe/ir/Sampling.h"
#include "lathe/ir/Selection.h"
#include "lathe/ir/SharedPlaces.h"
#include "lathe/ir/StorageOperand.h"

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

/// The anchor's sizes, iterator by iterator. Of one that several values have a constant says most: where a formula is
/// another value's, a run whose sizes differ is refused.
std::vector<DimExpr> extentsOf(StructuredOpInterface anchor) {
  Operation *op = anchor.getOperation();
  SmallVector<AffineMap> maps = anchor.getAccessMaps();
  std::vector<DimExpr> extents(anchor.getIterators().size(), DimExpr(1));
  std::vector<bool> known(extents.size());
  auto visit = [&](Value value, AffineMap map) {
    if (!map)
      return;
    std::vector<DimExpr> dims = dimsOf(value);
    for (auto [d, expr] : llvm::enumerate(map.getResults()))
      if (auto dim = dyn_cast<AffineDimExpr>(expr))
        if (unsigned at = dim.getPosition(); !known[at] || (dims[d].isConstant() && !extents[at].isConstant())) {
          extents[at] = dims[d];
          known[at] = true;
        }
  };
  for (auto [value, map] :
       llvm::zip(op->getResults(), ArrayRef(maps).drop_front(op->getNumOperands())))
    visit(value, map);
  for (auto [value, map] : llvm::zip(op->getOperands(), maps))
    visit(value, map);
  return extents;
}

/// KernelDesc::headResults: of outputs whose sizes stay last, with one dimension of batches, tokens and
/// heads each.
void describeHeads(const KernelRoles &roles, Block &body, KernelDesc &desc) {
  desc.pairHead = roles.headSize;
  if (dimsOf(opAt(body, roles.split)->getResult(0)).size() != 4 || roles.headAxis != 2)
    return;
  for (const HeadOutput &output : roles.headOutputs) {
    auto dimOfSplit = [&](int64_t d) -> size_t { return llvm::find(output.dims, d) - output.dims.begin(); };
    KernelDesc::HeadResult found{output.first, output.count, dimOfSplit(0), dimOfSplit(1), dimOfSplit(2)};
    if (output.dims.size() != 4 || std::max({found.batches, found.tokens, found.heads}) > 2) {
      desc.headResults.clear();
      return;
    }
    desc.headResults.push_back(found);
  }
}

/// What becomes of the sums of a product.
void describeProduct(KernelOp kernel, MatmulOp product, const KernelRoles &roles, KernelDesc &desc) {
  using Pair = KernelRoles::Pair;
  desc.resultPair = roles.pair == Pair::Halves || roles.pair == Pair::HeadHalves;
  if (desc.resultPair)
    desc.parallel.back() = *desc.parallel.back().exactDiv(DimExpr(2));
  if (roles.hasHeads())
    describeHeads(roles, kernel.getBodyBlock(), desc);
  desc.resultAmax = roles.amax >= 0;
  if (roles.headsTransposed) { // [B, heads, tokens, size]
    std::vector<DimExpr> dims = dimsOf(kernel.getResult(0));
    desc.resultHeads = {dims[2], dims[1], dims[3]};
  }
  desc.operands[0].transposed = product.getTransposeA();
  desc.operands[1].transposed = product.getTransposeB();
  if (auto blocks = product->getAttrOfType<DenseI64ArrayAttr>(kNonzeroBlocksAttr); blocks && blocks.size() == 2) {
    desc.operands[1].nonzeroBlocks1 = blocks[0];
    desc.operands[1].nonzeroBlocks4 = blocks[1];
  }
  if (auto steps = product->getAttrOfType<DenseI64ArrayAttr>(kBlockStepsAttr); steps && steps.size() == 2) {
    desc.operands[1].blocks64 = steps[0];
    desc.operands[1].blockSteps = steps[1];
  }
  desc.operands[1].twoOfFour = product->hasAttr(kTwoOfFourAttr);
  desc.operands[0].inactive = product->hasAttr(kInactiveInputsAttr);
  if (desc.operands[0].codes >= 0 && desc.operands[1].codes >= 0) {
    // What is multiplied are the codes.
    desc.blockScales = true;
    for (ContractionOperand &operand : desc.operands) {
      operand.buffer = operand.codes;
      operand.dtype = desc.buffers[operand.buffer].dtype;
      operand.codes = -1;
    }
  }
  if (desc.operands[1].codes >= 0)
    desc.operands[1].codeGroup = storageOperand(product.getB())->integerGroup(product.getTransposeB() ? 1 : 0);
}

void describeConv(KernelOp kernel, ConvOp conv, const KernelRoles &roles, KernelDesc &desc) {
  std::vector<DimExpr> w = dimsOf(conv.getW());
  for (size_t d = 2; d < w.size(); ++d)
    desc.window.push_back(*w[d].constant());
  desc.strides.assign(conv.getStrides().begin(), conv.getStrides().end());
  desc.pads.assign(conv.getPads().begin(), conv.getPads().end());
  desc.dilations.assign(conv.getDilations().begin(), conv.getDilations().end());
  desc.group = conv.getGroup();
  desc.groupChannels = w[1].constant().value_or(0);
  desc.channelsLast = conv.getLayout() == ConvLayout::ChannelsLast;
  if (auto before = opAt<ConvOp>(kernel.getBodyBlock(), roles.depthwise)) {
    ContractionOperand depthwise;
    depthwise.dtype = dtypeOf(elementTypeOf(before.getW())).value_or(DType::F32);
    depthwise.buffer = cast<BlockArgument>(before.getW()).getArgNumber();
    depthwise.isWeight = true;
    desc.depthwise = depthwise;
  }
  if (auto parts = conv->getAttrOfType<DenseI64ArrayAttr>(kPartsAttr))
    desc.parts.assign(parts.asArrayRef().begin(), parts.asArrayRef().end());
  // Channels go last whatever the layout of memory.
  if (!desc.channelsLast) {
    DimExpr channels = desc.parallel[1];
    desc.parallel.erase(desc.parallel.begin() + 1);
    desc.parallel.push_back(channels);
  }
}

void describeAttention(AttentionOp attention, const KernelRoles &roles, KernelDesc &desc) {
  desc.keysFromOutside = roles.keysFromOutside;
  desc.maskHides = roles.maskHides;
  desc.keyMask = roles.keyMask;
  auto heads = dimOf(attention.getQ(), 1).constant(), groups = dimOf(attention.getK(), 1).constant();
  desc.headGroup = *heads / std::max<int64_t>(1, *groups);
  if (Value numbers = keysFoundBy(attention)) {
    desc.sharesKeys = true;
    desc.sequences = rowsOfTable(numbers);
  }
  desc.plainScores = !attention.hasScoreOperands() && !attention.getSoftcap();
  if (attention.hasScoreOperands()) {
    desc.maskDims = attention.scoreDims();
    desc.maskFlags = !attention.getBias();
    desc.biasAlone = !attention.hidesKeysInside();
  }
  for (auto [role, operand, rows] : llvm::zip(roles.operands, desc.operands, attention->getOperands())) {
    if (role.pages < 0)
      continue;
    const BufferArg &memory = desc.buffers[role.pages];
    operand.sixteens = memory.packing.empty() && memory.alignment % 16 == 0 &&
                       memory.physical.back().exactDiv(DimExpr(8));
    operand.pages = role.pages;
    if (std::optional<CodedRows> coded = codedRows(rows)) {
      // Sixteen scales lie together, and all lanes have whole words (codegen/device/attention_codes.cuh).
      const int64_t row = dimOf(rows, 3).constant().value_or(0) * coded->bits / 8;
      operand.codeBits = coded->bits;
      operand.sixteens = operand.sixteens && row > 0 && row % 32 == 0;
    }
    ArrayRef<DimExpr> physical(memory.physical);
    operand.pageStride = product(physical.drop_front(role.pagesDim + 1).vec());
    operand.pageRows = product(physical.take_front(role.pagesDim + 1).vec());
  }
}

ContractionOperand describeOperand(const OperandRole &role, Value operand, const KernelDesc &desc) {
  using Storage = OperandRole::Storage;
  ContractionOperand described;
  described.dtype = dtypeOf(elementTypeOf(operand)).value_or(DType::F32);
  described.isWeight = role.weight;
  switch (role.storage) {
  case Storage::Computed:
    break;
  case Storage::Codes:
    described.codes = role.input;
    described.bareCodes = role.bare;
    break;
  case Storage::Planes:
    described.planes = role.input;
    break;
  case Storage::Half:
    described.dtype = desc.buffers[role.input].dtype;
    described.buffer = role.input;
    break;
  case Storage::TokensFirst:
    described.tokensFirst = true;
    described.buffer = role.input;
    break;
  case Storage::Buffer:
    described.buffer = role.input;
    break;
  }
  return described;
}

void describeContraction(KernelOp kernel, Operation *anchor, const KernelRoles &roles, KernelDesc &desc) {
  desc.residual = roles.residual;
  desc.resultInPlace = roles.inPlace;
  desc.resultBare = roles.bare;
  for (auto [role, operand] : llvm::zip(roles.operands, anchor->getOperands()))
    desc.operands.push_back(describeOperand(role, operand, desc));
  if (auto product = dyn_cast<MatmulOp>(anchor))
    describeProduct(kernel, product, roles, desc);
  else if (auto conv = dyn_cast<ConvOp>(anchor))
    describeConv(kernel, conv, roles, desc);
  else if (auto attention = dyn_cast<AttentionOp>(anchor))
    describeAttention(attention, roles, desc);
}

/// Rows of a reduction: all dimensions of its operand. Sizes of one that keep the rank are no part of
/// them.
void describeRows(StructuredOpInterface anchor, KernelDesc &desc) {
  AffineMap map = anchor.getAccessMaps().front();
  if (!map)
    return;
  desc.parallel.clear();
  desc.reduction.clear();
  std::vector<DimExpr> dims = dimsOf(anchor->getOperand(0));
  size_t count = llvm::count(anchor.getIterators(), utils::IteratorType::parallel);
  for (auto [d, expr] : llvm::enumerate(map.getResults())) {
    auto dim = dyn_cast<AffineDimExpr>(expr);
    bool reduced = dim && dim.getPosition() >= count;
    (reduced ? desc.reduction : desc.parallel).push_back(dims[d]);
    if (!reduced && !desc.reduction.empty())
      desc.rowsContiguous = false;
    if (reduced && !desc.rowsContiguous)
      desc.reducesNeighbours = false;
    desc.reducesLast = reduced;
  }
}

/// A transpose and nothing else (KernelDesc::movedSizes).
void describeMoves(Block &body, KernelDesc &desc) {
  auto dense = [](const BufferArg &b) { return b.physical == b.dims && bitWidth(b.dtype) >= 8; };
  TransposeOp op = desc.numInputs == 1 ? onlyTranspose(body) : TransposeOp();
  if (!op || !llvm::all_of(desc.buffers, dense))
    return;
  MergedTranspose merged = MergedTranspose::of(op);
  desc.movedSizes = merged.sizes;
  desc.movedFrom = merged.from;
}

/// KernelDesc::interpolation, of known sizes along both axes.
void describeInterpolation(Block &body, KernelDesc &desc) {
  const std::optional<Interpolation> found = interpolationOf(body);
  if (!found || desc.serial)
    return;
  const std::vector<DimExpr> dims = dimsOf(found->sum);
  auto height = dims[found->rows.axis].constant(), width = dims[found->columns.axis].constant(),
       inner = product(found->sizesOf(found->inner)).constant(), read = dimOf(found->source, found->rows.axis).constant();
  if (height && width && inner && read)
    desc.interpolation = {product(found->sizesOf(found->outer)), *height, *width, *inner, *read,
                          int64_t(found->rows.taps()), int64_t(found->columns.taps())};
}

/// Input neighbours that are not the output's.
void describeTranspose(TransposeOp op, KernelDesc &desc) {
  int64_t rank = op.getPerm().size();
  desc.inputContiguous = llvm::find(op.getPerm(), rank - 1) - op.getPerm().begin();
  desc.inputContiguousType = dtypeOf(elementTypeOf(op.getResult())).value_or(DType::F32);
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
    desc.numReductions += kind == OpClass::Reduction || kind == OpClass::Scan;
    desc.dataIndices |= kind == OpClass::Gather || kind == OpClass::Scatter;
    desc.serial |= kind == OpClass::Scatter;
  }

  desc.chainedReads = walksTrees(kernel.getBodyBlock());

  for (RecurrentOp op : kernel.getBodyBlock().getOps<RecurrentOp>()) {
    desc.parallel = {dimOf(op.getH(), 0)};
    desc.reduction = {dimOf(op.getX(), 0), dimOf(op.getH(), 1)};
    for (int i : {0, 1})
      desc.operands.push_back({.buffer = i, .isWeight = i == 1, .dtype = desc.buffers[i].dtype});
    return desc;
  }

  if (auto transform = transformOf(kernel.getBodyBlock())) {
    desc.parallel = {transform->rows};
    desc.transform = {transform->rows, transform->length, transform->complexRows, transform->realBytes};
    return desc;
  }

  if (auto selection = selectionOf(kernel.getBodyBlock())) {
    desc.parallel = {selection->rows};
    desc.selection = {static_cast<KernelDesc::Selection::Kind>(selection->kind), selection->rows, selection->length, selection->count, selection->keyBits};
    return desc;
  }

  const KernelRoles roles = kernel.getRolesAttr() ? kernel.getRolesAttr().getRoles() : KernelRoles();
  Operation *anchor = opAt(kernel.getBodyBlock(), roles.anchor);
  if (!anchor) {
    if (desc.kind == KernelDesc::Kind::Gemm || desc.kind == KernelDesc::Kind::Conv ||
        desc.kind == KernelDesc::Kind::Attention || desc.kind == KernelDesc::Kind::Reduction)
      return kernel.emitError("has no roles: lathe-assign-roles has not run");
    desc.parallel = dimsOf(kernel.getResult(0).getType());
    if (auto transpose = opAt<TransposeOp>(kernel.getBodyBlock(), roles.transpose))
      describeTranspose(transpose, desc);
    describeMoves(kernel.getBodyBlock(), desc);
    describeInterpolation(kernel.getBodyBlock(), desc);
    desc.sharedRows = rowsThatSharePlaces(kernel.getBodyBlock());
    return desc;
  }
  auto structured = cast<StructuredOpInterface>(anchor);
  std::vector<DimExpr> extents = extentsOf(structured);
  for (auto [kind, extent] : llvm::zip(structured.getIterators(), extents))
    (kind == utils::IteratorType::parallel ? desc.parallel : desc.reduction).push_back(extent);
  if (desc.kind == KernelDesc::Kind::Reduction) {
    describeRows(structured, desc);
    desc.reducesAlone = roles.inPlace;
    desc.columnDims = roles.columns;
  } else if (desc.kind == KernelDesc::Kind::Scan) {
    auto axis = desc.parallel.begin() + structured.getAccess(0).dims.front();
    desc.reduction = {*axis};
    desc.parallel.erase(axis);
  } else {
    describeContraction(kernel, anchor, roles, desc);
  }
  return desc;
}

} // namespace lathe
