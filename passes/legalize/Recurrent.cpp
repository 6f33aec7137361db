//===- Recurrent.cpp - RNN, GRU and LSTM ------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The products with the inputs of all steps are one matmul in front. An LSTM or
// GRU as most models have them is then one op; of others a sequence of constant
// length becomes that many steps, and one whose length the run knows a loop.
//
//===----------------------------------------------------------------------===//
#include "Formulas.h"
#include "Legalizer.h"

#include <functional>

using namespace mlir;

namespace lathe::legal {
namespace {

constexpr int64_t kMaxSteps = 64;

/// Element d of the leading dimension, dropped.
Value part(Emitter &e, Value v, int64_t d) {
  if (!v)
    return {};
  Dims dims = dimsOf(v);
  dims.erase(dims.begin());
  return e.reshape(e.sliceAxis(v, 0, d, 1), dims);
}

struct Cell {
  Node &n;
  Emitter &e;
  int64_t gates; ///< 1, 3 or 4
  int64_t hidden;
  int64_t steps;
  double clip;
  std::vector<std::string> activations;
  std::vector<double> alpha, beta;
  Value lengths; ///< of the sequences, [B] i64; null where all are full

  Value activate(size_t i, Value x) {
    if (clip > 0)
      x = e.min(e.max(x, -clip), clip);
    auto parameter = [&](const std::vector<double> &list) {
      return i < list.size() ? std::optional(list[i]) : std::nullopt;
    };
    return activationOf(e, activations[i], x, parameter(alpha), parameter(beta));
  }

