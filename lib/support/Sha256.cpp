//===- Sha256.cpp - content digests ------------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "lathe/support/Sha256.h"
#include "Sha256Blocks.h"

#include <algorithm>
#include <cstring>

namespace lathe {
Sha256::Sha256()
    : state{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
            0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19} {}

void Sha256::blocks(const uint8_t *p, size_t count) {
#if defined(__x86_64__)
  if (detail::hasShaInstructions())
    return detail::shaBlocks(state, p, count);
#endif
  detail::plainBlocks(state, p, count);
}

void Sha256::update(const void *data, size_t bytes) {
  auto *p = static_cast<const uint8_t *>(data);
  totalBytes += bytes;
  while (bytes > 0) {
    if (pendingBytes == 0 && bytes >= 64) {
      size_t whole = bytes / 64;
      blocks(p, whole);
      p += whole * 64;
      bytes -= whole * 64;
      continue;
    }
    size_t n = std::min(bytes, 64 - pendingBytes);
    std::memcpy(pending + pendingBytes, p, n);
    pendingBytes += n;
    p += n;
    bytes -= n;
    if (pendingBytes == 64) {
      blocks(pending, 1);
      pendingBytes = 0;
    }
  }
}

void Sha256::field(std::string_view text) {
  uint64_t size = text.size();
  update(&size, sizeof size);
  update(text);
}

std::array<uint8_t, 32> Sha256::digest() {
  uint64_t bits = totalBytes * 8;
  uint8_t one = 0x80, zero = 0;
  update(&one, 1);
  while (pendingBytes != 56)
    update(&zero, 1);
  uint8_t length[8];
  for (int i = 0; i < 8; ++i)
    length[i] = static_cast<uint8_t>(bits >> (56 - 8 * i));
  update(length, 8);
  std::array<uint8_t, 32> out;
  for (int i = 0; i < 32; ++i)
    out[i] = static_cast<uint8_t>(state[i / 4] >> (24 - 8 * (i % 4)));
  return out;
}

std::string Sha256::hex() {
  std::string out;
  for (uint8_t byte : digest()) {
    out += "0123456789abcdef"[byte >> 4];
    out += "0123456789abcdef"[byte & 15];
  }
  return out;
}

} // namespace lathe
