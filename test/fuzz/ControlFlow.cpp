//===- ControlFlow.cpp - graphs inside of graphs -----------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Makers.h"

namespace lathe::fuzz {
namespace {

/// A value of type f32 and of these sizes, made of a few nodes of the graph under way from `x`.
Value chain(GraphBuilder &b, Value x) {
  for (int64_t n = b.random.between(1, 3); n > 0; --n)
    switch (b.random.below(5)) {
    case 0: x = b.node("Tanh", {x}, x.dtype, x.dims, 1); break;
    case 1: x = b.node("Add", {x, b.scalar(x.dtype, 0.5)}, x.dtype, x.dims, x.most + 0.5); break;
    case 2: x = b.node("Mul", {x, b.scalar(x.dtype, 0.75)}, x.dtype, x.dims, x.most); break;
    case 3: x = b.node("Neg", {x}, x.dtype, x.dims, x.most); break;
    default: x = b.node("Sigmoid", {x}, x.dtype, x.dims, 1); break;
    }
  return x;
}

Value state(GraphBuilder &b) {
  return b.pickOr([](const Value &v) { return v.dtype == DType::F32 && isKnown(v) && v.rank() <= 3 && v.count() <= 400; },
                  [&] { return b.fresh(DType::F32, b.dims(b.random.between(0, 2), 100), 2); });
}

bool makeIf(GraphBuilder &b) {
  if (b.depth() >= 2 || b.special)
    return false;
  Value x = state(b), condition = b.pickOr([](const Value &v) { return isBool(v) && v.rank() == 0; }, [&] { return b.fresh(DType::Bool, {}); });
  b.beginGraph();
  Value yes = chain(b, x);
  if (b.random.chance(15))
    makeOne(b);
  auto thenGraph = b.endGraph({}, {yes});
  b.beginGraph();
  Value no = chain(b, x);
  auto elseGraph = b.endGraph({}, {no});
  b.node("If", {condition}, x.dtype, x.dims, std::max(yes.most, no.most), {{"then_branch", thenGraph}, {"else_branch", elseGraph}});
  return true;
}

bool makeLoop(GraphBuilder &b) {
  if (b.depth() || b.special)
    return false;
  Value x = state(b);
  int64_t trips = b.random.between(0, 4);
  bool collects = b.random.chance(50), known = b.random.chance(60);
  Value count = known ? b.scalar(DType::I64, double(trips)) : b.integers(DType::I64, {}, trips, trips, Source::Input);
  b.beginGraph();
  Value i = b.declare(DType::I64, {}, 10), go = b.declare(DType::Bool, {}, 1), carried = b.declare(x.dtype, x.dims, x.most);
  Value real = b.node("Cast", {i}, DType::F32, {}, 10, {{"to", int64_t(onnxType(DType::F32))}});
  Value next = chain(b, carried);
  if (b.random.chance(50))
    next = b.node("Add", {next, real}, x.dtype, x.dims, next.most + 10);
  Value again = b.node("Identity", {go}, DType::Bool, {}, 1);
  if (!known && !collects && b.random.chance(40))
    again = b.node("Less", {i, b.scalar(DType::I64, 2)}, DType::Bool, {}, 1);
  std::vector<Value> results = {again, next};
  Value row;
  if (collects)
    results.push_back(row = b.node("Mul", {next, b.scalar(x.dtype, 0.5)}, x.dtype, x.dims, next.most));
  auto body = b.endGraph({i, go, carried}, results);
  double most = 50 + 4 * next.most;
  std::vector<Value> outs = {{"", x.dtype, x.dims, most, false}};
  if (collects) {
    Dims rows = x.dims;
    rows.insert(rows.begin(), known ? trips : kUnknown);
    outs.push_back({"", x.dtype, rows, most, false});
  }
  b.nodes("Loop", {count, b.scalar(DType::Bool, 1), x}, outs, {{"body", body}});
  return true;
}

bool makeScan(GraphBuilder &b) {
  if (b.depth() || b.special)
    return false;
  Value x = b.pickOr([](const Value &v) { return v.dtype == DType::F32 && isKnown(v) && v.rank() >= 1 && v.rank() <= 3 && v.dims[0] >= 1 && v.dims[0] <= 9 && v.count() <= 400; },
                     [&] { return b.fresh(DType::F32, {b.random.between(1, 6), b.random.between(1, 5)}, 2); });
  Dims slice(x.dims.begin() + 1, x.dims.end());
  Value first = b.fresh(DType::F32, slice, 1);
  bool reverse = b.random.chance(30), reverseOut = b.random.chance(30);
  b.beginGraph();
  Value carried = b.declare(x.dtype, slice, 1), row = b.declare(x.dtype, slice, x.most);
  Value sum = b.node("Add", {carried, row}, x.dtype, slice, x.most + 1);
  Value next = b.node("Tanh", {sum}, x.dtype, slice, 1);
  Value out = b.random.chance(50) ? b.node("Mul", {next, row}, x.dtype, slice, x.most) : b.node("Identity", {next}, x.dtype, slice, 1);
  auto body = b.endGraph({carried, row}, {next, out});
  b.nodes("Scan", {first, x}, {{"", x.dtype, slice, 1, false}, {"", x.dtype, x.dims, x.most + 1, false}},
          {{"body", body}, {"num_scan_inputs", int64_t(1)}, {"scan_input_directions", Dims{int64_t(reverse)}}, {"scan_output_directions", Dims{int64_t(reverseOut)}}});
  return true;
}

} // namespace

void addControlFlow(std::vector<Maker> &makers) {
  makers.insert(makers.end(), {{"if", 2, makeIf}, {"loop", 2, makeLoop}, {"scan", 1, makeScan}});
}

} // namespace lathe::fuzz
