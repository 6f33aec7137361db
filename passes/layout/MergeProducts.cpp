//===- MergeProducts.cpp - products of one value by several weights -------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Queries, keys and values are products of the same rows by three weights. On a GPU one product by
// all three fills more of the machine and reads the rows once. The weights stay where they are
// until the engine is written (#lathe.joined); what the three became are views of the one result,
// which attention reads as it lies, so that nothing is copied. Results that a model itself splits
// are views alike.
//
//   %q = transpose (reshape (add (matmul %x, %wq), %bq))       %y = add (matmul %x, joined), joined
//   %k = transpose (reshape (add (matmul %x, %wk), %bk))  =>   %t = reshape %y
//                                                  %q = transpose (slice %t heads 0.. {lathe.view})
//                                                  %k = transpose (slice %t heads h.. {lathe.view})
//
// Two products of several rows that meet point by point (a gate and what it gates) become one whose
// halves meet inside one kernel.
//
//===----------------------------------------------------------------------===//
#include "../Common.h"
#include "../sparsify/ZeroBlocksAttr.h"

#include "lathe/ir/AttentionOperands.h"
#include "lathe/ir/HeadPairs.h"
#include "lathe/support/BlockSteps.h"

#include "mlir/IR/PatternMatch.h"
#include "mlir/Transforms/RegionUtils.h"

using namespace mlir;

namespace lathe {

#define GEN_PASS_DEF_MERGEPRODUCTSPASS
#include "lathe/passes/Passes.h.inc"

namespace {

Operation *onlyUser(Value value) { return value.hasOneUse() ? *value.user_begin() : nullptr; }

/// One of the results: columns of a product, split into heads.
struct Branch {
  Value columns;        ///< [.., heads * size]
  ReshapeOp split;      ///< [.., heads, size]
  TransposeOp transposed;   ///< heads elsewhere; may be null
  int64_t heads = 0, size = 0;
  int64_t axis = 0;     ///< of the heads in the split columns
  MatmulOp matmul;      ///< null where a slice made the columns
  Attribute bias;       ///< null without
  int64_t first = 0;    ///< column of the product, where a slice made them

