//===- GrowContractions.cpp - epilogues -----------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A contraction computes its result tile by tile in registers: pointwise ops
// over the same sizes cost nothing there, and a result that is only split and
// permuted afterwards can be stored where it belongs at once. Two halves of the
// columns that meet point by point (a gate and what it lets through) are one
// result where the kernel can compute tiles of both at a time.
//
// The greatest element of a result, by which it will be quantized, is found tile by tile on the way.
//
//   %m = matmul %x, %w                       kernel gemm {
//   %a = add %m, %residual              =>     matmul, add, reshape, transpose
//   %t = transpose (reshape %a)              }
//
//===----------------------------------------------------------------------===//
#include "FusionGraph.h"

#include "lathe/ir/BlockAmax.h"

using namespace mlir;

namespace lathe::fuse {

bool isUpcast(Operation *op) {
  if (!isConversion(op))
    return false;
  Type from = elementTypeOf(op->getOperand(0)), to = elementTypeOf(op->getResult(0));
  return isa<FloatType>(from) && isa<FloatType>(to) && from.getIntOrFloatBitWidth() == 16 &&
         to.getIntOrFloatBitWidth() > 16 &&
         llvm::all_of(op->getUsers(), [](Operation *user) { return classOf(user) && !isView(user); });
}

bool isImageOfCodes(Operation *op) {
  auto codes = dyn_cast<DequantizeOp>(op);
  return codes && !codes.getScale() && elementTypeOf(codes.getData()).getIntOrFloatBitWidth() == 8 && !op->use_empty() &&
         llvm::all_of(op->getUses(), [](OpOperand &use) {
           if (!isClass(use.getOwner(), OpClass::Conv) || use.getOperandNumber() != 0)
             return false;
           Type filters = elementTypeOf(use.getOwner()->getOperand(1));
           return filters.isInteger(8) || filters.isF32();
         });
}

/// Whether readers make numbers of codes of 8 bits or fewer as they read them.
static bool isOfStoredCodes(Operation *op) {
  auto codes = dyn_cast<DequantizeOp>(op);
  return codes && elementTypeOf(codes.getData()).getIntOrFloatBitWidth() <= 8 &&
         llvm::all_of(op->getUsers(), [](Operation *user) { return classOf(user) && !isView(user); });
}

/// Whether the depth of a product is the last dimension of an operand.
static bool isContractedLast(Operation *product, unsigned operand) {
  auto structured = cast<StructuredOpInterface>(product);
  AffineMap map = structured.getAccess(operand).map;
  auto last = map ? dyn_cast<AffineDimExpr>(map.getResults().back()) : AffineDimExpr(nullptr);
  return last && structured.getIterators()[last.getPosition()] == utils::IteratorType::reduction;
}

/// Bytes of an element of both operands where tensor cores multiply them and tensor maps describe them
/// whatever the number of rows is (codegen/select/HopperGemm.cpp): weights are constant. Else 0.
static int64_t mappedBytes(Operation *product, const Target &target) {
  if (!isClass(product, OpClass::Gemm) || !target.hasWgmma() || !isContractedLast(product, 0))
    return 0;
  Value left = product->getOperand(0), right = product->getOperand(1);
  Type a = elementTypeOf(left), b = elementTypeOf(right);
  int64_t bytes = a.getIntOrFloatBitWidth() / 8;
  bool halves = a == b && (a.isF16() || a.isBF16());
  bool eights = bytes == 1 && b.getIntOrFloatBitWidth() == 8 && isa<FloatType>(a) == isa<FloatType>(b) &&
                isContractedLast(product, 1);
  auto columns = dimsOf(product->getResult(0)).back().constant(), depth = dimsOf(left).back().constant();
  if (!(halves || eights) || !columns || !depth || *depth == 0)
    return 0;
  const int64_t piece = 16 / bytes; // elements
  bool mapped = *depth % piece == 0 && *columns % piece == 0 && dimsOf(right).size() == 2 &&
                right.getDefiningOp<ConstantOp>() && !isNumber(right.getDefiningOp());
  return mapped ? bytes : 0;
}

bool hasPairs(Operation *product, const Target &target) {
  constexpr int64_t kPiece = 8; // elements in 16 bytes
  return mappedBytes(product, target) == 2 &&
         elementTypeOf(product->getResult(0)) == elementTypeOf(product->getOperand(0)) &&
         *dimsOf(product->getResult(0)).back().constant() % (2 * kPiece) == 0;
}

/// Whether the kernel can find the greatest element of blocks of the group's results beside them: they make up
/// whole blocks, and are so many that a kernel behind takes its time.
static bool mayHaveAmax(const Group &group, const Target &target) {
  constexpr int64_t kManyRows = 256;
  if (!mappedBytes(group.anchor, target))
    return false;
  auto rows = product({group.space.begin(), group.space.end() - 1}).constant();
  auto columns = group.space.back().constant();
  return rows && columns && *rows >= kManyRows && *rows % kAmaxRows == 0 && *columns % kAmaxColumns == 0;
}

/// Takes slices of the two halves of a product's columns if nothing else reads it and tensor maps
/// will serve whatever the number of rows is (codegen/select/HopperGemm.cpp).
static SmallVector<Operation *> takeHalves(FusionGraph &graph, Group &group, const Target &target) {
  if (!hasPairs(group.anchor, target))
    return {};
  Value sums = group.anchor->getResult(0);
  std::vector<DimExpr> dims = dimsOf(sums);
  auto columns = dims.back().constant();
  bool seen[2] = {};
  SmallVector<Operation *> slices;
  for (Operation *user : sums.getUsers()) {
    std::optional<Box> box = boxOf(user);
    if (!box || !graph.isFree(user))
      return {};
    std::vector<DimExpr> part = dimsOf(user->getResult(0));
    for (auto [d, first] : llvm::enumerate(box->starts)) {
      bool last = d + 1 == dims.size();
      if (box->steps[d] != 1 || (last ? first % (*columns / 2) : first) ||
          part[d] != (last ? DimExpr(*columns / 2) : dims[d]))
        return {};
      if (last)
        seen[first > 0] = true;
    }
    slices.push_back(user);
  }
  if (!seen[0] || !seen[1])
    return {};
  for (Operation *slice : slices)
    graph.own(slice, group);
  group.space.back() = DimExpr(*columns / 2);
  return slices;
}

/// What leaves the group, without what the anchor gives beside its first result, which is stored as
/// it is, and amax.
static SmallVector<Value> mainOutputs(const FusionGraph &graph, const Group &group) {
  SmallVector<Value> outputs = graph.outputs(group);
  llvm::erase_if(outputs, [&](Value v) {
    return (v.getDefiningOp() == group.anchor && v != group.anchor->getResult(0)) ||
           isClass(v.getDefiningOp(), OpClass::Reduction);
  });
  return outputs;
}

/// The member that finds an amax, if there is one.
static Operation *amaxOf(const Group &group) {
  const auto *found = llvm::find_if(group.members, isAmax);
  return found == group.members.end() ? nullptr : *found;
}

/// Whether the one value that leaves beside an amax is stored by TMA in pieces of 64 columns.
static bool storesBlocks(const FusionGraph &graph, const Group &group) {
  Value result = mainOutputs(graph, group)[0];
  unsigned bits = elementTypeOf(result).getIntOrFloatBitWidth();
  return hasDims(result, group.space) && (bits == 8 || bits == 16);
}

/// Adds the pointwise ops after the anchor, as long as one value leaves the group, and `withAmax`
/// the reduction that finds the greatest element of one of them.
/// `taken`: slices of halves that the group has taken already.
static void growEpilogue(FusionGraph &graph, Group &group, SmallVector<Operation *> taken = {}, bool withAmax = false) {
  const SmallVector<Operation *> slices = taken;
  bool started = false;
  for (Operation *op : graph.ops()) {
    if (op == group.anchor) {
      started = true;
      continue;
    }
    bool amax = withAmax && isAmax(op) && hasDims(op->getOperand(0), group.space) && !amaxOf(group);
    if (!started || !graph.isFree(op) || isImageOfCodes(op) || !(amax || isClass(op, OpClass::Pointwise)) ||
        llvm::none_of(op->getOperands(), [&](Value operand) {
          Operation *producer = operand.getDefiningOp();
          return producer && graph.ownerOf(producer) == &group;
        }))
      continue;
    if (!amax && !hasDims(op->getResult(0), group.space)) {
      missedRemark(op->getLoc(), "Epilogue")
          << "not fused into the contraction before it: its result has other sizes";
      continue;
    }
    // What the whole of an amax is needed for is another kernel's.
    bool needsAmax = llvm::any_of(op->getOperands(), [&](Value operand) {
      return operand.getDefiningOp() && operand.getDefiningOp() == amaxOf(group);
    });
    if (needsAmax || !graph.mayOwn(op, group)) {
      missedRemark(op->getLoc(), "Epilogue")
          << "not fused into the contraction before it: an operand depends on its result "
             "through another kernel";
      continue;
    }
    graph.own(op, group);
    taken.push_back(op);
  }
  // One store per point: the longest prefix after which a single value is left.
  while (!taken.empty() && mainOutputs(graph, group).size() != 1) {
    missedRemark(taken.back()->getLoc(), "Epilogue")
        << "not fused into the contraction before it: more than one value would leave the kernel";
    graph.release(taken.pop_back_val(), group);
  }
  if (!slices.empty() && taken.size() <= slices.size()) { // the halves do not meet
    while (!taken.empty())
      graph.release(taken.pop_back_val(), group);
    group.space = dimsOf(group.anchor->getResult(0));
  }
  // Readers upcast the result, or dequantize it, at no cost; storing what they make of it moves twice the bytes and more.
  while (!taken.empty() && (isUpcast(taken.back()) || isOfStoredCodes(taken.back())))
    graph.release(taken.pop_back_val(), group);
  Operation *amax = amaxOf(group);
  if (amax && !storesBlocks(graph, group)) {
    missedRemark(amax->getLoc(), "Epilogue")
        << "not found by the contraction before it: its results are not stored by TMA";
    while (taken.size() > slices.size())
      graph.release(taken.pop_back_val(), group);
    growEpilogue(graph, group, slices);
    return;
  }
  for (Operation *op : taken)
    passedRemark(op->getLoc(), "Epilogue") << "fused into the contraction before it";
  if (amax)
    graph.splitAmax(amax, group);
}

/// Whether every reader needs the value in memory as it is.
static bool wantsMemory(Value value) {
  return llvm::all_of(value.getUsers(), [](Operation *user) {
    std::optional<OpClass> kind = classOf(user);
    if (!kind || *kind == OpClass::Gemm || *kind == OpClass::Attention || *kind == OpClass::Conv)
      return true;
    return user->hasAttr(kViewAttr) || (isView(user) && wantsMemory(user->getResult(0)));
  });
}

/// Whether `to` is `from` with dimensions split into several, none merged; sizes of 1 come
/// and go.
static bool onlySplits(ArrayRef<DimExpr> from, ArrayRef<DimExpr> to) {
  size_t t = 0;
  for (const DimExpr &dim : from) {
    if (dim == DimExpr(1))
      continue;
    DimExpr part = 1;
    do {
      if (t == to.size())
        return false;
      part = part * to[t++];
    } while (part != dim);
  }
  return product(std::vector<DimExpr>(to.begin() + t, to.end())) == DimExpr(1);
}

/// Whether neighbours stay neighbours: a permutation, or a slice from the first element on, that leaves
/// the last dimension alone.
static bool keepsRows(Operation *op) {
  if (op->getNumOperands() != 1 || op->hasAttr(kViewAttr))
    return false;
  const std::vector<DimExpr> from = dimsOf(op->getOperand(0)), to = dimsOf(op->getResult(0));
  if (to.empty() || from.back() != to.back()) // a whole image may become a number
    return false;
  if (std::optional<Box> box = boxOf(op))
    return llvm::all_of(box->steps, [](int64_t step) { return step == 1; }) &&
           llvm::all_of(box->starts, [](int64_t start) { return start == 0; });
  auto permutation = permutationOf(op);
  return permutation && keepsLastDim(*permutation);
}

/// The chain of views and permutations behind the group's one output, up to the last
/// that changes how the result lies in memory. Results of halves stay in their order.
/// A CPU's convolution stores rows of channels `anywhere`, or leaves them out; what takes them apart is
/// better done for many at a time, by a kernel of its own.
/// A GPU's kernel stores each of its results: a view of a part of them is one kernel's behind it.
static void growOutputMap(FusionGraph &graph, Group &group, const Target &target) {
  const bool anywhere = group.kind == RegionKind::Conv && !target.isCuda();
  if (group.kind == RegionKind::Gemm && group.space != dimsOf(group.anchor->getResult(0)))
    return;
  SmallVector<Value> outputs = mainOutputs(graph, group);
  bool hasAmax = llvm::any_of(group.members, [](Operation *op) { return isClass(op, OpClass::Reduction); });
  if (outputs.size() != 1 || hasAmax)
    return;
  SmallVector<Operation *> chain;
  size_t taken = 0;
  for (Value value = outputs[0]; value.hasOneUse();) {
    Operation *next = *value.user_begin();
    if (!graph.isFree(next))
      break;
    if (target.isCuda() && next->hasAttr(kViewAttr))
      break;
    bool view = isView(next) &&
                (anywhere || onlySplits(dimsOf(value), dimsOf(next->getResult(0))));
    if (!view && !(anywhere ? keepsRows(next) : permutationOf(next).has_value()))
      break;
    value = next->getResult(0);
    chain.push_back(next);
    bool appended = value.hasOneUse() && isa<StateAppendOp>(*value.user_begin());
    if (appended || (!view && (anywhere || wantsMemory(value))))
      taken = chain.size();
  }
  for (Operation *op : ArrayRef(chain).take_front(taken)) {
    graph.own(op, group);
    passedRemark(op->getLoc(), "OutputMap") << "the kernel before stores its result in this order";
  }
}

static std::optional<RegionKind> contractionKind(Operation *op) {
  std::optional<OpClass> kind = classOf(op);
  if (kind == OpClass::Gemm)
    return RegionKind::Gemm;
  if (kind == OpClass::Conv)
    return RegionKind::Conv;
  if (kind == OpClass::Attention)
    return RegionKind::Attention;
  return std::nullopt;
}

void growContractions(FusionGraph &graph, const Target &target) {
  // All anchors first: an epilogue may then see which operands other kernels make.
  SmallVector<Group *> groups;
  for (Operation *op : graph.ops()) {
    std::optional<RegionKind> kind = contractionKind(op);
    if (!kind || !graph.isFree(op))
      continue;
    if (Group *pair = pairConvs(graph, op, target))
      groups.push_back(pair);
    if (graph.isFree(op))
      groups.push_back(&graph.create(op, *kind));
  }
  for (Group *group : groups) {
    if (takeHeads(graph, *group, target))
      continue;
    SmallVector<Operation *> halves = takeHalves(graph, *group, target);
    growEpilogue(graph, *group, halves, mayHaveAmax(*group, target));
    growOutputMap(graph, *group, target);
  }
}

/// A GPU finds as many places as are wanted, where their number is known by then: the slice is the kernel's result.
static void growSlice(FusionGraph &graph, Group &group) {
  Value found = group.anchor->getResult(0);
  if (!found.hasOneUse() || dimsOf(found).size() != 1)
    return;
  Operation *op = *found.user_begin();
  std::optional<Box> box = graph.isFree(op) ? boxOf(op) : std::nullopt;
  if (box && box->starts[0] == 0 && box->steps[0] == 1 && graph.mayOwn(op, group))
    graph.own(op, group);
}

/// A GPU stores the elements whose places it finds, too: a gather from the anchor's operand by its result, along its axis.
static void growTaken(FusionGraph &graph, Group &group) {
  Attribute axis = group.anchor->getAttr("axis");
  for (Operation *op : graph.ops())
    if (axis && graph.isFree(op) && isClass(op, OpClass::Gather) && op->getNumOperands() == 2 &&
        op->getOperand(0) == group.anchor->getOperand(0) && op->getOperand(1) == group.anchor->getResult(0) &&
        op->getAttr("axis") == axis && dimsOf(op->getResult(0)) == dimsOf(op->getOperand(1)) && graph.mayOwn(op, group))
      graph.own(op, group);
}

/// Whether the anchor reads its first operand where it likes: no order of rows or pieces asks for all results.
static bool readsAnywhere(Operation *op) {
  auto structured = dyn_cast<StructuredOpInterface>(op);
  return structured && structured.getAccess(0).kind == OperandAccess::Kind::Whole;
}

void growWindows(FusionGraph &graph, const Target &target) {
  for (Operation *op : graph.ops()) {
    if (!graph.isFree(op))
      continue;
    OpClass kind = *classOf(op);
    if (kind == OpClass::Window)
      growEpilogue(graph, graph.create(op, RegionKind::Pointwise));
    else if (kind == OpClass::Scan) {
      Group &group = graph.create(op, RegionKind::Scan);
      // What gives one result, and asks for an element once, stores what follows from it.
      if (target.isCuda() && op->getNumResults() == 1 && readsOnce(op->getOpOperand(0)))
        growEpilogue(graph, group);
      if (target.isCuda() && (readsOnce(op->getOpOperand(0)) || readsAnywhere(op)))
        growSlice(graph, group);
      if (target.isCuda())
        growTaken(graph, group);
    }
    else if (kind == OpClass::Scatter)
      graph.create(op, RegionKind::Copy).space = dimsOf(op->getOperand(2)); // of the updates
  }
}

} // namespace lathe::fuse
