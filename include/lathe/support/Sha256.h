//===- Sha256.h - content digests -------------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// SHA-256 (FIPS 180-4), for cache keys and for digests of files.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_SUPPORT_SHA256_H
#define LATHE_SUPPORT_SHA256_H

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lathe {

class Sha256 {
public:
  Sha256();
  void update(const void *data, size_t bytes);
  void update(std::string_view text) { update(text.data(), text.size()); }
  /// Adds the length and then the text, so that ("ab", "c") and ("a", "bc") differ.
  void field(std::string_view text);
  /// The digest of everything so far; the object must not be used afterwards.
  std::array<uint8_t, 32> digest();
  /// The digest as 64 lower-case hexadecimal digits.
  std::string hex();

private:
  void blocks(const uint8_t *p, size_t count);
  uint32_t state[8];
  uint8_t pending[64];
  size_t pendingBytes = 0;
  uint64_t totalBytes = 0;
};

} // namespace lathe

#endif // LATHE_SUPPORT_SHA256_H
