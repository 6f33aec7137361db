//===- EngineCache.h - finished engines on disk -----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// `lathe run model.onnx` compiles once. The key is the imported module (which holds
// the options and the hashes of the weights) and the build of the compiler.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_COMPILER_ENGINECACHE_H
#define LATHE_COMPILER_ENGINECACHE_H

#include "lathe/support/ByteSink.h"

#include <array>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace lathe {

/// The build of the compiler: part of the key of everything that it keeps, since it changes with
/// every change of its code. Empty when the linker noted none, and then nothing may be kept.
const std::string &compilerBuild();
/// The key of a module's text; empty when there is no cache.
std::string engineCacheKey(const std::string &moduleText);

/// Writes the engine of `key` to `sink`, on all cores, each byte checked before it is handed on, and
/// returns its size; nothing when the cache holds no engine of this key that is whole (what the sink
/// has then is worthless). Fails as the sink does.
Result<std::optional<uint64_t>> copyCachedEngine(const std::string &key, ByteSink &sink);

/// Checks the engine of `key` and makes its file also that of `path`, by a second link, which takes
/// no copy. At most one path shares it: who changes the file there in place damages the cache, which
/// is found, and no other engine. Nothing, and `path` as it was, when the cache holds no such engine
/// that is whole or when it cannot be shared (another file system, owner or path).
std::optional<uint64_t> shareCachedEngine(const std::string &key, const std::string &path);
/// Whether a new engine of this key could be shared with `path`.
bool canShareEngine(const std::string &key, const std::string &path);

/// Keeps a new engine, and passes it on.
class CachingSink final : public ByteSink {
public:
  /// `next`: null when the engine will be shared; then what fails here is the caller's failure. Else
  /// an engine that cannot be kept will be compiled again, no more.
  CachingSink(ByteSink *next, std::string key);
  Status begin(uint64_t size) override;
  Status put(uint64_t offset, std::string_view bytes) override;
  /// After the last piece. Engines that were not used for the longest make room when all together
  /// take more than LATHE_CACHE_LIMIT.
  Status keep();

  using Digest = std::array<uint8_t, 32>;
  /// A piece as it was put, with the digest that it must have when it is read again.
  struct Piece {
    uint64_t offset = 0, bytes = 0;
    Digest digest = {};
  };

private:
  ByteSink *next;
  std::string key;
  std::optional<FileSink> file; ///< nothing when the engine is not kept
  std::mutex mutex;
  uint64_t size = 0;
  std::vector<Piece> pieces;
};

} // namespace lathe

#endif // LATHE_COMPILER_ENGINECACHE_H
