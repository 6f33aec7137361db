//===- PruneModel.h - zeros in the weights of ONNX models -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which products of an ONNX model can have zeros in their weights; the model that has them. Nothing
// else of the file changes.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_IMPORT_PRUNEMODEL_H
#define LATHE_IMPORT_PRUNEMODEL_H

#include "lathe/import/QuantizeModel.h"
#include "lathe/sparsify/Prune.h"

#include <map>
#include <set>
#include <string>
#include <vector>

namespace lathe {

struct PruneOptions {
  sparsify::Scheme scheme;
  double ratio = 0.5; ///< of blocks
  sparsify::Score score = sparsify::Score::L1;
  uint64_t seed = 0;
  bool overAll = false; ///< the ratio is that of all weights together: sparsify::ratiosOverAll
  std::map<std::string, std::vector<double>> norms; ///< by weight: Scoring::norms, of Score::Wanda
  std::map<std::string, HostTensor> solved;         ///< by weight: what it becomes, of Score::SparseGpt
  std::vector<std::string> keep; ///< shell patterns of nodes, results and weights that stay
  std::vector<std::string> only; ///< of those alone that change; empty: all
  /// In place of the scheme: by weight an array of its sizes, 0 where the weight becomes zero. From this file.
  std::map<std::string, HostTensor> masks;
  std::string maskPath;
  bool inside = false;           ///< all weights come inside the model, so that it can lie anywhere
};

/// A constant matrix that products multiply by.
struct PrunableWeight {
  std::string name;
  std::vector<std::string> nodes; ///< products that read it
  std::vector<std::string> inputs; ///< what these products multiply by it, [..., depth]
  int64_t depth = 0, columns = 0;
  bool transposed = false;         ///< it is [columns, depth]
  double zerosBefore = 0, zeros = 0; ///< shares of its elements
  double change = 0;                 ///< sparsify::relativeChange
};

struct PrunedModel {
  std::string bytes;
  std::vector<PrunableWeight> weights; ///< that have the scheme's zeros, in the order of their products
  KeptValues kept;                     ///< products that stay as they are, and why
};

/// The model with zeros in those weights of `only`, or in all where that is empty. Weights outside of the file that
/// do not change stay there. Usage where a pattern fits nothing; Invalid for what is no model and for masks of another
/// model or of no weight at all; Unsupported where what `only` or a mask names has to stay, and where it would have more
/// than 2 GB.
Result<PrunedModel> prunedModel(const std::string &path, const PruneOptions &options,
                                const std::set<std::string> &only = {});

/// The weights that prunedModel would change, as they are; errors as of that.
Result<std::vector<PrunableWeight>> prunableWeights(const std::string &path, const PruneOptions &options);
/// The values of one of them.
Result<sparsify::Weights> weightOf(const std::string &path, const PrunableWeight &weight);

/// Checks that all matrices have the form of a scheme of groups already: Invalid, with the weight and the first
/// element that is one too many, where one does not. How many there are.
Result<size_t> checkScheme(const std::string &path, const sparsify::Scheme &scheme,
                           const std::vector<std::string> &keep);

} // namespace lathe

#endif // LATHE_IMPORT_PRUNEMODEL_H
