//===- PruneReport.h - what pruning gains and costs -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_TOOLS_LATHE_PRUNEREPORT_H
#define LATHE_TOOLS_LATHE_PRUNEREPORT_H

#include "lathe/import/PruneModel.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lathe::cli {

struct PruneReport {
  std::string model, scheme, score;
  double ratio = 0;
  std::string target = {};

  struct Row {
    PrunableWeight weight;
    double denseMicroseconds = 0, sparseMicroseconds = 0; ///< medians of all kernels of its products
    std::optional<double> breakEven; ///< density at which both take the same time; none without a kernel for zeros
    bool wins = false, applied = false;
    std::string why = {}; ///< it is left dense, unless everything is asked for
  };
  std::vector<Row> rows = {};
  /// Layers that become narrower together.
  struct Width {
    std::vector<std::string> layers;
    int64_t units = 0, stay = 0, wide = 1; ///< heads, channels or columns; elements of one
    double score = 0;                      ///< share of the sum of scores that goes
    double denseMicroseconds = 0, prunedMicroseconds = 0; ///< medians of all kernels that have these units
    bool applied = false;
    std::string why = {}; ///< they stay
  };
  std::vector<Width> widths = {};
  KeptValues kept = {};
  /// Of what was written: the relative change of each output, and the times of a run. Empty where nothing was.
  std::vector<std::pair<std::string, double>> losses = {};
  double denseMs = 0, prunedMs = 0;
  /// The largest relative difference of an output between the narrower model and the masked one.
  std::optional<double> masked = {};

  /// Of widths that were chosen for a budget: seconds of a run, and from how many measured models they were predicted.
  struct Searched {
    double budget = 0, predicted = 0, measured = 0; ///< measured: the shortest run, as predictions are
    double usual = 0; ///< what a run takes in the median, which the budget holds
    int models = 0;
  };
  std::optional<Searched> searched = {};

  std::string text() const;
  std::string json() const;
  std::string html() const;
};

} // namespace lathe::cli

#endif // LATHE_TOOLS_LATHE_PRUNEREPORT_H
