//===- Loops.cpp - Loop and Scan whose trips only the run knows -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The body is legalized once, over what lathe.loop_begin carries; lathe.loop_end
// takes what goes on. What is carried keeps its sizes. Rows that each iteration
// gives need a number of iterations that follows from sizes or elements of
// inputs, since it is a size of the result.
//
//===----------------------------------------------------------------------===//
#include "Legalizer.h"

using namespace mlir;

namespace lathe::legal {

Value Legalizer::dataOf(Tracked &tracked) {
  if (!tracked.data && tracked.host)
    tracked.data = e.dimTensor(tracked.host->values, tracked.host->shape, tracked.host->element);
  return tracked.data;
}

bool Legalizer::runLoop(Node &node) {
  unsigned states = node.numInputs() - 2, scans = node.numOutputs() - states;
  Region &body = node.op->getRegion(0);
  if (body.empty() || body.front().getNumArguments() != 2 + states)
    return false;

  // How often, and while what.
  Value trips, condition, again;
  std::optional<DimExpr> count;
  if (node.has(0)) {
    // The rows that it collects have sizes: a number of them that is computed is bound in the run.
    std::optional<HostValue> known = bindHost(node.op->getOperand(0), std::nullopt, /*computed=*/scans > 0);
    if (known && known->values.size() == 1) {
      count = node.derive("trips", e.clampAtZero(known->values[0]), {0, DimRange::kUnbounded});
      trips = e.dimScalar(*count, e.b.getI64Type());
    } else if (Value given = node.in(0); given && isInt(elementTypeOf(given))) {
      trips = e.reshape(e.cast(given, e.b.getI64Type()), {});
    }
    if (!trips)
      return false;
  }
  std::optional<Ints> begins = node.has(1) ? node.ints(1) : Ints{1};
  if (!begins || begins->size() != 1 || !(*begins)[0]) {
    Value given = node.in(1);
    condition = given && elementTypeOf(given).isInteger(1) ? e.reshape(given, {}) : Value();
    if (!condition)
      return false;
  }

  // What it carries: the number of the iteration first.
  SmallVector<Value> inits = {e.scalar(0, e.b.getI64Type())};
  for (unsigned s = 0; s < states; ++s) {
    inits.push_back(data(node.op->getOperand(2 + s)));
    if (!inits.back() && (node.tracked(2 + s).isSequence || node.tracked(2 + s).isEmpty)) {
      (void)node.unknown({0, 1}, "a trip count or condition of a loop that carries a sequence or optional,");
      return false;
    }
    if (!inits.back()) {
      (void)node.fail("dtype", "a loop that carries a value that is no tensor",
                      "tensors of numbers or bool");
      return false;
    }
  }
  auto begin = LoopBeginOp::create(e.b, e.loc, ValueRange(inits).getTypes(), inits);
  Tracked index, flag;
  Value counter = begin->getResult(0);
  auto indexType = dyn_cast<RankedTensorType>(body.front().getArgument(0).getType());
  index.data = indexType && indexType.getRank() == 1 ? e.reshape(counter, {1}) : counter;
  flag.host = HostValue{e.b.getI1Type(), {}, {DimExpr(1)}}; // or the body would not run
  std::vector<Tracked> arguments = {index, flag};
  for (Value carried : begin.getCarried().drop_front()) {
    arguments.emplace_back();
    arguments.back().data = carried;
  }
  std::optional<std::vector<Tracked>> results = runBody(node, counter, arguments);
  if (!results || results->size() != 1 + node.numOutputs())
    return false;

  Tracked &goes = (*results)[0];
  std::optional<HostValue> known = goes.host;
  if (Value value = goes.data; !known && value)
    known = host(value);
  std::optional<Ints> always = known ? known->constants() : std::nullopt;
  if (!always || always->size() != 1 || !(*always)[0]) {
    again = dataOf(goes) ? e.reshape(dataOf(goes), {}) : Value();
    if (!condition)
      condition = e.scalar(1, e.b.getI1Type());
    if (!again)
      return false;
  }
  if (!trips && !condition) {
    (void)node.invalid("op", "a loop without end");
    return false;
  }

  MutableArrayRef<Tracked> made(*results);
  std::optional<SmallVector<Value>> nexts = nextStates(node, begin, made.slice(1, states));
  if (!nexts)
    return false;
  if (scans && trips && condition && !again) {
    // The condition of a body that never ends early is one of the first iteration: no row, or as many as said.
    Value made = e.select(condition, trips, e.scalar(0, e.b.getI64Type()));
    count = node.sizeOf(e.max(made, 0.0), std::nullopt);
    trips = e.dimScalar(*count, e.b.getI64Type());
    condition = {};
  }
  if (scans && (!count || condition || again))
    return refuseLoop(node, "a loop that collects rows, whose number depends on data that is computed in the run",
                      "a trip count that follows from sizes or elements of inputs, and no condition");
  LoopEndOp end = endLoop(begin, trips, condition, again, *nexts, made.drop_front(1 + states), count);
  if (!end)
    return false;
  for (auto [result, y] : llvm::zip(node.op->getResults(), end.getYs().drop_front()))
    values[result].data = y;
  return true;
}

/// The iterations count the elements of an axis, of which each takes one of every source.
bool Legalizer::runScan(Node &node, ArrayRef<Value> sources, const ScanAxes &axes) {
  const unsigned states = node.numInputs() - unsigned(sources.size());
  Type index = e.b.getI64Type();
  DimExpr count = dimOf(sources[0], axes.inputs[0]);
  for (auto [i, x] : llvm::enumerate(sources))
    if (!node.unify(dimOf(x, axes.inputs[i]), count)) {
      (void)node.invalid("shape", "scanned inputs of " + llvm::Twine(count.str()) + " and " +
                                      llvm::Twine(dimOf(x, axes.inputs[i]).str()) + " elements");
      return false;
    }
  count = dimOf(sources[0], axes.inputs[0]);
  for (auto [i, x] : llvm::enumerate(sources))
    if (dimOf(x, axes.inputs[i]) != count)
      node.demandZero("lengths", dimOf(x, axes.inputs[i]) - count);
  SmallVector<Value> inits = {e.scalar(0, index)};
  for (unsigned s = 0; s < states; ++s)
    if (inits.push_back(node.in(s)); !inits.back())
      return false;
  Value trips = e.dimScalar(count, index);
  auto begin = LoopBeginOp::create(e.b, e.loc, ValueRange(inits).getTypes(), inits);
  Value counter = begin->getResult(0), left = e.sub(e.sub(trips, e.scalar(1, index)), counter);
  std::vector<Tracked> arguments(states + sources.size());
  for (unsigned s = 0; s < states; ++s)
    arguments[s].data = begin.getCarried()[1 + s];
  for (auto [i, x] : llvm::enumerate(sources))
    arguments[states + i].data = e.infer<GatherOp>(x, axes.inputsBack[i] ? left : counter, uint64_t(axes.inputs[i]));
  std::optional<std::vector<Tracked>> results = runBody(node, counter, arguments);
  if (!results || results->size() != node.numOutputs())
    return false;
  MutableArrayRef<Tracked> made(*results);
  std::optional<SmallVector<Value>> nexts = nextStates(node, begin, made.take_front(states));
  LoopEndOp end = nexts ? endLoop(begin, trips, {}, {}, *nexts, made.drop_front(states), count) : LoopEndOp();
  if (!end)
    return false;
  for (auto [i, y] : llvm::enumerate(end.getYs().drop_front())) {
    if (i < states) {
      values[node.op->getResult(i)].data = y;
      continue;
    }
    const int64_t rank = rankOf(y);
    std::optional<int64_t> axis = node.axis(axes.outputs[i - states], rank);
    if (!axis)
      return false;
    Value rows = y;
    if (axes.outputsBack[i - states]) {
      Dims starts(rank, DimExpr(0));
      Ints steps(rank, 1);
      starts[0] = count - DimExpr(1);
      steps[0] = -1;
      rows = e.slice(rows, starts, dimsOf(rows), steps);
    }
    Ints order;
    for (int64_t d = 1; d < rank; ++d)
      order.push_back(d);
    order.insert(order.begin() + *axis, 0);
    if (failed(node.set(i, e.transpose(rows, order))))
      return false;
  }
  return true;
}

//===--- what both loops of the run share ---------------------------------===//

/// Reports a loop, and the inputs that would make its iterations known. Always false.
bool Legalizer::refuseLoop(Node &node, const std::string &message, const std::string &nearest) {
  const bool counts = node.type == "Loop";
  UnsupportedNode &entry = report(node, "shape", message, nearest,
                                  counts ? "make the trip count known: --const for the input that decides it"
                                         : "bind the length with --dim",
                                  false);
  for (unsigned i : {0, 1})
    if (counts && node.has(i))
      inputsBehind(node.op->getOperand(i), entry.needs);
  node.reported = true;
  return false;
}

/// The body, once, over what is carried.
std::optional<std::vector<Tracked>> Legalizer::runBody(Node &node, Value counter, ArrayRef<Tracked> arguments) {
  size_t failures = found.nodes.size();
  loops.push_back({counter, {}});
  std::optional<std::vector<Tracked>> results = inlineBody(node, node.op->getRegion(0), arguments);
  loops.pop_back();
  bool needsMore = std::any_of(found.nodes.begin() + failures, found.nodes.end(), [](auto &entry) {
    return StringRef(entry.message).ends_with("known at run time only");
  });
  if (!results && needsMore)
    refuseLoop(node, "a trip count or condition known at run time only, in a loop whose body has sizes that follow "
                     "from the iteration",
               "a constant trip count up to 64");
  node.reported |= !results;
  return results;
}

/// What goes on, the number of the next iteration first; none after a report.
std::optional<SmallVector<Value>> Legalizer::nextStates(Node &node, LoopBeginOp begin,
                                                        MutableArrayRef<Tracked> states) {
  SmallVector<Value> nexts = {e.add(begin->getResult(0), e.scalar(1, e.b.getI64Type()))};
  for (auto [state, carried] : llvm::zip(states, begin.getCarried().drop_front())) {
    Value next = dataOf(state);
    bool fits = next && elementTypeOf(next) == elementTypeOf(carried) && rankOf(next) == rankOf(carried);
    for (int64_t d = 0; fits && d < rankOf(next); ++d)
      fits = node.unify(dimOf(next, d), dimOf(carried, d));
    // States of a Scan keep their sizes: where two are written differently, the run checks that they are equal.
    for (int64_t d = 0; fits && node.type == "Scan" && d < rankOf(next); ++d)
      fits = !(dimOf(next, d) - dimOf(carried, d)).isConstant() || dimOf(next, d) == dimOf(carried, d);
    if (fits && node.type == "Scan")
      next = e.bind(next, dimsOf(carried));
    if (!fits || next.getType() != carried.getType()) {
      std::string is;
      if (next)
        llvm::raw_string_ostream(is) << ": " << carried.getType() << " and then " << next.getType();
      refuseLoop(node, "a loop of a number of iterations that only the run knows, which carries a value of changing "
                       "sizes" + is,
                 "values of one size, or a constant trip count up to 64");
      return {};
    }
    nexts.push_back(next);
  }
  return nexts;
}

/// `count` is there where there are rows, which the end collects; null where one is no tensor.
LoopEndOp Legalizer::endLoop(LoopBeginOp begin, Value trips, Value condition, Value again, ArrayRef<Value> nexts,
                             MutableArrayRef<Tracked> collected, const std::optional<DimExpr> &count) {
  SmallVector<Type> types(ValueRange(nexts).getTypes());
  SmallVector<Value> rows;
  StringAttr iteration;
  if (!collected.empty())
    iteration = declare("iteration", 0, -1, 0, "iteration", DimAttr()).getSymNameAttr();
  for (Tracked &row : collected) {
    rows.push_back(dataOf(row));
    if (!rows.back())
      return {};
    Dims dims = dimsOf(rows.back());
    dims.insert(dims.begin(), *count);
    types.push_back(tensorType(elementTypeOf(rows.back()), dims));
  }
  return LoopEndOp::create(e.b, e.loc, types, begin->getResult(0), trips, condition, again, nexts, rows, iteration);
}

} // namespace lathe::legal
