//===- Loss.h - what became of a result -------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_TOOLS_LATHE_LOSS_H
#define LATHE_TOOLS_LATHE_LOSS_H

#include "lathe/support/HostTensor.h"

#include <optional>
#include <string>

namespace lathe::cli {

/// Sums of squares of a result, and of its error; of integers, bools and strings counts of elements, and of those that
/// differ; strings count as one. The error is infinite or NaN where a result is, or has other sizes.
struct Loss {
  double signal = 0, error = 0;
  void add(const HostTensor &want, const HostTensor &got);
  /// A part of the error as a share of the signal; none where all of the signal is zero but not the part.
  std::optional<double> share(double part) const;
  /// 10 log10(signal / error): infinite where there is no error, minus infinity where there is nothing but error.
  double decibels() const;
};

/// "30.1 dB"; "exact", "all lost" where it is infinite.
std::string describeDecibels(double decibels);

} // namespace lathe::cli

#endif // LATHE_TOOLS_LATHE_LOSS_H
