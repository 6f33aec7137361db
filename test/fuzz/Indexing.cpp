//===- Indexing.cpp - nodes that go where data says -------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Makers.h"

#include <algorithm>
#include <numeric>

namespace lathe::fuzz {
namespace {

Value data(GraphBuilder &b, int64_t minRank, int64_t maxRank) {
  return b.pickOr(
      [&](const Value &v) { return isKnown(v) && v.rank() >= minRank && v.rank() <= maxRank && bitWidth(v.dtype) >= 8 && v.count() > 0; },
      [&] {
        Dims dims = b.dims(b.random.between(minRank, std::min<int64_t>(maxRank, 3)));
        for (int64_t &size : dims)
          size = std::max<int64_t>(1, size);
        return b.fresh(b.random.chance(75) ? b.floatType() : b.integerType(), dims);
      });
}

DType indexType(GraphBuilder &b) { return b.random.chance(75) ? DType::I64 : DType::I32; }

bool makeGather(GraphBuilder &b) {
  Value x = data(b, 1, 4);
  int64_t axis = axisOf(b, x), at = positive(axis, x), size = x.dims[size_t(at)];
  Value indices = b.random.chance(30) ? b.pick([&](const Value &v) {
    return v.dtype == DType::I64 && isKnown(v) && v.positive && v.most < double(size) && v.rank() <= 2;
  })
                                      : Value();
  if (!indices)
    indices = b.integers(indexType(b), b.dims(b.random.between(0, 2), 40), b.random.chance(40) ? -size : 0, size - 1);
  Dims dims(x.dims.begin(), x.dims.begin() + at);
  dims.insert(dims.end(), indices.dims.begin(), indices.dims.end());
  dims.insert(dims.end(), x.dims.begin() + at + 1, x.dims.end());
  if (product(dims) > kMaxElements || dims.size() > 5)
    return false;
  b.node("Gather", {x, indices}, x.dtype, dims, x.most, {{"axis", axis}}, x.positive);
  return true;
}

bool makeGatherElements(GraphBuilder &b) {
  Value x = data(b, 1, 4);
  int64_t axis = axisOf(b, x), at = positive(axis, x), size = x.dims[size_t(at)];
  Dims dims = x.dims;
  for (int64_t i = 0; i < x.rank(); ++i)
    dims[size_t(i)] = i == at ? b.random.between(1, 7) : b.random.between(1, x.dims[size_t(i)]);
  if (product(dims) > kMaxElements)
    return false;
  b.node("GatherElements", {x, b.integers(indexType(b), dims, b.random.chance(40) ? -size : 0, size - 1)}, x.dtype, dims, x.most,
         {{"axis", axis}}, x.positive);
  return true;
}

bool makeGatherNd(GraphBuilder &b) {
  Value x = data(b, 1, 4);
  int64_t depth = b.random.between(1, x.rank());
  int64_t batch = b.random.chance(30) && depth < x.rank() ? 1 : 0;
  Dims outer = batch ? Dims{x.dims[0]} : Dims{};
  depth = std::min(depth, x.rank() - batch);
  for (int64_t n = b.random.between(batch ? 0 : 1, 2); n > 0; --n)
    outer.push_back(b.random.between(1, 5));
  HostTensor indices(DType::I64, [&] { Dims d = outer; d.push_back(depth); return d; }());
  for (int64_t i = 0, n = indices.count(); i < n; ++i) {
    int64_t size = x.dims[size_t(batch + i % depth)];
    indices.setInteger(i, b.random.between(b.random.chance(30) ? -size : 0, size - 1));
  }
  Dims dims = outer;
  dims.insert(dims.end(), x.dims.begin() + batch + depth, x.dims.end());
  if (product(dims) > kMaxElements)
    return false;
  Value where = b.constant(indices);
  b.node("GatherND", {x, where}, x.dtype, dims, x.most, {{"batch_dims", batch}}, x.positive);
  return true;
}

std::string reductionOf(GraphBuilder &b, const Value &x) {
  if (!isNumber(x) || b.special)
    return "none";
  return b.random.of({"none", "none", "add", "mul", "max", "min"});
}

double scattered(const std::string &reduction, const Value &x, const Value &updates) {
  double both = std::max(x.most, updates.most);
  return reduction == "add" ? x.most + 8 * updates.most : reduction == "mul" ? x.most * updates.most * updates.most * updates.most * updates.most : both;
}

bool makeScatterElements(GraphBuilder &b) {
  Value x = data(b, 1, 3);
  std::string reduction = reductionOf(b, x);
  int64_t axis = axisOf(b, x), at = positive(axis, x), size = x.dims[size_t(at)];
  Dims dims = x.dims;
  for (int64_t i = 0; i < x.rank(); ++i)
    dims[size_t(i)] = b.random.between(1, i == at ? std::min<int64_t>(4, size) : x.dims[size_t(i)]);
  // Without a reduction no two may go to one place.
  HostTensor indices(DType::I64, dims);
  int64_t inner = 1;
  for (size_t i = size_t(at) + 1; i < dims.size(); ++i)
    inner *= dims[i];
  std::vector<int64_t> places(static_cast<size_t>(size));
  std::iota(places.begin(), places.end(), 0);
  b.random.shuffle(places);
  for (int64_t i = 0, n = indices.count(); i < n; ++i) {
    int64_t along = i / inner % dims[size_t(at)];
    int64_t place = reduction == "none" ? places[size_t(along)] : b.random.below(size);
    indices.setInteger(i, b.random.chance(15) ? place - size : place);
  }
  Value updates = b.pickOr([&](const Value &v) { return v.dtype == x.dtype && v.dims == dims; },
                           [&] { return b.fresh(x.dtype, dims, std::min(2.0, limitOf(x.dtype))); });
  double most = scattered(reduction, x, updates);
  if (most > limitOf(x.dtype))
    return false;
  Value where = b.constant(indices);
  Attrs attrs = {{"axis", axis}};
  if (reduction != "none")
    attrs.push_back({"reduction", reduction});
  b.node("ScatterElements", {x, where, updates}, x.dtype, x.dims, most, attrs, x.positive && updates.positive);
  return true;
}

bool makeScatterNd(GraphBuilder &b) {
  Value x = data(b, 1, 3);
  std::string reduction = reductionOf(b, x);
  int64_t depth = b.random.between(1, x.rank());
  int64_t places = product(Dims(x.dims.begin(), x.dims.begin() + depth));
  int64_t n = b.random.between(1, std::min<int64_t>(places, 6));
  std::vector<int64_t> order(static_cast<size_t>(places));
  std::iota(order.begin(), order.end(), 0);
  b.random.shuffle(order);
  HostTensor indices(DType::I64, {n, depth});
  for (int64_t i = 0; i < n; ++i) {
    int64_t place = reduction == "none" ? order[size_t(i)] : b.random.below(places);
    for (int64_t d = depth; d-- > 0;) {
      int64_t size = x.dims[size_t(d)];
      indices.setInteger(i * depth + d, place % size);
      place /= size;
    }
  }
  Dims dims = {n};
  dims.insert(dims.end(), x.dims.begin() + depth, x.dims.end());
  Value updates = b.pickOr([&](const Value &v) { return v.dtype == x.dtype && v.dims == dims; },
                           [&] { return b.fresh(x.dtype, dims, std::min(2.0, limitOf(x.dtype))); });
  double most = scattered(reduction, x, updates);
  if (most > limitOf(x.dtype))
    return false;
  Value where = b.constant(indices);
  Attrs attrs;
  if (reduction != "none")
    attrs.push_back({"reduction", reduction});
  b.node("ScatterND", {x, where, updates}, x.dtype, x.dims, most, attrs, x.positive && updates.positive);
  return true;
}

bool makeOneHot(GraphBuilder &b) {
  int64_t depth = b.random.between(1, 7);
  Value indices = b.integers(indexType(b), b.dims(b.random.between(1, 2), 60), -depth - 1, depth);
  DType dtype = b.random.chance(70) ? DType::F32 : DType::I64;
  HostTensor ends(dtype, {2});
  for (int i = 0; i < 2; ++i)
    isFloat(dtype) ? ends.setReal(i, i ? 1.5 : -0.5) : ends.setInteger(i, i ? 3 : 0);
  int64_t axis = b.random.between(0, indices.rank());
  Dims dims = indices.dims;
  dims.insert(dims.begin() + axis, depth);
  Value values = b.constant(ends);
  Value depthValue = b.scalar(DType::I64, double(depth));
  b.node("OneHot", {indices, depthValue, values}, dtype, dims, 3,
         {{"axis", b.random.chance(30) ? axis - indices.rank() - 1 : axis}});
  return true;
}

bool makeRange(GraphBuilder &b) {
  DType dtype = b.random.of({DType::I64, DType::I32, DType::F32});
  int64_t n = b.random.between(0, 20), step = b.random.of<int64_t>({1, 2, -1, -3}), start = b.random.between(-5, 5);
  int64_t limit = start + n * step;
  Value first = b.scalar(dtype, double(start)), last = b.scalar(dtype, double(limit)), by = b.scalar(dtype, double(step));
  b.node("Range", {first, last, by}, dtype, {n}, 70);
  return true;
}

bool makeConstantOfShape(GraphBuilder &b) {
  Dims dims = b.dims(b.random.between(0, 3), 200);
  b.node("ConstantOfShape", {b.vector(dims)}, DType::F32, dims, 0, {}, true);
  return true;
}

/// Flags that the graph computes, and what they let through: sizes that only the run knows.
bool makeCompress(GraphBuilder &b) {
  if (b.depth() || b.special)
    return false;
  Value x = b.pick([](const Value &v) { return isKnown(v) && isNumber(v) && v.rank() >= 1 && v.count() > 0; });
  if (!x)
    return false;
  int64_t axis = axisOf(b, x), size = x.dims[size_t(positive(axis, x))];
  Value flags = b.pickOr([&](const Value &v) { return isBool(v) && v.dims == Dims{size}; }, [&] { return b.fresh(DType::Bool, {size}); });
  Dims dims = x.dims;
  dims[size_t(positive(axis, x))] = kUnknown;
  b.node("Compress", {x, flags}, x.dtype, dims, x.most, {{"axis", axis}}, x.positive);
  return true;
}

bool makeNonZero(GraphBuilder &b) {
  if (b.depth() || b.special)
    return false;
  Value x = b.pick([](const Value &v) { return isKnown(v) && (isNumber(v) || isBool(v)) && v.rank() >= 1 && v.dtype != DType::BF16 && v.count() < 600; });
  if (!x)
    return false;
  int64_t most = *std::max_element(x.dims.begin(), x.dims.end());
  b.node("NonZero", {x}, DType::I64, {x.rank(), kUnknown}, double(std::max<int64_t>(1, most)), {}, true);
  return true;
}

} // namespace

void addIndexing(std::vector<Maker> &makers) {
  makers.insert(makers.end(), {{"gather", 5, makeGather},
                               {"gather elements", 2, makeGatherElements},
                               {"gather nd", 2, makeGatherNd},
                               {"scatter elements", 2, makeScatterElements},
                               {"scatter nd", 2, makeScatterNd},
                               {"one hot", 1, makeOneHot},
                               {"range", 1, makeRange},
                               {"constant", 1, makeConstantOfShape},
                               {"compress", 1, makeCompress},
                               {"nonzero", 1, makeNonZero}});
}

} // namespace lathe::fuzz
