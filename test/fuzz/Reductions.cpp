//===- Reductions.cpp - nodes that make one number of many -----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Makers.h"

#include <algorithm>
#include <cmath>

namespace lathe::fuzz {

namespace {

bool makeReduce(GraphBuilder &b) {
  std::string kind = b.random.of({"Sum", "Sum", "Mean", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp"});
  Value x = b.pickOr(
      [&](const Value &v) { return (isFloatValue(v) || (v.dtype == DType::I32 || v.dtype == DType::I64)) && isKnown(v); },
      [&] { return b.fresh(b.floatType(), b.dims(b.random.between(0, 4))); });
  bool extreme = kind == "Max" || kind == "Min";
  if (b.special && kind != "Sum" && kind != "L1")
    return false;
  if (isInteger(x.dtype) && kind != "Sum" && kind != "Prod" && !extreme)
    return false;
  if ((kind == "LogSum" && !x.positive) || (kind == "LogSumExp" && x.most > 8))
    return false;
  std::vector<int64_t> axes;
  for (int64_t i = 0; i < x.rank(); ++i)
    if (b.random.chance(45))
      axes.push_back(b.random.chance(25) ? i - x.rank() : i);
  b.random.shuffle(axes);
  bool keep = b.random.chance(50), all = axes.empty();
  std::vector<bool> reduced(x.dims.size(), all);
  for (int64_t axis : axes)
    reduced[size_t(positive(axis, x))] = true;
  Dims dims;
  int64_t terms = 1;
  for (size_t i = 0; i < x.dims.size(); ++i) {
    if (!reduced[i]) {
      dims.push_back(x.dims[i]);
      continue;
    }
    terms *= x.dims[i];
    if (keep)
      dims.push_back(1);
  }
  // Of nothing there is no largest, no mean and no logarithm.
  if (terms == 0 && kind != "Sum" && kind != "Prod" && kind != "L1" && kind != "L2" && kind != "SumSquare")
    return false;
  double n = double(std::max<int64_t>(1, terms));
  double most = kind == "Sum" || kind == "L1"  ? x.most * n
                : kind == "L2"                 ? x.most * std::sqrt(n)
                : kind == "SumSquare"          ? x.most * x.most * n
                : kind == "Prod"               ? std::pow(std::max(1.0, x.most), n)
                : kind == "LogSum"             ? 100
                : kind == "LogSumExp"          ? x.most + std::log(n) + 1
                                               : x.most;
  if (most > limitOf(x.dtype))
    return false;
  Attrs attrs = {{"keepdims", int64_t(keep)}};
  Value axesValue;
  if (!axes.empty())
    axesValue = b.vector(axes);
  bool positive = kind == "L1" || kind == "L2" || kind == "SumSquare" || (x.positive && kind.rfind("Log", 0) != 0);
  b.node("Reduce" + kind, {x, axesValue}, x.dtype, dims, most, attrs, positive);
  return true;
}

bool makeArg(GraphBuilder &b) {
  if (b.special)
    return false;
  Value x = b.pickOr([](const Value &v) { return isNumber(v) && isKnown(v) && v.rank() >= 1 && v.dtype != DType::BF16; },
                     [&] { return b.fresh(b.floatType(), b.dims(b.random.between(1, 4))); });
  if (x.rank() == 0 || x.dtype == DType::BF16)
    return false;
  int64_t axis = axisOf(b, x);
  size_t at = size_t(positive(axis, x));
  if (x.dims[at] == 0)
    return false;
  bool keep = b.random.chance(50);
  Dims dims = x.dims;
  if (keep)
    dims[at] = 1;
  else
    dims.erase(dims.begin() + int64_t(at));
  b.node(b.random.chance(50) ? "ArgMax" : "ArgMin", {x}, DType::I64, dims, double(x.dims[at]),
         {{"axis", axis}, {"keepdims", int64_t(keep)}, {"select_last_index", b.random.below(2)}}, true);
  return true;
}

bool makeCumSum(GraphBuilder &b) {
  if (b.special)
    return false;
  Value x = b.pickOr(
      [](const Value &v) {
        return (v.dtype == DType::F32 || v.dtype == DType::F64 || v.dtype == DType::I32 || v.dtype == DType::I64) &&
               isKnown(v) && v.rank() >= 1;
      },
      [&] { return b.fresh(DType::F32, b.dims(b.random.between(1, 3))); });
  int64_t axis = axisOf(b, x);
  double most = x.most * double(std::max<int64_t>(1, x.dims[size_t(positive(axis, x))]));
  if (most > limitOf(x.dtype))
    return false;
  b.node("CumSum", {x, b.scalar(DType::I64, double(axis))}, x.dtype, x.dims, most,
         {{"exclusive", b.random.below(2)}, {"reverse", b.random.below(2)}}, x.positive);
  return true;
}

bool makeTopK(GraphBuilder &b) {
  if (b.special)
    return false;
  Value x = b.pickOr([](const Value &v) { return isNumber(v) && isKnown(v) && v.rank() >= 1 && v.dtype != DType::BF16; },
                     [&] { return b.fresh(b.floatType(), b.dims(b.random.between(1, 3))); });
  if (x.dtype == DType::BF16)
    return false;
  int64_t axis = axisOf(b, x);
  size_t at = size_t(positive(axis, x));
  int64_t k = b.random.between(0, x.dims[at]);
  Dims dims = x.dims;
  dims[at] = k;
  std::vector<Value> results = {{"", x.dtype, dims, x.most, x.positive}, {"", DType::I64, dims, double(x.dims[at]), true}};
  b.nodes("TopK", {x, b.vector({k})}, results, {{"axis", axis}, {"largest", b.random.below(2)}, {"sorted", int64_t(1)}});
  return true;
}

} // namespace

void addReductions(std::vector<Maker> &makers) {
  makers.insert(makers.end(), {{"reduce", 10, makeReduce}, {"arg", 2, makeArg}, {"cumsum", 2, makeCumSum}, {"topk", 2, makeTopK}});
}

} // namespace lathe::fuzz
