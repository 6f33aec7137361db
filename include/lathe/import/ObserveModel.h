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
};

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

} // namespace lathe

#endif // LATHE_IMPORT_OBSERVEMODEL_H
