//===- Recipe.h - what is quantized, and how --------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All decisions of a quantization, keyed by names of ONNX values: the same recipe and model give the
// same quantized model, byte for byte. As text it is JSON:
//
//   {"format": "lathe-recipe", "version": 1, "scheme": "w8a8-int8",
//    "activations": {"x": {"min": -1, "max": 3}},
//    "weights": {"w": {"bits": 8, "axis": 1, "block": 0}},
//    "products": ["y"], "shared": ["x"]}
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_QUANTIZE_RECIPE_H
#define LATHE_QUANTIZE_RECIPE_H

#include "lathe/support/HostTensor.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace lathe::quantize {

/// Bits of weights; whether activations are 8 bits wide as well, for which ranges must be known.
struct Scheme {
  const char *name;
  int weightBits;
  bool activations;
};
/// Usage error that lists the names otherwise.
Result<Scheme> schemeNamed(std::string_view name);

/// What a value was seen to be: finite, min <= max.
struct Range {
  double min = 0, max = 0;
};

/// u8 codes of a range that holds 0: x is about (code - zero) * scale.
struct CodesOfRange {
  float scale = 1;
  uint8_t zero = 0;
};
/// None where the range is too small for a normal f32 scale, or its width too large for any.
std::optional<CodesOfRange> codesOf(Range range);

/// A matrix whose dimension `axis` is summed over where it is in blocks; else `axis` has the scales. Filters of a
/// convolution have them along axis 0, without blocks.
struct WeightRecipe {
  int bits = 8;      ///< 8 or 4, signed, without zero points
  int64_t axis = 0;  ///< 0 or 1
  int64_t block = 0; ///< elements along `axis` that share a scale; 0: all along the other one
};

struct Recipe {
  std::string scheme;
  std::map<std::string, Range> activations;
  std::map<std::string, WeightRecipe> weights;
  std::set<std::string> products; ///< results of the nodes whose operands are quantized
  /// Activations that all nodes read as codes, which are then all that is stored of them.
  std::set<std::string> shared;

  /// The text of a recipe, the same for equal ones.
  std::string text() const;
  /// Invalid, located at `path` and the entry, for anything but such a text.
  static Result<Recipe> parse(std::string_view text, const std::string &path);
};

/// Codes and scales of a matrix (or of filters, a row an output) of f32, rounded to the nearest, ties to even: scale = largest magnitude of
/// what shares it / (2^(bits-1) - 1), or 1 where that is no normal number. Codes are I8 or I4 in the sizes of
/// `weight`. Scales are [size of `axis`], or of blocks a matrix. Invalid for NaN and infinity, with the place;
/// for blocks that do not divide the dimension.
struct QuantizedWeight {
  HostTensor codes, scales;
};
Result<QuantizedWeight> quantizeWeight(const HostTensor &weight, const WeightRecipe &recipe, const std::string &name);

} // namespace lathe::quantize

#endif // LATHE_QUANTIZE_RECIPE_H
