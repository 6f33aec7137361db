//===- FloatTruth.h - what a model makes of its inputs before it is changed -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_TOOLS_LATHE_FLOATTRUTH_H
#define LATHE_TOOLS_LATHE_FLOATTRUTH_H

#include "Calibrate.h"
#include "Inputs.h"
#include "Loss.h"
#include "Metric.h"
#include "Profile.h"

#include <string>
#include <utility>
#include <vector>

namespace lathe::cli {

/// The float model's results of all examples, against which quantized forms are held.
class FloatTruth {
public:
  /// Runs the model. The inputs' data may be whatever `readExamples` takes; without any they are random.
  static Result<FloatTruth> find(const std::string &model, const InputOptions &inputs, const CompileOptions &compile,
                                 const SessionOptions &session);

  /// Of each output. Usage error for a model of other inputs or outputs.
  Result<std::vector<std::pair<std::string, Loss>>> lossesOf(const OpenEngine &engine, const std::string &path) const;
  /// The same by a metric: that of the output that loses most; infinite where a result is not finite.
  Result<double> lossOf(const OpenEngine &engine, const std::string &path, const Metric &metric) const;

  const Example &firstExample() const { return examples.front(); }
  size_t exampleCount() const { return examples.size(); }

private:
  /// Usage error for an engine of other inputs or outputs.
  Status checkSame(const OpenEngine &engine, const std::string &path) const;

  std::vector<engine::Port> inputs, outputs;
  std::vector<Example> examples;
  std::vector<std::vector<HostTensor>> results;
};

/// The greatest share that an output loses; infinite where it is not finite, or appears from nothing.
double worstOf(const std::vector<std::pair<std::string, Loss>> &losses);

} // namespace lathe::cli

#endif // LATHE_TOOLS_LATHE_FLOATTRUTH_H