  Value result() { return transposed ? transposed.getY() : split.getY(); }
};

bool matchHeads(Branch &branch) {
  branch.split = dyn_cast_or_null<ReshapeOp>(onlyUser(branch.columns));
  if (!branch.split || dimsOf(branch.split.getY()).size() < 2)
    return false;
  std::vector<DimExpr> from = dimsOf(branch.columns), to = dimsOf(branch.split.getY());
  // Rows of tokens of any sequences (a step over pages) have no batch left.
  while (from.size() >= to.size() && from.front() == DimExpr(1))
    from.erase(from.begin());
  std::optional<int64_t> axis = headsAxis(from, to);
  if (!axis)
    return false;
  branch.axis = *axis;
  auto heads = to[branch.axis].constant(), size = to.back().constant();
  auto element = elementTypeOf(branch.columns);
  // Views begin at multiples of 64 bytes, as kernels assume of what they read.
  if (!heads || !size || *size * element.getIntOrFloatBitWidth() % 512)
    return false;
  branch.heads = *heads;
  branch.size = *size;
  branch.transposed = dyn_cast_or_null<TransposeOp>(onlyUser(branch.split.getY()));
  return true;
}

Attribute constantOf(Value value, int64_t rank) {
  auto constant = value.getDefiningOp<ConstantOp>();
  if (!constant || cast<TensorType>(value.getType()).getRank() != rank ||
      isa<JoinedAttr>(constant.getValue()))
    return {};
  return constant.getValue();
}

std::optional<Branch> matchProduct(MatmulOp matmul) {
  Branch branch;
  if (matmul.getTransposeA() || !constantOf(matmul.getB(), 2))
    return std::nullopt;
  branch.matmul = matmul;
  branch.columns = matmul.getY();
  if (auto add = dyn_cast_or_null<AddOp>(onlyUser(matmul.getY()))) {
    Value other = add.getA() == matmul.getY() ? add.getB() : add.getA();
    branch.bias = constantOf(other, 1);
    if (!branch.bias || dimsOf(other).back() != dimsOf(matmul.getY()).back())
      return std::nullopt;
    branch.columns = add.getY();
  }
  return matchHeads(branch) ? std::optional(branch) : std::nullopt;
}

/// The users of `value`, if all of them are slices of its columns that are split into heads.
std::vector<Branch> matchSlices(Value value) {
  std::vector<Branch> found;
  std::vector<DimExpr> dims = dimsOf(value);
  for (Operation *user : value.getUsers()) {
    auto slice = dyn_cast<SliceOp>(user);
    if (!slice || dims.empty())
      return {};
    Branch branch;
    branch.columns = slice.getY();
    std::vector<DimExpr> part = dimsOf(slice.getY());
    for (auto [d, start] : llvm::enumerate(slice.getStarts())) {
      auto first = cast<DimAttr>(start).expr().constant();
      bool last = d + 1 == dims.size();
      if (!first || slice.getSteps()[d] != 1 || (!last && part[d] != dims[d]))
        return {};
      branch.first = *first;
    }
    if (!matchHeads(branch) || branch.first % branch.size)
      return {};
    found.push_back(branch);
  }
  return found;
}

bool alike(Branch &a, Branch &b) {
  return a.size == b.size && a.axis == b.axis && !a.transposed == !b.transposed &&
         dimsOf(a.split.getY()).size() == dimsOf(b.split.getY()).size() &&
         (!a.transposed || a.transposed.getPerm() == b.transposed.getPerm());
}

/// Kernels read views, the caller of an entry does not. Strided ones are for those alone whose
/// results do not take over how their operands lie in memory.
bool mayBeView(Value value, bool dense) {
  return llvm::all_of(value.getUsers(), [&](Operation *user) {
    return isa<StateAppendOp>(user) || isClass(user, OpClass::Attention) ||
           (dense && classOf(user) && !isView(user));
  });
}

/// Whether attention alone reads the value, which it can from rows of tokens.
bool readsTokensFirst(Value value) {
  return llvm::all_of(value.getUses(), [](OpOperand &use) {
    return isa<AttentionOp>(use.getOwner()) && use.getOperandNumber() < 3;
  });
}

struct MergeProductsPass : impl::MergeProductsPassBase<MergeProductsPass> {
  void runOnOperation() override {
    for (ModuleOp module : targetModules(getOperation())) {
      FailureOr<Target> target = targetOf(module);
      if (failed(target))
        return signalPassFailure();
      if (target->isCuda())
        for (func::FuncOp func : module.getOps<func::FuncOp>())
          if (!func.isExternal())
            run(func, *target);
    }
  }

  void run(func::FuncOp func, const Target &target) {
    Block &block = func.getBody().front();
    llvm::MapVector<Value, std::vector<Branch>> byInput;
    for (MatmulOp matmul : block.getOps<MatmulOp>())
      if (std::optional<Branch> branch = matchProduct(matmul))
        byInput[matmul.getA()].push_back(*branch);
    for (auto &[input, branches] : byInput)
      while (!branches.empty()) {
        std::vector<Branch> group = {branches.front()}, rest;
        for (Branch &branch : llvm::drop_begin(branches))
          (fits(group.front(), branch) ? group : rest).push_back(branch);
        if (group.size() > 1)
          merge(group);
        branches = std::move(rest);
      }
    const bool sparse = sparseWeights(getOperation()) == "always";
    if (target.hasWgmma())
      pairGates(block, sparse);
    SmallVector<Value> sliced(block.getArguments());
    for (Operation &op : block)
      if (op.getNumResults() == 1)
        sliced.push_back(op.getResult(0));
    for (Value value : sliced)
      if (std::vector<Branch> branches = matchSlices(value);
          branches.size() > 1 && llvm::all_of(branches, [&](Branch &b) {
            return alike(b, branches.front()) && mayBeView(b.result(), true);
          }))
        divide(value, branches);
    IRRewriter rewriter(&getContext());
    (void)runRegionDCE(rewriter, func->getRegions());
  }

