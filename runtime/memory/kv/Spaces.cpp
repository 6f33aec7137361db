//===- Spaces.cpp - names of spaces and of contents -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Spaces.h"

namespace lathe::kv {

Spaces::Spaces(const Hasher &hasher, uint32_t maxSpaces, uint32_t maxKeys)
    : hasher(hasher), maxSpaces(maxSpaces), keyHashes(maxKeys), keyNames(maxKeys) {
  open({});
}

SpaceId Spaces::open(std::span<const std::string_view> parts) {
  if (planted(Fault::SaltIgnored) && !hashes.empty())
    return 0;
  // Each part with its length before it: ("ab", "c") is not ("a", "bc").
  std::string name;
  for (std::string_view part : parts) {
    name += std::to_string(part.size());
    name += ':';
    name += part;
  }
  auto it = names.find(name);
  if (it != names.end())
    return it->second;
  if (hashes.size() == maxSpaces)
    return maxSpaces;
  SpaceId space = count();
  hashes.push_back(hasher.bytes(parts));
  names.emplace(std::move(name), space);
  return space;
}

bool Spaces::intern(std::string_view content, Token &token) {
  std::string name(content);
  auto it = keys.find(name);
  if (it != keys.end()) {
    token = it->second;
    return true;
  }
  if (nextKey >= 0x7fffffff) // kUnknownToken is none
    return false;
  uint32_t at = nextKey % keyHashes.size();
  if (nextKey >= keyHashes.size())
    keys.erase(keyNames[at]);
  token = nextKey++ | 1u << 31;
  const std::string_view parts[] = {content};
  keyHashes[at] = hasher.bytes(parts);
  keyNames[at] = name;
  keys.emplace(std::move(name), token);
  return true;
}

} // namespace lathe::kv
