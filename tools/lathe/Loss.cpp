//===- Loss.cpp - what became of a result ---------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Loss.h"

#include "llvm/Support/FormatVariadic.h"

#include <cmath>

namespace lathe::cli {

void Loss::add(const HostTensor &want, const HostTensor &got) {
  for (int64_t e = 0, count = want.count(); e < count; ++e) {
    const double w = want.real(e), g = got.real(e);
    if (std::isfinite(w))
      signal += w * w;
    if (w != g && !(std::isnan(w) && std::isnan(g))) // infinities may be equal
      error += (g - w) * (g - w);
  }
}

std::optional<double> Loss::share(double part) const {
  if (part == 0)
    return 0;
  return signal > 0 ? std::optional(part / signal) : std::nullopt;
}

std::optional<double> Loss::decibels() const {
  return signal > 0 && error > 0 ? std::optional(10 * std::log10(signal / error)) : std::nullopt;
}

std::string describeDecibels(std::optional<double> decibels) {
  return decibels ? llvm::formatv("{0:f1} dB", *decibels).str() : std::string("exact");
}

} // namespace lathe::cli
