//===- Loss.h - what became of a result -------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_TOOLS_LATHE_LOSS_H
#define LATHE_TOOLS_LATHE_LOSS_H

#include "lathe/support/HostTensor.h"

#include <optional>
#include <string>

namespace lathe::cli {

/// Sums of squares of a result, and of its error.
struct Loss {
  double signal = 0, error = 0;
  /// Adds tensors of floats and of the same sizes.
  void add(const HostTensor &want, const HostTensor &got);
  /// A part of the error as a share of the signal; none where all of the signal is zero but not the part.
  std::optional<double> share(double part) const;
  /// 10 log10(signal / error); none where the error, or the signal, is zero.
  std::optional<double> decibels() const;
};

/// "30.1 dB"; "exact" for none.
std::string describeDecibels(std::optional<double> decibels);

} // namespace lathe::cli

#endif // LATHE_TOOLS_LATHE_LOSS_H
