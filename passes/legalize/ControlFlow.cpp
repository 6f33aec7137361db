//===- ControlFlow.cpp - If, Loop and Scan that are known -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A condition that is known picks its branch, another one chooses between both in
// a run; a loop whose trip count is a small constant is unrolled. Everything else
// is reported.
//
//===----------------------------------------------------------------------===//
#include "Legalizer.h"

#include "mlir/IR/IRMapping.h"

using namespace mlir;

namespace lathe::legal {

/// Iterations that are unrolled at most.
static constexpr int64_t kMaxTrips = 64;

/// The body's ops in front of the node, legalized, with these arguments; what
/// the body yields. None when something in it failed.
std::optional<std::vector<Tracked>> Legalizer::inlineBody(Node &node, Region &body,
                                                          ArrayRef<Tracked> arguments) {
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
    process(builder.clone(op, mapping));
  }
  for (Value yielded : body.front().back().getOperands()) {
    results.push_back(track(mapping.lookupOrDefault(yielded)));
    if (results.back().failed)
      return std::nullopt;
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

/// Both branches, one after the other, and the choice between what they give. Sizes must not
/// depend on it.
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
    sides[side] = inlineBody(node, *bodies[side], {});
    if (sides[side] && sides[side]->size() != node.numOutputs())
      return false;
  }
  if (!sides[0] || !sides[1]) {
    int works = sides[1] ? 1 : 0;
    std::optional<DimExpr> taken = conditionAsSize(node);
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
    node.derive(works ? "takes_then_branch" : "takes_else_branch",
                works ? *taken : DimExpr(1) - *taken, {1, 1});
    for (auto [result, value] : llvm::zip(node.op->getResults(), *sides[works]))
      values[result] = value;
    return true;
  }
  SmallVector<Value> thens, elses;
  SmallVector<OpResult> chosen;
  for (auto [result, a, b] : llvm::zip(node.op->getResults(), *sides[1], *sides[0])) {
    bool same = a.host && b.host && a.host->values == b.host->values && a.host->shape == b.host->shape;
    if (same) {
      values[result] = a;
      continue;
    }
    Value x = dataOf(a), y = dataOf(b);
    bool fits = x && y && elementTypeOf(x) == elementTypeOf(y) && rankOf(x) == rankOf(y);
    for (int64_t d = 0; fits && d < rankOf(x); ++d)
      fits = node.unify(dimOf(x, d), dimOf(y, d));
    if (!fits) {
      std::string types;
      if (x && y)
        llvm::raw_string_ostream(types) << ": " << x.getType() << " and " << y.getType();
      (void)node.fail("shape", "branches that give different sizes under a condition that only the "
                               "run knows" + types,
                      "branches of equal sizes",
                      "make the condition known: --const for the input that decides it, or --shape");
      return false;
    }
    thens.push_back(x);
    elses.push_back(y);
    chosen.push_back(result);
  }
  if (chosen.empty())
    return true;
  auto choose = ChooseOp::create(e.b, e.loc, ValueRange(thens).getTypes(),
                                 e.reshape(condition, {}), thens, elses);
  for (auto [result, y] : llvm::zip(chosen, choose.getYs()))
    values[result].data = y;
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
    std::optional<std::vector<Tracked>> results = inlineBody(node, region, {});
    node.reported |= !results;
    if (!results || results->size() != node.numOutputs())
      return false;
    for (auto [result, value] : llvm::zip(node.op->getResults(), *results))
      values[result] = value;
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

bool Legalizer::unrollScan(Node &node) {
  int64_t inputs = node.intAttr("num_scan_inputs", 0);
  if (node.opset < 9 || node.op->getNumRegions() != 1 || inputs < 1 || inputs > node.numInputs())
    return false;
  unsigned states = node.numInputs() - inputs;
  if (node.numOutputs() < states)
    return false;
  auto list = [&](StringRef name, size_t size) {
    return node.intsAttr(name).value_or(Ints(size, 0));
  };
  Ints inputAxes = list("scan_input_axes", inputs),
       inputBack = list("scan_input_directions", inputs);
  size_t outputs = node.numOutputs() - states;
  Ints outputAxes = list("scan_output_axes", outputs),
       outputBack = list("scan_output_directions", outputs);
  if (inputAxes.size() != size_t(inputs) || inputBack.size() != size_t(inputs) ||
      outputAxes.size() != outputs || outputBack.size() != outputs)
    return false;
  std::vector<Value> sources;
  std::optional<int64_t> trips;
  for (int64_t i = 0; i < inputs; ++i) {
    Value x = node.in(states + i);
    std::optional<int64_t> axis = x ? node.axis(inputAxes[i], rankOf(x)) : std::nullopt;
    if (!axis)
      return false;
    inputAxes[i] = *axis;
    std::optional<int64_t> size = dimOf(x, *axis).constant();
    if (!size || *size > kMaxTrips || *size < 1 || (trips && *trips != *size)) {
      (void)node.fail("op", "Scan over a length that is symbolic, 0 or above 64",
                      "a constant length from 1 to 64", "bind the length with --dim");
      return false;
    }
    trips = size;
    sources.push_back(x);
  }
  std::vector<Tracked> carried;
  for (unsigned i = 0; i < states; ++i)
    carried.push_back(track(node.op->getOperand(i)));
  std::vector<std::vector<Value>> scans(outputs);
  for (int64_t t = 0; t < *trips; ++t) {
    std::vector<Tracked> arguments = carried;
    for (auto [i, x] : llvm::enumerate(sources)) {
      Dims dims = dimsOf(x);
      dims.erase(dims.begin() + inputAxes[i]);
      Tracked slice;
      slice.data =
          e.reshape(e.sliceAxis(x, inputAxes[i], inputBack[i] ? *trips - 1 - t : t, 1), dims);
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
    std::optional<int64_t> axis = node.axis(outputAxes[s], rankOf(parts[0]) + 1);
    if (!axis)
      return false;
    if (outputBack[s])
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
