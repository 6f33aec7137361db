//===- QuantizeReport.h - what quantizing costs and gains -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Of each layer what its codes lose on the examples, and why; of the whole model what its results lose; times of both
// engines, measured in turn.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_TOOLS_LATHE_QUANTIZEREPORT_H
#define LATHE_TOOLS_LATHE_QUANTIZEREPORT_H

#include "Calibrate.h"
#include "Loss.h"

#include "llvm/Support/JSON.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lathe::cli {

class QuantizeReport {
public:
  /// `quantized`: the written model; the recipe is the one that it was written by. `kept`: none where only a recipe is
  /// known, which does not say it.
  QuantizeReport(std::string model, std::string quantized, const quantize::Recipe &recipe, std::optional<KeptValues> kept)
      : model(std::move(model)), quantized(std::move(quantized)), recipe(recipe), kept(std::move(kept)) {}

  /// What a search for the recipe found, as it is to stand in the report.
  void setSearch(llvm::json::Object found) { search = std::move(found); }

  /// Runs the examples through the model with its losses as results, and through both engines; times both.
  Status measure(Calibration &calibration, const std::string &data, const CompileOptions &compile,
                 const SessionOptions &session);

  /// A few lines: the worst layers, and the whole.
  std::string text() const;
  /// FILE.html and FILE.json beside it, or the latter alone if that is its name.
  Status write(const std::string &file) const;
  /// Usage error for a file of another name, or where it would be written over one of `others`.
  static Status check(const std::string &file, const std::vector<std::string> &others);

private:
  struct Row {
    QuantizedLayer layer;
    std::optional<quantize::Range> range; ///< of its activation's codes; none where it has none, or each run finds it
    LayerLosses losses;
    double microsecondsBefore = 0, microsecondsAfter = 0; ///< medians; of a kernel of several layers an equal part
    Loss loss() const { return {losses.signal, losses.all}; }
  };
  Status observe(Calibration &calibration);
  Status compare(const std::string &data, CompileOptions compile, const SessionOptions &session);
  llvm::json::Object object() const;

  const std::string model, quantized;
  const quantize::Recipe &recipe;
  const std::optional<KeptValues> kept;
  std::optional<llvm::json::Object> search;
  std::string target, device;
  std::vector<Row> rows;
  std::vector<std::pair<std::string, Loss>> outputs;
  double otherBefore = 0, otherAfter = 0; ///< microseconds of kernels that compute none of the layers
  double before = 0, after = 0;           ///< milliseconds of a run
};

} // namespace lathe::cli

#endif // LATHE_TOOLS_LATHE_QUANTIZEREPORT_H