  /// Whether every way from the value leads through pointwise ops of its sizes into one product of
  /// `values`, and there is one.
  static bool meets(Value value, Value other) {
    if (!value.hasOneUse() && !other.hasOneUse())
      return false;
    Value single = other.hasOneUse() ? other : value, rest = single == other ? value : other;
    Operation *meeting = *single.user_begin();
    if (!isClass(meeting, OpClass::Pointwise) || dimsOf(meeting->getResult(0)) != dimsOf(value))
      return false;
    llvm::SetVector<Operation *> path;
    path.insert(rest.user_begin(), rest.user_end());
    for (size_t i = 0; i < path.size(); ++i) {
      Operation *op = path[i];
      if (op == meeting)
        continue;
      if (!isClass(op, OpClass::Pointwise) || dimsOf(op->getResult(0)) != dimsOf(value))
        return false;
      path.insert(op->user_begin(), op->user_end());
    }
    return path.contains(meeting);
  }

  /// `sparse`: sparse weights are multiplied without their zeros, by kernels that have no form with two halves.
  void pairGates(Block &block, bool sparse) {
    llvm::MapVector<Value, SmallVector<MatmulOp>> byInput;
    for (MatmulOp matmul : block.getOps<MatmulOp>())
      if (!matmul.getTransposeA() && constantOf(matmul.getB(), 2) && !matmul.getY().use_empty() &&
          hasHalves(matmul))
        byInput[matmul.getA()].push_back(matmul);
    for (auto &[input, matmuls] : byInput) {
      if (matmuls.size() != 2)
        continue;
      MatmulOp a = matmuls[0], b = matmuls[1];
      if (a.getY().getType() != b.getY().getType() || a.getB().getType() != b.getB().getType() ||
          a.getTransposeB() != b.getTransposeB() || !meets(a.getY(), b.getY()) ||
          (sparse && ((a->hasAttr(kTwoOfFourAttr) && b->hasAttr(kTwoOfFourAttr)) ||
                      (a->hasAttr(kBlockStepsAttr) && b->hasAttr(kBlockStepsAttr)))))
        continue;
      OpBuilder builder(a);
      Location loc = builder.getFusedLoc({a.getLoc(), b.getLoc()});
      Attribute weights[] = {constantOf(a.getB(), 2), constantOf(b.getB(), 2)};
      std::vector<DimExpr> dims = dimsOf(a.getY());
      DimExpr half = dims.back();
      dims.back() = half + half;
      Value y = MatmulOp::create(builder, loc, tensorType(elementTypeOf(a.getY()), dims), input,
                                 join(builder, loc, weights, a.getTransposeB() ? 0 : 1),
                                 UnitAttr(), a.getTransposeBAttr());
      SmallVector<Attribute> starts(dims.size(), DimAttr::get(&getContext(), DimExpr(0)));
      for (MatmulOp matmul : {a, b}) {
        auto slice = SliceOp::create(builder, matmul.getLoc(), matmul.getY().getType(), y,
                                     builder.getArrayAttr(starts),
                                     SmallVector<int64_t>(dims.size(), 1));
        starts.back() = DimAttr::get(&getContext(), half);
        matmul.getY().replaceAllUsesWith(slice.getY());
      }
      passedRemark(loc, "MergeProducts") << "a gate and what it gates are one product";
    }
  }

