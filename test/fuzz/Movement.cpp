//===- Movement.cpp - nodes that put elements elsewhere --------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Makers.h"

#include <algorithm>
#include <numeric>

namespace lathe::fuzz {
namespace {

Value anyKnown(GraphBuilder &b, int64_t minRank = 0, int64_t maxRank = 5) {
  return b.pickOr(
      [&](const Value &v) { return isKnown(v) && v.rank() >= minRank && v.rank() <= maxRank && bitWidth(v.dtype) >= 8; },
      [&] {
        DType dtype = b.random.chance(80) ? b.floatType() : b.random.chance(70) ? b.integerType() : DType::Bool;
        return b.fresh(dtype, b.dims(b.random.between(minRank, std::min<int64_t>(4, maxRank))));
      });
}

Value keep(GraphBuilder &b, const std::string &op, const std::vector<Value> &operands, const Value &x, Dims dims,
           const Attrs &attrs = {}) {
  return b.node(op, operands, x.dtype, std::move(dims), x.most, attrs, x.positive);
}

bool makeTranspose(GraphBuilder &b) {
  Value x = b.pickOr([](const Value &v) { return v.rank() >= 2; }, [&] { return b.fresh(b.floatType(), b.dims(b.random.between(2, 4))); });
  std::vector<int64_t> perm(x.dims.size());
  std::iota(perm.begin(), perm.end(), 0);
  b.random.shuffle(perm);
  bool reverse = b.random.chance(15);
  if (reverse)
    for (size_t i = 0; i < perm.size(); ++i)
      perm[i] = int64_t(perm.size() - 1 - i);
  Dims dims;
  for (int64_t axis : perm)
    dims.push_back(x.dims[size_t(axis)]);
  keep(b, "Transpose", {x}, x, dims, reverse ? Attrs{} : Attrs{{"perm", perm}});
  return true;
}

/// Sizes with the same product, of another rank as often as not.
Dims reshaped(GraphBuilder &b, const Dims &dims) {
  std::vector<int64_t> factors;
  for (int64_t size : dims)
    for (int64_t p = 2; size > 1; ++p)
      for (; size % p == 0; size /= p)
        factors.push_back(p);
  if (b.random.chance(50))
    b.random.shuffle(factors);
  Dims result(size_t(b.random.between(1, 4)), 1);
  for (int64_t factor : factors)
    result[size_t(b.random.below(int64_t(result.size())))] *= factor;
  if (product(dims) == 0)
    result[size_t(b.random.below(int64_t(result.size())))] = 0;
  if (product(dims) == 1 && b.random.chance(30))
    result.clear();
  return result;
}

bool makeReshape(GraphBuilder &b) {
  Value x = anyKnown(b);
  int kind = int(b.random.below(10));
  if (kind < 2) {
    int64_t axis = b.random.between(0, x.rank());
    Dims dims = {product(Dims(x.dims.begin(), x.dims.begin() + axis)), product(Dims(x.dims.begin() + axis, x.dims.end()))};
    keep(b, "Flatten", {x}, x, dims, {{"axis", b.random.chance(30) && axis < x.rank() ? axis - x.rank() : axis}});
    return true;
  }
  Dims dims = reshaped(b, x.dims), target = dims;
  if (product(dims) == 0) {
    keep(b, "Reshape", {x, b.vector(target)}, x, dims, {{"allowzero", int64_t(1)}});
    return true;
  }
  // One size may follow from the others, and one may be the operand's.
  for (size_t i = 0; i < target.size() && i < x.dims.size(); ++i)
    if (target[i] == x.dims[i] && b.random.chance(60))
      target[i] = 0;
  if (!target.empty() && b.random.chance(60))
    target[size_t(b.random.below(int64_t(target.size())))] = -1;
  keep(b, "Reshape", {x, b.vector(target)}, x, dims);
  return true;
}

/// A shape that the graph computes from a value's: what exporters write.
bool makeShapeReshape(GraphBuilder &b) {
  Value x = anyKnown(b, 2, 4);
  if (x.count() == 0)
    return false;
  Value shape = b.node("Shape", {x}, DType::I64, {x.rank()}, 3000, {}, true);
  int64_t axis = b.random.below(x.rank());
  Value one = b.node("Gather", {shape, b.vector({axis})}, DType::I64, {1}, 3000, {{"axis", int64_t(0)}}, true);
  Value target = b.node("Concat", {one, b.vector({-1})}, DType::I64, {2}, 3000, {{"axis", int64_t(0)}});
  keep(b, "Reshape", {x, target}, x, {x.dims[size_t(axis)], x.count() / x.dims[size_t(axis)]});
  return true;
}

bool makeSqueeze(GraphBuilder &b) {
  Value x = anyKnown(b, 0, 4);
  if (b.random.chance(50)) {
    int64_t rank = x.rank() + b.random.between(1, std::min<int64_t>(2, 5 - x.rank()));
    std::vector<int64_t> all(static_cast<size_t>(rank)), axes;
    std::iota(all.begin(), all.end(), 0);
    b.random.shuffle(all);
    axes.assign(all.begin(), all.begin() + (rank - x.rank()));
    std::vector<int64_t> sorted = axes;
    std::sort(sorted.begin(), sorted.end());
    Dims dims = x.dims;
    for (int64_t axis : sorted)
      dims.insert(dims.begin() + axis, 1);
    for (int64_t &axis : axes)
      if (b.random.chance(25))
        axis -= rank;
    keep(b, "Unsqueeze", {x, b.vector(axes)}, x, dims);
    return true;
  }
  std::vector<int64_t> axes;
  Dims dims;
  for (int64_t i = 0; i < x.rank(); ++i)
    if (x.dims[size_t(i)] == 1 && b.random.chance(70))
      axes.push_back(b.random.chance(25) ? i - x.rank() : i);
    else
      dims.push_back(x.dims[size_t(i)]);
  if (axes.empty())
    return false;
  keep(b, "Squeeze", {x, b.vector(axes)}, x, dims);
  return true;
}

bool makeSlice(GraphBuilder &b) {
  Value x = anyKnown(b, 1);
  std::vector<int64_t> starts, ends, axes, steps;
  Dims dims = x.dims;
  for (int64_t axis = 0; axis < x.rank(); ++axis) {
    if (b.random.chance(45))
      continue;
    int64_t size = x.dims[size_t(axis)], step = b.random.chance(60) ? 1 : b.random.of<int64_t>({2, 3, -1, -1, -2, 7});
    int64_t start = b.random.between(-1, size), end = b.random.between(-1, size + 1);
    // Results of some size, as a rule: along the step.
    if (b.random.chance(85) && size > 0) {
      int64_t low = b.random.below(size), high = b.random.between(low, size - 1);
      start = step > 0 ? low : high;
      end = step > 0 ? high + 1 : low - 1;
    }
    auto wrap = [&](int64_t v) { return v < 0 ? v + size : v; };
    int64_t s = start, e = end;
    if (step < 0 && end < 0) { // as far as the first
      e = -1;
      ends.push_back(b.random.of<int64_t>({-size - 1, -size - 7, INT64_MIN + 1}));
    } else {
      if (b.random.chance(20) && end == size && step > 0)
        ends.push_back(b.random.of<int64_t>({INT64_MAX, size + 5, 1000000}));
      else
        ends.push_back(b.random.chance(20) && end > 0 && end < size ? end - size : end);
      e = ends.back() < 0 ? std::max<int64_t>(ends.back() + size, step > 0 ? 0 : -1) : ends.back();
    }
    starts.push_back(b.random.chance(20) && start >= 0 && start < size ? start - size : start);
    s = wrap(starts.back());
    if (step > 0) {
      s = std::clamp<int64_t>(s, 0, size);
      e = std::clamp<int64_t>(e, 0, size);
    } else {
      s = std::clamp<int64_t>(s, 0, size - 1);
      e = std::clamp<int64_t>(e, -1, size - 1);
    }
    int64_t count = step > 0 ? (e - s + step - 1) / step : (s - e - step - 1) / -step;
    if (size == 0)
      count = 0;
    dims[size_t(axis)] = std::max<int64_t>(0, count);
    axes.push_back(b.random.chance(20) ? axis - x.rank() : axis);
    steps.push_back(step);
  }
  if (axes.empty())
    return false;
  keep(b, "Slice", {x, b.vector(starts), b.vector(ends), b.vector(axes), b.vector(steps)}, x, dims);
  return true;
}

bool makePad(GraphBuilder &b) {
  Value x = anyKnown(b, 1, 4);
  if (!isNumber(x))
    return false;
  std::string mode = b.random.of({"constant", "constant", "reflect", "edge", "wrap"});
  if (mode == "wrap" && b.opset < 19)
    return false;
  std::vector<int64_t> low, high;
  Dims dims;
  for (int64_t size : x.dims) {
    int64_t most = mode == "constant" ? 4 : mode == "edge" ? (size ? 3 : 0) : mode == "reflect" ? std::max<int64_t>(0, size - 1) : size;
    auto amount = [&] { return b.random.chance(50) ? 0 : b.random.between(0, std::min<int64_t>(4, most)); };
    low.push_back(amount());
    high.push_back(amount());
    if (mode == "constant" && b.random.chance(12) && size >= 2)
      low.back() = -1;
    dims.push_back(low.back() + size + high.back());
  }
  if (product(dims) > kMaxElements)
    return false;
  std::vector<int64_t> pads = low;
  pads.insert(pads.end(), high.begin(), high.end());
  Value fill = mode == "constant" && b.random.chance(50) ? b.scalar(x.dtype, 2) : Value();
  b.node("Pad", {x, b.vector(pads), fill}, x.dtype, dims, std::max(x.most, 2.0), {{"mode", mode}}, x.positive);
  return true;
}

bool makeConcat(GraphBuilder &b) {
  Value x = anyKnown(b, 1);
  int64_t axis = axisOf(b, x);
  size_t at = size_t(positive(axis, x));
  std::vector<Value> parts = {x};
  Dims dims = x.dims;
  double most = x.most;
  bool positive = x.positive;
  for (int64_t n = b.random.between(1, 3); n > 0; --n) {
    Value other = b.pick([&](const Value &v) {
      Dims a = v.dims, c = x.dims;
      if (v.dtype != x.dtype || !isKnown(v) || a.size() != c.size())
        return false;
      a[at] = c[at] = 0;
      return a == c;
    });
    if (!other || b.random.chance(35)) {
      Dims sizes = x.dims;
      sizes[at] = b.random.between(0, 5);
      other = b.fresh(x.dtype, sizes, std::min(limitOf(x.dtype), 4.0));
    }
    dims[at] += other.dims[at];
    parts.push_back(other);
    most = std::max(most, other.most);
    positive &= other.positive;
  }
  if (product(dims) > kMaxElements)
    return false;
  b.random.shuffle(parts);
  b.node("Concat", parts, x.dtype, dims, most, {{"axis", axis}}, positive);
  return true;
}

/// What was put together, cut again: at the borders of the parts, or beside them.
bool makeConcatSlice(GraphBuilder &b) {
  Value x = anyKnown(b, 1);
  size_t at = size_t(b.random.below(x.rank()));
  int64_t size = x.dims[at], n = b.random.between(2, 3);
  Dims dims = x.dims;
  dims[at] = size * n;
  if (product(dims) > kMaxElements)
    return false;
  std::vector<Value> parts = {x};
  while (int64_t(parts.size()) < n)
    parts.push_back(b.fresh(x.dtype, x.dims, std::min(limitOf(x.dtype), 4.0)));
  double most = std::max(x.most, parts.back().most);
  Value whole = b.node("Concat", parts, x.dtype, dims, most, {{"axis", int64_t(at)}});
  int64_t start = b.random.chance(70) ? size * b.random.below(n) : b.random.between(0, size * (n - 1));
  keep(b, "Slice", {whole, b.vector({start}), b.vector({start + size}), b.vector({int64_t(at)})}, whole, x.dims);
  return true;
}

/// The same elements along an axis, begun elsewhere (one half may be negated, as rotary positions do it) or counted from the end.
bool makeRoll(GraphBuilder &b) {
  Value x = b.pickOr([](const Value &v) { return isKnown(v) && isNumber(v) && v.rank() >= 1 && v.count() > 0; },
                     [&] { return b.fresh(b.floatType(), {b.random.between(1, 4), b.random.between(2, 8)}); });
  int64_t axis = b.random.chance(60) ? x.rank() - 1 : b.random.below(x.rank()), size = x.dims[size_t(axis)];
  if (size < 2)
    return false;
  Value axes = b.vector({axis});
  if (b.random.chance(40)) {
    keep(b, "Slice", {x, b.vector({-1}), b.vector({INT64_MIN + 1}), axes, b.vector({-1})}, x, x.dims);
    return true;
  }
  int64_t border = b.random.chance(50) ? size / 2 : b.random.between(1, size - 1);
  Dims low = x.dims, high = x.dims;
  low[size_t(axis)] = border;
  high[size_t(axis)] = size - border;
  Value first = keep(b, "Slice", {x, b.vector({0}), b.vector({border}), axes}, x, low);
  Value second = keep(b, "Slice", {x, b.vector({border}), b.vector({INT64_MAX}), axes}, x, high);
  bool negated = isFloatValue(x) && b.random.chance(50);
  if (negated)
    second = b.node("Neg", {second}, x.dtype, high, x.most);
  Value whole = b.node("Concat", {second, first}, x.dtype, x.dims, x.most, {{"axis", axis}}, x.positive && !negated);
  if (isFloatValue(x) && 2 * x.most <= limitOf(x.dtype) && b.random.chance(50))
    b.node(b.random.chance(50) ? "Add" : "Sub", {x, whole}, x.dtype, x.dims, 2 * x.most);
  return true;
}

bool makeSplit(GraphBuilder &b) {
  Value x = anyKnown(b, 1);
  int64_t axis = axisOf(b, x), size = x.dims[size_t(positive(axis, x))];
  int64_t n = b.random.between(1, 3);
  std::vector<int64_t> sizes(size_t(n), 0);
  for (int64_t i = 0; i < size; ++i)
    ++sizes[size_t(b.random.below(n))];
  std::vector<Value> results;
  for (int64_t part : sizes) {
    Dims dims = x.dims;
    dims[size_t(positive(axis, x))] = part;
    results.push_back({"", x.dtype, dims, x.most, x.positive});
  }
  b.nodes("Split", {x, b.vector(sizes)}, results, {{"axis", axis}});
  return true;
}

bool makeExpand(GraphBuilder &b) {
  Value x = anyKnown(b, 0, 4);
  Dims target = x.dims, dims;
  for (int64_t &size : target)
    if (size == 1 && b.random.chance(60))
      size = b.random.between(1, 6);
    else if (b.random.chance(20))
      size = 1;
  if (b.random.chance(35) && target.size() < 5)
    target.insert(target.begin(), b.random.between(1, 3));
  if (!broadcast(x.dims, target, dims) || product(dims) > kMaxElements)
    return false;
  keep(b, "Expand", {x, b.vector(target)}, x, dims);
  return true;
}

bool makeTile(GraphBuilder &b) {
  Value x = anyKnown(b, 1, 4);
  std::vector<int64_t> times;
  Dims dims = x.dims;
  for (int64_t &size : dims) {
    times.push_back(b.random.chance(60) ? 1 : b.random.between(0, 3));
    size *= times.back();
  }
  if (product(dims) > kMaxElements)
    return false;
  keep(b, "Tile", {x, b.vector(times)}, x, dims);
  return true;
}

bool makeSpaceDepth(GraphBuilder &b) {
  bool toDepth = b.random.chance(50);
  int64_t block = b.random.between(2, 3), n = b.random.between(1, 2), c = b.random.between(1, 3), h = b.random.between(1, 5), w = b.random.between(1, 5);
  Dims small = {n, c * block * block, h, w}, large = {n, c, h * block, w * block};
  const Dims &from = toDepth ? large : small;
  Value x = b.pickOr([&](const Value &v) { return v.dims == from && isFloatValue(v); }, [&] { return b.fresh(b.floatType(), from); });
  Attrs attrs = {{"blocksize", block}};
  if (!toDepth)
    attrs.push_back({"mode", std::string(b.random.chance(50) ? "DCR" : "CRD")});
  keep(b, toDepth ? "SpaceToDepth" : "DepthToSpace", {x}, x, toDepth ? small : large, attrs);
  return true;
}

bool makeTrilu(GraphBuilder &b) {
  Value x = anyKnown(b, 2);
  Value k = b.random.chance(60) ? b.scalar(DType::I64, double(b.random.between(-3, 3))) : Value();
  keep(b, "Trilu", {x, k}, x, x.dims, {{"upper", b.random.below(2)}});
  return true;
}

bool makeReverse(GraphBuilder &b) {
  Value x = anyKnown(b, 2);
  int64_t batch = b.random.below(2), time = 1 - batch, n = x.dims[size_t(batch)], length = x.dims[size_t(time)];
  if (length == 0)
    return false;
  Value lengths = b.integers(DType::I64, {n}, 1, length);
  keep(b, "ReverseSequence", {x, lengths}, x, x.dims, {{"batch_axis", batch}, {"time_axis", time}});
  return true;
}

} // namespace

void addMovement(std::vector<Maker> &makers) {
  makers.insert(makers.end(), {{"transpose", 8, makeTranspose},
                               {"reshape", 6, makeReshape},
                               {"shape", 2, makeShapeReshape},
                               {"squeeze", 4, makeSqueeze},
                               {"slice", 7, makeSlice},
                               {"pad", 4, makePad},
                               {"concat", 6, makeConcat},
                               {"concat slice", 2, makeConcatSlice},
                               {"roll", 4, makeRoll},
                               {"split", 3, makeSplit},
                               {"expand", 4, makeExpand},
                               {"tile", 2, makeTile},
                               {"spacedepth", 1, makeSpaceDepth},
                               {"trilu", 2, makeTrilu},
                               {"reverse", 1, makeReverse}});
}

} // namespace lathe::fuzz
