//===- Resize.cpp - interpolation as products with constants ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Interpolation is separable and linear: along each axis of constant size it is a
// weighted sum of gathered neighbours, at places that are known when lathe compiles;
// with antialias, where an element counts over a distance, a product with a matrix of
// weights. Such sums are made in f32 and rounded once, behind the last axis. Nearest
// neighbours are gathers; whole multiples repeat elements, for any size. Along an
// axis whose size the run tells, neighbours are gathered at places that follow from
// the sizes then, by the same formulas.
//
//===----------------------------------------------------------------------===//
#include "Node.h"

#include <cmath>
#include <tuple>

using namespace mlir;

namespace lathe::legal {
namespace {

/// How opset 10 rounds, which it does not state, as onnxruntime does: up where an axis shrinks, else down.
constexpr const char *kUpWhereItShrinks = "ceil_where_it_shrinks";

/// Elements of a matrix of weights; beyond, neighbours are gathered.
constexpr int64_t kMaxPlan = int64_t(1) << 26;

struct Mode {
  std::string interpolation, coordinates, rounding;
  double cubic, extrapolation;
  bool antialias, excludeOutside;
};

/// Whether something is decided by a place, the nearest neighbour or what is outside: then places are computed in f32, as
/// onnxruntime and the reference of ONNX do, on which it depends halfway between two. Weights need f64 to be right to the
/// last bits of f32.
bool decides(const Mode &m) { return m.interpolation == "nearest" || m.coordinates == "tf_crop_and_resize"; }

/// Whether a place beyond the border is as good as the border: there both neighbours of a linear one are the same element,
/// whose two parts need not add up to it.
bool endsAtBorder(const Mode &m) { return m.interpolation == "linear" && !m.antialias && !m.excludeOutside; }

/// Where output position x lies in the input, computed in T.
template <typename T> T sourceOf(const Mode &m, T x, T scale, T in, T out, T roiStart, T roiEnd) {
  const std::string &c = m.coordinates;
  // The exact width; `out` is it rounded down.
  T width = scale * in;
  if (c == "asymmetric")
    return x / scale;
  if (c == "align_corners")
    return out == 1 ? 0 : x * (in - 1) / (width - 1);
  if (c == "pytorch_half_pixel")
    return out == 1 ? 0 : (x + T(0.5)) / scale - T(0.5);
  if (c == "tf_half_pixel_for_nn")
    return (x + T(0.5)) / scale;
  if (c == "half_pixel_symmetric") {
    T adjustment = out / (scale * in);
    return in / 2 * (1 - adjustment) + (x + T(0.5)) / scale - T(0.5);
  }
  if (c == "tf_crop_and_resize")
    return out == 1 ? T(0.5) * (roiStart + roiEnd) * (in - 1)
                    : roiStart * (in - 1) + x * (roiEnd - roiStart) * (in - 1) / (width - 1);
  return (x + T(0.5)) / scale - T(0.5);
}

double cubicWeight(double x, double a) {
  x = std::fabs(x);
  if (x <= 1)
    return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

/// Weights of the input elements start, start + 1, ... relative to the one left
/// of the position; `ratio` in (0, 1] is the distance from it.
std::vector<double> weightsOf(const Mode &m, double ratio, double scale, int64_t &start) {
  start = 0;
  if (m.interpolation == "nearest") {
    if (ratio == 1)
      return {0, 1};
    bool right = m.rounding == "ceil" || (m.rounding == kUpWhereItShrinks && scale < 1) ||
                 (m.rounding == "round_prefer_floor" && ratio > 0.5) ||
                 (m.rounding == "round_prefer_ceil" && ratio >= 0.5);
    return {right ? 0.0 : 1.0, right ? 1.0 : 0.0};
  }
  bool cubic = m.interpolation == "cubic";
  double shrink = m.antialias ? std::min(scale, 1.0) : 1.0, reach = cubic ? 2 : 1;
  start = int64_t(std::floor(-reach / shrink)) + 1;
  int64_t end = 2 - start;
  std::vector<double> weights;
  double sum = 0;
  for (int64_t i = start; i < end; ++i) {
    double at = (double(i) - ratio) * shrink;
    weights.push_back(cubic ? cubicWeight(at, m.cubic) : std::max(0.0, 1 - std::fabs(at)));
    sum += weights.back();
  }
  if (m.antialias)
    for (double &w : weights)
      w /= sum;
  return weights;
}

/// An input that counts for an output. At the border several lie at one place, and stay apart: infinity times
/// weights of both signs is NaN, as where the run tells the sizes.
struct Tap {
  int64_t place;
  double weight; ///< not zero
};
/// In which order four neighbours are added: the outer ones have the small weights, and small numbers lose fewest digits
/// where they are added first.
constexpr int64_t kOuterFirst[] = {0, 3, 1, 2};
/// The taps of each output of one axis, and which outputs lie outside of the input.
struct AxisPlan {
  std::vector<SmallVector<Tap, 4>> taps;
  Ints outside;
};
AxisPlan planAxis(const Mode &m, int64_t in, int64_t out, double scale, double roiStart,
                  double roiEnd) {
  AxisPlan plan{std::vector<SmallVector<Tap, 4>>(out), {}};
  for (int64_t i = 0; i < out; ++i) {
    double x = decides(m) ? sourceOf(m, float(i), float(scale), float(in), float(out), float(roiStart), float(roiEnd))
                          : sourceOf(m, double(i), scale, double(in), double(out), roiStart, roiEnd);
    plan.outside.push_back(m.coordinates == "tf_crop_and_resize" && (x < 0 || x > double(in - 1)));
    if (endsAtBorder(m))
      x = std::clamp(x, 0.0, double(in - 1));
    double left = std::ceil(x) - 1;
    int64_t start = 0;
    std::vector<double> weights = weightsOf(m, x - left, scale, start);
    double sum = 0;
    for (size_t k = 0; k < weights.size(); ++k) {
      int64_t at = int64_t(left) + start + int64_t(k);
      if (m.excludeOutside && (at < 0 || at >= in))
        weights[k] = 0;
      sum += weights[k];
    }
    for (size_t n = 0; n < weights.size(); ++n) {
      const size_t k = weights.size() == std::size(kOuterFirst) ? kOuterFirst[n] : n;
      int64_t at = std::clamp<int64_t>(int64_t(left) + start + int64_t(k), 0, in - 1);
      if (double weight = m.excludeOutside && sum != 0 ? weights[k] / sum : weights[k])
        plan.taps[i].push_back({at, weight});
    }
  }
  return plan;
}

/// y[.., i, ..] = x[.., i / times, ..]
Value repeat(Emitter &e, Value x, int64_t axis, int64_t times) {
  Dims apart = dimsOf(x), joined = apart;
  apart.insert(apart.begin() + axis + 1, DimExpr(times));
  joined[axis] = joined[axis] * DimExpr(times);
  return e.reshape(e.broadcastTo(e.unsqueeze(x, {axis + 1}), apart), joined);
}

/// The sums along an axis with the weights of a matrix [out, in].
Value timesMatrix(Emitter &e, Value x, int64_t axis, Value matrix) {
  if (!x || !matrix)
    return {};
  int64_t rank = rankOf(x);
  Ints perm, back(rank);
  for (int64_t d = 0; d < rank; ++d)
    if (d != axis)
      perm.push_back(d);
  perm.push_back(axis);
  for (int64_t d = 0; d < rank; ++d)
    back[perm[d]] = d;
  Value last = e.transpose(x, perm);
  if (rank == 1)
    return e.reshape(e.matmul(e.unsqueeze(last, {0}), matrix, false, true), {dimOf(matrix, 0)});
  return e.transpose(e.matmul(last, matrix, false, true), back);
}

/// The same number of taps for each output.
struct Neighbours {
  std::vector<Ints> places;                 ///< [taps][out]
  std::vector<std::vector<double>> weights; ///< [taps][out]
};
Neighbours neighboursOf(const AxisPlan &plan, size_t most) {
  const size_t out = plan.taps.size();
  Neighbours found{std::vector<Ints>(most, Ints(out, 0)), std::vector<std::vector<double>>(most, std::vector<double>(out, 0))};
  for (size_t i = 0; i < out; ++i)
    for (size_t t = 0; t < most; ++t) {
      if (t < plan.taps[i].size()) {
        found.places[t][i] = plan.taps[i][t].place;
        found.weights[t][i] = plan.taps[i][t].weight;
      } else if (t > 0) {
        // The last one counts in halves: a weight of zero would make NaN of infinity.
        found.places[t][i] = found.places[t - 1][i];
        found.weights[t][i] = found.weights[t - 1][i] /= 2;
      }
    }
  return found;
}

/// What sums of such elements are made in.
Type sumType(Emitter &e, Type element) { return isNarrow(element) ? Type(e.b.getF32Type()) : element; }

/// The weighted sum of neighbours along an axis, of narrow floats as f32.
Value sumOfNeighbours(Emitter &e, Value x, int64_t axis, const Neighbours &n) {
  Type wide = sumType(e, elementTypeOf(x));
  Dims line(rankOf(x), DimExpr(1));
  const int64_t out = n.places.front().size();
  line[axis] = out;
  Value sum;
  for (auto [places, weights] : llvm::zip(n.places, n.weights)) {
    Value at = e.infer<GatherOp>(x, e.ints(places, {out}, e.b.getI64Type()), uint64_t(axis));
    Value part = e.mul(e.cast(at, wide), e.reshape(e.floats(weights, {out}, wide), line));
    sum = sum ? e.add(sum, part) : part;
  }
  return sum;
}

/// Along one axis, of elements of a type; sums of them may be in their sumType.
Value alongAxis(Emitter &e, const Mode &m, Value x, Type element, int64_t axis, int64_t in, int64_t out,
                const AxisPlan &plan) {
  if (m.interpolation == "nearest") {
    Ints indices;
    for (const auto &taps : plan.taps)
      indices.push_back(taps.front().place);
    return e.infer<GatherOp>(x, e.ints(indices, {out}, e.b.getI64Type()), uint64_t(axis));
  }
  // Not as a product with a whole matrix: 0 times infinity and NaN would reach every result of a row. A smaller
  // image that each element counts in over some distance is one nevertheless.
  size_t most = 1;
  for (const auto &taps : plan.taps)
    most = std::max(most, taps.size());
  if (most <= (m.interpolation == "cubic" ? 4 : 2))
    return sumOfNeighbours(e, x, axis, neighboursOf(plan, most));
  std::vector<double> matrix(size_t(in * out));
  for (auto [i, taps] : llvm::enumerate(plan.taps))
    for (const Tap &tap : taps)
      matrix[i * size_t(in) + size_t(tap.place)] += tap.weight;
  return timesMatrix(e, e.cast(x, element), axis, e.floats(matrix, {out, in}, element));
}

/// The simplest fraction that is `scale` as a float: what an exporter rounded, so that floor(10 * 0.7f)
/// is 7. Continued fractions.
std::pair<int64_t, int64_t> fractionOf(double scale) {
  int64_t p0 = 0, q0 = 1, p1 = 1, q1 = 0;
  double rest = scale;
  for (int i = 0; i < 40; ++i) {
    double whole = std::floor(rest);
    if (whole > 1e9)
      break;
    int64_t p = int64_t(whole) * p1 + p0, q = int64_t(whole) * q1 + q0;
    std::tie(p0, q0, p1, q1) = std::tuple(p1, q1, p, q);
    if (float(double(p) / double(q)) == float(scale) || rest == whole || q > (1 << 20))
      break;
    rest = 1 / (rest - whole);
  }
  return {p1, q1};
}

/// One axis whose sizes the run tells.
struct RunTimeAxis {
  Emitter &e;
  const Mode &m;
  int64_t axis;
  DimExpr in, out;
  std::optional<double> scale; ///< where it is known
  Value factor;                ///< the scale as data; else out / in
  Value roiStart, roiEnd;

  Type type() { return decides(m) ? Type(e.b.getF32Type()) : Type(e.b.getF64Type()); } ///< Of places.
  Value number(double v) { return e.scalar(v, type()); }
  Value size(const DimExpr &dim) { return e.dimScalar(dim, type()); }

  /// Where each output position lies in the input, [out]: sourceOf on data.
  Value source() {
    const std::string &c = m.coordinates;
    Value x = e.iota({out}, 0, type()), s = size(in), o = size(out);
    Value by = scaleValue();
    Value width = scale || factor ? e.mul(s, by) : o;
    Value start = e.cast(roiStart, type()), end = e.cast(roiEnd, type());
    Value last = e.add(s, -1.0), half = e.add(e.div(e.add(x, 0.5), by), -0.5);
    // A single element has a place of its own.
    auto single = [&](Value alone, Value otherwise) {
      return e.select(e.compare(o, 1.0, Predicate::Eq), alone, otherwise);
    };
    if (c == "asymmetric")
      return e.div(x, by);
    if (c == "align_corners")
      return single(number(0), e.div(e.mul(x, last), e.add(width, -1.0)));
    if (c == "pytorch_half_pixel")
      return single(number(0), half);
    if (c == "tf_half_pixel_for_nn")
      return e.add(half, 0.5);
    if (c == "half_pixel_symmetric")
      return e.add(e.mul(e.mul(s, 0.5), e.sub(number(1), e.div(o, width))), half);
    if (c == "tf_crop_and_resize")
      return single(e.mul(e.mul(e.add(start, end), 0.5), last),
                    e.add(e.mul(start, last),
                          e.div(e.mul(e.mul(x, e.sub(end, start)), last), e.add(width, -1.0))));
    return half;
  }

  /// Elements of x at whole places, [out], which are put inside.
  Value at(Value x, Value places) {
    Value inside = e.max(e.min(places, e.add(size(in), -1.0)), 0.0);
    return e.infer<GatherOp>(x, e.cast(inside, e.b.getI64Type()), uint64_t(axis));
  }

  Value nearest(Value x, Value places) {
    Value down = e.unary<FloorOp>(places), up = e.unary<CeilOp>(places);
    Value at = m.rounding == "floor"               ? down
               : m.rounding == "ceil"              ? up
               : m.rounding == kUpWhereItShrinks   ? e.select(e.compare(scaleValue(), 1.0, Predicate::Lt), up, down)
               : m.rounding == "round_prefer_ceil" ? e.unary<FloorOp>(e.add(places, 0.5))
                                                   : e.unary<CeilOp>(e.add(places, -0.5));
    return this->at(x, at);
  }

  Value cubic(Value distance) {
    double a = m.cubic;
    Value d = e.unary<AbsOp>(distance), square = e.mul(d, d);
    Value near = e.add(e.mul(e.add(e.mul(d, a + 2), -(a + 3)), square), 1.0);
    Value far = e.add(e.mul(e.add(e.mul(e.add(e.mul(d, a), -5 * a), d), 8 * a), d), -4 * a);
    Value zero = number(0);
    return e.select(e.compare(d, 1.0, Predicate::Le), near,
                    e.select(e.compare(d, 2.0, Predicate::Lt), far, zero));
  }

  Value scaleValue() {
    return scale ? number(*scale) : factor ? e.cast(factor, type()) : e.div(size(out), size(in));
  }

  /// How much an element counts at a distance from the place, not yet divided by the sum.
  Value weightAt(Value distance, Value place) {
    Value weight = m.interpolation == "cubic"
                       ? cubic(distance)
                       : e.max(e.sub(number(1), e.unary<AbsOp>(distance)), 0.0);
    if (!m.excludeOutside)
      return weight;
    Value inside = e.infer<AndOp>(e.compare(place, 0.0, Predicate::Ge),
                                  e.compare(place, size(in), Predicate::Lt));
    return e.select(inside, weight, number(0));
  }

  /// Two or four weighted neighbours, in the sumType.
  Value blend(Value x, Value places) {
    int64_t start = m.interpolation == "cubic" ? -1 : 0;
    if (endsAtBorder(m))
      places = e.max(e.min(places, e.add(size(in), -1.0)), 0.0);
    Value left = e.unary<FloorOp>(places), ratio = e.sub(places, left), sum, total;
    Dims line(rankOf(x), DimExpr(1));
    line[axis] = out;
    Type wide = sumType(e, elementTypeOf(x));
    for (int64_t n = 0; n < 2 - 2 * start; ++n) {
      const int64_t i = start + (start < 0 ? kOuterFirst[n] : n);
      Value place = e.add(left, double(i));
      Value weight = weightAt(e.sub(number(double(i)), ratio), place);
      total = total ? e.add(total, weight) : weight;
      Value counts = e.cast(e.reshape(weight, line), wide), part = e.mul(e.cast(at(x, place), wide), counts);
      // A neighbour of weight zero is not read: infinity and NaN stay with those who have it.
      part = e.select(e.compare(counts, 0.0, Predicate::Eq), e.like(part, 0), part);
      sum = sum ? e.add(sum, part) : part;
    }
    return m.excludeOutside ? e.div(sum, e.cast(e.reshape(total, line), wide)) : sum;
  }

  /// Where a smaller image is made, an element counts over more than its neighbours: a product with
  /// all weights, made of the sizes of the run. x is continued by its edges as far as any scale reaches.
  Value antialias(Value x, Value places) {
    DimExpr reach = in * DimExpr(m.interpolation == "cubic" ? 2 : 1), width = in + reach + reach;
    Value k = e.sub(e.iota({width}, 0, type()), size(reach));
    Value distance =
        e.mul(e.sub(k, e.reshape(places, {out, DimExpr(1)})), e.min(scaleValue(), 1.0));
    Value weight = weightAt(distance, k);
    weight = e.div(weight, e.reduce(weight, ReduceKind::Sum, {1}));
    return timesMatrix(e, at(x, k), axis, e.cast(weight, elementTypeOf(x)));
  }
};

LogicalResult resize(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  if (!x)
    return failure();
  bool old = n.opset < 11 || n.type == "Upsample";
  unsigned scalesAt = old ? 1 : 2, sizesAt = 3, roiAt = 1;
  Mode m{n.strAttr("mode", "nearest"),
         n.strAttr("coordinate_transformation_mode", old ? "asymmetric" : "half_pixel"),
         n.strAttr("nearest_mode", old ? kUpWhereItShrinks : "round_prefer_floor"),
         n.floatAttr("cubic_coeff_a", -0.75),
         n.floatAttr("extrapolation_value", 0),
         bool(n.intAttr("antialias", 0)),
         bool(n.intAttr("exclude_outside", 0))};
  m.excludeOutside &= m.interpolation != "nearest"; // one neighbour has all the weight, and lies inside
  int64_t rank = rankOf(x);
  Ints axes;
  for (int64_t d = 0; d < rank; ++d)
    axes.push_back(d);
  if (std::optional<Ints> given = n.intsAttr("axes")) {
    axes = *given;
    for (int64_t &axis : axes) {
      std::optional<int64_t> one = n.axis(axis, rank);
      if (!one)
        return failure();
      axis = *one;
    }
  }
  // Element i of a float operand that is a constant.
  auto numbers = [&](unsigned i) -> std::optional<std::vector<double>> {
    DenseElementsAttr elements;
    Value v = n.has(i) ? n.in(i) : Value();
    auto constant = v ? v.getDefiningOp<ConstantOp>() : ConstantOp();
    elements = constant ? dyn_cast<DenseElementsAttr>(constant.getValue()) : DenseElementsAttr();
    if (!elements || !isa<FloatType>(elements.getElementType()))
      return std::nullopt;
    std::vector<double> out;
    for (APFloat value : elements.getValues<APFloat>()) {
      bool lost;
      value.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &lost);
      out.push_back(value.convertToDouble());
    }
    return out;
  };
  std::optional<std::vector<double>> scales =
      n.has(scalesAt) ? numbers(scalesAt) : n.floatsAttr("scales");
  if (scales && scales->empty())
    scales.reset();
  std::optional<HostValue> given = !old && n.has(sizesAt) ? n.bound(sizesAt, 0) : std::nullopt;
  std::optional<Dims> sizes = given ? std::optional(given->values) : std::nullopt;
  // Scales that arrive with the run, or are computed in it.
  Value ratios = !scales && !sizes && n.has(scalesAt) ? n.in(scalesAt) : Value();
  if (ratios && (rankOf(ratios) != 1 || !isFloat(elementTypeOf(ratios)) ||
                 !n.unify(dimOf(ratios, 0), DimExpr(int64_t(axes.size())))))
    return n.invalid("shape", "a scale for each axis is needed");
  if ((!scales && !sizes && !ratios) || (scales && scales->size() != axes.size()) ||
      (sizes && sizes->size() != axes.size()))
    return n.unknown({scalesAt, old ? scalesAt : sizesAt}, "scales or sizes");
  // Start and end of each axis; an operand that is no constant leaves them to the run.
  std::optional<std::vector<double>> roi = std::vector<double>(2 * axes.size(), 0);
  std::fill(roi->begin() + axes.size(), roi->end(), 1);
  if (m.coordinates == "tf_crop_and_resize") {
    Value place = n.in(roiAt);
    if (!place || rankOf(place) != 1)
      return n.invalid("shape", "a roi is a start and an end of each axis");
    n.unify(dimOf(place, 0), DimExpr(int64_t(roi->size())));
    roi = numbers(roiAt);
    if (roi && roi->size() != 2 * axes.size())
      return n.invalid("shape", "a roi is a start and an end of each axis");
  }
  auto roiValue = [&](size_t i) -> Value {
    Type f32 = e.b.getF32Type();
    return roi ? e.scalar((*roi)[i], f32)
               : e.reshape(e.cast(e.sliceAxis(n.in(roiAt), 0, int64_t(i), 1), f32), {});
  };
  // Of an axis: the scale, so far as it is known, and the size of the result.
  std::vector<std::optional<double>> factors(axes.size());
  Dims outs(axes.size());
  std::vector<Value> common(axes.size()); // scales as data
  for (auto [i, axis] : llvm::enumerate(axes)) {
    DimExpr size = dimOf(x, axis);
    if (ratios) {
      Type f32 = e.b.getF32Type();
      common[i] = e.reshape(e.cast(e.sliceAxis(ratios, 0, int64_t(i), 1), f32), {});
      Value count = e.cast(e.unary<FloorOp>(e.mul(e.dimScalar(size, f32), common[i])), e.b.getI64Type());
      outs[i] = n.sizeOf(count, std::nullopt);
      continue;
    }
    if (scales) {
      if (!((*scales)[i] > 0 && (*scales)[i] < 1e6))
        return n.invalid("attribute", "a scale is not positive, or above a million");
      auto [p, q] = fractionOf((*scales)[i]);
      factors[i] = (*scales)[i];
      outs[i] = DimExpr::floorDiv(size * DimExpr(p), q);
      continue;
    }
    outs[i] = (*sizes)[i];
    std::optional<DimExpr> times = size == DimExpr(0) ? std::nullopt : outs[i].exactDiv(size);
    if (size.isConstant() && outs[i].isConstant())
      factors[i] = *size.constant() ? double(*outs[i].constant()) / double(*size.constant()) : 0;
    else if (times && times->isConstant())
      factors[i] = double(*times->constant());
  }
  // One scale for all axes, where the aspect ratio is kept.
  std::string policy = n.strAttr("keep_aspect_ratio_policy", "stretch");
  if (sizes && policy != "stretch") {
    bool least = policy == "not_larger", known = !llvm::is_contained(factors, std::nullopt);
    Type f32 = e.b.getF32Type();
    Dims stated = *sizes, ins;
    for (auto [i, axis] : llvm::enumerate(axes)) {
      ins.push_back(dimOf(x, axis));
      Value factor = e.div(e.dimScalar(stated[i], f32), e.dimScalar(ins[i], f32));
      Value &one = common.front();
      one = !one ? factor : least ? e.min(one, factor) : e.max(one, factor);
    }
    std::fill(common.begin(), common.end(), common.front());
    double one = !known ? 0 : least ? **llvm::min_element(factors) : **llvm::max_element(factors);
    for (size_t i = 0; i < axes.size(); ++i) {
      factors[i] = known ? std::optional(one) : std::nullopt;
      if (known && ins[i].isConstant()) {
        outs[i] = int64_t(std::floor(one * double(*ins[i].constant()) + 0.5));
        continue;
      }
      // The rounded products of the size by each scale: the least or greatest is that of the scale.
      for (size_t k = 0; k < axes.size(); ++k) {
        DimExpr rounded = DimExpr::floorDiv(DimExpr(2) * ins[i] * stated[k] + ins[k],
                                            DimExpr(2) * ins[k]);
        outs[i] = k == 0 ? rounded
                  : least ? DimExpr::min(outs[i], rounded)
                          : DimExpr::max(outs[i], rounded);
      }
      outs[i] = n.derive("size" + llvm::Twine(i), outs[i], {0, DimRange::kUnbounded});
    }
  }
  Type element = elementTypeOf(x);
  bool exact = m.interpolation == "nearest";
  if (!exact && !isFloat(element))
    x = e.cast(x, e.b.getF32Type());
  const Type moved = elementTypeOf(x);
  Value outside;
  for (auto [i, axis] : llvm::enumerate(axes)) {
    std::optional<double> scale = factors[i];
    bool centred = m.coordinates == "half_pixel" || m.coordinates == "pytorch_half_pixel";
    bool plain = (m.coordinates == "asymmetric" && (m.rounding == "floor" || old)) ||
                 (centred && StringRef(m.rounding).starts_with("round"));
    if (scale == 1.0 && m.coordinates != "tf_crop_and_resize")
      continue;
    if (exact && plain && scale && *scale >= 1 && *scale == std::floor(*scale)) {
      x = repeat(e, x, axis, int64_t(*scale));
      continue;
    }
    std::optional<int64_t> in = dimOf(x, axis).constant(), out = outs[i].constant();
    if (!in || !out || !scale || !roi || *in == 0 || *out == 0 || *in * *out > kMaxPlan) {
      RunTimeAxis run{e, m, axis, dimOf(x, axis), outs[i], scale, common[i], roiValue(i),
                      roiValue(axes.size() + i)};
      Value places = run.source();
      if (places && m.coordinates == "tf_crop_and_resize") {
        Dims line(rank, DimExpr(1));
        line[axis] = outs[i];
        Value here = e.infer<OrOp>(
            e.compare(places, 0.0, Predicate::Lt),
            e.compare(places, e.add(run.size(run.in), -1.0), Predicate::Gt));
        here = e.reshape(here, line);
        outside = outside ? e.infer<OrOp>(outside, here) : here;
      }
      x = exact         ? run.nearest(x, places)
          : m.antialias ? run.antialias(e.cast(x, moved), places)
                        : run.blend(x, places);
      if (!x)
        return failure();
      continue;
    }
    AxisPlan plan = planAxis(m, *in, *out, *scale, (*roi)[i], (*roi)[axes.size() + i]);
    x = alongAxis(e, m, x, moved, axis, *in, *out, plan);
    if (!x)
      return failure();
    if (llvm::is_contained(plan.outside, 1)) {
      Ints shape(rank, 1);
      shape[axis] = *out;
      Value here = e.ints(plan.outside, shape, e.b.getI1Type());
      outside = outside ? e.infer<OrOp>(outside, here) : here;
    }
  }
  x = e.cast(x, moved);
  if (outside)
    x = e.select(outside, e.like(x, m.extrapolation), x);
  if (!exact && !isFloat(element)) {
    auto integer = cast<IntegerType>(element);
    double span = std::exp2(integer.getWidth() - (integer.isUnsigned() ? 0 : 1));
    x = e.min(e.max(e.unary<RoundOp>(x), integer.isUnsigned() ? 0.0 : -span), span - 1);
    x = e.cast(x, element);
  }
  return n.done(x);
}

} // namespace

void addResize(Handlers &h) {
  h["Resize"] = resize;
  h["Upsample"] = resize;
}

} // namespace lathe::legal
