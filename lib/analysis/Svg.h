//===- Svg.h - texts and numbers in SVG -------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_LIB_ANALYSIS_SVG_H
#define LATHE_LIB_ANALYSIS_SVG_H

#include <cstdio>
#include <string>

namespace lathe::analysis::svg {

/// With two decimals.
inline std::string number(double value) {
  char out[32];
  std::snprintf(out, sizeof out, "%.2f", value);
  return out;
}

inline std::string escaped(const std::string &text) {
  std::string out;
  for (char c : text)
    switch (c) {
    case '<': out += "&lt;"; break;
    case '>': out += "&gt;"; break;
    case '&': out += "&amp;"; break;
    case '"': out += "&quot;"; break;
    case '\n': out += c; break;
    default: out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  return out;
}

} // namespace lathe::analysis::svg

#endif // LATHE_LIB_ANALYSIS_SVG_H
