//===- SparseGpt.cpp - zeros that the weights left make up for ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// With U the upper factor of the inverse of the damped Gram matrix, inverse(H) = U^T U: a weight w of input k that
// becomes zero costs w^2 / U_kk^2, if the inputs behind k make up for it by w_j -= w / U_kk * U_kj.
//
//===----------------------------------------------------------------------===//
#include "lathe/sparsify/Prune.h"

#include "lathe/support/InverseFactor.h"
#include "lathe/support/Parallel.h"

#include <algorithm>
#include <cmath>

namespace lathe::sparsify {
namespace {

/// Inputs among which units are chosen: weights behind them have made up for what went before.
constexpr int64_t kSpan = 128;

class Solver {
public:
  Solver(const Weights &w, const Scheme &scheme, double ratio, const std::vector<double> &gram,
         const std::vector<double> &upper)
      : scheme(scheme), ratio(ratio), gram(gram), u(upper), depth(w.depth()), outputs(w.columns()), rows(depth * outputs),
        gone(depth * outputs) {
    for (int64_t n = 0; n < outputs; ++n)
      for (int64_t k = 0; k < depth; ++k)
        rows[n * depth + k] = w.tensor.real(w.at(k, n));
  }

  void run() {
    const bool groups = scheme.kind == Scheme::Kind::Groups;
    const int64_t span = (kSpan + scheme.rows - 1) / scheme.rows * scheme.rows;
    for (int64_t begin = 0; begin < depth; begin += span) {
      const int64_t end = std::min(depth, begin + span);
      if (!groups)
        chooseUnits(begin, end);
      inParallel(size_t(outputs), [&](size_t n) {
        for (int64_t k = begin; k < end; ++k) {
          if (groups && k % scheme.rows == 0)
            chooseOfGroup(int64_t(n), k);
          if (gone[n * depth + k])
            clear(&rows[n * depth], k);
        }
      });
    }
  }

  void store(Weights &w) const {
    for (int64_t n = 0; n < outputs; ++n)
      for (int64_t k = 0; k < depth; ++k)
        w.tensor.setReal(w.at(k, n), rows[n * depth + k]);
  }

private:
  double cost(int64_t n, int64_t k) const {
    if (gram[k * depth + k] == 0) // of an input that was zero in all data
      return 0;
    const double w = rows[n * depth + k] / u[k * depth + k];
    return w * w;
  }

  /// The cheapest share of the units of these inputs.
  void chooseUnits(int64_t begin, int64_t end) {
    const int64_t across = (outputs + scheme.columns - 1) / scheme.columns;
    const int64_t along = (end - begin + scheme.rows - 1) / scheme.rows;
    std::vector<double> costs(along * across);
    auto forEach = [&](int64_t unit, auto body) {
      const int64_t k0 = begin + unit / across * scheme.rows, n0 = unit % across * scheme.columns;
      for (int64_t k = k0; k < std::min(end, k0 + scheme.rows); ++k)
        for (int64_t n = n0; n < std::min(outputs, n0 + scheme.columns); ++n)
          body(n, k);
    };
    std::vector<int64_t> order(costs.size());
    for (size_t unit = 0; unit < costs.size(); ++unit) {
      order[unit] = int64_t(unit);
      forEach(int64_t(unit), [&](int64_t n, int64_t k) { costs[unit] += cost(n, k); });
    }
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return costs[a] < costs[b]; });
    order.resize(size_t(std::llround(ratio * double(order.size()))));
    for (int64_t unit : order)
      forEach(unit, [&](int64_t n, int64_t k) { gone[n * depth + k] = true; });
  }

  void chooseOfGroup(int64_t n, int64_t first) {
    std::vector<int64_t> order(scheme.rows);
    for (int64_t i = 0; i < scheme.rows; ++i)
      order[i] = first + i;
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return cost(n, a) < cost(n, b); });
    for (int64_t i = 0; i < scheme.rows - scheme.columns; ++i)
      gone[n * depth + order[i]] = true;
  }

  void clear(double *row, int64_t k) const {
    const double *factor = &u[k * depth];
    const double error = row[k] / factor[k];
    for (int64_t j = k + 1; j < depth; ++j)
      row[j] -= error * factor[j];
    row[k] = 0;
  }

  const Scheme &scheme;
  const double ratio;
  const std::vector<double> &gram, &u;
  const int64_t depth, outputs;
  std::vector<double> rows; ///< [outputs, depth]
  std::vector<char> gone;   ///< of each; threads write neighbours, so no bits
};

} // namespace

Result<SparseGptResult> sparseGpt(Weights &weights, const Scheme &scheme, double ratio, const std::vector<double> &gram,
                                  double damping, const std::string &where) {
  LATHE_RETURN_IF_ERROR(wholeGroups(weights, scheme));
  const int64_t depth = weights.depth();
  if (int64_t(gram.size()) != depth * depth)
    return invalidError("sums over " + std::to_string(depth) + " inputs, of which others were observed", where);
  for (int64_t i = 0; i < weights.tensor.count(); ++i)
    if (!std::isfinite(weights.tensor.real(i)))
      return unsupportedError("has infinities or NaN, which other weights cannot make up for", where);
  Result<InverseFactor> inverse = inverseFactor(gram, depth, damping, where);
  if (!inverse)
    return inverse.status();
  Solver solver(weights, scheme, ratio, gram, inverse->upper);
  solver.run();
  solver.store(weights);
  return SparseGptResult{inverse->damping, inverse->unseen};
}

} // namespace lathe::sparsify
