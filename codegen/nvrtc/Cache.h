//===- Cache.h - cubins on disk ---------------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A file per result. A file that is damaged or of another format counts as
// absent; several processes may write the same key at once.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_CODEGEN_NVRTC_CACHE_H
#define LATHE_CODEGEN_NVRTC_CACHE_H

#include <optional>
#include <string>

namespace lathe::nvrtc {

struct CacheEntry {
  std::string image, log;
};

/// The entry of `key` (hexadecimal digits), if there is one that is whole.
std::optional<CacheEntry> readCache(const std::string &key);
/// Stores an entry; a failure only means that it will be compiled again.
void writeCache(const std::string &key, const CacheEntry &entry);

} // namespace lathe::nvrtc

#endif // LATHE_CODEGEN_NVRTC_CACHE_H
