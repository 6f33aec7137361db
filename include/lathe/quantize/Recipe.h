//===- Recipe.h - what is quantized, and how --------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All decisions of a quantization, keyed by names of ONNX values: the same recipe and model give the
// same quantized model, byte for byte. As text it is JSON:
//
//   {"format": "lathe-recipe", "version": 2, "scheme": "w8a8-int8", "range": "minmax", "method": "gptq",
//    "activations": {"x": {"min": -1, "max": 3}},
//    "weights": {"w": {"bits": 8, "axis": 1, "block": 0}},
//    "products": ["y"], "shared": ["x"], "arrays": "<SHA-256 of the file beside it>"}
//
// What was computed from data lies beside it in R.npz: `codes/w` and `scales/w` of weights, `factors/x` by which
// the value x is divided and the weights that read it are multiplied, `biases/y` which is added to the result y.
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

/// What codes of weights mean: integers times a scale; MXFP4 (floats e2m1, a power of two for each 32); NF4 (a table
/// of 16 numbers, times the greatest magnitude of a block); F8E4M3 (floats e4m3, times a scale); F16 and BF16 (the
/// numbers themselves, in a product of that type).
enum class WeightFormat { Integer, Mxfp4, Nf4, F8E4M3, F16, BF16 };

/// Whether a product by weights of this format is computed in 16 bits.
inline bool isHalf(WeightFormat format) { return format == WeightFormat::F16 || format == WeightFormat::BF16; }

/// Bits of weights; whether activations are 8 bits wide as well, for which ranges must be known unless each run
/// finds its own. Of F16 and BF16 both are 16 bits wide, without ranges.
struct Scheme {
  const char *name;
  int weightBits;
  bool activations;
  WeightFormat format = WeightFormat::Integer;
};
/// Usage error that lists the names otherwise.
Result<Scheme> schemeNamed(std::string_view name);

/// What a recipe is called whose layers are of several schemes.
inline constexpr const char *kMixed = "mixed";

/// What a value was seen to be: finite, min <= max.
struct Range {
  double min = 0, max = 0;
};

/// u8 codes of a range that holds 0: x is about (code - zero) * scale.
struct CodesOfRange {
  float scale = 1;
  uint8_t zero = 0;
};
/// None where the range is too small for a normal f32 scale, or its width too large for any. `type`: of the value, F32, F16
/// or BF16, which the scale has as well, rounded up.
std::optional<CodesOfRange> codesOf(Range range, DType type = DType::F32);
/// The scale of codes e4m3, whose greatest is 448, of a range around 0. None as above.
std::optional<float> floatScaleOf(Range range, DType type = DType::F32);

/// A matrix whose dimension `axis` is summed over where it is in blocks; else `axis` has the scales. Filters of a
/// convolution have them along axis 0, without blocks.
struct WeightRecipe {
  int bits = 8;      ///< 8 or 4, signed, without zero points; 16 of F16 and BF16
  int64_t axis = 0;  ///< 0 or 1
  int64_t block = 0; ///< elements along `axis` that share a scale; 0: all along the other one
  WeightFormat format = WeightFormat::Integer;
  bool weightOnly = false; ///< its products read activations as they are, whether or not these have ranges for others
};

/// Codes and scales of a matrix, or of filters. Codes are I8, I4, of MXFP4 F4E2M1, of NF4 UI4 (places in the table),
/// else of their own type, in the sizes of the weight; scales f32, f16 or bf16 as the weight, of MXFP4 F8E8M0, [size of
/// `axis`], or of blocks a matrix; ones where the format has none.
struct QuantizedWeight {
  HostTensor codes, scales;
};

struct Recipe {
  std::string scheme, range = "minmax", method = "rtn"; ///< the latter two say how it was made
  bool dynamic = false; ///< activations have no ranges: each run finds its own
  bool microsoft = false; ///< products are written as ops of com.microsoft, not as DequantizeLinear ahead of them
  std::map<std::string, Range> activations;
  std::map<std::string, WeightRecipe> weights;
  std::set<std::string> products; ///< results of the nodes whose operands are quantized
  /// Activations that all nodes read as codes, which are then all that is stored of them.
  std::set<std::string> shared;
  std::map<std::string, QuantizedWeight> codes; ///< of weights; those of others are rounded to the nearest
  std::map<std::string, HostTensor> factors;    ///< f32 [depth], by activations
  std::map<std::string, HostTensor> biases;     ///< f32 [channels], by results of products

  /// The text of a recipe, the same for equal ones, with the digest of its arrays.
  Result<std::string> text() const;
  /// The archive of arrays; empty where there are none.
  Result<std::string> arrays() const;
  /// Invalid, located at `path` and the entry, for anything but such a text. `arrays`: the archive, which is read
  /// where the text names one.
  static Result<Recipe> parse(std::string_view text, const std::string &path, std::string_view arrays = {});
  /// The same of files, and back; both whole or none.
  static Result<Recipe> read(const std::string &path);
  Status write(const std::string &path) const;

private:
  Status readArrays(std::string_view bytes, const std::string &path);
};

/// Sizes of the scales of a weight of these sizes.
std::vector<int64_t> scaleSizes(const std::vector<int64_t> &dims, const WeightRecipe &recipe);

/// Codes rounded to the nearest, ties to even. Integers: scale = largest magnitude of
/// what shares it / (2^(bits-1) - 1), rounded up to a number of the weight's type (F32, F16 or BF16), or 1 where that is no
/// normal number of f32. MXFP4: two powers of two below that of the
/// largest magnitude. F8E4M3: the largest magnitude / 448. Invalid for NaN and infinity, with the place; for blocks that
/// do not divide the dimension; for what F16 or BF16 round to infinity.
Result<QuantizedWeight> quantizeWeight(const HostTensor &weight, const WeightRecipe &recipe, const std::string &name);

/// The f32 values that codes stand for.
HostTensor dequantizeWeight(const QuantizedWeight &weight, const WeightRecipe &recipe);

} // namespace lathe::quantize

#endif // LATHE_QUANTIZE_RECIPE_H
