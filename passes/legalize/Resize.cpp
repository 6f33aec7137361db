//===- Resize.cpp - interpolation as products with constants ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Interpolation is separable and linear: along each axis of constant size it is a
// product with a matrix of weights that is known when lathe compiles. Nearest
// neighbours are gathers; whole multiples repeat elements, for any size.
//
//===----------------------------------------------------------------------===//
#include "Node.h"

#include <cmath>

using namespace mlir;

namespace lathe::legal {
namespace {

struct Mode {
  std::string interpolation, coordinates, rounding;
  double cubic, extrapolation;
  bool antialias, excludeOutside;
};

/// Where output position x lies in the input.
double sourceOf(const Mode &m, double x, double scale, int64_t in, int64_t out, double roiStart,
                double roiEnd) {
  const std::string &c = m.coordinates;
  // The exact width; `out` is it rounded down.
  double width = scale * double(in);
  if (c == "asymmetric")
    return x / scale;
  if (c == "align_corners")
    return out == 1 ? 0 : x * double(in - 1) / (width - 1);
  if (c == "pytorch_half_pixel")
    return out == 1 ? 0 : (x + 0.5) / scale - 0.5;
  if (c == "tf_half_pixel_for_nn")
    return (x + 0.5) / scale;
  if (c == "half_pixel_symmetric") {
    double adjustment = double(out) / (scale * double(in));
    return double(in) / 2 * (1 - adjustment) + (x + 0.5) / scale - 0.5;
  }
  if (c == "tf_crop_and_resize")
    return out == 1
               ? 0.5 * (roiStart + roiEnd) * double(in - 1)
               : roiStart * double(in - 1) + x * (roiEnd - roiStart) * double(in - 1) / (width - 1);
  return (x + 0.5) / scale - 0.5;
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
    bool right = m.rounding == "ceil" || (m.rounding == "round_prefer_floor" && ratio > 0.5) ||
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

/// The [out, in] matrix of one axis, and which outputs lie outside of the input.
struct AxisPlan {
  std::vector<double> matrix;
  Ints outside;
};
AxisPlan planAxis(const Mode &m, int64_t in, int64_t out, double scale, double roiStart,
                  double roiEnd) {
  AxisPlan plan{std::vector<double>(size_t(in * out)), {}};
  for (int64_t i = 0; i < out; ++i) {
    double x = sourceOf(m, double(i), scale, in, out, roiStart, roiEnd);
    plan.outside.push_back(m.coordinates == "tf_crop_and_resize" && (x < 0 || x > double(in - 1)));
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
    for (size_t k = 0; k < weights.size(); ++k) {
      int64_t at = std::clamp<int64_t>(int64_t(left) + start + int64_t(k), 0, in - 1);
      plan.matrix[size_t(i * in + at)] +=
          m.excludeOutside && sum != 0 ? weights[k] / sum : weights[k];
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

Value alongAxis(Emitter &e, const Mode &m, Value x, int64_t axis, int64_t in, int64_t out,
                const AxisPlan &plan) {
  if (m.interpolation == "nearest") {
    Ints indices;
    for (int64_t i = 0; i < out; ++i)
      for (int64_t k = 0; k < in; ++k)
        if (plan.matrix[size_t(i * in + k)] != 0) {
          indices.push_back(k);
          break;
        }
    return e.infer<GatherOp>(x, e.ints(indices, {out}, e.b.getI64Type()), uint64_t(axis));
  }
  int64_t rank = rankOf(x);
  Ints perm, back(rank);
  for (int64_t d = 0; d < rank; ++d)
    if (d != axis)
      perm.push_back(d);
  perm.push_back(axis);
  for (int64_t d = 0; d < rank; ++d)
    back[perm[d]] = d;
  Value matrix = e.floats(plan.matrix, {out, in}, elementTypeOf(x));
  Value last = e.transpose(x, perm);
  if (rank == 1)
    return e.reshape(e.matmul(e.unsqueeze(last, {0}), matrix, false, true), {out});
  return e.transpose(e.matmul(last, matrix, false, true), back);
}

LogicalResult resize(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  if (!x)
    return failure();
  bool old = n.opset < 11 || n.type == "Upsample";
  unsigned scalesAt = old ? 1 : 2, sizesAt = 3, roiAt = 1;
  Mode m{n.strAttr("mode", "nearest"),
         n.strAttr("coordinate_transformation_mode", old ? "asymmetric" : "half_pixel"),
         n.strAttr("nearest_mode", old ? "floor" : "round_prefer_floor"),
         n.floatAttr("cubic_coeff_a", -0.75),
         n.floatAttr("extrapolation_value", 0),
         bool(n.intAttr("antialias", 0)),
         bool(n.intAttr("exclude_outside", 0))};
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
  std::optional<Ints> sizes = !old && n.has(sizesAt) ? n.ints(sizesAt) : std::nullopt;
  if ((!scales && !sizes) || (scales && scales->size() != axes.size()) ||
      (sizes && sizes->size() != axes.size()))
    return n.unknown({scalesAt, old ? scalesAt : sizesAt}, "scales or sizes");
  std::vector<double> roi(2 * axes.size(), 0);
  std::fill(roi.begin() + axes.size(), roi.end(), 1);
  if (m.coordinates == "tf_crop_and_resize") {
    std::optional<std::vector<double>> given = numbers(roiAt);
    if (!given || given->size() != roi.size())
      return n.unknown({roiAt}, "a roi");
    roi = *given;
  }
  // One scale for all axes, where the aspect ratio is kept.
  std::string policy = n.strAttr("keep_aspect_ratio_policy", "stretch");
  std::vector<double> factors(axes.size());
  Ints outs(axes.size(), -1);
  for (auto [i, axis] : llvm::enumerate(axes)) {
    std::optional<int64_t> size = dimOf(x, axis).constant();
    factors[i] = scales ? (*scales)[i] : size && *size ? double((*sizes)[i]) / double(*size) : 0;
    if (size)
      outs[i] = sizes ? (*sizes)[i] : int64_t(std::floor(double(*size) * factors[i]));
  }
  if (sizes && policy != "stretch") {
    double one = policy == "not_larger" ? *llvm::min_element(factors) : *llvm::max_element(factors);
    for (auto [i, axis] : llvm::enumerate(axes)) {
      factors[i] = one;
      if (std::optional<int64_t> size = dimOf(x, axis).constant())
        outs[i] = int64_t(std::floor(one * double(*size) + 0.5));
    }
  }
  Type element = elementTypeOf(x);
  bool exact = m.interpolation == "nearest";
  if (!exact && !isFloat(element))
    x = e.cast(x, e.b.getF32Type());
  Value outside;
  for (auto [i, axis] : llvm::enumerate(axes)) {
    double scale = factors[i];
    bool centred = m.coordinates == "half_pixel" || m.coordinates == "pytorch_half_pixel";
    bool plain = (m.coordinates == "asymmetric" && m.rounding == "floor") ||
                 (centred && StringRef(m.rounding).starts_with("round"));
    if (scale == 1 && m.coordinates != "tf_crop_and_resize")
      continue;
    if (exact && plain && scale >= 1 && scale == std::floor(scale)) {
      x = repeat(e, x, axis, int64_t(scale));
      continue;
    }
    std::optional<int64_t> in = dimOf(x, axis).constant();
    if (!in || outs[i] < 0)
      return n.fail("shape", "a symbolic size",
                    "constant sizes, or nearest neighbours at a whole multiple",
                    "bind the size with --shape");
    if (*in == 0 || outs[i] == 0 || *in * outs[i] > (int64_t(1) << 26))
      return n.fail("shape", "a size of 0, or a product of sizes above 2^26", "smaller images");
    AxisPlan plan = planAxis(m, *in, outs[i], scale, roi[i], roi[axes.size() + i]);
    x = alongAxis(e, m, x, axis, *in, outs[i], plan);
    if (!x)
      return failure();
    if (llvm::is_contained(plan.outside, 1)) {
      Ints shape(rank, 1);
      shape[axis] = outs[i];
      Value here = e.ints(plan.outside, shape, e.b.getI1Type());
      outside = outside ? e.infer<OrOp>(outside, here) : here;
    }
  }
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
