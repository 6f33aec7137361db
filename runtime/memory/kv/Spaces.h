//===- Spaces.h - names of spaces and of contents ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Adapters, tenants, salts and images are bytes of any length. Each gets a number that is equal only
// for equal bytes, so that the prefix tree compares them exactly by comparing numbers.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_MEMORY_KV_SPACES_H
#define LATHE_RUNTIME_MEMORY_KV_SPACES_H

#include "Hash.h"

#include <string>
#include <unordered_map>

namespace lathe::kv {

class Spaces {
public:
  Spaces(const Hasher &hasher, uint32_t maxSpaces, uint32_t maxKeys);

  uint32_t count() const { return uint32_t(hashes.size()); }
  const Hash128 &hash(SpaceId space) const { return hashes[space]; }
  /// The number of these parts; maxSpaces when there is none left.
  SpaceId open(std::span<const std::string_view> parts);

  /// The token of a content. A number is never given twice; false after 2^31 of them.
  bool intern(std::string_view content, Token &token);
  /// Hashes of the contents of keys, for Hasher::block.
  const std::vector<Hash128> &contents() const { return keyHashes; }

private:
  const Hasher &hasher;
  uint32_t maxSpaces;
  std::vector<Hash128> hashes;
  std::unordered_map<std::string, SpaceId> names;
  std::vector<Hash128> keyHashes;
  std::vector<std::string> keyNames; ///< a ring, as keyHashes
  std::unordered_map<std::string, Token> keys;
  uint32_t nextKey = 0;
};

} // namespace lathe::kv

#endif // LATHE_RUNTIME_MEMORY_KV_SPACES_H
