//===- ByteSize.h - sizes as people write them ------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_SUPPORT_BYTESIZE_H
#define LATHE_SUPPORT_BYTESIZE_H

#include <cstdint>
#include <cstdlib>
#include <string>

namespace lathe {

/// "512M" in bytes, "1.5G", "100"; 0 for anything else. K, M and G are powers of 1024.
inline uint64_t parseBytes(const std::string &text) {
  char *end = nullptr;
  double number = std::strtod(text.c_str(), &end);
  const std::string unit = end;
  double scale = unit.empty()  ? 1
                 : unit == "K" ? 0x1p10
                 : unit == "M" ? 0x1p20
                 : unit == "G" ? 0x1p30
                               : 0;
  double bytes = number * scale;
  return end != text.c_str() && bytes >= 1 && bytes < 0x1p60 ? uint64_t(bytes) : 0;
}

} // namespace lathe

#endif // LATHE_SUPPORT_BYTESIZE_H
