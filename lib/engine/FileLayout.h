//===- FileLayout.h - bytes of header and section table ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_LIB_ENGINE_FILELAYOUT_H
#define LATHE_LIB_ENGINE_FILELAYOUT_H

#include <bit>
#include <cstdint>
#include <type_traits>

namespace lathe::engine::layout {

static_assert(std::endian::native == std::endian::little, "engine files are little-endian");

/// The last two characters catch transfers that change line ends.
inline constexpr char kMagic[8] = {'L', 'A', 'T', 'H', 'E', 'E', '\r', '\n'};
inline constexpr uint32_t kMaxSections = 4096;

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t sectionCount;
  uint64_t totalBytes;
  char buildId[32]; ///< zero-terminated, zero-filled
  uint8_t reserved[40];
  uint8_t digest[32]; ///< of header (this field zero) and table
};
static_assert(sizeof(Header) == 128 && std::is_trivially_copyable_v<Header>);

struct SectionEntry {
  uint32_t type;
  uint32_t reserved;
  uint64_t offset, length;
  uint8_t digest[32];
  char name[64], entry[64], target[64]; ///< zero-terminated, zero-filled
  uint8_t padding[8];
};
static_assert(sizeof(SectionEntry) == 256 && std::is_trivially_copyable_v<SectionEntry>);

} // namespace lathe::engine::layout

#endif // LATHE_LIB_ENGINE_FILELAYOUT_H
