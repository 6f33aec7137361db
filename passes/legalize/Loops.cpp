//===- Loops.cpp - Loop and Scan whose trips only the run knows -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The body is legalized once, over what lathe.loop_begin carries; lathe.loop_end
// takes what goes on. What is carried keeps its sizes. Rows that each iteration
// gives need a number of iterations that follows from sizes or elements of
// inputs, since it is a size of the result. A condition that only counts gives
// one, too:
//   while i < n: i = i + 1     n - i iterations
//
//===----------------------------------------------------------------------===//
#include "ConstantFloats.h"
#include "Lists.h"

#include "lathe/ir/SizeSources.h"
#include "lathe/ir/WeightStore.h"

#include <cmath>

using namespace mlir;

namespace lathe::legal {
namespace {

/// Whether it is no constant that overflows in sums, as the greatest i64 does, which converters write for a loop without a trip count.
bool isSmall(const DimExpr &size) {
  constexpr int64_t kMost = int64_t(1) << 62;
  std::optional<int64_t> constant = size.constant();
  return !constant || (*constant > -kMost && *constant < kMost);
}

/// What conditions that only count say of the number of iterations: comparisons, or several joined by `and`, of a
/// number that each iteration raises by one with one that none changes.
class Counting {
public:
  /// `nexts`: what lathe.loop_end takes for what `begin` carries.
  Counting(Legalizer &legal, Node &node, LoopBeginOp begin, ArrayRef<Value> nexts)
      : legal(legal), node(node), begin(begin), nexts(nexts) {}

  /// The number of iterations up to the first that finds `again` false; none for other conditions. `condition` of the first
  /// one is taken in, and null then, where it compares constants and sizes, too; else there is one iteration at least.
  std::optional<DimExpr> iterations(Value again, Value &condition) {
    std::vector<DimExpr> behind, ahead;
    if (!differences(again, behind, [&](Value v) { return counted(v); }))
      return std::nullopt;
    if (condition && differences(condition, ahead, [&](Value v) { return fixed(v); }))
      condition = {};
    else
      ahead.clear();
    std::optional<DimExpr> most;
    for (const DimExpr &left : behind) {
      const bool alike = llvm::is_contained(ahead, left + DimExpr(1)); // the same comparison ahead of the loop
      DimExpr count = alike ? legal.e.clampAtZero(left + DimExpr(1)) : DimExpr(1) + legal.e.clampAtZero(left);
      most = most ? legal.e.minOf(*most, count) : count;
    }
    for (const DimExpr &left : ahead)
      if (!llvm::is_contained(behind, left - DimExpr(1)))
        most = *most * legal.e.minOf(legal.e.clampAtZero(left), 1);
    return most;
  }

private:
  /// b - a of each a < b, and 1 more of a <= b, that `condition` joins by `and`; whether it is nothing else.
  bool differences(Value condition, std::vector<DimExpr> &found, llvm::function_ref<std::optional<DimExpr>(Value)> below) {
    if (auto reshape = condition.getDefiningOp<ReshapeOp>())
      return differences(reshape.getX(), found, below);
    if (auto joined = condition.getDefiningOp<AndOp>())
      return differences(joined.getA(), found, below) && differences(joined.getB(), found, below);
    auto op = condition.getDefiningOp<CompareOp>();
    const Predicate is = op ? op.getPredicate() : Predicate::Eq;
    const bool rises = is == Predicate::Lt || is == Predicate::Le, orEqual = is == Predicate::Le || is == Predicate::Ge;
    if (!rises && is != Predicate::Gt && is != Predicate::Ge)
      return false;
    std::optional<DimExpr> a = below(rises ? op.getA() : op.getB()), b = a ? fixed(rises ? op.getB() : op.getA()) : std::nullopt;
    if (!b || !isSmall(*a) || !isSmall(*b))
      return false;
    found.push_back(*b - *a + DimExpr(orEqual));
    return true;
  }

  /// Past casts and shapes of one element. fixed() sees to it that what is compared as f32 is exact.
  Value bare(Value v) {
    for (;;) {
      auto type = dyn_cast<RankedTensorType>(v.getType());
      if (!type || !type.hasStaticShape() || type.getNumElements() != 1)
        return {};
      if (auto reshape = v.getDefiningOp<ReshapeOp>())
        v = reshape.getX();
      else if (auto cast = v.getDefiningOp<CastOp>(); cast && holds(type.getElementType()) && counts(cast.getX()))
        v = cast.getX();
      else
        return v;
    }
  }

