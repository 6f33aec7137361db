//===- Codes.cpp - scales of ranges, codes of matrices --------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/quantize/Recipe.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

namespace lathe::quantize {

std::optional<CodesOfRange> codesOf(Range range) {
  double low = std::min(range.min, 0.0), high = std::max(range.max, 0.0);
  CodesOfRange codes;
  codes.scale = float((high - low) / 255);
  if (!std::isnormal(codes.scale))
    return std::nullopt;
  codes.zero = uint8_t(std::clamp(std::nearbyint(-low / double(codes.scale)), 0.0, 255.0));
  return codes;
}

Result<QuantizedWeight> quantizeWeight(const HostTensor &weight, const WeightRecipe &recipe,
                                       const std::string &name) {
  std::string where = "weight '" + name + "'";
  int64_t rows = weight.dims[0], columns = weight.dims[1];
  for (size_t d = 2; d < weight.dims.size(); ++d)
    columns *= weight.dims[d];
  int64_t along = weight.dims[recipe.axis], block = recipe.block;
  if (block && (block < 0 || along % block))
    return invalidError("blocks of " + std::to_string(block) + " do not divide its dimension of " +
                            std::to_string(along), where);
  QuantizedWeight result;
  result.codes = HostTensor(recipe.bits == 4 ? DType::I4 : DType::I8, weight.dims);
  std::vector<int64_t> sizes{along};
  if (block) {
    sizes = weight.dims;
    sizes[recipe.axis] = along / block;
  }
  result.scales = HostTensor(DType::F32, sizes);
  auto scaleOf = [&](int64_t i, int64_t j) {
    int64_t at = recipe.axis ? j : i;
    if (!block)
      return at;
    return recipe.axis ? i * sizes[1] + j / block : i / block * sizes[1] + j;
  };
  std::vector<float> largest(result.scales.count());
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      auto v = float(weight.real(i * columns + j));
      if (!std::isfinite(v))
        return invalidError("holds " + std::string(std::isnan(v) ? "NaN" : "infinity") + " at [" +
                                std::to_string(i) + ", " + std::to_string(j) + "]", where);
      float &most = largest[scaleOf(i, j)];
      most = std::max(most, std::fabs(v));
    }
  const float greatest = float((1 << (recipe.bits - 1)) - 1);
  for (float &scale : largest) {
    scale /= greatest;
    if (!std::isnormal(scale))
      scale = 1;
  }
  for (size_t s = 0; s < largest.size(); ++s)
    result.scales.setReal(int64_t(s), largest[s]);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      float code = std::nearbyint(float(weight.real(i * columns + j)) / largest[scaleOf(i, j)]);
      result.codes.setInteger(i * columns + j, int64_t(std::clamp(code, -greatest, greatest)));
    }
  return result;
}

} // namespace lathe::quantize
