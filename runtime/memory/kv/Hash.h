//===- Hash.h - keyed hashes of chains of blocks ----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The hash of a block is a function of the hash of the block before and of its own tokens, under a
// secret key. It names a prefix to routers and places it in the index; whether two prefixes are the
// same is never decided by it.
//
// Keyed128: two NH sums (Black, Halevi, Krawczyk, Krovetz, Rogaway: UMAC, 1999) over the block's
// words, whose keys are shifted against each other, folded with the parent by multiply-mix. The sums
// of neighbouring blocks do not depend on each other, so that a processor overlaps them.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_MEMORY_KV_HASH_H
#define LATHE_RUNTIME_MEMORY_KV_HASH_H

#include "Faults.h"
#include "lathe/runtime/KvEvents.h"
#include "lathe/runtime/KvTypes.h"

#include <bit>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <vector>

namespace lathe::kv {

class Hasher {
public:
  Hasher(HashKind kind, std::array<uint64_t, 2> key, uint32_t blockTokens);

  /// Of a block behind `parent`. `contents` has the hashes of the contents of keys, entry
  /// (token & 0x7fffffff) % maxKeys.
  Hash128 block(const Hash128 &parent, const Token *tokens,
                const std::vector<Hash128> &contents) const {
    // A count that is known is faster.
    using Sixteen = std::integral_constant<uint32_t, 16>;
    return blockTokens == 16 ? block(parent, tokens, contents, Sixteen())
                             : block(parent, tokens, contents, blockTokens);
  }
  /// Of any bytes: parts of a space, content of a key.
  Hash128 bytes(std::span<const std::string_view> parts) const;

private:
  static uint64_t mix(uint64_t a, uint64_t b) {
    unsigned __int128 p = (unsigned __int128)a * b;
    return uint64_t(p) ^ uint64_t(p >> 64);
  }
  template <typename Count>
  Hash128 block(const Hash128 &parent, const Token *tokens, const std::vector<Hash128> &contents,
                Count count) const {
    Token any = 0;
    for (uint32_t i = 0; i < count; ++i)
      any |= tokens[i];
    if (kind == HashKind::Keyed128 && !(any >> 31)) [[likely]]
      return narrow(fold(parent, tokens, count));
    return narrow(special(parent, tokens, contents));
  }
  template <typename Count>
  Hash128 fold(const Hash128 &parent, const Token *tokens, Count count) const {
    unsigned __int128 s = 0, t = 0;
    const uint64_t *k = keys.data() + kFoldKeys;
    for (uint32_t i = 0; i < count / 2; i += 2) {
      uint64_t w[2];
      std::memcpy(w, tokens + 2 * i, sizeof w);
      s += (unsigned __int128)(w[0] + k[i]) * (w[1] + k[i + 1]);
      t += (unsigned __int128)(w[0] + k[i + 2]) * (w[1] + k[i + 3]);
    }
    return foldSums(parent, s, t);
  }
  Hash128 foldSums(const Hash128 &parent, unsigned __int128 s, unsigned __int128 t) const {
    uint64_t x = mix(uint64_t(s) ^ keys[0] ^ parent.low, uint64_t(s >> 64) ^ keys[1]);
    uint64_t y = mix(uint64_t(t) ^ keys[2] ^ parent.high, uint64_t(t >> 64) ^ keys[3]);
    return {mix(x ^ keys[4], y ^ keys[5]), mix(x ^ keys[6], std::rotl(y, 29) ^ keys[7])};
  }
  Hash128 special(const Hash128 &parent, const Token *tokens,
                  const std::vector<Hash128> &contents) const;
  /// Test builds force collisions.
  static Hash128 narrow(Hash128 h) {
#ifdef LATHE_KV_TEST_HOOKS
    if (hashBits <= 64)
      return {h.low >> (64 - hashBits) << (64 - hashBits), 0};
#endif
    return h;
  }

  static constexpr uint32_t kFoldKeys = 8;
  HashKind kind;
  uint32_t blockTokens;
  std::vector<uint64_t> keys;
};

} // namespace lathe::kv

#endif // LATHE_RUNTIME_MEMORY_KV_HASH_H