  static bool counts(Value v) {
    Type element = elementTypeOf(v);
    return element.isSignlessInteger(32) || element.isSignlessInteger(64);
  }
  static bool holds(Type element) {
    return element.isSignlessInteger(32) || element.isSignlessInteger(64) || element.isF32() || element.isF64();
  }

  /// What `v` is in the first iteration, if each raises it by one.
  std::optional<DimExpr> counted(Value v) {
    if (v = bare(v); !v || !counts(v))
      return std::nullopt;
    if (auto sum = v.getDefiningOp<AddOp>())
      for (auto [a, b] : {std::pair(sum.getA(), sum.getB()), std::pair(sum.getB(), sum.getA())})
        if (std::optional<std::vector<int64_t>> step = constantInts(b); step && step->size() == 1)
          if (std::optional<DimExpr> first = counted(a))
            return *first + DimExpr((*step)[0]);
    auto carried = dyn_cast<OpResult>(v);
    if (!carried || carried.getOwner() != begin.getOperation())
      return std::nullopt;
    const unsigned at = carried.getResultNumber();
    Value next = bare(nexts[at]);
    auto raised = next ? next.getDefiningOp<AddOp>() : AddOp();
    auto byOne = [&](Value a, Value b) {
      std::optional<std::vector<int64_t>> step = constantInts(b);
      return bare(a) == v && step && *step == std::vector<int64_t>{1};
    };
    if (!raised || !(byOne(raised.getA(), raised.getB()) || byOne(raised.getB(), raised.getA())))
      return std::nullopt;
    if (at == 0) // the number of the iteration
      return DimExpr(0);
    std::optional<HostValue> init = legal.host(node.op->getOperand(1 + at));
    return init && init->values.size() == 1 ? std::optional(init->values[0]) : std::nullopt;
  }

  /// An integer that no iteration changes: of a constant, a size or an input.
  std::optional<DimExpr> fixed(Value v) {
    const Type compared = elementTypeOf(v);
    const bool isReal = isa<FloatType>(compared);
    if (v = bare(v); !v)
      return std::nullopt;
    if (std::optional<HostTensor> known = v.getDefiningOp<ConstantOp>() ? constantFloats(v) : std::nullopt) {
      std::optional<std::vector<int64_t>> whole = constantInts(v);
      const double real = known->real(0);
      const bool exact = std::abs(real) <= double(kExact) && real == std::floor(real);
      return exact ? std::optional(DimExpr(int64_t(real))) : whole && !isReal ? std::optional(DimExpr((*whole)[0])) : std::nullopt;
    }
    if (auto sizes = v.getDefiningOp<DimValueOp>(); sizes && sizes.getDims().size() == 1) {
      DimExpr size = cast<DimAttr>(sizes.getDims()[0]).expr();
      return isReal ? node.derive("limit", size, {0, kExact}) : size;
    }
    if (!isa<BlockArgument>(v) || isReal || !counts(v) || elementTypeOf(v).getIntOrFloatBitWidth() > compared.getIntOrFloatBitWidth())
      return std::nullopt;
    std::optional<HostValue> input = legal.bindHost(v, std::nullopt);
    return input && input->values.size() == 1 ? std::optional(input->values[0]) : std::nullopt;
  }

