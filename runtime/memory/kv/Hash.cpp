//===- Hash.cpp - keyed hashes of chains of blocks --------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Hash.h"

#include "lathe/support/Sha256.h"

#include <algorithm>

namespace lathe::kv {
namespace {

Hash128 firstBits(Sha256 &sha) {
  std::array<uint8_t, 32> digest = sha.digest();
  Hash128 h;
  std::memcpy(&h.low, digest.data(), 8);
  std::memcpy(&h.high, digest.data() + 8, 8);
  return h;
}

} // namespace

Hasher::Hasher(HashKind kind, std::array<uint64_t, 2> key, uint32_t blockTokens)
    : kind(kind), blockTokens(blockTokens), keys(kFoldKeys + blockTokens / 2 + 2) {
  // The stream of keys comes from the secret through SHA-256, once.
  for (size_t i = 0; i < keys.size(); i += 2) {
    Sha256 sha;
    uint64_t counter = i;
    sha.update(key.data(), sizeof key);
    sha.update(&counter, sizeof counter);
    Hash128 h = firstBits(sha);
    keys[i] = h.low;
    if (i + 1 < keys.size())
      keys[i + 1] = h.high;
  }
}

Hash128 Hasher::bytes(std::span<const std::string_view> parts) const {
  Sha256 sha;
  sha.update(keys.data(), kFoldKeys * sizeof keys[0]);
  for (std::string_view part : parts)
    sha.field(part);
  return firstBits(sha);
}

Hash128 Hasher::special(const Hash128 &parent, const Token *tokens,
                        const std::vector<Hash128> &contents) const {
  if (kind == HashKind::Sha256) {
    Sha256 sha;
    sha.update(keys.data(), kFoldKeys * sizeof keys[0]);
    sha.update(&parent, sizeof parent);
    for (uint32_t i = 0; i < blockTokens; ++i) {
      bool isKey = tokens[i] >> 31;
      const Hash128 *content = isKey ? &contents[(tokens[i] & 0x7fffffff) % contents.size()] : nullptr;
      uint32_t token = isKey ? ~0u : tokens[i];
      sha.update(&token, sizeof token);
      if (content)
        sha.update(content, sizeof *content);
    }
    return firstBits(sha);
  }
  // A key counts by its content: 32 bits of it in the token's place, all of it with the parent.
  Hash128 with = parent;
  Token plain[1024]; // the largest block
  std::copy_n(tokens, blockTokens, plain);
  for (uint32_t i = 0; i < blockTokens; ++i)
    if (plain[i] >> 31) {
      const Hash128 &content = contents[(plain[i] & 0x7fffffff) % contents.size()];
      plain[i] = uint32_t(content.low) | 1u << 31;
      with.low = mix(with.low ^ content.low ^ keys[0], content.high ^ keys[1] ^ i);
      with.high = mix(with.high ^ content.high ^ keys[2], content.low ^ keys[3] ^ i);
    }
  return fold(with, plain, blockTokens);
}

} // namespace lathe::kv
