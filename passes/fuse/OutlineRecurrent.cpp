//===- OutlineRecurrent.cpp - an LSTM or GRU as a kernel ------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// On a CPU all steps of a recurrence are one kernel. Elsewhere, and where the
// weights are no constant, a small number of steps is written out; a large one, or
// one that only the run knows, is a loop over one step.
//
//   %ys = recurrent %x, %r, %h      =>   %ys = lathe.kernel "gru" scan (...) { recurrent }
//
//   %ys = recurrent %x, %r, %h      =>   %t, %s = loop_begin (0, %h)
//                                        %n = one step of gather %x[%t], %s
//                                        %ys = loop_end trips S nexts (%t + 1, %n) rows (%n)
//
//===----------------------------------------------------------------------===//
#include "../Common.h"

#include "lathe/ir/Loops.h"

using namespace mlir;

namespace lathe {

#define GEN_PASS_DEF_OUTLINERECURRENTPASS
#include "lathe/passes/Passes.h.inc"

namespace {

/// Steps that are written out at most.
constexpr int64_t kMaxSteps = 64;

void outline(RecurrentOp op) {
  OpBuilder builder(op);
  SmallVector<Attribute> nodes;
  for (StringRef node : nodeNames(op.getLoc()))
    nodes.push_back(builder.getStringAttr(node));
  SmallVector<Value> inputs(op->getOperands());
  auto kernel = KernelOp::create(builder, op.getLoc(), op.getResultTypes(), inputs,
                                 builder.getStringAttr(op.getC() ? "lstm" : "gru"),
                                 RegionKindAttr::get(op.getContext(), RegionKind::Scan),
                                 nodes.empty() ? ArrayAttr() : builder.getArrayAttr(nodes),
                                 /*variants=*/ArrayAttr(), /*roles=*/RolesAttr());
  SmallVector<Location> locations(inputs.size(), op.getLoc());
  Block *body = builder.createBlock(&kernel.getBody(), {}, TypeRange(inputs), locations);
  IRMapping mapping;
  // The same value may be two operands.
  Operation *inside = builder.clone(*op, mapping);
  inside->setOperands(body->getArguments());
  YieldOp::create(builder, op.getLoc(), inside->getResults());
  op->replaceAllUsesWith(kernel->getResults());
  op.erase();
}

/// The steps of a recurrence as ops.
struct Unroller {
  explicit Unroller(RecurrentOp op)
      : op(op), b(op), loc(op.getLoc()), hidden(dimOf(op.getH(), 1)) {}

  void loop() {
    std::vector<DimExpr> dims = dimsOf(op.getH());
    const DimExpr steps = dimOf(op.getX(), 0);
    Type count = tensorType(b.getI64Type(), ArrayRef<int64_t>{});
    SmallVector<Value> inits{whole(DimExpr(0)), op.getH()};
    if (op.getC())
      inits.push_back(op.getC());
    auto begin = LoopBeginOp::create(b, loc, ValueRange(inits).getTypes(), inits);
    Value counter = begin.getCarried()[0], at = counter;
    if (op.getReverse())
      at = SubOp::create(b, loc, count, whole(steps - DimExpr(1)), counter);
    Value row = GatherOp::create(
        b, loc, tensorType(elementTypeOf(op.getX()), {DimExpr(1), dims[0], dimOf(op.getX(), 2)}),
        op.getX(), reshape(at, {DimExpr(1)}), 0);
    Value x = reshape(row, {dims[0], dimOf(op.getX(), 2)}), h = begin.getCarried()[1], c;
    if (op.getC()) {
      c = begin.getCarried()[2];
      h = lstm(x, h, c);
    } else {
      h = gru(x, h);
    }
    SmallVector<Value> nexts{AddOp::create(b, loc, count, counter, whole(DimExpr(1))), h};
    if (c)
      nexts.push_back(c);
    SmallVector<Type> types(ValueRange(inits).getTypes());
    types.push_back(op.getOutputs()[0].getType());
    auto end = LoopEndOp::create(b, loc, types, counter, whole(steps), /*condition=*/Value(),
                                 /*again=*/Value(), nexts, ValueRange(h), iteration());
    Value rows = end.getYs().back();
    if (op.getReverse()) { // the last step came first
      SmallVector<Attribute> starts(3, DimAttr::get(b.getContext(), DimExpr(0)));
      starts[0] = DimAttr::get(b.getContext(), steps - DimExpr(1));
      rows = SliceOp::create(b, loc, rows.getType(), rows, b.getArrayAttr(starts),
                             ArrayRef<int64_t>{-1, 1, 1});
    }
    SmallVector<Value> results{rows};
    if (c)
      results.push_back(end.getYs()[2]);
    op->replaceAllUsesWith(results);
    op.erase();
  }

  void run(int64_t steps) {
    std::vector<DimExpr> dims = dimsOf(op.getH());
    Value h = op.getH(), c = op.getC();
    SmallVector<Value> rows(steps);
    for (int64_t i = 0; i < steps; ++i) {
      int64_t t = op.getReverse() ? steps - 1 - i : i;
      Value x = reshape(part(op.getX(), 0, t, 1), {dims[0], dimOf(op.getX(), 2)});
      h = op.getC() ? lstm(x, h, c) : gru(x, h);
      rows[t] = reshape(h, {DimExpr(1), dims[0], dims[1]});
    }
    SmallVector<Value> results{
        ConcatOp::create(b, loc, op.getOutputs()[0].getType(), rows, 0).getResult()};
    if (c)
      results.push_back(c);
    op->replaceAllUsesWith(results);
    op.erase();
  }

