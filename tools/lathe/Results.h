//===- Results.h - outputs judged, shown and saved --------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_TOOLS_LATHE_RESULTS_H
#define LATHE_TOOLS_LATHE_RESULTS_H

#include "lathe/support/HostTensor.h"
#include "lathe/support/Ulp.h"

#include <cstdint>
#include <string>
#include <vector>

namespace lathe::cli {

/// At most `most` names with commas between, and how many more there are.
std::string joined(const std::vector<std::string> &names, size_t most = SIZE_MAX);

/// Bounds of |got - want| <= atol + rtol * |want|.
struct Tolerance {
  double rtol = 1e-3, atol = 1e-7;
};

struct Comparison {
  bool passed = false;
  std::string problem; ///< type or sizes differ; else empty
  ErrorStats stats;
  int64_t outside = 0; ///< elements beyond the tolerance
  int64_t firstOutside = -1;
};

/// NaN equals NaN, infinity the same infinity. Integers and bools must be equal up to
/// the same bound.
Comparison compareTensors(const HostTensor &got, const HostTensor &want, Tolerance tolerance);

/// "f32[1,214]".
std::string describeType(const HostTensor &tensor);
/// "mean 0.01, min 0, max 1; 0.5 0.25 0 ...", from at most 8 elements.
std::string describeValues(const HostTensor &tensor);
/// "12.3 MB", "4.5 kB", "17 B".
std::string describeBytes(double bytes);

/// NAME.npy a tensor and outputs.json, a list in order of {name, file, dtype, shape}. The
/// folder is made. Characters that no file name should have become `_`.
Status saveTensors(const std::string &folder, const std::vector<std::string> &names,
                   const std::vector<HostTensor> &tensors);

} // namespace lathe::cli

#endif // LATHE_TOOLS_LATHE_RESULTS_H
