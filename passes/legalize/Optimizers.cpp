//===- Optimizers.cpp - steps of training -----------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Adagrad, Adam and Momentum of ai.onnx.preview.training: operands are the learning rate r, the number t
// of steps before this one, then n tensors each of x, their gradients g and the states; results are n
// tensors each of the new x and the new states. All of it is elementwise, so that a tensor's step is one
// kernel.
//
//===----------------------------------------------------------------------===//
#include "Node.h"

using namespace mlir;

namespace lathe::legal {
namespace {

/// What the optimizers share: one tensor's operands, by group (x, g, and one or two states).
struct Step {
  Node &n;
  Emitter &e;
  Value r, t;
  double alpha, beta, epsilon;

  explicit Step(Node &node)
      : n(node), e(node.e), r(e.reshape(n.in(0), {})), t(e.reshape(n.in(1), {})),
        alpha(n.floatAttr("alpha", 0.9)), beta(n.floatAttr("beta", 0.999)),
        epsilon(n.floatAttr("epsilon", 1e-6)) {}

  /// g + norm_coefficient * x: the gradient of the loss with an L2 penalty.
  Value regularized(Value x, Value g) {
    return e.add(g, e.mul(x, n.floatAttr("norm_coefficient", 0)));
  }
  /// The learning rate as x has it.
  Value rate(Value x) { return x ? e.cast(r, elementTypeOf(x)) : Value(); }
  Value first() { return e.compare(t, 0.0, Predicate::Le); }
};

/// Applies `formula`, which gives the new x and the new states from the old ones, to each tensor.
template <typename Formula> LogicalResult eachTensor(Node &n, unsigned states, Formula formula) {
  unsigned groups = 2 + states, results = 1 + states;
  if (n.numInputs() < 2 + groups || (n.numInputs() - 2) % groups ||
      n.numOutputs() != (n.numInputs() - 2) / groups * results)
    return n.invalid("shape", "operands are R, T and " + llvm::Twine(groups) +
                                  " tensors for each one that is optimized, results " +
                                  llvm::Twine(results));
  unsigned count = (n.numInputs() - 2) / groups;
  Step step(n);
  if (!step.r || !step.t)
    return n.invalid("shape", "R and T have one element each");
  for (unsigned i = 0; i < count; ++i) {
    SmallVector<Value> operands;
    for (unsigned g = 0; g < groups; ++g) {
      operands.push_back(n.in(2 + g * count + i));
      if (!operands.back() || !isFloat(elementTypeOf(operands.back())))
        return n.fail("dtype", "an optimizer of what is no tensor of floats", "floats");
      const int64_t rank = rankOf(operands.back());
      bool fits = rank == rankOf(operands.front());
      for (int64_t d = 0; fits && d < rank; ++d)
        fits = n.unify(dimOf(operands.back(), d), dimOf(operands.front(), d));
      if (fits)
        operands.back() = n.e.bind(operands.back(), dimsOf(operands.front()));
      if (!fits || operands.back().getType() != operands.front().getType())
        return n.invalid("shape", "a gradient or state has another type than its tensor");
    }
    SmallVector<Value> updated = formula(step, ArrayRef<Value>(operands));
    for (unsigned s = 0; s < results; ++s)
      if (failed(n.set(s * count + i, updated[s])))
        return failure();
  }
  return success();
}

/// h' = h + g², x' = x - r / (1 + t * decay_factor) * g / (√h' + epsilon)
LogicalResult adagrad(Node &n) {
  return eachTensor(n, 1, [&](Step &s, ArrayRef<Value> in) -> SmallVector<Value> {
    Emitter &e = s.e;
    Value x = in[0], g = s.regularized(x, in[1]), h = e.add(in[2], e.mul(g, g));
    Value slower = e.add(e.mul(e.cast(s.t, elementTypeOf(x)), n.floatAttr("decay_factor", 0)), 1.0);
    Value down = e.add(e.unary<SqrtOp>(h), s.epsilon);
    return {e.sub(x, e.div(e.mul(e.div(s.rate(x), slower), g), down)), h};
  });
}

/// v' = αv + (1 - α)g, h' = βh + (1 - β)g², x' = x - r' v' / (√h' + epsilon), less norm_coefficient_post
/// of itself; r' = r √(1 - βᵗ) / (1 - αᵗ) from the second step on.
LogicalResult adam(Node &n) {
  return eachTensor(n, 2, [&](Step &s, ArrayRef<Value> in) -> SmallVector<Value> {
    Emitter &e = s.e;
    Value x = in[0], g = s.regularized(x, in[1]);
    Value v = e.add(e.mul(in[2], s.alpha), e.mul(g, 1 - s.alpha));
    Value h = e.add(e.mul(in[3], s.beta), e.mul(e.mul(g, g), 1 - s.beta));
    auto left = [&](double base) { // 1 - baseᵗ
      return e.sub(e.like(x, 1), e.infer<PowOp>(e.like(x, base), s.t));
    };
    Value later = e.div(e.mul(s.rate(x), e.unary<SqrtOp>(left(s.beta))), left(s.alpha));
    Value rate = e.select(s.first(), s.rate(x), later);
    Value y = e.sub(x, e.mul(rate, e.div(v, e.add(e.unary<SqrtOp>(h), s.epsilon))));
    return {e.mul(y, 1 - n.floatAttr("norm_coefficient_post", 0)), v, h};
  });
}

/// v' = αv + βg, with β = 1 in the first step; x' = x - r v', or x - r (g + αv') in mode `nesterov`.
LogicalResult momentum(Node &n) {
  std::string mode = n.strAttr("mode", "");
  if (mode != "standard" && mode != "nesterov")
    return n.invalid("attribute", "mode = '" + llvm::Twine(mode) + "'");
  return eachTensor(n, 1, [&](Step &s, ArrayRef<Value> in) -> SmallVector<Value> {
    Emitter &e = s.e;
    Value x = in[0], g = s.regularized(x, in[1]);
    Value beta = e.select(s.first(), e.like(x, 1), e.like(x, s.beta));
    Value v = e.add(e.mul(in[2], s.alpha), e.mul(beta, g));
    Value along = mode == "nesterov" ? e.add(g, e.mul(v, s.alpha)) : v;
    return {e.sub(x, e.mul(s.rate(x), along)), v};
  });
}

} // namespace

void addOptimizers(Handlers &h) {
  h["ai.onnx.preview.training.Adagrad"] = adagrad;
  h["ai.onnx.preview.training.Adam"] = adam;
  h["ai.onnx.preview.training.Momentum"] = momentum;
}

} // namespace lathe::legal
