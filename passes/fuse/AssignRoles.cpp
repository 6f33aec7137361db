//===- AssignRoles.cpp - what is what in a kernel -------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Looks at each finished kernel once and writes down what it is built around,
// where the operands of that come from and what becomes of its result. Behind
// fuse nobody matches a region again: select translates the roles into its
// question, code generation goes by them.
//
//   kernel "gemm" (%x, %w, %r) {           kernel "gemm" (%x, %w, %r) attributes {roles = #lathe.roles<
//     %y = matmul %x, %w              =>     anchor = 0, operands = [buffer 0, buffer 1 weight],
//     %z = add %y, %r                        residual = 2, in_place>} {
//   }                                        ...
//
//===----------------------------------------------------------------------===//
#include "Roles.h"

#include "lathe/ir/Roles.h"

using namespace mlir;

namespace lathe {

#define GEN_PASS_DEF_ASSIGNROLESPASS
#include "lathe/passes/Passes.h.inc"

namespace fuse {

Value KernelRegion::source(BlockArgument argument) const {
  if (!kernel)
    return {};
  Value v = KernelOp(kernel).getInputs()[argument.getArgNumber()];
  while (v.getDefiningOp() && isView(v.getDefiningOp()))
    v = v.getDefiningOp()->getOperand(0);
  return v;
}

bool KernelRegion::isWeight(BlockArgument argument) const {
  return kernel && KernelOp(kernel).getInputs()[argument.getArgNumber()].getDefiningOp<ConstantOp>();
}

bool KernelRegion::madeOf(Value value, function_ref<bool(Value)> isFine) const {
  SmallVector<Value> todo{value};
  while (!todo.empty()) {
    Value v = todo.pop_back_val();
    auto argument = dyn_cast<BlockArgument>(v);
    if (!argument) {
      llvm::append_range(todo, v.getDefiningOp()->getOperands());
      continue;
    }
    Value read = source(argument);
    if (!read || !isFine(read))
      return false;
  }
  return true;
}

OperandRole roleOf(const KernelRegion &region, Value operand) {
  OperandRole role;
  if (auto argument = dyn_cast_or_null<BlockArgument>(operand)) {
    role.storage = OperandRole::Storage::Buffer;
    role.input = argument.getArgNumber();
    role.weight = region.isWeight(argument);
  }
  return role;
}

int64_t residualOf(const KernelRegion &region, Value result) {
  const Type stored = elementTypeOf(region.body.getTerminator()->getOperand(0));
  for (BlockArgument argument : region.body.getArguments()) {
    Type element = elementTypeOf(argument);
    const bool fits = stored.isInteger(8) ? element == stored : element.isF16() || element.isBF16();
    bool pointwise = !argument.use_empty() && llvm::all_of(argument.getUsers(), [&](Operation *user) {
      return isClass(user, OpClass::Pointwise) && dimsOf(user->getResult(0)) == dimsOf(argument);
    });
    if (pointwise && fits && dimsOf(argument) == dimsOf(result))
      return argument.getArgNumber();
  }
  return -1;
}

/// Whether the first result follows from a value of these sizes by reshapes alone. Sizes do not tell: a square value has
/// the same ones on both sides of a transpose.
static bool isInPlace(Value v, const std::vector<DimExpr> &space) {
  Operation *moves = v.getDefiningOp();
  while (keepsOrder(moves))
    moves = moves->getOperand(0).getDefiningOp();
  if (permutationOf(moves))
    return false;
  while (dimsOf(v) != space) {
    Operation *op = v.getDefiningOp();
    if (!keepsOrder(op))
      return false;
    v = op->getOperand(0);
  }
  return true;
}

/// Whether a result is the anchor's, moved or rounded.
static bool isBare(Value v, Value result) {
  for (Operation *op = v.getDefiningOp(); keepsOrder(op) || permutationOf(op) || isConversion(op);
       op = v.getDefiningOp())
    v = op->getOperand(0);
  return v == result;
}

void assignPlacement(const KernelRegion &region, Value result, const std::vector<DimExpr> &space,
                     KernelRoles &roles) {
  bool one = region.outputs().size() == 1;
  roles.inPlace = (one || roles.amax == 1) && isInPlace(region.outputs()[0], space);
  roles.bare = llvm::all_of(region.outputs(), [&](Value v) { return isBare(v, result); });
}

/// Whether one reduction is all that the kernel has, and nothing but what it keeps leaves; then, how many
/// dimensions lie behind all that it takes together.
static void assignReduction(const KernelRegion &region, KernelRoles &roles) {
  StructuredOpInterface reduce;
  for (Operation &op : region.body) {
    std::optional<OpClass> kind = classOf(&op);
    if (kind == OpClass::Gather || kind == OpClass::Scatter || (kind == OpClass::Reduction && reduce))
      return;
    if (kind == OpClass::Reduction)
      reduce = cast<StructuredOpInterface>(op);
  }
  if (!reduce || !reduce.getCombiner())
    return;
  int64_t last = -1;
  for (auto [d, expr] : llvm::enumerate(reduce.getAccess(0).map.getResults()))
    if (auto dim = dyn_cast<AffineDimExpr>(expr);
        dim && reduce.getIterators()[dim.getPosition()] == utils::IteratorType::reduction)
      last = d;
  Value x = reduce->getOperand(0);
  Type element = elementTypeOf(x);
  if (last < 0 || element.isUnsignedInteger() || (element.getIntOrFloatBitWidth() < 8 && !element.isInteger(1)))
    return;
  DimExpr kept = product(dimsOf(reduce->getResult(0)));
  if (llvm::any_of(region.outputs(), [&](Value v) { return product(dimsOf(v)) != kept; }))
    return;
  roles.inPlace = true;
  roles.columns = int64_t(dimsOf(x).size()) - 1 - last;
}

/// A transpose of the output's sizes that moves the last dimension: the input's neighbours are not the
/// output's.
static int64_t transposeOf(const KernelRegion &region) {
  if (region.outputs().size() != 1)
    return -1;
  for (Operation &op : region.body)
    if (auto permutation = permutationOf(&op))
      if (!keepsLastDim(*permutation) && dimsOf(op.getResult(0)) == dimsOf(region.outputs()[0]))
        return positionOf(&op);
  return -1;
}

/// The op that a kernel of this kind is built around: the first of its class, of convolutions the last
/// (behind a depthwise one, if there are two).
static Operation *anchorOf(Block &body, RegionKind kind) {
  std::optional<OpClass> wanted;
  switch (kind) {
  case RegionKind::Gemm:
    wanted = OpClass::Gemm;
    break;
  case RegionKind::Conv:
    wanted = OpClass::Conv;
    break;
  case RegionKind::Attention:
    wanted = OpClass::Attention;
    break;
  case RegionKind::Reduction:
    wanted = OpClass::Reduction;
    break;
  case RegionKind::Scan:
    wanted = OpClass::Scan;
    break;
  default:
    return nullptr;
  }
  Operation *found = nullptr;
  for (Operation &op : body)
    if (classOf(&op) == wanted && (!found || kind == RegionKind::Conv))
      found = &op;
  return found;
}

static KernelRoles rolesOf(const KernelRegion &region, RegionKind kind) {
  KernelRoles roles;
  Operation *anchor = anchorOf(region.body, kind);
  if (!anchor) {
    if (kind == RegionKind::Pointwise || kind == RegionKind::Copy)
      roles.transpose = transposeOf(region);
    return roles;
  }
  roles.anchor = positionOf(anchor);
  if (kind == RegionKind::Reduction)
    assignReduction(region, roles);
  if (auto product = dyn_cast<MatmulOp>(anchor))
    assignProductRoles(region, product, roles);
  else if (auto conv = dyn_cast<ConvOp>(anchor))
    assignConvRoles(region, conv, roles);
  else if (auto attention = dyn_cast<AttentionOp>(anchor))
    assignAttentionRoles(region, attention, roles);
  else
    for (Value operand : anchor->getOperands())
      roles.operands.push_back(roleOf(region, operand));
  return roles;
}

/// The kind of a function that is a kernel by itself: the heaviest op in it says.
static RegionKind kindOf(Block &body) {
  for (RegionKind kind : {RegionKind::Attention, RegionKind::Conv, RegionKind::Gemm, RegionKind::Scan,
                          RegionKind::Reduction})
    if (anchorOf(body, kind))
      return kind;
  return RegionKind::Pointwise;
}

} // namespace fuse

namespace {

struct AssignRolesPass : impl::AssignRolesPassBase<AssignRolesPass> {
  using AssignRolesPassBase::AssignRolesPassBase;

  void runOnOperation() override {
    bool cuda = true;
    for (ModuleOp module : targetModules(getOperation())) {
      FailureOr<Target> target = targetOf(module);
      if (failed(target))
        return signalPassFailure();
      cuda = target->isCuda();
      module.walk([&](KernelOp kernel) {
        assign(kernel, {kernel.getBodyBlock(), kernel, cuda}, kernel.getKind(), "roles");
      });
    }
    if (!functions)
      return;
    for (func::FuncOp func : getOperation().getOps<func::FuncOp>())
      if (!func.isExternal())
        assign(func, {func.getBody().front(), {}, cuda}, fuse::kindOf(func.getBody().front()), kRolesAttr);
  }

  static void assign(Operation *op, const fuse::KernelRegion &region, RegionKind kind, StringRef name) {
    KernelRoles roles = fuse::rolesOf(region, kind);
    if (roles == KernelRoles())
      op->removeAttr(name);
    else
      op->setAttr(name, RolesAttr::get(op->getContext(), roles));
  }
};

} // namespace

} // namespace lathe
