//===- InverseFactor.cpp - the inverse of a Gram matrix, as a product ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "lathe/support/InverseFactor.h"

#include <cmath>

namespace lathe {

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
bool factorOfInverse(const Matrix &h, int64_t n, Matrix &u) {
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

Result<InverseFactor> inverseFactor(std::vector<double> h, int64_t depth, double damping, const std::string &where) {
  InverseFactor result;
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
    if (factorOfInverse(h, depth, result.upper))
      break;
    if (damping > 1e3)
      return invalidError("its inputs' products are no positive definite matrix, whatever the damping", where);
  }
  result.damping = damping;
  return result;
}

} // namespace lathe
