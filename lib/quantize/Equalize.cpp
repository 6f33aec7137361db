//===- Equalize.cpp - weights of layers scaled against each other ---------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/quantize/Weights.h"

#include <algorithm>
#include <cmath>

namespace lathe::quantize {

namespace {

/// Elements behind each place of an axis.
int64_t strideOf(const HostTensor &tensor, int64_t axis) {
  int64_t stride = 1;
  for (size_t d = size_t(axis) + 1; d < tensor.dims.size(); ++d)
    stride *= tensor.dims[d];
  return stride;
}

/// The group's first input of an output's inputs.
int64_t firstInput(const LayerMagnitudes &layer, int64_t output) {
  return output / std::max<int64_t>(1, layer.outputs / layer.groups) * layer.inputs;
}

} // namespace

HostTensor scaleInputs(const HostTensor &weight, int64_t depthAxis, const HostTensor &factors, int64_t groups) {
  HostTensor scaled = weight;
  const int64_t stride = strideOf(weight, depthAxis), inputs = weight.dims[depthAxis];
  const int64_t ofGroup = groups > 1 ? weight.count() / groups : 0; // filters: outputs lie outermost
  for (int64_t i = 0, n = weight.count(); i < n; ++i) {
    const int64_t group = ofGroup ? i / ofGroup : 0;
    scaled.setReal(i, weight.real(i) * factors.real(group * inputs + i / stride % inputs));
  }
  return scaled;
}

HostTensor divideChannels(const HostTensor &weight, int64_t axis, const HostTensor &factors) {
  HostTensor scaled = weight;
  const int64_t stride = strideOf(weight, axis);
  for (int64_t i = 0, n = weight.count(); i < n; ++i)
    scaled.setReal(i, weight.real(i) / factors.real(i / stride % weight.dims[axis]));
  return scaled;
}

LayerMagnitudes magnitudesOf(const HostTensor &weight, int64_t outputAxis, int64_t groups) {
  LayerMagnitudes made{weight.dims[outputAxis], weight.dims[1 - outputAxis], groups, {}};
  made.largest.resize(size_t(made.outputs * made.inputs));
  const int64_t inner = strideOf(weight, 1), columns = weight.dims[1];
  for (int64_t i = 0, n = weight.count(); i < n; ++i) {
    const int64_t row = i / inner / columns, column = i / inner % columns;
    double &most = made.largest[size_t(outputAxis ? column * made.inputs + row : row * made.inputs + column)];
    most = std::max(most, std::fabs(weight.real(i)));
  }
  return made;
}

std::vector<std::vector<double>> equalize(std::vector<LayerMagnitudes> layers, std::span<const EqualizedPair> pairs) {
  constexpr int kRounds = 100;
  constexpr double kNear = 1e-4;
  std::vector<std::vector<double>> factors;
  for (const EqualizedPair &pair : pairs)
    factors.emplace_back(size_t(layers[pair.first].outputs), 1.0);
  double furthest = INFINITY;
  for (int round = 0; round < kRounds && furthest > kNear; ++round) {
    furthest = 0;
    for (size_t p = 0; p < pairs.size(); ++p) {
      LayerMagnitudes &first = layers[pairs[p].first], &second = layers[pairs[p].second];
      std::vector<double> ofOutput(factors[p].size()), ofInput(factors[p].size());
      for (int64_t o = 0; o < first.outputs; ++o)
        for (int64_t i = 0; i < first.inputs; ++i)
          ofOutput[size_t(o)] = std::max(ofOutput[size_t(o)], first.largest[size_t(o * first.inputs + i)]);
      for (int64_t o = 0; o < second.outputs; ++o)
        for (int64_t i = 0; i < second.inputs; ++i) {
          double &most = ofInput[size_t(firstInput(second, o) + i)];
          most = std::max(most, second.largest[size_t(o * second.inputs + i)]);
        }
      std::vector<double> now(factors[p].size(), 1.0);
      for (size_t c = 0; c < now.size(); ++c) {
        const double factor = std::sqrt(ofOutput[c] / ofInput[c]);
        if (std::isnormal(float(factor * factors[p][c])) && std::isnormal(factor))
          now[c] = factor;
        furthest = std::max(furthest, std::fabs(now[c] - 1));
        factors[p][c] *= now[c];
      }
      for (int64_t o = 0; o < first.outputs; ++o)
        for (int64_t i = 0; i < first.inputs; ++i)
          first.largest[size_t(o * first.inputs + i)] /= now[size_t(o)];
      for (int64_t o = 0; o < second.outputs; ++o)
        for (int64_t i = 0; i < second.inputs; ++i)
          second.largest[size_t(o * second.inputs + i)] *= now[size_t(firstInput(second, o) + i)];
    }
  }
  return factors;
}

} // namespace lathe::quantize
