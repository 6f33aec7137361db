//===- Gptq.cpp - codes that make up for each other's errors --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// With H the damped Gram matrix and U the upper factor of its inverse, inverse(H) = U^T U: the code of input k
// leaves an error e, and what is best done about it by the inputs behind k is w_j -= e / U_kk * U_kj.
//
//===----------------------------------------------------------------------===//
#include "lathe/quantize/Weights.h"
#include "lathe/support/InverseFactor.h"
#include "lathe/support/Parallel.h"

#include <algorithm>
#include <cmath>

namespace lathe::quantize {

Result<GptqResult> gptq(const HostTensor &weight, const WeightRecipe &recipe, const Gram &gram, double damping,
                        const std::string &name) {
  const std::string where = "weight '" + name + "'";
  // Checks, and the sizes of scales; their values where no blocks are made on the way.
  Result<QuantizedWeight> nearest = quantizeWeight(weight, recipe, name);
  if (!nearest)
    return nearest.status();
  const int64_t axis = depthAxisOf(recipe), depth = weight.dims[axis], outputs = weight.dims[1 - axis];
  if (gram.depth != depth)
    return invalidError("sums over " + std::to_string(depth) + " inputs, of which " + std::to_string(gram.depth) +
                            " were observed", where);
  GptqResult result;
  result.weight = std::move(*nearest);
  Result<InverseFactor> inverse = inverseFactor(gram.sums, depth, damping, where);
  if (!inverse)
    return inverse.status();
  const std::vector<double> &u = inverse->upper;
  result.damping = inverse->damping;
  result.unseen = inverse->unseen;

  const double greatest = double((1 << (recipe.bits - 1)) - 1);
  const int64_t block = recipe.block ? recipe.block : depth;
  constexpr int64_t kRows = 16; // outputs for which a row of U is read once
  auto place = [&](int64_t k, int64_t n) { return axis == 0 ? k * outputs + n : n * depth + k; };
  auto scalePlace = [&](int64_t k, int64_t n) {
    if (!recipe.block)
      return n;
    return axis == 0 ? k / block * outputs + n : n * (depth / block) + k / block;
  };
  std::vector<int8_t> codes(depth * outputs); // those of 4 bits share bytes, which threads cannot
  inParallel(size_t((outputs + kRows - 1) / kRows), [&](size_t part) {
    const int64_t first = part * kRows, count = std::min(kRows, outputs - first);
    std::vector<double> rows(count * depth), scales(count);
    for (int64_t n = 0; n < count; ++n)
      for (int64_t k = 0; k < depth; ++k)
        rows[n * depth + k] = weight.real(place(k, first + n));
    for (int64_t k = 0; k < depth; ++k) {
      const double *factor = &u[k * depth];
      for (int64_t n = 0; n < count; ++n) {
        double *row = &rows[n * depth];
        if (k % block == 0) {
          if (recipe.block) {
            double most = 0;
            for (int64_t j = k; j < k + block; ++j)
              most = std::max(most, std::fabs(row[j]));
            auto scale = float(most / greatest);
            scales[n] = std::isnormal(scale) ? roundedUp(scale, weight.dtype) : 1;
          } else {
            scales[n] = result.weight.scales.real(scalePlace(k, first + n));
          }
        }
        double code = std::clamp(std::nearbyint(row[k] / scales[n]), -greatest, greatest);
        double error = (row[k] - code * scales[n]) / factor[k];
        for (int64_t j = k + 1; j < depth; ++j)
          row[j] -= error * factor[j];
        row[k] = code;
      }
      if (recipe.block && k % block == 0)
        for (int64_t n = 0; n < count; ++n)
          result.weight.scales.setReal(scalePlace(k, first + n), scales[n]);
    }
    for (int64_t n = 0; n < count; ++n)
      for (int64_t k = 0; k < depth; ++k)
        codes[place(k, first + n)] = int8_t(rows[n * depth + k]);
  });
  for (size_t i = 0; i < codes.size(); ++i)
    result.weight.codes.setInteger(int64_t(i), codes[i]);
  if (HostTensor &scales = result.weight.scales; scales.dtype != DType::F32 && bitWidth(weight.dtype) == 16) { // of its type
    HostTensor wide(DType::F32, scales.dims);
    for (int64_t i = 0; i < scales.count(); ++i)
      wide.setReal(i, scales.real(i));
    scales = std::move(wide);
  }
  return result;
}

} // namespace lathe::quantize
