//===- EngineBytes.h - engine files damaged on purpose ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_TEST_UNIT_ENGINEBYTES_H
#define LATHE_TEST_UNIT_ENGINEBYTES_H

#include "../../lib/engine/FileLayout.h"
#include "lathe/engine/EngineFile.h"
#include "lathe/support/Sha256.h"

#include <cstring>
#include <string>
#include <utility>

namespace lathe::test {

/// Bytes of header and section table.
inline size_t tableEnd(const std::string &file) {
  engine::layout::Header h;
  std::memcpy(&h, file.data(), sizeof h);
  return sizeof h + h.sectionCount * sizeof(engine::layout::SectionEntry);
}

/// Begin and end of the first plan.
inline std::pair<size_t, size_t> planRange(const std::string &file) {
  for (size_t at = sizeof(engine::layout::Header); at < tableEnd(file);
       at += sizeof(engine::layout::SectionEntry)) {
    engine::layout::SectionEntry e;
    std::memcpy(&e, file.data() + at, sizeof e);
    if (e.type == static_cast<uint32_t>(engine::SectionType::Plan))
      return {e.offset, e.offset + e.length};
  }
  return {0, 0};
}

/// Makes all digests right again.
inline void resign(std::string &file) {
  using namespace engine::layout;
  Header h;
  std::memcpy(&h, file.data(), sizeof h);
  uint64_t tableBytes = uint64_t(h.sectionCount) * sizeof(SectionEntry);
  if (tableBytes > file.size() - sizeof h)
    return;
  for (uint32_t i = 0; i < h.sectionCount; ++i) {
    SectionEntry e;
    char *at = file.data() + sizeof h + i * sizeof e;
    std::memcpy(&e, at, sizeof e);
    if (e.offset > file.size() || e.length > file.size() - e.offset)
      continue;
    Sha256 hash;
    hash.update(file.data() + e.offset, e.length);
    std::memcpy(e.digest, hash.digest().data(), 32);
    std::memcpy(at, &e, sizeof e);
  }
  std::memset(h.digest, 0, 32);
  Sha256 hash;
  hash.update(&h, sizeof h);
  hash.update(file.data() + sizeof h, tableBytes);
  std::memcpy(h.digest, hash.digest().data(), 32);
  std::memcpy(file.data(), &h, sizeof h);
}

} // namespace lathe::test

#endif // LATHE_TEST_UNIT_ENGINEBYTES_H