  /// An f32 holds every integer up to this one.
  static constexpr int64_t kExact = int64_t(1) << 24;
  Legalizer &legal;
  Node &node;
  LoopBeginOp begin;
  ArrayRef<Value> nexts;
};

} // namespace

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
  std::vector<std::optional<RunList>> lists(states);
  for (unsigned s = 0; s < states; ++s) {
    const Tracked &given = node.tracked(2 + s);
    if (given.isSequence || given.isEmpty || given.list) {
      lists[s] = asList(node, given);
      if (!lists[s])
        return false;
      stateList(node, 2 + s, *lists[s]);
      inits.push_back(lists[s]->handle);
      continue;
    }
    inits.push_back(data(node.op->getOperand(2 + s)));
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
  for (auto [list, carried] : llvm::zip(lists, begin.getCarried().drop_front())) {
    arguments.emplace_back();
    if (list) {
      list->handle = carried;
      list->taken.push_back(std::make_shared<std::vector<Ints>>());
      arguments.back().list = list;
    } else {
      arguments.back().data = carried;
    }
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
    if (!again)
      return false;
  }
  if (!trips && !condition && !again) {
    (void)node.invalid("op", "a loop without end");
    return false;
  }

  MutableArrayRef<Tracked> made(*results);
  loops.push_back({begin->getResult(0), {}});
  std::vector<std::optional<RunList>> lastLists(states);
  bool carriesLists = true;
  for (unsigned s = 0; s < states && carriesLists; ++s)
    if (lists[s])
      carriesLists = (lastLists[s] = nextList(node, *lists[s], made[1 + s])).has_value();
  std::optional<SmallVector<Value>> nexts;
  if (carriesLists)
    nexts = nextStates(node, begin, made.slice(1, states));
  const bool settled = nexts && settleRows(node, made.drop_front(1 + states));
  loops.pop_back();
  if (!settled)
    return false;
  const bool bounded = again && (!trips || count);
  if (std::optional<DimExpr> most = bounded ? Counting(*this, node, begin, *nexts).iterations(again, condition) : std::nullopt) {
    count = node.derive("trips", count && isSmall(*count) ? e.minOf(*count, *most) : *most, {0, DimRange::kUnbounded});
    trips = e.dimScalar(*count, e.b.getI64Type());
    again = {};
  }
  if (again && !condition)
    condition = e.scalar(1, e.b.getI1Type());
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
  for (auto [i, y] : llvm::enumerate(end.getYs().drop_front()))
    if (i < states && lastLists[i])
      (void)node.setTracked(i, listBehindLoop(node, *lists[i], *lastLists[i], y));
    else
      values[node.op->getResult(i)].data = y;
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
    // Neither do a Loop's: a window that the end of its tensor may cut has to be as long as what is carried.
    bool isWindow = fits && node.type == "Loop";
    for (int64_t d = 0; isWindow && d < rankOf(next); ++d)
      isWindow = dimOf(next, d) == dimOf(carried, d) || windowOf(dimOf(next, d)) == dimOf(carried, d);
    for (int64_t d = 0; isWindow && d < rankOf(next); ++d)
      node.demandZero("carried_size", dimOf(next, d) - dimOf(carried, d));
    if (isWindow || (fits && node.type == "Scan"))
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

/// Whether the size is counted in each iteration of the innermost loop around what is being processed: one of a loop
/// around that is a constant there.
bool Legalizer::isOfIteration(const DimExpr &size) {
  std::set<std::string> names;
  size.collectSymbols(names);
  const SizeSources sizes(func.getBody().front());
  SmallVector<Operation *> left;
  for (const std::string &name : names)
    if (auto found = sizes.symbols().find(name); found != sizes.symbols().end())
      llvm::append_range(left, found->second);
  DenseSet<Operation *> seen;
  while (!left.empty()) {
    Operation *op = left.pop_back_val();
    if (!seen.insert(op).second)
      continue;
    if (op == loops.back().counter.getDefiningOp())
      return true;
    llvm::append_range(left, sizes.of(op));
    for (Value operand : op->getOperands())
      if (Operation *producer = operand.getDefiningOp())
        left.push_back(producer);
  }
  return false;
}

/// The size that a window of each iteration has where nothing cuts it; itself if no iteration counts it.
std::optional<DimExpr> Legalizer::windowOf(const DimExpr &size) {
  if (size.isConstant() || !isOfIteration(size))
    return size;
  const int64_t most = size.range(e.ranges).hi;
  return most == DimRange::kUnbounded ? std::nullopt : std::optional(DimExpr(most));
}

/// Rows have one size, which what follows the loop has, too: a window of each iteration has to be whole.
bool Legalizer::settleRows(Node &node, MutableArrayRef<Tracked> rows) {
  for (Tracked &row : rows) {
    Value data = dataOf(row);
    if (!data)
      return false;
    Dims dims = dimsOf(data);
    for (DimExpr &dim : dims) {
      std::optional<DimExpr> whole = windowOf(dim);
      if (!whole)
        return refuseLoop(node, "a loop that collects rows whose sizes are computed in each iteration",
                          "rows of one size, or a constant trip count up to 64");
      node.demandZero("row_size", dim - *whole);
      dim = *whole;
    }
    row.data = e.bind(data, dims);
  }
  return true;
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