  /// Of the kernels of a few rows those that stream weights have a form with two halves
  /// (codegen/device/stream.cpp): they take up to 16 rows, however many there are when it runs. Others want
  /// one row or many, and whole pieces of 16 bits.
  static bool hasHalves(MatmulOp matmul) {
    constexpr int64_t kManyRows = 17, kPiece = 8;
    constexpr int64_t kLeastDepth = 1024, kMostDepth = 4096, kManyColumns = 3168;
    std::vector<DimExpr> dims = dimsOf(matmul.getY());
    auto rows = product({dims.begin(), dims.end() - 1}).constant(), columns = dims.back().constant();
    auto depth = dimsOf(matmul.getA()).back().constant();
    Type element = elementTypeOf(matmul.getY());
    bool streams = matmul.getTransposeB() && columns && *columns >= kManyColumns && depth &&
                   *depth >= kLeastDepth && *depth <= kMostDepth;
    bool form = rows ? *rows >= kManyRows || (*rows == 1 && matmul.getTransposeB()) : streams;
    return form && columns && *columns % kPiece == 0 && depth &&
           *depth % kPiece == 0 && (element.isF16() || element.isBF16());
  }

  static bool fits(Branch &a, Branch &b) {
    auto depth = [](MatmulOp op) {
      std::vector<DimExpr> dims = dimsOf(op.getB());
      return dims[op.getTransposeB() ? 1 : 0];
    };
    return alike(a, b) && !a.bias == !b.bias && depth(a.matmul) == depth(b.matmul) &&
           a.matmul.getTransposeB() == b.matmul.getTransposeB() &&
           elementTypeOf(a.matmul.getB()) == elementTypeOf(b.matmul.getB()) &&
           elementTypeOf(a.matmul.getY()) == elementTypeOf(b.matmul.getY()) &&
           mayBeView(a.result(), true) && mayBeView(b.result(), true);
  }

  /// One constant of the parts side by side.
  static Value join(OpBuilder &b, Location loc, ArrayRef<Attribute> parts, int64_t axis) {
    auto first = cast<RankedTensorType>(cast<TypedAttr>(parts.front()).getType());
    SmallVector<int64_t> shape(first.getShape());
    shape[axis] = 0;
    for (Attribute part : parts)
      shape[axis] += cast<RankedTensorType>(cast<TypedAttr>(part).getType()).getDimSize(axis);
    auto type = RankedTensorType::get(shape, first.getElementType());
    auto joined = JoinedAttr::get(b.getContext(), axis, b.getArrayAttr(parts), type);
    return ConstantOp::create(b, loc, cast<TypedAttr>(Attribute(joined)));
  }

  /// Blocks and steps of weights side by side, where some have blocks that are left out and each has whole pairs of panels.
  static DenseI64ArrayAttr blockStepsOf(std::vector<Branch> &group) {
    int64_t blocks = 0, steps = 0;
    bool some = false;
    for (Branch &branch : group) {
      auto depth = dimsOf(branch.matmul.getA()).back().constant(), columns = dimsOf(branch.matmul.getY()).back().constant();
      if (!depth || !columns || *columns % (kPairedPanels * kBlockSide) != 0)
        return {};
      auto [mostBlocks, mostSteps] = BlockSteps::most(*depth, *columns);
      auto known = branch.matmul->getAttrOfType<DenseI64ArrayAttr>(kBlockStepsAttr);
      some |= known != nullptr;
      blocks += known ? known[0] : mostBlocks;
      steps += known ? known[1] : mostSteps;
    }
    return some ? DenseI64ArrayAttr::get(group.front().matmul.getContext(), {blocks, steps}) : DenseI64ArrayAttr();
  }

