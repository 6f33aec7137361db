//===- Loss.cpp - what became of a result ---------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Loss.h"

#include "llvm/Support/FormatVariadic.h"

#include <cmath>

namespace lathe::cli {

void Loss::add(const HostTensor &want, const HostTensor &got) {
  if (want.dtype != got.dtype || want.dims != got.dims) {
    error = INFINITY;
    return;
  }
  if (want.dtype == DType::String) { // whose texts lie one behind the other
    signal += 1;
    error += want.data != got.data;
    return;
  }
  for (int64_t e = 0, count = want.count(); e < count; ++e) {
    if (!isFloat(want.dtype)) {
      signal += 1;
      error += want.integer(e) != got.integer(e);
      continue;
    }
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

double Loss::decibels() const {
  if (error == 0)
    return INFINITY;
  return signal > 0 && std::isfinite(error) ? 10 * std::log10(signal / error) : -INFINITY;
}

std::string describeDecibels(double decibels) {
  if (std::isfinite(decibels))
    return llvm::formatv("{0:f1} dB", decibels).str();
  return decibels > 0 ? "exact" : "all lost";
}

} // namespace lathe::cli
