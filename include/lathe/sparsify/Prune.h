//===- Prune.h - zeros in matrices of weights -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which elements of a matrix become zero: those of the least score, in the units that a
// scheme has. Ties go to the element that comes first, so results depend on nothing else.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_SPARSIFY_PRUNE_H
#define LATHE_SPARSIFY_PRUNE_H

#include "lathe/support/HostTensor.h"
#include "lathe/support/Status.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lathe::sparsify {

/// Units that become zero together.
struct Scheme {
  enum class Kind {
    Blocks, ///< of `rows` neighbours of K and `columns` columns
    Groups, ///< the `rows` - `columns` least of each `rows` neighbours of K: 2:4 has rows 4, columns 2
  };
  Kind kind = Kind::Blocks;
  int64_t rows = 1, columns = 1;
  std::string name; ///< as it was given

  /// "block:1x16", "block:4x16", "block:64x64" and other sizes, "unstructured" (blocks of 1 x 1), "2:4", "4:8"; else a Usage error.
  static Result<Scheme> parse(std::string_view text);
};

/// What a unit is worth: the sum of magnitudes (Han et al., 2015), the root of the sum of squares, a number drawn from
/// the seed, as a control, the magnitude of the sum of weight x gradient, the first-order change of the loss without
/// the unit (Molchanov et al., 2017); with data the sum of magnitudes times the norms of what they multiply (Wanda, Sun et
/// al., 2023), or what a product's results lose where other weights make up for it (SparseGPT, Frantar and Alistarh, 2023).
enum class Score { L1, L2, Random, Taylor, Wanda, SparseGpt };
Result<Score> parseScore(std::string_view text);

/// The constant matrix [K, N] of a product, of f32, f16 or bf16; `transposed`: the tensor is [N, K].
struct Weights {
  HostTensor tensor;
  bool transposed = false;

  int64_t depth() const { return tensor.dims[transposed ? 1 : 0]; }
  int64_t columns() const { return tensor.dims[transposed ? 0 : 1]; }
  int64_t at(int64_t k, int64_t n) const { return transposed ? n * depth() + k : k * columns() + n; }
};

/// How units are scored, but by SparseGpt and Taylor.
struct Scoring {
  Score score = Score::L1;
  uint64_t seed = 0;         ///< Random
  std::vector<double> norms; ///< Wanda: of each input over all data the root of the sum of squares, [K]
};

/// Unsupported where the depth has no whole groups of the scheme.
Status wholeGroups(const Weights &weights, const Scheme &scheme);

/// Makes zeros of the units with the least scores: of blocks the nearest number to `ratio` of all (Wanda: of those of the
/// same columns, each for itself, as its authors found best), of groups what they say. What has infinities or NaN is
/// never among them. Unsupported where the sizes have no whole groups, Invalid where there are other norms than inputs.
Status prune(Weights &weights, const Scheme &scheme, double ratio, const Scoring &scoring);

/// The ratio of each matrix where the units with the least scores of all matrices together go, of a scheme of blocks; one
/// unit of each stays. Scores are means over a unit's elements, which may be fewer at the edges.
std::vector<double> ratiosOverAll(const std::vector<std::vector<double>> &scores, double ratio);
/// The scores that ratiosOverAll wants of a matrix. Invalid where there are other norms than inputs.
Result<std::vector<double>> meanScores(const Weights &weights, const Scheme &scheme, const Scoring &scoring);

struct SparseGptResult {
  double damping = 0; ///< of the mean of the diagonal, as it was needed
  int64_t unseen = 0; ///< inputs that were zero in all data
};
/// SparseGPT: inputs in their order, of each 128 of them the share of units that costs least, of groups what they say;
/// the weights behind them change so that the results on the data do least. Those of inputs that were zero in all data go first. `gram`: the sum of x^T x over all rows that
/// the product read, [K, K]. `damping`: as of lathe::inverseFactor. Unsupported where the sizes have no whole groups and
/// where a weight is not finite; Invalid where the Gram matrix is not finite or of another size.
Result<SparseGptResult> sparseGpt(Weights &weights, const Scheme &scheme, double ratio, const std::vector<double> &gram,
                                  double damping, const std::string &where);

/// A group with more elements other than zero than the scheme lets it have.
struct Offence {
  int64_t k, n;             ///< the first element that is one too many
  int64_t groups, offending; ///< of the matrix
  /// All but a tenth of the groups are as they should be: most likely a mask was lost on the way.
  bool almost() const { return offending * 10 <= groups; }
};
/// None where all groups are as the scheme says; Unsupported for blocks, and where there are no whole groups.
Result<std::optional<Offence>> firstOffence(const Weights &weights, const Scheme &scheme);

/// Share of elements that are zero.
double zeroShare(const HostTensor &tensor);
/// The root of the sum of squares of what changed, of that of what there was: the relative change of a product's
/// results that is to be expected of inputs whose elements are independent and of one size.
double relativeChange(const HostTensor &before, const HostTensor &after);

} // namespace lathe::sparsify

#endif // LATHE_SPARSIFY_PRUNE_H
