//===- Weights.h - codes of weights that fit the data -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What makes a product's result right, and not only its weights: GPTQ chooses codes by what inputs have in common,
// AWQ and SmoothQuant scale inputs and weights against each other first, cross-layer equalization the weights of two
// layers. In double.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_QUANTIZE_WEIGHTS_H
#define LATHE_QUANTIZE_WEIGHTS_H

#include "lathe/quantize/Recipe.h"

#include <span>

namespace lathe::quantize {

/// The dimension of a matrix that its product sums over, of a weight recipe.
inline int64_t depthAxisOf(const WeightRecipe &recipe) { return recipe.block ? recipe.axis : 1 - recipe.axis; }

/// The sum of x^T x over all rows x that a product read: [depth, depth], row-major.
struct Gram {
  int64_t depth = 0;
  std::vector<double> sums;
};

/// What each input of a product was seen to be, over all rows: [depth] each.
struct Channels {
  std::vector<double> lowest, highest;
  std::vector<double> magnitudes, squares; ///< sums of |x|, of x^2
  int64_t rows = 0;
};

/// The weight with each input's elements times `factors` [inputs], in f32: a matrix, or filters in `groups`, whose inputs
/// lie along axis 1, those of a group in each.
HostTensor scaleInputs(const HostTensor &weight, int64_t depthAxis, const HostTensor &factors, int64_t groups = 1);
/// Anything with the channels along `axis`, each divided by its factor, in f32.
HostTensor divideChannels(const HostTensor &weight, int64_t axis, const HostTensor &factors);

/// The largest magnitude of what each output of a layer takes from each input of its group.
struct LayerMagnitudes {
  int64_t outputs = 0, inputs = 0; ///< inputs of a group
  int64_t groups = 1;
  std::vector<double> largest; ///< [outputs, inputs]
};
/// Of a matrix, or of filters [outputs, inputs of a group, ...]; `outputAxis` is 0 of the latter.
LayerMagnitudes magnitudesOf(const HostTensor &weight, int64_t outputAxis, int64_t groups);

/// The outputs of `first` are the inputs of `second`, by numbers of layers.
struct EqualizedPair {
  size_t first = 0, second = 0;
};
/// Cross-layer equalization (Nagel et al., "Data-free quantization through weight equalization and bias correction", 2019): factors
/// s of each pair's channels, by which the first layer's outputs are divided and the second one's inputs multiplied, so
/// that both have the same largest magnitude, sqrt(r1 r2): s = sqrt(r1 / r2). Pair after pair, until no factor of a
/// round differs from 1 by more than 1e-4, 100 rounds at most. 1 where a magnitude is zero. A layer is the first of one pair
/// and the second of one at most.
std::vector<std::vector<double>> equalize(std::vector<LayerMagnitudes> layers, std::span<const EqualizedPair> pairs);

/// The least number of a type of 16 bits that is not below a scale; of other types the scale. Numbers below the normal ones
/// of f16 are far apart: codes by a scale that is one of them are as exact as the numbers that they stand for.
float roundedUp(float scale, DType type);

struct GptqResult {
  QuantizedWeight weight;
  double damping = 0; ///< of the mean of the diagonal, as it was needed
  int64_t unseen = 0; ///< inputs that were zero in all data: rounded to the nearest
};

/// GPTQ (Frantar et al., "GPTQ: accurate post-training quantization", 2022): inputs in their order, the error of each
/// spread over those to come by the inverse of the damped Gram matrix. Scales are those of quantizeWeight, of blocks
/// when the block is reached. `damping`: added to the diagonal, in means of it; ten times as much until the matrix is
/// positive definite. `weight` [depth, n] or [n, depth] of f32, f16 or bf16, as the
/// recipe's axis says: scales are f32 that hold numbers of its type. Errors of quantizeWeight,
/// and Invalid where the Gram matrix is not finite or of another size.
Result<GptqResult> gptq(const HostTensor &weight, const WeightRecipe &recipe, const Gram &gram, double damping,
                        const std::string &name);

/// A weight that reads scaled inputs.
struct SmoothedWeight {
  const HostTensor *weight;
  WeightRecipe recipe;
};

/// SmoothQuant (Xiao et al., 2023): factors of the weights' inputs max|x|^alpha / max|w|^(1 - alpha), by which the
/// inputs are divided; 1 where a maximum is zero. f32 [depth].
HostTensor smoothFactors(const Channels &channels, std::span<const SmoothedWeight> weights, double alpha);

struct AwqResult {
  HostTensor factors; ///< f32 [depth]; of ones where scaling does not help
  double ratio = 0;   ///< the power of the mean magnitude that was best
};

/// AWQ (Lin et al., "AWQ: activation-aware weight quantization", 2023): factors mean|x|^r, r of 0, 1/20, ... 19/20, such
/// that the geometric mean of the least and the greatest is 1, by which the products' expected squared error, of
/// inputs that are not correlated, is least: sum of E[x_k^2] (w_k - q_k)^2.
/// Errors of quantizeWeight.
Result<AwqResult> awqFactors(const Channels &channels, std::span<const SmoothedWeight> weights, const std::string &name);

} // namespace lathe::quantize

#endif // LATHE_QUANTIZE_WEIGHTS_H
