//===- Helpers.cpp - scalar functions for kernels ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Helpers.h"

#include <cmath>

namespace lathe::runtime {

/// That of the static library gives numbers far below 1, where there are none.
static double areaCosine(double x) { return x < 1 ? __builtin_nan("") : ::acosh(x); }

const LatheHelpers &helperTable() {
  static constexpr LatheHelpers table = {
      {::sin,  ::cos,   ::tan,   ::asin,  ::acos, ::atan, ::sinh, ::cosh,
       ::tanh, ::asinh, areaCosine, ::atanh, ::exp,  ::expm1, ::log, ::log1p,
       ::log2, ::erf,   ::sqrt,  ::cbrt,  ::floor, ::ceil,
       [](double x) { return __builtin_roundeven(x); }, ::trunc},
      {::pow, ::atan2, ::fmod}};
  return table;
}

} // namespace lathe::runtime
