//===- OnnxRuntime.h - a second opinion -------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_TOOLS_LATHE_ONNXRUNTIME_H
#define LATHE_TOOLS_LATHE_ONNXRUNTIME_H

#include "lathe/engine/Plan.h"
#include "lathe/support/HostTensor.h"

#include <string>
#include <vector>

namespace lathe::cli {

/// Runs the ONNX model through the Python package onnxruntime (of $VIRTUAL_ENV, of the
/// `.venv` beside the build, or of the system) and prints how the outputs compare: 1e-4
/// of the largest value for f32. Unsupported when the package is not there.
Result<bool> compareWithOnnxRuntime(const std::string &model, const engine::Plan &plan,
                                    const std::vector<HostTensor> &inputs,
                                    const std::vector<HostTensor> &outputs);

} // namespace lathe::cli

#endif // LATHE_TOOLS_LATHE_ONNXRUNTIME_H
