//===- EngineCache.h - finished engines on disk -----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// `lathe run model.onnx` compiles once. The key is the imported module (which holds
// the options and the hashes of the weights) and the build of the compiler.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_COMPILER_ENGINECACHE_H
#define LATHE_COMPILER_ENGINECACHE_H

#include <optional>
#include <string>

namespace lathe {

/// The build of the compiler: changes with every change of its code. Empty when the
/// linker left no trace of it; then nothing may be cached.
const std::string &compilerBuild();

/// The build of the compiler: part of the key of everything that it keeps. Empty when the
/// linker noted none, and then nothing may be kept.
const std::string &compilerBuild();
/// The key of a module's text; empty when there is no cache.
std::string engineCacheKey(const std::string &moduleText);
/// The engine, when there is one that is whole. An empty key finds nothing.
std::optional<std::string> readCachedEngine(const std::string &key);
/// Stores an engine; a failure only means that it will be compiled again.
void writeCachedEngine(const std::string &key, const std::string &engine);

} // namespace lathe

#endif // LATHE_COMPILER_ENGINECACHE_H
