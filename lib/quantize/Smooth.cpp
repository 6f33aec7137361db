//===- Smooth.cpp - inputs and weights scaled against each other ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/quantize/Weights.h"

#include <algorithm>
#include <cmath>

namespace lathe::quantize {

namespace {

/// The input that element `i` of a matrix belongs to.
int64_t inputOf(const HostTensor &weight, int64_t axis, int64_t i) {
  return axis == 0 ? i / weight.dims[1] : i % weight.dims[1];
}

} // namespace

HostTensor smoothFactors(const Channels &channels, std::span<const SmoothedWeight> weights, double alpha) {
  const auto depth = int64_t(channels.lowest.size());
  std::vector<double> largest(depth);
  for (const SmoothedWeight &w : weights)
    for (int64_t i = 0, n = w.weight->count(), axis = depthAxisOf(w.recipe); i < n; ++i) {
      double &most = largest[inputOf(*w.weight, axis, i)];
      most = std::max(most, std::fabs(w.weight->real(i)));
    }
  HostTensor factors(DType::F32, {depth});
  for (int64_t k = 0; k < depth; ++k) {
    double most = std::max(std::fabs(channels.lowest[k]), std::fabs(channels.highest[k]));
    auto factor = float(std::pow(most, alpha) / std::pow(largest[k], 1 - alpha));
    factors.setReal(k, std::isnormal(factor) && factor > 0 ? factor : 1);
  }
  return factors;
}

Result<AwqResult> awqFactors(const Channels &channels, std::span<const SmoothedWeight> weights, const std::string &name) {
  constexpr int kSteps = 20;
  const auto depth = int64_t(channels.magnitudes.size());
  AwqResult best;
  double least = INFINITY;
  for (int step = 0; step < kSteps; ++step) {
    const double ratio = double(step) / kSteps;
    std::vector<double> wanted(depth);
    double low = INFINITY, high = 0;
    for (int64_t k = 0; k < depth; ++k) {
      wanted[k] = std::max(std::pow(channels.magnitudes[k] / double(channels.rows), ratio), 1e-4);
      low = std::min(low, wanted[k]);
      high = std::max(high, wanted[k]);
    }
    HostTensor factors(DType::F32, {depth});
    for (int64_t k = 0; k < depth; ++k)
      factors.setReal(k, wanted[k] / std::sqrt(low * high));
    double loss = 0;
    for (const SmoothedWeight &w : weights) {
      const int64_t axis = depthAxisOf(w.recipe);
      Result<QuantizedWeight> made = quantizeWeight(scaleInputs(*w.weight, axis, factors), w.recipe, name);
      if (!made)
        return made.status();
      HostTensor values = dequantizeWeight(*made, w.recipe);
      for (int64_t i = 0, n = values.count(); i < n; ++i) {
        int64_t k = inputOf(values, axis, i);
        double error = w.weight->real(i) - values.real(i) / factors.real(k);
        loss += channels.squares[k] * error * error;
      }
    }
    if (loss < least) {
      least = loss;
      best = {std::move(factors), ratio};
    }
  }
  return best;
}

} // namespace lathe::quantize
