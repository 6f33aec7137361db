//===- ThresholdInputs.h - products of inputs that are large enough -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of an ONNX model read zeros in place of what of their inputs is smaller than a threshold by magnitude. The
// result is a plain ONNX model: Where(Less(Abs(x), threshold), 0, x), one for each value, so that NaN stays.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_IMPORT_THRESHOLDINPUTS_H
#define LATHE_IMPORT_THRESHOLDINPUTS_H

#include "lathe/import/PruneModel.h"

#include <map>
#include <string>
#include <vector>

namespace lathe {

struct ThresholdedModel {
  std::string bytes;
  std::map<std::string, std::vector<std::string>> nodes; ///< by value: those that were added, by their names
};

/// The model where the products that multiply by these weights read the values of `thresholds` so; others read them as
/// they are. `inside`: all weights come inside the model. Invalid for what is no model; Unsupported where its opset has no such
/// ops (before 9; before 16 for bf16), and where it would have more than 2 GB.
Result<ThresholdedModel> thresholdedModel(const std::string &path, const std::vector<PrunableWeight> &weights,
                                          const std::map<std::string, double> &thresholds, bool inside);

} // namespace lathe

#endif // LATHE_IMPORT_THRESHOLDINPUTS_H
