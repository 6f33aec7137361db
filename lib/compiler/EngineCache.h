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

/// Passes a new engine on to another sink and keeps it. That it cannot be kept only means that it
/// will be compiled again.
class CachingSink final : public ByteSink {
public:
  CachingSink(ByteSink &next, std::string key);
  Status begin(uint64_t size) override;
  Status put(uint64_t offset, std::string_view bytes) override;
  /// After the last piece.
  void keep();

  using Digest = std::array<uint8_t, 32>;
  /// A piece as it was put, with the digest that it must have when it is read again.
  struct Piece {
    uint64_t offset = 0, bytes = 0;
    Digest digest = {};
  };

private:
  ByteSink &next;
  std::string key;
  std::optional<FileSink> file; ///< nothing when the engine is not kept
  std::mutex mutex;
  uint64_t size = 0;
  std::vector<Piece> pieces;
};

} // namespace lathe

#endif // LATHE_COMPILER_ENGINECACHE_H
