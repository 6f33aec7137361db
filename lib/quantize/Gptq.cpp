//===- Gptq.cpp - codes that make up for each other's errors --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// With H the damped Gram matrix and U the upper factor of its inverse, inverse(H) = U^T U: the code of input k
// leaves an error e, and what is best done about it by the inputs behind k is w_j -= e / U_kk * U_kj.
//
//===----------------------------------------------------------------------===//
#include "lathe/quantize/Weights.h"
#include "lathe/support/Parallel.h"

#include <algorithm>
#include <cmath>

namespace lathe::quantize {

namespace {

using Matrix = std::vector<double>; // square, row-major

double dot(const double *a, const double *b, int64_t n) {
  double sums[8] = {};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int64_t lane = 0; lane < 8; ++lane)
      sums[lane] += a[i + lane] * b[i + lane];
  double sum = 0;
  for (double s : sums)
    sum += s;
  for (; i < n; ++i)
    sum += a[i] * b[i];
  return sum;
}

/// The lower factor L of L L^T in place of the lower half; false where the matrix is not positive definite.
bool cholesky(Matrix &a, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    double *row = &a[i * n];
    for (int64_t j = 0; j < i; ++j)
      row[j] = (row[j] - dot(row, &a[j * n], j)) / a[j * n + j];
    double pivot = row[i] - dot(row, row, i);
    if (!(pivot > 0) || !std::isfinite(pivot))
      return false;
    row[i] = std::sqrt(pivot);
  }
  return true;
}

/// U with inverse(H) = U^T U, upper: with P the order reversed and P H P = L L^T it is P inverse(L) P.
bool inverseFactor(const Matrix &h, int64_t n, Matrix &u) {
  Matrix lower(h.size());
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j <= i; ++j)
      lower[i * n + j] = h[(n - 1 - i) * n + (n - 1 - j)];
  if (!cholesky(lower, n))
    return false;
  Matrix inverse(h.size());
  for (int64_t i = 0; i < n; ++i) {
    double *row = &inverse[i * n];
    for (int64_t k = 0; k < i; ++k) {
      const double factor = lower[i * n + k];
      const double *above = &inverse[k * n];
      for (int64_t j = 0; j <= k; ++j)
        row[j] -= factor * above[j];
    }
    const double pivot = 1 / lower[i * n + i];
    for (int64_t j = 0; j < i; ++j)
      row[j] *= pivot;
    row[i] = pivot;
  }
  u.assign(h.size(), 0);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j <= i; ++j)
      u[(n - 1 - i) * n + (n - 1 - j)] = inverse[i * n + j];
  return true;
}

} // namespace

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
  Matrix h = gram.sums, u;
  double mean = 0;
  for (int64_t i = 0; i < depth; ++i)
    mean += h[i * depth + i] / double(depth);
  if (!std::isfinite(mean))
    return invalidError("its inputs' products are not finite", where);
  for (int64_t i = 0; i < depth; ++i)
    if (h[i * depth + i] == 0) {
      h[i * depth + i] = mean > 0 ? mean : 1;
      ++result.unseen;
    }
  if (mean == 0)
    mean = 1;
  for (double added = 0;; damping = damping > 0 ? damping * 10 : 1e-4) {
    for (int64_t i = 0; i < depth; ++i)
      h[i * depth + i] += damping * mean - added;
    added = damping * mean;
    if (inverseFactor(h, depth, u))
      break;
    if (damping > 1e3)
      return invalidError("its inputs' products are no positive definite matrix, whatever the damping", where);
  }
  result.damping = damping;

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
            scales[n] = std::isnormal(scale) ? scale : 1;
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
  return result;
}

} // namespace lathe::quantize