  /// Gate g of [B, gates * H].
  Value gate(Value all, int64_t g) { return e.sliceAxis(all, 1, g * hidden, hidden); }
  Value pick(Value v, int64_t d) { return part(e, v, d); }
};

/// Operands of one direction.
struct Parameters {
  Value projected; ///< x W^T, [S, B, gates * H]
  Value r, inputBias, stateBias, h, c, peephole;
};

struct Outputs {
  std::vector<Value> all; ///< [B, H] a step, in the order of time
  Value h, c;
  Value ys;               ///< or all of them, [S, B, H]
};

/// Whether lathe.recurrent is this cell: f32, the usual activations, nothing clipped or coupled.
bool isUsual(const Cell &cell, Value x) {
  Node &n = cell.n;
  if (cell.gates == 1)
    return false;
  size_t each = cell.gates - 1;
  for (auto [i, name] : llvm::enumerate(cell.activations))
    if (!StringRef(name).equals_insensitive(i % each == 0 ? "sigmoid" : "tanh"))
      return false;
  return elementTypeOf(x).isF32() && cell.clip == 0 &&
         !n.intAttr("input_forget", 0) && !(cell.gates == 4 && n.has(7));
}

/// What freezes a state in steps that a sequence has not: gates that are 0 and 1. [S, B, gates * H]. A GRU keeps
/// its state by z, an LSTM its c by i and f.
Value frozen(Cell &cell, Value projected, Value alive) {
  Emitter &e = cell.e;
  constexpr double kFar = 1e30; // whatever is added to it
  std::vector<double> gates;
  for (double gate : cell.gates == 3 ? std::vector{kFar, 0.0, 0.0} : std::vector{-kFar, 0.0, kFar, 0.0})
    gates.insert(gates.end(), cell.hidden, gate);
  return e.select(alive, projected, e.floats(gates, {int64_t(gates.size())}, elementTypeOf(projected)));
}

/// One direction as one op.
Outputs recur(Cell &cell, const Parameters &p, Value x, bool back) {
  Emitter &e = cell.e;
  int64_t H = cell.hidden;
  Value projected = p.projected;
  bool resetLast = cell.gates == 3 && cell.n.intAttr("linear_before_reset", 0);
  Value last;
  if (p.inputBias) {
    Value bias = p.stateBias;
    if (resetLast) {
      last = e.sliceAxis(bias, 0, 2 * H, H);
      bias = e.concat({e.sliceAxis(bias, 0, 0, 2 * H), e.broadcastTo(e.like(x, 0), {DimExpr(H)})}, 0);
    }
    projected = e.add(projected, e.add(p.inputBias, bias));
  }
  Outputs out;
  if (!projected || !p.r || !p.h || (cell.gates == 4 && !p.c))
    return out;
  DimExpr batch = dimOf(x, 1);
  Value alive, steps; // [S, B, 1], [S, 1, 1]
  if (cell.lengths) {
    steps = e.iota({dimOf(x, 0), 1, 1}, 0, e.b.getI64Type());
    alive = e.compare(steps, e.reshape(cell.lengths, {DimExpr(1), batch, DimExpr(1)}), Predicate::Lt);
    projected = frozen(cell, projected, alive);
    if (!projected)
      return out;
  }
  SmallVector<Type> types{tensorType(elementTypeOf(x), {dimOf(x, 0), batch, DimExpr(H)})};
  if (cell.gates == 4)
    types.push_back(tensorType(elementTypeOf(x), {batch, DimExpr(H)}));
  auto op = RecurrentOp::create(e.b, e.loc, types, projected, p.r, p.h, p.c, last, back, resetLast);
  out.ys = op.getOutputs()[0];
  if (cell.gates == 4)
    out.c = op.getOutputs()[1];
  DimExpr end = back ? DimExpr(0) : dimOf(x, 0) - DimExpr(1);
  out.h = e.reshape(e.sliceAxis(out.ys, 0, end, 1), {batch, DimExpr(H)});
  if (!cell.lengths)
    return out;
  if (cell.gates == 4 && !back) { // o and c go on to make an h behind the last step
    Value lengths = e.reshape(cell.lengths, {DimExpr(1), batch, DimExpr(1)});
    Value last = e.compare(e.add(steps, 1.0), lengths, Predicate::Eq), zero = e.like(out.ys, 0);
    out.h = e.select(e.compare(e.unsqueeze(cell.lengths, {1}), 0.0, Predicate::Gt),
                     e.reduce(e.select(last, out.ys, zero), ReduceKind::Sum, {0}, false), p.h);
  }
  out.ys = e.select(alive, out.ys, e.like(out.ys, 0));
  return out;
}

/// What a step reads and leaves, [B, H]; c of an LSTM alone.
struct State {
  Value h, c;
};

/// One step on `in`, [B, gates * H]; `first` is the index of the direction's activations.
State step(Cell &cell, const Parameters &p, Value in, const State &before, size_t first) {
  Emitter &e = cell.e;
  Node &n = cell.n;
  State after = before;
  bool linearFirst = n.intAttr("linear_before_reset", 0), couple = n.intAttr("input_forget", 0);
  if (cell.gates == 3) {
    // Gates z, r, h.
    auto recurrent = [&](Value state, int64_t g) {
      Value y = e.matmul(state, e.sliceAxis(p.r, 0, g * cell.hidden, cell.hidden), false, true);
      return p.stateBias ? e.add(y, e.sliceAxis(p.stateBias, 0, g * cell.hidden, cell.hidden)) : y;
    };
    Value z = cell.activate(first, e.add(cell.gate(in, 0), recurrent(before.h, 0)));
    Value r = cell.activate(first, e.add(cell.gate(in, 1), recurrent(before.h, 1)));
    Value mixed = linearFirst ? e.mul(r, recurrent(before.h, 2)) : recurrent(e.mul(r, before.h), 2);
    Value candidate = cell.activate(first + 1, e.add(cell.gate(in, 2), mixed));
    after.h = e.add(e.mul(e.sub(e.like(z, 1), z), candidate), e.mul(z, before.h));
    return after;
  }
  Value sum = e.add(in, e.matmul(before.h, p.r, false, true));
  if (p.stateBias)
    sum = e.add(sum, p.stateBias);
  if (cell.gates == 1) {
    after.h = cell.activate(first, sum);
    return after;
  }
  // Gates i, o, f, c; peepholes i, o, f.
  auto peep = [&](Value v, int64_t g, Value c) {
    return p.peephole ? e.add(v, e.mul(e.sliceAxis(p.peephole, 0, g * cell.hidden, cell.hidden), c)) : v;
  };
  Value input = cell.activate(first, peep(cell.gate(sum, 0), 0, before.c));
  Value forget = couple ? e.sub(e.like(input, 1), input) : cell.activate(first, peep(cell.gate(sum, 2), 2, before.c));
  Value candidate = cell.activate(first + 1, cell.gate(sum, 3));
  after.c = e.add(e.mul(forget, before.c), e.mul(input, candidate));
  Value gate = cell.activate(first, peep(cell.gate(sum, 1), 1, after.c));
  after.h = e.mul(gate, cell.activate(first + 2, after.c));
  return after;
}

/// Step t where sequences have lengths: those that are over keep their state and give 0. Returns what the step gives.
Value hold(Cell &cell, Value t, const State &before, State &after) {
  Value row = after.h;
  if (!cell.lengths || !after.h)
    return row;
  Emitter &e = cell.e;
  Value alive = e.compare(t, e.unsqueeze(cell.lengths, {1}), Predicate::Lt);
  row = e.select(alive, after.h, e.like(after.h, 0));
  after.h = e.select(alive, after.h, before.h);
  after.c = before.c ? e.select(alive, after.c, before.c) : after.c;
  return row;
}

/// One direction as so many steps as there are, one after another.
Outputs unroll(Cell &cell, const Parameters &p, Value projected, bool back, size_t first) {
  Outputs out{std::vector<Value>(cell.steps), p.h, p.c};
  State state{p.h, p.c};
  for (int64_t i = 0; i < cell.steps; ++i) {
    int64_t t = back ? cell.steps - 1 - i : i;
    State after = step(cell, p, cell.pick(projected, t), state, first);
    out.all[t] = hold(cell, cell.e.scalar(double(t), cell.e.b.getI64Type()), state, after);
    state = after;
  }
  out.h = state.h;
  out.c = state.c;
  return out;
}

/// One direction as a loop of the run.
Outputs iterate(Cell &cell, const Parameters &p, Value projected, bool back, size_t first) {
  Emitter &e = cell.e;
  Type index = e.b.getI64Type();
  Outputs out;
  if (!projected || !p.h || (cell.gates == 4 && !p.c))
    return out;
  const DimExpr count = dimOf(projected, 0);
  Value trips = e.dimScalar(count, index);
  SmallVector<Value> inits = {e.scalar(0, index), p.h};
  if (p.c)
    inits.push_back(p.c);
  auto begin = LoopBeginOp::create(e.b, e.loc, ValueRange(inits).getTypes(), inits);
  Value counter = begin->getResult(0);
  Value t = back ? e.sub(e.sub(trips, e.scalar(1, index)), counter) : counter;
  State before{begin.getCarried()[1], p.c ? begin.getCarried()[2] : Value()};
  State after = step(cell, p, e.infer<GatherOp>(projected, t, uint64_t(0)), before, first);
  Tracked row;
  row.data = e.bind(hold(cell, t, before, after), dimsOf(p.h));
  SmallVector<Value> nexts = {e.add(counter, e.scalar(1, index)), e.bind(after.h, dimsOf(p.h))};
  if (p.c)
    nexts.push_back(e.bind(after.c, dimsOf(p.c)));
  if (!row.data || llvm::is_contained(nexts, Value()))
    return out;
  LoopEndOp end = cell.n.legalizer.endLoop(begin, trips, {}, {}, nexts, row, count);
  if (!end)
    return out;
  out.h = end.getYs()[1];
  out.c = p.c ? end.getYs()[2] : Value();
  out.ys = end.getYs().back();
  if (back)
    out.ys = e.slice(out.ys, {count - DimExpr(1), 0, 0}, dimsOf(out.ys), {-1, 1, 1});
  return out;
}

/// One direction; `first` is the index of its activations.
Outputs run(Cell &cell, const Parameters &p, bool back, size_t first) {
  Value projected = p.inputBias ? cell.e.add(p.projected, p.inputBias) : p.projected;
  return cell.steps > 0 && cell.steps <= kMaxSteps ? unroll(cell, p, projected, back, first)
                                                   : iterate(cell, p, projected, back, first);
}

/// The products of one node with its weights, for each direction.
struct Weights {
  std::optional<int64_t> hidden;
  std::function<Value(Value x, int64_t d)> project; ///< x W^T, [S, B, gates * H]
  std::function<Value(int64_t d)> state;            ///< R, [gates * H, H]
};

LogicalResult recurrentBy(Node &n, int64_t gates, Value x, const Weights &weights) {
  Emitter &e = n.e;
  const std::optional<int64_t> hidden = weights.hidden;
  bool batchFirst = n.intAttr("layout", 0);
  if (batchFirst)
    x = e.transpose(x, {1, 0, 2});
  std::optional<int64_t> steps = dimOf(x, 0).constant();
  if (!hidden || (steps && *steps < 1))
    return n.fail("shape", "an empty sequence, or a width that is symbolic", "a constant width");
  Value lengths;
  if (n.has(4)) {
    std::optional<Ints> known = n.ints(4);
    if (!known || !steps || llvm::any_of(*known, [&](int64_t l) { return l != *steps; })) {
      lengths = e.cast(n.in(4), e.b.getI64Type());
      if (!lengths || rankOf(lengths) != 1 || !n.unify(dimOf(lengths, 0), dimOf(x, 1)))
        return n.invalid("shape", "a length for each sequence is needed");
    }
  }
  std::string direction = n.strAttr("direction", "forward");
  int64_t directions = direction == "bidirectional" ? 2 : 1;
  Cell cell{n, e, gates, *hidden, steps.value_or(0), n.floatAttr("clip", 0), {}, {}, {}, lengths};
  size_t each = gates == 1 ? 1 : gates == 3 ? 2 : 3;
  if (auto given = n.op->getAttrOfType<ArrayAttr>("activations"))
    for (Attribute name : given)
      cell.activations.push_back(isa<StringAttr>(name) ? cast<StringAttr>(name).str() : "");
  while (cell.activations.size() < each * directions)
    cell.activations.push_back(gates != 1 && cell.activations.size() % each == 0 ? "Sigmoid"
                                                                                 : "Tanh");
  cell.alpha = n.floatsAttr("activation_alpha").value_or(std::vector<double>());
  cell.beta = n.floatsAttr("activation_beta").value_or(std::vector<double>());

  bool usual = isUsual(cell, x);
  // A state that waits for the end of its sequence is not frozen by gates: h is o times a function of c.
  if (lengths && gates == 4 && direction != "forward" && (n.has(5) || n.has(6)))
    usual = false;
  // The states have the batch of x: where the two are written differently, one takes the other's place.
  for (unsigned i : {5u, 6u})
    if (Value v = (i == 5 || gates == 4) && n.has(i) ? n.in(i) : Value()) {
      if (rankOf(v) != 3)
        return n.invalid("shape", "initial states have rank 3");
      const DimExpr given = dimOf(v, batchFirst ? 0 : 1);
      if (!n.unify(given, dimOf(x, 1)))
        return n.invalid("shape", "an initial state of batch " + given.str() + " beside X of batch " +
                                      dimOf(x, 1).str());
    }
  DimExpr batch = dimOf(x, 1);
  // Per-direction parts; states are [directions, B, H], or [B, directions, H].
  auto state = [&](unsigned i, int64_t d) -> Value {
    if (!n.has(i))
      return e.broadcastTo(e.like(x, 0), {batch, *hidden});
    Value v = n.in(i);
    v = cell.pick(batchFirst && v ? e.transpose(v, {1, 0, 2}) : v, d);
    const Dims wanted = {batch, *hidden};
    return v && dimsOf(v) != wanted ? e.reshape(v, wanted) : v; // a guard: the run has equal sizes
  };
  std::vector<Outputs> outputs;
  for (int64_t d = 0; d < directions; ++d) {
    Parameters p;
    p.projected = weights.project(x, d);
    p.r = weights.state(d);
    if (n.has(3)) {
      Value bias = cell.pick(n.in(3), d);
      p.inputBias = e.sliceAxis(bias, 0, 0, gates * *hidden);
      p.stateBias = e.sliceAxis(bias, 0, gates * *hidden, gates * *hidden);
    }
    p.h = state(5, d);
    if (gates == 4) {
      p.c = state(6, d);
      if (n.has(7))
        p.peephole = cell.pick(n.in(7), d);
    }
    bool back = d == 1 || direction == "reverse";
    outputs.push_back(usual ? recur(cell, p, x, back) : run(cell, p, back, each * d));
    if (!outputs.back().h)
      return failure();
  }
  auto stacked = [&](llvm::function_ref<Value(const Outputs &)> part) {
    std::vector<Value> parts;
    for (const Outputs &o : outputs)
      parts.push_back(e.unsqueeze(part(o), {batchFirst ? 1 : 0}));
    return e.concat(parts, batchFirst ? 1 : 0);
  };
  // Y is [S, directions, B, H], or [B, S, directions, H].
  std::vector<Value> rows;
  const bool isWhole = bool(outputs.front().ys);
  for (int64_t t = 0; !isWhole && t < *steps; ++t) {
    Value row = stacked([&](const Outputs &o) { return o.all[t]; });
    rows.push_back(e.unsqueeze(row, {batchFirst ? 1 : 0}));
  }
  int64_t axis = batchFirst ? 1 : 0;
  if (isWhole) {
    axis = batchFirst ? 2 : 1; // of directions
    for (const Outputs &o : outputs)
      rows.push_back(e.unsqueeze(batchFirst ? e.transpose(o.ys, {1, 0, 2}) : o.ys, {axis}));
  }
  if (failed(n.set(0, e.concat(rows, axis))))
    return failure();
  if (n.numOutputs() > 1 && failed(n.set(1, stacked([](const Outputs &o) { return o.h; }))))
    return failure();
  if (gates == 4 && n.numOutputs() > 2)
    return n.set(2, stacked([](const Outputs &o) { return o.c; }));
  return success();
}

template <int Gates> LogicalResult recurrent(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0), w = n.in(1), r = n.in(2);
  if (!x || !w || !r || rankOf(x) != 3 || rankOf(w) != 3 || rankOf(r) != 3)
    return n.invalid("shape", "X, W and R have rank 3");
  // Sizes that follow from the attributes, where the weights are inputs of symbolic sizes.
  const int64_t directions = n.strAttr("direction", "forward") == "bidirectional" ? 2 : 1;
  for (unsigned i : {1u, 2u})
    n.unify(dimOf(n.in(i), 0), directions);
  if (int64_t hidden = n.intAttr("hidden_size", 0); hidden > 0) {
    for (unsigned i : {1u, 2u})
      n.unify(dimOf(n.in(i), 1), Gates * hidden);
    n.unify(dimOf(n.in(2), 2), hidden);
    const bool batchFirst = n.intAttr("layout", 0);
    for (unsigned i : {5u, 6u})
      if (Value state = n.has(i) ? n.in(i) : Value(); state && rankOf(state) == 3) {
        n.unify(dimOf(state, batchFirst ? 1 : 0), directions);
        n.unify(dimOf(state, 2), hidden);
      }
    for (auto [i, factor] : {std::pair(3u, int64_t(2 * Gates)), std::pair(7u, int64_t(3))})
      if (Value row = n.has(i) ? n.in(i) : Value(); row && rankOf(row) == 2) {
        n.unify(dimOf(row, 0), directions);
        n.unify(dimOf(row, 1), factor * hidden);
      }
  }
  x = n.in(0), w = n.in(1), r = n.in(2);
  n.unify(dimOf(w, 2), dimOf(x, 2));
  return recurrentBy(n, Gates, x,
                     {dimOf(r, 2).constant(),
                      [&](Value steps, int64_t d) { return e.matmul(steps, part(e, w, d), false, true); },
                      [&](int64_t d) { return part(e, r, d); }});
}

/// onnxruntime's LSTM with W, [directions, I, 4H], and R, [directions, H, 4H], as codes of one scale, or one
/// a column, a direction. The inputs of all steps are quantized together, and multiplied as integers;
/// the state stays in f32, which is nearer to the LSTM that was quantized, and R is dequantized.
LogicalResult dynamicQuantizeLstm(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0), w = n.in(1), r = n.in(2);
  if (!x || !w || !r || rankOf(x) != 3 || rankOf(w) != 3 || rankOf(r) != 3)
    return n.invalid("shape", "X, W and R have rank 3");
  Type f32 = e.b.getF32Type(), i32 = e.b.getI32Type();
  auto parameter = [&](unsigned i, int64_t d, Type element) {
    Value p = e.cast(n.in(i), element);
    return p && rankOf(p) > 0 ? part(e, p, d) : p;
  };
  emitRemark(n.op->getLoc(), "the state of the LSTM is not quantized: its products with R are of floats");
  return recurrentBy(
      n, 4, x,
      {dimOf(r, 1).constant(),
       [&](Value steps, int64_t d) {
         DynamicCodes codes = dynamicCodes(e, steps);
         Value sums = e.matmul(e.dequantize(codes.codes, {}, e.cast(codes.zero, i32), i32),
                               e.dequantize(part(e, w, d), {}, parameter(9, d, i32), i32));
         return e.mul(e.cast(sums, f32), e.mul(codes.scale, parameter(8, d, f32)));
       },
       [&](int64_t d) {
         return e.transpose(
             e.dequantize(part(e, r, d), parameter(10, d, f32), parameter(11, d, f32), f32), {1, 0});
       }});
}

} // namespace

void addRecurrent(Handlers &h) {
  h["RNN"] = recurrent<1>;
  h["GRU"] = recurrent<3>;
  h["LSTM"] = recurrent<4>;
  h["com.microsoft.DynamicQuantizeLSTM"] = dynamicQuantizeLstm;
}

} // namespace lathe::legal