  Value lstm(Value x, Value h, Value &c) {
    Value sum = add(x, product(h, op.getR()));
    Value input = sigmoid(gate(sum, 0)), output = sigmoid(gate(sum, 1)), forget = sigmoid(gate(sum, 2));
    c = add(mul(forget, c), mul(input, tanh(gate(sum, 3))));
    return mul(output, tanh(c));
  }

  Value gru(Value x, Value h) {
    Value two = part(op.getR(), 0, DimExpr(0), hidden * DimExpr(2));
    Value sum = add(part(x, 1, DimExpr(0), hidden * DimExpr(2)), product(h, two));
    Value z = sigmoid(gate(sum, 0)), r = sigmoid(gate(sum, 1));
    Value last = part(op.getR(), 0, hidden * DimExpr(2), hidden), xh = gate(x, 2);
    Value mixed;
    if (op.getResetLast()) {
      mixed = product(h, last);
      if (op.getBias())
        mixed = add(mixed, op.getBias());
      mixed = mul(r, mixed);
    } else {
      mixed = product(mul(r, h), last);
    }
    Value candidate = tanh(add(xh, mixed));
    Type wide = elementTypeOf(z);
    auto number = DenseElementsAttr::get(tensorType(wide, ArrayRef<int64_t>{}), b.getFloatAttr(wide, 1));
    Value rest = SubOp::create(b, loc, z.getType(), ConstantOp::create(b, loc, number), z);
    return add(mul(rest, candidate), mul(z, h));
  }

  /// A size as data.
  Value whole(const DimExpr &size) {
    Type type = tensorType(b.getI64Type(), ArrayRef<int64_t>{});
    if (auto known = size.constant())
      return ConstantOp::create(
          b, loc, DenseElementsAttr::get(cast<ShapedType>(type), b.getI64IntegerAttr(*known)));
    Attribute dims[] = {DimAttr::get(b.getContext(), size)};
    return DimValueOp::create(b, loc, type, b.getArrayAttr(dims));
  }

  /// The name of a new symbol that counts steps.
  StringAttr iteration() {
    auto module = op->getParentOfType<ModuleOp>();
    std::string name = "step";
    for (int n = 1; SymbolTable::lookupSymbolIn(module, name); ++n)
      name = "step_" + std::to_string(n);
    OpBuilder top = OpBuilder::atBlockBegin(module.getBody());
    for (SymbolOp symbol : module.getOps<SymbolOp>())
      top.setInsertionPointAfter(symbol);
    SymbolOp::create(top, loc, name, 0, -1, 0, 1, "iteration", DimAttr());
    return b.getStringAttr(name);
  }

  Value part(Value v, int64_t axis, const DimExpr &start, const DimExpr &size) {
    std::vector<DimExpr> dims = dimsOf(v);
    SmallVector<Attribute> starts(dims.size(), DimAttr::get(b.getContext(), DimExpr(0)));
    starts[axis] = DimAttr::get(b.getContext(), start);
    dims[axis] = size;
    SmallVector<int64_t> steps(dims.size(), 1);
    return SliceOp::create(b, loc, tensorType(elementTypeOf(v), dims), v, b.getArrayAttr(starts), steps);
  }
  Value gate(Value all, int64_t g) { return part(all, 1, hidden * DimExpr(g), hidden); }
  Value reshape(Value v, const std::vector<DimExpr> &dims) {
    return ReshapeOp::create(b, loc, tensorType(elementTypeOf(v), dims), v);
  }
  Value product(Value h, Value r) {
    Type type = tensorType(elementTypeOf(h), {dimOf(h, 0), dimOf(r, 0)});
    return MatmulOp::create(b, loc, type, h, r, false, true);
  }
  Value add(Value x, Value y) { return AddOp::create(b, loc, x.getType(), x, y); }
  Value mul(Value x, Value y) { return MulOp::create(b, loc, x.getType(), x, y); }
  Value sigmoid(Value x) { return SigmoidOp::create(b, loc, x.getType(), x); }
  Value tanh(Value x) { return TanhOp::create(b, loc, x.getType(), x); }

  RecurrentOp op;
  OpBuilder b;
  Location loc;
  DimExpr hidden;
};

struct OutlineRecurrentPass : impl::OutlineRecurrentPassBase<OutlineRecurrentPass> {
  void runOnOperation() override {
    for (ModuleOp module : targetModules(getOperation())) {
      FailureOr<Target> target = targetOf(module);
      if (failed(target))
        return signalPassFailure();
      SmallVector<RecurrentOp> ops;
      module.walk([&](RecurrentOp op) { ops.push_back(op); });
      for (RecurrentOp op : ops) {
        bool wide = llvm::all_of(op->getOperands(), [](Value v) { return elementTypeOf(v).isF32(); });
        if (!target->isCuda() && wide && isa_and_nonnull<ConstantOp>(op.getR().getDefiningOp())) {
          outline(op);
          continue;
        }
        std::optional<int64_t> steps = dimOf(op.getX(), 0).constant();
        if (steps && *steps >= 1 && *steps <= kMaxSteps)
          Unroller(op).run(*steps);
        else
          Unroller(op).loop();
      }
    }
  }
};

} // namespace

} // namespace lathe
