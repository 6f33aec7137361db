//===- Codes.cpp - scales of ranges, codes of matrices --------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/quantize/Recipe.h"
#include "lathe/support/NormalFloat.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <iterator>

namespace lathe::quantize {

constexpr double kGreatestE4M3 = 448;

float roundedUp(float scale, DType type) {
  if (type != DType::F16 && type != DType::BF16)
    return scale;
  HostTensor number(type, {});
  number.setReal(0, scale);
  if (number.real(0) < scale) {
    uint16_t bits;
    std::memcpy(&bits, number.data.data(), sizeof bits);
    ++bits; // of positive numbers the next one
    std::memcpy(number.data.data(), &bits, sizeof bits);
  }
  return float(number.real(0));
}

std::optional<CodesOfRange> codesOf(Range range, DType type) {
  double low = std::min(range.min, 0.0), high = std::max(range.max, 0.0);
  CodesOfRange codes;
  codes.scale = float((high - low) / 255);
  if (!std::isnormal(codes.scale))
    return std::nullopt;
  codes.scale = roundedUp(codes.scale, type);
  if (!std::isfinite(codes.scale))
    return std::nullopt;
  codes.zero = uint8_t(std::clamp(std::nearbyint(-low / double(codes.scale)), 0.0, 255.0));
  return codes;
}

std::optional<float> floatScaleOf(Range range, DType type) {
  const auto scale = float(std::max(std::fabs(range.min), std::fabs(range.max)) / kGreatestE4M3);
  if (!std::isnormal(scale) || !std::isfinite(roundedUp(scale, type)))
    return std::nullopt;
  return roundedUp(scale, type);
}

std::vector<int64_t> scaleSizes(const std::vector<int64_t> &dims, const WeightRecipe &recipe) {
  if (!recipe.block)
    return {dims[recipe.axis]};
  std::vector<int64_t> sizes = dims;
  sizes[recipe.axis] /= recipe.block;
  return sizes;
}

namespace {

/// Where the scale of an element of a matrix, or of filters [rows, all others], lies.
class ScalePlaces {
public:
  ScalePlaces(const std::vector<int64_t> &dims, const WeightRecipe &recipe) : recipe(recipe) {
    columns = 1;
    for (size_t d = 1; d < dims.size(); ++d)
      columns *= dims[d];
    sizes = scaleSizes(dims, recipe);
  }
  int64_t operator()(int64_t element) const {
    int64_t i = element / columns, j = element % columns;
    if (!recipe.block)
      return recipe.axis ? j : i;
    return recipe.axis ? i * sizes[1] + j / recipe.block : i / recipe.block * sizes[1] + j;
  }
  std::vector<int64_t> sizes; ///< of the scales
  int64_t columns;

private:
  const WeightRecipe recipe;
};

float scaleOf(float largest, const WeightRecipe &recipe) {
  float scale = largest;
  if (recipe.format == WeightFormat::Integer)
    scale = largest / float((1 << (recipe.bits - 1)) - 1);
  else if (recipe.format == WeightFormat::F8E4M3)
    scale = float(largest / kGreatestE4M3);
  else if (isHalf(recipe.format))
    scale = 1;
  else if (recipe.format == WeightFormat::Mxfp4 && std::isnormal(largest))
    return std::ldexp(1.0f, std::max(std::ilogb(largest) - 2, -126)); // 4 is the largest power of two of e2m1
  return std::isnormal(scale) ? scale : 1;
}

uint8_t nearestOfTable(float value) {
  size_t above = size_t(std::lower_bound(std::begin(kNf4), std::end(kNf4), double(value)) - std::begin(kNf4));
  if (above == 0 || above == std::size(kNf4))
    return uint8_t(std::min(above, std::size(kNf4) - 1));
  return uint8_t(double(value) - kNf4[above - 1] < kNf4[above] - double(value) ? above - 1 : above);
}

DType codesType(const WeightRecipe &recipe) {
  switch (recipe.format) {
  case WeightFormat::Mxfp4:
    return DType::F4E2M1;
  case WeightFormat::Nf4:
    return DType::UI4;
  case WeightFormat::F8E4M3:
    return DType::F8E4M3FN;
  case WeightFormat::F16:
    return DType::F16;
  case WeightFormat::BF16:
    return DType::BF16;
  case WeightFormat::Integer:
    break;
  }
  return recipe.bits == 4 ? DType::I4 : DType::I8;
}

} // namespace

Result<QuantizedWeight> quantizeWeight(const HostTensor &weight, const WeightRecipe &recipe, const std::string &name) {
  const std::string where = "weight '" + name + "'";
  const int64_t along = weight.dims[recipe.axis];
  if (recipe.block && (recipe.block < 0 || along % recipe.block))
    return invalidError("blocks of " + std::to_string(recipe.block) + " do not divide its dimension of " +
                            std::to_string(along), where);
  const ScalePlaces place(weight.dims, recipe);
  QuantizedWeight result;
  result.codes = HostTensor(codesType(recipe), weight.dims);
  result.scales = HostTensor(recipe.format == WeightFormat::Mxfp4 ? DType::F8E8M0 : weight.dtype, place.sizes);
  std::vector<float> scales(result.scales.count());
  for (int64_t i = 0, n = weight.count(); i < n; ++i) {
    auto v = float(weight.real(i));
    if (!std::isfinite(v))
      return invalidError("holds " + std::string(std::isnan(v) ? "NaN" : "infinity") + " at [" +
                              std::to_string(i / place.columns) + ", " + std::to_string(i % place.columns) + "]", where);
    float &most = scales[place(i)];
    most = std::max(most, std::fabs(v));
  }
  for (size_t s = 0; s < scales.size(); ++s)
    result.scales.setReal(int64_t(s), scales[s] = roundedUp(scaleOf(scales[s], recipe), weight.dtype));
  const float greatest = float((1 << (recipe.bits - 1)) - 1);
  for (int64_t i = 0, n = weight.count(); i < n; ++i) {
    const float ratio = float(weight.real(i)) / scales[place(i)];
    if (recipe.format == WeightFormat::Mxfp4 || recipe.format == WeightFormat::F8E4M3) {
      result.codes.setReal(i, ratio, Overflow::Saturate);
    } else if (isHalf(recipe.format)) {
      result.codes.setReal(i, ratio);
      if (!std::isfinite(result.codes.real(i)))
        return invalidError("holds a number too large for the format at [" + std::to_string(i / place.columns) + ", " +
                                std::to_string(i % place.columns) + "]", where);
    }
    else if (recipe.format == WeightFormat::Nf4)
      result.codes.setInteger(i, nearestOfTable(ratio));
    else
      result.codes.setInteger(i, int64_t(std::clamp(std::nearbyint(ratio), -greatest, greatest)));
  }
  return result;
}

HostTensor dequantizeWeight(const QuantizedWeight &weight, const WeightRecipe &recipe) {
  const ScalePlaces place(weight.codes.dims, recipe);
  HostTensor values(DType::F32, weight.codes.dims);
  for (int64_t i = 0, n = values.count(); i < n; ++i) {
    double code = recipe.format == WeightFormat::Nf4       ? kNf4[weight.codes.integer(i)]
                  : recipe.format == WeightFormat::Integer ? double(weight.codes.integer(i))
                                                           : weight.codes.real(i);
    values.setReal(i, code * weight.scales.real(place(i)));
  }
  return values;
}

} // namespace lathe::quantize
