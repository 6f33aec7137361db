//===- ControlFlow.cpp - If, Loop and Scan that are known -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A condition that is known picks its branch, another one chooses between both in
// a run; a loop whose trip count is a small constant is unrolled. Everything else
// is reported.
//
//===----------------------------------------------------------------------===//
#include "Lists.h"

#include "mlir/IR/IRMapping.h"

#include <functional>

using namespace mlir;

namespace lathe::legal {

/// Iterations that are unrolled at most.
static constexpr int64_t kMaxTrips = 64;

/// The body's ops in front of the node, legalized, with these arguments; what
/// the body yields. None when something in it failed.
std::optional<std::vector<Tracked>> Legalizer::inlineBody(Node &node, Region &body, ArrayRef<Tracked> arguments,
                                                          SmallVectorImpl<Value> *yields) {
  if (body.empty() || body.front().getNumArguments() != arguments.size() || body.front().empty())
    return std::nullopt;
  OpBuilder builder(node.op);
  IRMapping mapping;
  for (auto [argument, value] : llvm::zip(body.front().getArguments(), arguments)) {
    OperationState state(node.op->getLoc(), "onnx.Argument");
    state.addTypes(argument.getType());
    Value stand = builder.create(state)->getResult(0);
    mapping.map(argument, stand);
    values[stand] = value;
  }
  std::vector<Tracked> results;
  size_t failures = found.nodes.size();
  for (Operation &op : body.front()) {
    if (&op == &body.front().back())
      break;
    Operation *copy = builder.clone(op, mapping);
    originals[copy] = &op;
    process(copy);
  }
  for (Value yielded : body.front().back().getOperands()) {
    Value inlined = mapping.lookupOrDefault(yielded);
    results.push_back(track(inlined));
    if (results.back().failed)
      return std::nullopt;
    if (yields)
      yields->push_back(inlined);
  }
  e.b.setInsertionPoint(node.op);
  e.loc = node.op->getLoc();
  if (found.nodes.size() != failures)
    return std::nullopt;
  return results;
}

/// The condition of an If as a formula, 1 or 0, over elements of inputs: a comparison for equality.
std::optional<DimExpr> Legalizer::conditionAsSize(Node &node) {
  Operation *equal = node.op->getOperand(0).getDefiningOp();
  if (!equal || equal->getName().getStringRef() != "onnx.Equal")
    return std::nullopt;
  std::optional<HostValue> a = bindHost(equal->getOperand(0), std::nullopt),
                           b = bindHost(equal->getOperand(1), std::nullopt);
  if (!a || !b || a->values.size() != 1 || b->values.size() != 1)
    return std::nullopt;
  return equalDims(a->values[0], b->values[0]);
}

/// 1 where the run takes all the branches around what is being processed, else 0.
std::optional<DimExpr> Legalizer::runsAsSize() {
  DimExpr runs = 1;
  for (auto [node, isThen] : branches) {
    std::optional<DimExpr> taken = conditionAsSize(*node);
    if (!taken)
      return std::nullopt;
    runs = runs * (isThen ? *taken : DimExpr(1) - *taken);
  }
  return runs;
}

/// A symbol for a size of what an If gives, which is `a` or `b`.
DimExpr Legalizer::chosenSize(Node &node, const DimExpr &a, const DimExpr &b) {
  std::map<std::string, int64_t> optima;
  for (SymbolOp symbol : module.getOps<SymbolOp>())
    optima[symbol.getSymName().str()] = symbol.getOpt();
  DimRange x = a.range(e.ranges), y = b.range(e.ranges), both{std::max<int64_t>(0, std::min(x.lo, y.lo)), std::max(x.hi, y.hi)};
  int64_t usual = both.lo;
  for (const DimExpr &size : {a, b})
    usual = std::max(usual, size.evaluate(optima).ok() ? *size.evaluate(optima) : 1);
  usual = std::min(usual, both.hi);
  SmallVector<StringRef> names = nodeNames(node.op->getLoc());
  std::string name = names.empty() ? "If" : names.front().str();
  SymbolOp symbol = declare(name + "_size", both.lo, both.hi == DimRange::kUnbounded ? -1 : both.hi, usual,
                            SymbolOp::kValueOrigin.str() + "the condition of " + name, DimAttr());
  return DimExpr::symbol(symbol.getSymName().str());
}

static bool differInRank(ArrayRef<Tracked> a, ArrayRef<Tracked> b) {
  auto rank = [](const Tracked &value) { return value.data ? rankOf(value.data) : value.host ? int64_t(value.host->shape.size()) : -1; };
  return llvm::any_of(llvm::zip(a, b), [&](auto pair) {
    int64_t x = rank(std::get<0>(pair)), y = rank(std::get<1>(pair));
    return x >= 0 && y >= 0 && x != y;
  });
}

/// Whether a tensor of one element may have a rank up to `rank` as well as its own: all that use it broadcast it with
/// tensors of that rank or a higher one, or look at its type alone.
bool Legalizer::hidesRank(OpResult value, int64_t rank) {
  if (!outer.empty()) // what a function's body gives has uses that are not there yet
    return false;
  Operation *stated = originals.lookup(value.getOwner()); // whose uses are there, where the copy's are to come
  for (OpOperand &use : (stated ? stated->getResult(value.getResultNumber()) : value).getUses()) {
    Operation *user = use.getOwner();
    StringRef name = user->getName().getStringRef();
    if (name == "onnx.Yield" && user->getParentOp()->getName().getStringRef() == "onnx.If") {
      if (!hidesRank(user->getParentOp()->getResult(use.getOperandNumber()), rank))
        return false;
      continue;
    }
    if (name == "onnx.CastLike" && use.getOperandNumber() == 1)
      continue;
    const bool broadcasts = name == "onnx.Add" || name == "onnx.Sub" || name == "onnx.Mul" || name == "onnx.Div";
    auto other = broadcasts ? dyn_cast<RankedTensorType>(user->getOperand(1 - use.getOperandNumber()).getType()) : RankedTensorType();
    if (!other || other.getRank() < rank)
      return false;
  }
  return true;
}

/// Of branches that give one element each, in different ranks, the lower rank is raised where nothing sees it.
void Legalizer::raiseRanks(Node &node, MutableArrayRef<Tracked> a, MutableArrayRef<Tracked> b) {
  for (auto [i, x, y] : llvm::enumerate(a, b)) {
    Value u = x.data, v = y.data;
    if (!u || !v || rankOf(u) == rankOf(v) || product(dimsOf(u)) != DimExpr(1) || product(dimsOf(v)) != DimExpr(1))
      continue;
    Tracked &lower = rankOf(u) < rankOf(v) ? x : y;
    const Dims &dims = dimsOf(rankOf(u) < rankOf(v) ? v : u);
    if (!hidesRank(node.op->getResult(i), int64_t(dims.size())))
      continue;
    lower = Tracked();
    lower.data = e.reshape(rankOf(u) < rankOf(v) ? u : v, dims);
  }
}

static bool squeezes(Region &body) {
  return llvm::any_of(body.getOps(), [](Operation &op) { return op.getName().getStringRef() == "onnx.Squeeze"; });
}

/// Both branches, one after the other, and the choice between what they give. Sizes that differ
/// become symbols, which the branch that is taken gives values.
bool Legalizer::chooseBranch(Node &node, ArrayAttr names) {
  Value condition = node.in(0);
  if (!condition || !elementTypeOf(condition).isInteger(1) || node.op->getNumRegions() != 2) {
    (void)node.unknown({0}, "a condition");
    return false;
  }
  std::optional<std::vector<Tracked>> sides[2]; // else, then
  Region *bodies[2] = {};
  for (auto [name, region] : llvm::zip(names, node.op->getRegions()))
    bodies[cast<StringAttr>(name).getValue() == "then_branch"] = &region;
  if (!bodies[0] || !bodies[1])
    return false;
  size_t failures = found.nodes.size();
  for (int side : {1, 0}) {
    // What one side alone cannot do is an error of the run that takes it.
    ScopedDiagnosticHandler quiet(node.op->getContext(), [](Diagnostic &) { return success(); });
    branches.push_back({&node, side == 1});
    sides[side] = inlineBody(node, *bodies[side], {});
    branches.pop_back();
    if (sides[side] && sides[side]->size() != node.numOutputs())
      return false;
  }
  std::optional<DimExpr> runs;
  // The side alone that a run can take; a run that would take the other one fails.
  auto takeOnly = [&](int works, const DimExpr &taken) {
    DimExpr other = works ? DimExpr(1) - taken : taken;
    node.derive(works ? "takes_then_branch" : "takes_else_branch", DimExpr(1) - other * *runs, {1, 1});
    for (auto [result, value] : llvm::zip(node.op->getResults(), *sides[works]))
      values[result] = value;
  };
  if (!sides[0] || !sides[1]) {
    int works = sides[1] ? 1 : 0;
    std::optional<DimExpr> taken = (runs = runsAsSize()) ? conditionAsSize(node) : std::nullopt;
    if (!sides[works] || !taken) {
      found.nodes.resize(failures);
      node.reported = true;
      for (int side : {1, 0})
        if (!sides[side])
          (void)inlineBody(node, *bodies[side], {}); // says why
      return false;
    }
    mlir::emitRemark(node.op->getLoc())
        << "the " << (works ? "else" : "then") << " branch does not run at these sizes: "
        << found.nodes.back().message;
    found.nodes.resize(failures);
    takeOnly(works, *taken);
    return true;
  }
  raiseRanks(node, *sides[1], *sides[0]);
  // Squeeze of torch: `x.squeeze(d)` where the export saw a size of 1. The other branch has another rank.
  if (differInRank(*sides[0], *sides[1]) && (runs = runsAsSize()))
    for (int works : {1, 0})
      if (std::optional<DimExpr> taken = squeezes(*bodies[works]) ? conditionAsSize(node) : std::nullopt) {
        mlir::emitRemark(node.op->getLoc()) << "only the " << (works ? "then" : "else")
                                            << " branch, which squeezes, is compiled: the other one gives another rank";
        takeOnly(works, *taken);
        return true;
      }
  SmallVector<Value> thens, elses;
  SmallVector<Tracked *> chosen;
  SmallVector<Type> types;
  std::map<std::pair<std::string, std::string>, DimExpr> sizes; // of either side: the result's
  SmallVector<Attribute> symbols, thenSizes, elseSizes;
  std::vector<Tracked> outputs(node.numOutputs());
  // What the two sides give one of is chosen; false after a report.
  std::function<bool(Tracked &, Tracked &, Tracked &)> pair = [&](Tracked &result, Tracked &a, Tracked &b) {
    bool same = a.host && b.host && a.host->values == b.host->values && a.host->shape == b.host->shape;
    if (same || (a.isEmpty && b.isEmpty)) {
      result = a;
      return true;
    }
    if (a.list || b.list || a.isSequence != b.isSequence || a.isEmpty != b.isEmpty ||
        a.elements.size() != b.elements.size()) {
      // The condition decides how many tensors it has.
      std::optional<RunList> x = asList(node, a), y = asList(node, b);
      std::optional<RunList> made = x && y ? either(node, *x, *y) : std::nullopt;
      if (!made)
        return false;
      result.list = *made;
      thens.push_back(x->handle);
      elses.push_back(y->handle);
      chosen.push_back(&result);
      types.push_back(x->handle.getType());
      return true;
    }
    if (a.isSequence) {
      result = Tracked::sequence(std::vector<Tracked>(a.elements.size()));
      for (auto [r, x, y] : llvm::zip(result.elements, a.elements, b.elements))
        if (!pair(r, x, y))
          return false;
      return true;
    }
    Value x = dataOf(a), y = dataOf(b);
    if (!x || !y || elementTypeOf(x) != elementTypeOf(y) || rankOf(x) != rankOf(y)) {
      std::string given;
      if (x && y)
        llvm::raw_string_ostream(given) << ": " << x.getType() << " and " << y.getType();
      UnsupportedNode &entry = report(node, "shape", "branches that give different types or ranks under a condition that only "
                                      "the run knows" + given, "branches of equal types and ranks",
                                      "make the condition known: --const for the input that decides it, or --shape", false);
      inputsBehind(node.op->getOperand(0), entry.needs);
      node.reported = true;
      return false;
    }
    Dims dims = dimsOf(x);
    for (auto [dim, other] : llvm::zip(dims, dimsOf(y))) {
      if (dim == other)
        continue;
      auto [size, isNew] = sizes.try_emplace({dim.str(), other.str()});
      if (isNew) {
        size->second = chosenSize(node, dim, other);
        symbols.push_back(e.b.getStringAttr(*size->second.symbolName()));
        thenSizes.push_back(DimAttr::get(node.op->getContext(), dim));
        elseSizes.push_back(DimAttr::get(node.op->getContext(), other));
      }
      dim = size->second;
    }
    thens.push_back(x);
    elses.push_back(y);
    chosen.push_back(&result);
    types.push_back(dims == dimsOf(x) ? x.getType() : tensorType(elementTypeOf(x), dims));
    return true;
  };
  for (auto [result, a, b] : llvm::zip(outputs, *sides[1], *sides[0]))
    if (!pair(result, a, b))
      return false;
  if (!chosen.empty()) {
    auto list = [&](ArrayRef<Attribute> items) { return items.empty() ? ArrayAttr() : e.b.getArrayAttr(items); };
    auto choose = ChooseOp::create(e.b, e.loc, types, e.reshape(condition, {}), thens, elses, list(symbols),
                                   list(thenSizes), list(elseSizes));
    for (auto [result, y] : llvm::zip(chosen, choose.getYs()))
      (result->list ? result->list->handle : result->data) = y;
  }
  for (auto [result, value] : llvm::zip(node.op->getResults(), outputs))
    values[result] = value;
  return true;
}

bool Legalizer::inlineIf(Node &node) {
  std::optional<Ints> condition = node.ints(0);
  auto names = node.op->getAttrOfType<ArrayAttr>("onnx_regions");
  if (names && !condition)
    return chooseBranch(node, names);
  if (!condition || condition->size() != 1 || !names) {
    (void)node.unknown({0}, "a condition");
    return false;
  }
  StringRef wanted = (*condition)[0] ? "then_branch" : "else_branch";
  for (auto [name, region] : llvm::zip(names, node.op->getRegions())) {
    if (cast<StringAttr>(name).getValue() != wanted)
      continue;
    SmallVector<Value> yields;
    std::optional<std::vector<Tracked>> results = inlineBody(node, region, {}, &yields);
    node.reported |= !results;
    if (!results || results->size() != node.numOutputs())
      return false;
    for (auto [result, value, yielded] : llvm::zip(node.op->getResults(), *results, yields)) {
      values[result] = value;
      branchValues[result] = yielded;
    }
    return true;
  }
  return false;
}

/// Stacks each scan's values along a new first axis.
bool Legalizer::finishScans(Node &node, unsigned first, std::vector<std::vector<Value>> &scans) {
  for (auto [i, parts] : llvm::enumerate(scans)) {
    if (parts.empty()) {
      (void)node.fail("shape", "a loop of no iterations that collects values",
                      "one iteration or more");
      return false;
    }
    std::vector<Value> rows;
    for (Value part : parts)
      rows.push_back(e.unsqueeze(part, {0}));
    if (failed(node.set(first + i, e.concat(rows, 0))))
      return false;
  }
  return true;
}

/// Few iterations of a number that is known stand one after another; others are a loop of the run.
bool Legalizer::unrollLoop(Node &node) {
  if (node.op->getNumRegions() != 1 || node.numInputs() < 2)
    return false;
  unsigned states = node.numInputs() - 2;
  if (node.numOutputs() < states)
    return false;
  std::optional<Ints> trips = node.has(0) ? node.ints(0) : std::nullopt;
  std::optional<Ints> condition = node.has(1) ? node.ints(1) : Ints{1};
  if (!trips || trips->size() != 1 || (*trips)[0] > kMaxTrips || !condition ||
      condition->size() != 1)
    return runLoop(node);
  std::vector<Tracked> carried;
  for (unsigned i = 0; i < states; ++i)
    carried.push_back(track(node.op->getOperand(2 + i)));
  std::vector<std::vector<Value>> scans(node.numOutputs() - states);
  bool go = (*condition)[0];
  // What no iteration collects has the body's types alone, which a loop of the run takes from it.
  if (!scans.empty() && (!go || (*trips)[0] <= 0))
    return runLoop(node);
  for (int64_t i = 0; go && i < (*trips)[0]; ++i) {
    Tracked index, flag;
    index.host = HostValue{e.b.getI64Type(), {}, {DimExpr(i)}};
    flag.host = HostValue{e.b.getI1Type(), {}, {DimExpr(1)}};
    std::vector<Tracked> arguments = {index, flag};
    llvm::append_range(arguments, carried);
    std::optional<std::vector<Tracked>> results =
        inlineBody(node, node.op->getRegion(0), arguments);
    node.reported |= !results;
    if (!results || results->size() != 1 + node.numOutputs())
      return false;
    std::optional<HostValue> again = (*results)[0].host;
    if (!again && (*results)[0].data) {
      // A constant of the body.
      Value data = (*results)[0].data;
      again = host(data);
    }
    std::optional<Ints> known = again ? again->constants() : std::nullopt;
    if (!known || known->size() != 1)
      return runLoop(node);
    go = (*known)[0];
    for (unsigned s = 0; s < states; ++s)
      carried[s] = (*results)[1 + s];
    for (auto [s, parts] : llvm::enumerate(scans)) {
      parts.push_back(dataOf((*results)[1 + states + s]));
      if (!parts.back())
        return false;
    }
  }
  for (unsigned s = 0; s < states; ++s)
    values[node.op->getResult(s)] = carried[s];
  return finishScans(node, states, scans);
}

/// Scan as opset 8 has it: operands are sequence_lens, then states [batch, ...] and sequences
/// [batch, length, ...], over which the body goes for each batch.
bool Legalizer::unrollBatchedScan(Node &node) {
  int64_t inputs = node.intAttr("num_scan_inputs", 0);
  if (node.op->getNumRegions() != 1 || inputs < 1 || inputs + 1 > node.numInputs())
    return false;
  unsigned states = node.numInputs() - 1 - inputs, outputs = node.numOutputs() - states;
  Ints back = node.intsAttr("directions").value_or(Ints(inputs, 0));
  if (node.numOutputs() < states || back.size() != size_t(inputs))
    return false;
  if (node.has(0)) {
    (void)node.fail("attribute", "sequence_lens of a Scan", "sequences of full length");
    return false;
  }
  std::optional<int64_t> batch, trips;
  for (unsigned i = 1; i < node.numInputs(); ++i) {
    Value x = node.in(i);
    bool scanned = i > states;
    std::optional<int64_t> rows, length;
    if (x && rankOf(x) >= 1 + int64_t(scanned)) {
      rows = dimOf(x, 0).constant();
      length = scanned ? dimOf(x, 1).constant() : trips;
    }
    if (!rows || *rows < 1 || (batch && *batch != *rows) || (scanned && (!length || (trips && *trips != *length))) ||
        *rows * length.value_or(1) > kMaxTrips || length.value_or(1) < 1) {
      (void)node.fail("shape", "Scan over batches and lengths that are symbolic, differ, are 0 or above 64 in all",
                      "constant sizes", "bind the sizes with --dim");
      return false;
    }
    batch = rows;
    trips = length;
  }
  auto without = [&](Value x, const DimExpr &at) {
    Dims dims = dimsOf(x);
    dims.erase(dims.begin());
    return e.reshape(e.sliceAxis(x, 0, at, 1), dims);
  };
  std::vector<std::vector<Value>> stacked(node.numOutputs());
  for (int64_t b = 0; b < *batch; ++b) {
    std::vector<Tracked> carried(states);
    std::vector<Value> sources;
    for (unsigned s = 0; s < states; ++s)
      carried[s].data = without(node.in(1 + s), b);
    for (int64_t i = 0; i < inputs; ++i)
      sources.push_back(without(node.in(1 + states + i), b));
    std::vector<std::vector<Value>> scans(outputs);
    for (int64_t t = 0; t < *trips; ++t) {
      std::vector<Tracked> arguments = carried;
      for (auto [x, reverse] : llvm::zip(sources, back)) {
        arguments.emplace_back();
        arguments.back().data = without(x, reverse ? *trips - 1 - t : t);
      }
      std::optional<std::vector<Tracked>> results =
          inlineBody(node, node.op->getRegion(0), arguments);
      node.reported |= !results;
      if (!results || results->size() != node.numOutputs())
        return false;
      for (unsigned s = 0; s < states; ++s)
        carried[s] = (*results)[s];
      for (unsigned s = 0; s < outputs; ++s)
        scans[s].push_back(e.unsqueeze(dataOf((*results)[states + s]), {0}));
    }
    for (unsigned s = 0; s < states; ++s)
      stacked[s].push_back(e.unsqueeze(dataOf(carried[s]), {0}));
    for (unsigned s = 0; s < outputs; ++s)
      stacked[states + s].push_back(e.unsqueeze(e.concat(scans[s], 0), {0}));
  }
  for (auto [i, rows] : llvm::enumerate(stacked))
    if (failed(node.set(i, e.concat(rows, 0))))
      return false;
  return true;
}

bool Legalizer::unrollScan(Node &node) {
  int64_t inputs = node.intAttr("num_scan_inputs", 0);
  if (node.opset < 9)
    return unrollBatchedScan(node);
  if (node.op->getNumRegions() != 1 || inputs < 1 || inputs > node.numInputs())
    return false;
  unsigned states = node.numInputs() - inputs;
  if (node.numOutputs() < states)
    return false;
  auto list = [&](StringRef name, size_t size) {
    return node.intsAttr(name).value_or(Ints(size, 0));
  };
  size_t outputs = node.numOutputs() - states;
  ScanAxes axes{list("scan_input_axes", inputs), list("scan_input_directions", inputs),
                list("scan_output_axes", outputs), list("scan_output_directions", outputs)};
  if (axes.inputs.size() != size_t(inputs) || axes.inputsBack.size() != size_t(inputs) ||
      axes.outputs.size() != outputs || axes.outputsBack.size() != outputs)
    return false;
  std::vector<Value> sources;
  std::optional<int64_t> trips;
  bool isKnown = true; // from 1 to kMaxTrips
  for (int64_t i = 0; i < inputs; ++i) {
    Value x = node.in(states + i);
    std::optional<int64_t> axis = x ? node.axis(axes.inputs[i], rankOf(x)) : std::nullopt;
    if (!axis)
      return false;
    axes.inputs[i] = *axis;
    std::optional<int64_t> size = dimOf(x, *axis).constant();
    isKnown &= size && *size <= kMaxTrips && *size >= 1 && (!trips || *trips == *size);
    trips = size;
    sources.push_back(x);
  }
  if (!isKnown)
    return runScan(node, sources, axes);
  std::vector<Tracked> carried;
  for (unsigned i = 0; i < states; ++i)
    carried.push_back(track(node.op->getOperand(i)));
  std::vector<std::vector<Value>> scans(outputs);
  for (int64_t t = 0; t < *trips; ++t) {
    std::vector<Tracked> arguments = carried;
    for (auto [i, x] : llvm::enumerate(sources)) {
      Dims dims = dimsOf(x);
      dims.erase(dims.begin() + axes.inputs[i]);
      Tracked slice;
      slice.data = e.reshape(e.sliceAxis(x, axes.inputs[i], axes.inputsBack[i] ? *trips - 1 - t : t, 1), dims);
      arguments.push_back(slice);
    }
    std::optional<std::vector<Tracked>> results =
        inlineBody(node, node.op->getRegion(0), arguments);
    node.reported |= !results;
    if (!results || results->size() != node.numOutputs())
      return false;
    for (unsigned s = 0; s < states; ++s)
      carried[s] = (*results)[s];
    for (auto [s, parts] : llvm::enumerate(scans)) {
      parts.push_back(dataOf((*results)[states + s]));
      if (!parts.back())
        return false;
    }
  }
  for (unsigned s = 0; s < states; ++s)
    values[node.op->getResult(s)] = carried[s];
  for (auto [s, parts] : llvm::enumerate(scans)) {
    std::optional<int64_t> axis = node.axis(axes.outputs[s], rankOf(parts[0]) + 1);
    if (!axis)
      return false;
    if (axes.outputsBack[s])
      std::reverse(parts.begin(), parts.end());
    std::vector<Value> rows;
    for (Value part : parts)
      rows.push_back(e.unsqueeze(part, {*axis}));
    if (failed(node.set(states + s, e.concat(rows, *axis))))
      return false;
  }
  return true;
}

} // namespace lathe::legal