  void merge(std::vector<Branch> &group) {
    llvm::sort(group, [](Branch &a, Branch &b) { return a.matmul->isBeforeInBlock(b.matmul); });
    MatmulOp first = group.front().matmul;
    OpBuilder b(first);
    SmallVector<Location> places;
    SmallVector<Attribute> weights, biases;
    int64_t columns = 0;
    for (Branch &branch : group) {
      places.push_back(branch.matmul.getLoc());
      weights.push_back(constantOf(branch.matmul.getB(), 2));
      biases.push_back(branch.bias);
      branch.first = columns;
      columns += branch.heads * branch.size;
    }
    Location loc = b.getFusedLoc(places);
    bool transposed = first.getTransposeB();
    std::vector<DimExpr> dims = dimsOf(first.getY());
    dims.back() = columns;
    auto product = MatmulOp::create(b, loc, tensorType(elementTypeOf(first.getY()), dims), first.getA(),
                                    join(b, loc, weights, transposed ? 0 : 1), UnitAttr(),
                                    transposed ? b.getUnitAttr() : UnitAttr());
    if (llvm::all_of(group, [](Branch &branch) { return branch.matmul->hasAttr(kTwoOfFourAttr); }))
      product->setAttr(kTwoOfFourAttr, b.getUnitAttr());
    if (DenseI64ArrayAttr steps = blockStepsOf(group))
      product->setAttr(kBlockStepsAttr, steps);
    Value y = product.getY();
    if (group.front().bias)
      y = AddOp::create(b, loc, y.getType(), y, join(b, loc, biases, 0));
    passedRemark(loc, "MergeProducts") << "one product by all weights of this value";
    divide(y, group);
  }

  /// Replaces the branches by views of `y` split into heads; where heads go before tokens, by
  /// transposes of views, for attention takes tokens before heads (lathe/ir/AttentionOperands.h).
  static void divide(Value y, std::vector<Branch> &branches) {
    OpBuilder b(y.getContext());
    b.setInsertionPointAfterValue(y);
    Location loc = y.getLoc();
    Branch &front = branches.front();
    std::vector<DimExpr> dims = dimsOf(front.split.getY());
    int64_t axis = front.axis;
    dims[axis] = *dimsOf(y).back().constant() / front.size;
    Value whole = ReshapeOp::create(b, loc, tensorType(elementTypeOf(y), dims), y);
    bool transposesLater =
        front.transposed && front.transposed.getPerm() == ArrayRef<int64_t>(kTokensFirst) &&
        llvm::any_of(branches, [](Branch &branch) { return readsTokensFirst(branch.result()); });
    if (front.transposed && !transposesLater) {
      SmallVector<int64_t> perm(front.transposed.getPerm());
      axis = llvm::find(perm, axis) - perm.begin();
      whole = TransposeOp::create(b, loc, whole, perm);
    }
    std::vector<DimExpr> memory = dimsOf(whole);
    bool dense = std::all_of(memory.begin(), memory.begin() + axis,
                             [](const DimExpr &dim) { return dim == DimExpr(1); });
    SmallVector<DimAttr> physical;
    for (const DimExpr &dim : memory)
      physical.push_back(DimAttr::get(b.getContext(), dim));
    for (Branch &branch : branches) {
      std::vector<DimExpr> part = memory;
      part[axis] = branch.heads;
      SmallVector<Attribute> starts(memory.size(), DimAttr::get(b.getContext(), DimExpr(0)));
      starts[axis] = DimAttr::get(b.getContext(), DimExpr(branch.first / front.size));
      bool view = transposesLater ? readsTokensFirst(branch.result()) : mayBeView(branch.result(), dense);
      auto type = tensorType(
          elementTypeOf(y), part,
          dense || !view ? PhysAttr() : PhysAttr::get(b.getContext(), physical));
      auto slice = SliceOp::create(b, branch.columns.getLoc(), type, whole, b.getArrayAttr(starts),
                                   SmallVector<int64_t>(memory.size(), 1));
      if (view)
        slice->setAttr(kViewAttr, b.getUnitAttr());
      Value result = slice.getY();
      if (transposesLater)
        result = TransposeOp::create(b, branch.columns.getLoc(), result, kTokensFirst);
      branch.result().replaceAllUsesWith(result);
    }
  }
};

} // namespace

} // namespace lathe
