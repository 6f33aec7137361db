//===- ObserveModel.h - models that show their values -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The model with summaries of values as results: computed in the engine, so that no value leaves it.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_IMPORT_OBSERVEMODEL_H
#define LATHE_IMPORT_OBSERVEMODEL_H

#include "lathe/quantize/Recipe.h"

#include <string>
#include <vector>

namespace lathe {

/// What is shown of a value, and by how many results of the model.
enum class Summary {
  MinMax,    ///< 2: minimum and maximum of the elements
  Elements,  ///< 1: one byte, of the custom call kObserveCall, which gets the value, in any order, and the observation's number
  Channels,  ///< 5: of each place in the last dimension least, greatest, mean magnitude, mean square; the elements' number
  Gram,      ///< 1: the sum of products of the places of the last dimension [depth, depth]
  Shift,     ///< 2, of the result of one of the recipe's products: of each channel the mean of what its codes change; elements' number
  Losses,    ///< as many as LossPart has, of the result of one of the recipe's products: what its codes change
};

/// Results of Summary::Losses: f32 scalars, `Elements` i64. Sums of squares: of what the product makes, and of what it makes
/// otherwise where it reads the weight's codes, clipped inputs, and inputs rounded to codes behind that; of all three
/// at once. Then how many of its inputs' elements lie outside of their range, of how many, the least and the greatest.
/// A range ends half a step of codes behind the last code: what rounds to it is not clipped.
enum class LossPart { Signal, Weight, Clipping, Rounding, All, Clipped, Elements, Least, Greatest };
inline constexpr size_t kLossParts = 9;

inline constexpr const char *kObserveCall = "LatheObserve";

struct Observation {
  std::string value; ///< a name of the graph; of an activation with factors what is behind its division
  Summary summary;
  int64_t depth = 0; ///< Channels and Gram: size of the last dimension
};

/// The model as bytes, all weights inside, with the recipe's factors applied, whose results are what the observations
/// ask for, in their order. Unsupported above 2 GB.
Result<std::string> observedModel(const std::string &path, const quantize::Recipe &recipe,
                                  const std::vector<Observation> &observations);

/// The model as bytes, all weights inside, where each node has a name of its own: nodes without one, or with another's,
/// get that of their first result. So its kernels can be told apart by name, and a Coupling names its tensors.
/// Unsupported above 2 GB.
Result<std::string> namedModel(const std::string &path);

} // namespace lathe

#endif // LATHE_IMPORT_OBSERVEMODEL_H
