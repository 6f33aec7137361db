//===- CompareFloat.h - a quantized model against its float form -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_TOOLS_LATHE_COMPAREFLOAT_H
#define LATHE_TOOLS_LATHE_COMPAREFLOAT_H

#include "Inputs.h"

namespace lathe::cli {

struct FloatComparison {
  std::string model;   ///< the float one
  double loss = 0.01;  ///< what an output may lose: the sum of squares of its error, as a share of its own
  bool bisect = false; ///< `quantized` is a recipe; say which of its layers are to blame
  CompileOptions compile;
  InputOptions inputs; ///< its data may be whatever `readExamples` takes
  SessionOptions session;
};

/// Runs both forms on the same inputs. `quantized`: a model, an engine, or the recipe (.json) of one. Mismatch, said
/// already, where an output loses more than it may.
Status compareWithFloat(const FloatComparison &options, const std::string &quantized);

} // namespace lathe::cli

#endif // LATHE_TOOLS_LATHE_COMPAREFLOAT_H
