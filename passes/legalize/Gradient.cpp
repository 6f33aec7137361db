//===- Gradient.cpp - derivatives by going backwards ------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gradient of ai.onnx.preview.training: the lathe ops between xs and y are there when it is legalized. From
// y back to the xs each gives its operands their part of what its result was given; an op without a rule is
// reported. Import adds y, which ONNX names in an attribute alone, as the last operand.
//
//===----------------------------------------------------------------------===//
#include "Node.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace lathe::legal {
namespace {

using Parts = SmallVector<Value>;

/// g summed over what an operand was broadcast along.
Value sumTo(Emitter &e, Value g, Value operand) {
  if (!g)
    return {};
  Dims from = dimsOf(g), to = dimsOf(operand);
  if (from == to)
    return g;
  Ints axes;
  size_t added = from.size() - to.size();
  for (size_t d = 0; d < from.size(); ++d) {
    if (d < added || (to[d - added] == DimExpr(1) && from[d] != DimExpr(1)))
      axes.push_back(int64_t(d));
    else if (from[d] != to[d - added])
      return e.fail("the derivative of a broadcast of sizes " + to[d - added].str() + " and " + from[d].str());
  }
  return e.reshape(e.reduce(g, ReduceKind::Sum, axes), to);
}

/// What the operands of an op get of g, the derivative by its result; none where there is no rule.
std::optional<Parts> partsOf(Emitter &e, Operation *op, Value g) {
  using Result = std::optional<Parts>;
  Value y = op->getResult(0), x = op->getNumOperands() ? op->getOperand(0) : Value(),
        b = op->getNumOperands() > 1 ? op->getOperand(1) : Value();
  auto neg = [&](Value v) { return e.unary<NegOp>(v); };
  auto rest = [&](Value v) { return e.sub(e.like(v, 1), v); }; // 1 - v
  auto where = [&](Value condition, Value v) { return e.select(condition, v, e.like(v, 0)); };
  auto extreme = [&](Predicate first) -> Result {
    Value takes = e.compare(x, b, first);
    return Parts{where(takes, g), e.select(takes, e.like(g, 0), g)};
  };
  return llvm::TypeSwitch<Operation *, Result>(op)
      .Case([&](AddOp) -> Result { return Parts{g, g}; })
      .Case([&](SubOp) -> Result { return Parts{g, neg(g)}; })
      .Case([&](MulOp) -> Result { return Parts{e.mul(g, b), e.mul(g, x)}; })
      .Case([&](DivOp) -> Result { return Parts{e.div(g, b), neg(e.div(e.mul(g, y), b))}; })
      .Case([&](MaxOp) { return extreme(Predicate::Gt); })
      .Case([&](MinOp) { return extreme(Predicate::Lt); })
      .Case([&](NegOp) -> Result { return Parts{neg(g)}; })
      .Case([&](AbsOp) -> Result { return Parts{e.mul(g, e.unary<SignOp>(x))}; })
      .Case([&](ExpOp) -> Result { return Parts{e.mul(g, y)}; })
      .Case([&](LogOp) -> Result { return Parts{e.div(g, x)}; })
      .Case([&](SqrtOp) -> Result { return Parts{e.div(e.mul(g, 0.5), y)}; })
      .Case([&](RecipOp) -> Result { return Parts{neg(e.mul(g, e.mul(y, y)))}; })
      .Case([&](SinOp) -> Result { return Parts{e.mul(g, e.unary<CosOp>(x))}; })
      .Case([&](CosOp) -> Result { return Parts{neg(e.mul(g, e.unary<SinOp>(x)))}; })
      .Case([&](TanhOp) -> Result { return Parts{e.mul(g, rest(e.mul(y, y)))}; })
      .Case([&](SigmoidOp) -> Result { return Parts{e.mul(g, e.mul(y, rest(y)))}; })
      .Case([&](SelectOp) -> Result {
        return Parts{Value(), where(x, g), e.select(x, e.like(g, 0), g)};
      })
      .Case([&](CastOp) -> Result { return Parts{e.cast(g, elementTypeOf(x))}; })
      .Case([&](ReshapeOp) -> Result { return Parts{e.reshape(g, dimsOf(x))}; })
      .Case([&](BroadcastToOp) -> Result { return Parts{g}; })
      .Case([&](TransposeOp transpose) -> Result {
        Ints back(transpose.getPerm().size());
        for (auto [to, from] : llvm::enumerate(transpose.getPerm()))
          back[from] = int64_t(to);
        return Parts{e.transpose(g, back)};
      })
      .Case([&](ReduceOp reduce) -> Result {
        if (reduce.getKind() != ReduceKind::Sum)
          return std::nullopt;
        Dims kept = dimsOf(x);
        for (int64_t axis : reduce.getAxes())
          kept[axis] = 1;
        return Parts{e.broadcastTo(e.reshape(g, kept), dimsOf(x))};
      })
      .Case([&](SoftmaxOp softmax) -> Result {
        if (softmax.getLog())
          return std::nullopt;
        Value along = e.reduce(e.mul(g, y), ReduceKind::Sum, {int64_t(softmax.getAxis())});
        return Parts{e.mul(y, e.sub(g, along))};
      })
      .Case([&](MatmulOp product) -> Result {
        bool ta = product.getTransposeA(), tb = product.getTransposeB();
        return Parts{ta ? e.matmul(b, g, tb, true) : e.matmul(g, b, false, !tb),
                     tb ? e.matmul(g, x, true, ta) : e.matmul(x, g, !ta, false)};
      })
      .Default([](Operation *) { return std::nullopt; });
}

LogicalResult gradient(Node &n) {
  Emitter &e = n.e;
  auto names = n.op->getAttrOfType<ArrayAttr>("xs");
  auto others = n.op->getAttrOfType<ArrayAttr>("zs");
  size_t given = (names ? names.size() : 0) + (others ? others.size() : 0);
  if (!names || n.numOutputs() > names.size())
    return n.invalid("attribute", "xs names as many tensors as there are derivatives");
  if (n.numInputs() != given + 1)
    return n.fail("attribute", "a derivative at other values than those of the graph",
                  "operands that are the tensors of xs and zs");
  Value y = n.in(unsigned(given));
  if (!y || !isFloat(elementTypeOf(y)))
    return n.fail("dtype", "the derivative of what is no tensor of floats", "floats");
  llvm::SetVector<Value> ends;
  for (unsigned i = 0; i < given; ++i)
    ends.insert(n.in(i));
  // The ops between, in order, and those of them that depend on an x.
  llvm::SetVector<Operation *> between;
  SmallVector<Value> work = {y};
  while (!work.empty()) {
    Value v = work.pop_back_val();
    Operation *op = v ? v.getDefiningOp() : nullptr;
    if (op && !ends.contains(v) && between.insert(op))
      work.append(op->operand_begin(), op->operand_end());
  }
  SmallVector<Operation *> order(between.begin(), between.end());
  llvm::sort(order, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  llvm::DenseSet<Value> depends;
  for (size_t i = 0; i < names.size(); ++i)
    depends.insert(n.in(unsigned(i)));
  for (Operation *op : order)
    if (llvm::any_of(op->getOperands(), [&](Value v) { return depends.contains(v); }))
      depends.insert(op->result_begin(), op->result_end());
  llvm::DenseMap<Value, Value> derivative;
  derivative[y] = e.broadcastTo(e.like(y, 1), dimsOf(y));
  for (Operation *op : llvm::reverse(order)) {
    if (op->getNumResults() != 1 || !depends.contains(op->getResult(0)) ||
        !derivative.contains(op->getResult(0))) {
      if (op->getNumResults() != 1 && llvm::any_of(op->getResults(), [&](Value v) { return depends.contains(v); }))
        return n.fail("op", "the derivative of " + op->getName().getStringRef(), "ops of one result");
      continue;
    }
    std::optional<Parts> parts = partsOf(e, op, derivative[op->getResult(0)]);
    if (!parts)
      return n.fail("op", "the derivative of " + op->getName().getStringRef(),
                    "arithmetic, activations, products, sums, reshapes and transposes");
    for (auto [operand, part] : llvm::zip(op->getOperands(), *parts)) {
      // What is no float, as a condition, changes in steps.
      if (!depends.contains(operand) || !isFloat(elementTypeOf(operand)))
        continue;
      Value sum = sumTo(e, part, operand);
      if (!sum)
        return failure();
      Value &total = derivative[operand];
      total = total ? e.add(total, sum) : sum;
    }
  }
  for (unsigned i = 0; i < n.numOutputs(); ++i) {
    Value x = n.in(i), d = derivative.lookup(x);
    if (failed(n.set(i, d ? d : e.broadcastTo(e.like(x, 0), dimsOf(x)))))
      return failure();
  }
  return success();
}

} // namespace

void addGradient(Handlers &h) { h["ai.onnx.preview.training.Gradient"] = gradient; }

} // namespace lathe::legal
