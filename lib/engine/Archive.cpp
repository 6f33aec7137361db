//===- Archive.cpp - named byte strings in one section ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// magic, count, then per item the lengths of name and bytes, then all names, zero
// bytes to a multiple of 16, and all bytes, each from a multiple of 16.
//
//===----------------------------------------------------------------------===//

#include "lathe/engine/EngineFile.h"

#include <cstring>

namespace lathe::engine {
namespace {
constexpr char kArchiveMagic[8] = {'L', 'T', 'A', 'R', 'C', 'H', '1', '\n'};
constexpr uint64_t roundUp16(uint64_t v) { return (v + 15) / 16 * 16; }
void put(std::string &to, uint64_t v) { to.append(reinterpret_cast<const char *>(&v), 8); }
} // namespace

std::string packArchive(const std::map<std::string, std::string> &items) {
  std::string out(kArchiveMagic, 8);
  put(out, items.size());
  for (const auto &[name, bytes] : items) {
    put(out, name.size());
    put(out, bytes.size());
  }
  for (const auto &item : items)
    out += item.first;
  for (const auto &item : items) {
    out.resize(roundUp16(out.size()));
    out += item.second;
  }
  return out;
}

Result<Archive> parseArchive(std::string_view bytes, const std::string &where) {
  auto damaged = [&] { return invalidError("the archive is damaged", where); };
  auto number = [&](size_t at) {
    uint64_t v;
    std::memcpy(&v, bytes.data() + at, 8);
    return v;
  };
  if (bytes.size() < 16 || std::memcmp(bytes.data(), kArchiveMagic, 8) != 0)
    return damaged();
  uint64_t count = number(8), size = bytes.size();
  if (count > (size - 16) / 16)
    return damaged();
  uint64_t position = 16 + count * 16;
  Archive out;
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t length = number(16 + i * 16);
    if (length > size - position)
      return damaged();
    out.emplace_back(std::string(bytes.substr(position, length)), std::string_view());
    position += length;
    if (i > 0 && !(out[i - 1].first < out[i].first))
      return damaged();
  }
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t length = number(16 + i * 16 + 8);
    position = roundUp16(position);
    if (position > size || length > size - position)
      return damaged();
    out[i].second = bytes.substr(position, length);
    position += length;
  }
  if (position != size)
    return damaged();
  return out;
}

} // namespace lathe::engine
