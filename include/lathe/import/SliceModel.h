//===- SliceModel.h - ONNX models with narrower layers ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Units of a Coupling are taken out of an ONNX model: constants are sliced, and the numbers by
// which nodes state sizes (of a reshape, a split, groups, heads) follow. Names, metadata, inputs,
// outputs and all that has none of these units stay as they are.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_IMPORT_SLICEMODEL_H
#define LATHE_IMPORT_SLICEMODEL_H

#include "lathe/sparsify/Coupling.h"
#include "lathe/support/HostTensor.h"

#include <map>
#include <set>
#include <string>
#include <vector>

namespace lathe {

/// Why constants of the coupling cannot be sliced, by name: what no initializer or Constant node holds.
Result<std::map<std::string, std::string>> unslicedConstants(const std::string &path, const sparsify::Coupling &coupling);

/// What each unit of the families is worth: by the magnitudes of the weights of products in it, or a number drawn.
/// With `gradients` (by initializer) the magnitude of the sum of weight x gradient over the unit, the first-order change
/// of the loss without it (Molchanov et al., 2017). Invalid where a gradient is missing or of other sizes.
Result<std::map<int64_t, double>> unitScores(const std::string &path, const sparsify::Coupling &coupling,
                                             const std::vector<sparsify::Family> &families, sparsify::Score score,
                                             uint64_t seed, const std::map<std::string, HostTensor> &gradients);

/// The model without these units. Unsupported above 2 GB. `inside`: all weights come inside.
Result<std::string> slicedModel(const std::string &path, const sparsify::Coupling &coupling,
                                const std::set<int64_t> &units, bool inside);
/// The model whose products have zeros in the place of these units.
Result<std::string> maskedModel(const std::string &path, const sparsify::Coupling &coupling,
                                const std::set<int64_t> &units, bool inside);

} // namespace lathe

#endif // LATHE_IMPORT_SLICEMODEL_H
