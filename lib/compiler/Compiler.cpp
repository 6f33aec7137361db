//===- Compiler.cpp - a model in, an engine out ---------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/compiler/Compiler.h"
#include "lathe/compiler/Lock.h"

#include "EngineCache.h"

#include "lathe/codegen/Target.h"
#include "lathe/compiler/Compilation.h"
#include "lathe/import/Import.h"
#include "lathe/support/ByteSize.h"
#include "lathe/support/Files.h"

#include <chrono>
#include <filesystem>
#include <fstream>

namespace fs = std::filesystem;

namespace lathe {
namespace {

/// Splits "a,b" of options that are lists.
void addList(std::vector<std::string> &into, const std::string &value) {
  llvm::SmallVector<llvm::StringRef> parts;
  llvm::StringRef(value).split(parts, ',', -1, /*KeepEmpty=*/false);
  for (llvm::StringRef part : parts)
    into.push_back(part.str());
}

Status addPair(std::vector<std::string> &into, const std::string &name, const std::string &value,
               char separator, const char *form) {
  size_t at = value.find(separator);
  if (at == std::string::npos || at == 0 || at + 1 == value.size())
    return usageError("wants " + std::string(form) + ", not '" + value + "'", "--" + name);
  into.push_back(value);
  return okStatus();
}

/// Known before anything is compiled.
Status folderIsThere(const std::string &path) {
  fs::path folder = fs::path(path).parent_path();
  std::error_code error;
  if (folder.empty() || fs::is_directory(folder, error))
    return okStatus();
  return usageError("there is no folder '" + folder.string() + "'", path);
}

/// Whether `path` is, or will be, a file that can be replaced by renaming: not "-", a device, a pipe.
Result<bool> isReplaceable(const std::string &path) {
  if (path == "-")
    return false;
  std::error_code error;
  fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status))
    return usageError("is a folder; -o wants a file", path);
  LATHE_RETURN_IF_ERROR(folderIsThere(path));
  return !fs::exists(status) || fs::is_regular_file(status);
}

/// Writes to standard output or into what is there already.
Status writeAsItIs(const std::string &path, const std::string &bytes) {
  if (path == "-") {
    if (fwrite(bytes.data(), 1, bytes.size(), stdout) != bytes.size() || fflush(stdout))
      return runtimeError("cannot be written", "standard output");
    return okStatus();
  }
  std::ofstream out(path, std::ios::binary);
  out << bytes;
  if (!out.flush())
    return runtimeError("cannot be written", path);
  return okStatus();
}

/// Where an engine goes: to `path`, by sharing the cache's file, or else to `sink`.
struct EngineOutput {
  ByteSink &sink;
  std::string path; ///< empty: to the sink in any case
  bool shared = false;
};

/// The engine of the cache.
Result<std::optional<uint64_t>> takeCached(const std::string &key, EngineOutput &output) {
  if (!output.path.empty())
    if (std::optional<uint64_t> size = shareCachedEngine(key, output.path)) {
      output.shared = true;
      return size;
    }
  return copyCachedEngine(key, output.sink);
}

/// Writes the engine and keeps it under `key`.
Result<uint64_t> writeEngine(engine::EngineWriter &writer, const std::string &key,
                             EngineOutput &output) {
  bool share = !output.path.empty() && canShareEngine(key, output.path);
  CachingSink cache(share ? nullptr : &output.sink, key);
  Result<uint64_t> size = writer.write(cache);
  if (!size)
    return size;
  Status kept = cache.keep();
  if (!share)
    return size; // what is not kept will be compiled again, no more
  LATHE_RETURN_IF_ERROR(kept);
  Result<std::optional<uint64_t>> taken = takeCached(key, output);
  if (taken && !*taken)
    return runtimeError("the engine that was written is not there any more", "the cache");
  return taken ? size : Result<uint64_t>(taken.status());
}

/// An engine goes to `output`; the text of a phase into the result.
Result<CompileResult> compileWith(const std::string &model, CompileOptions options,
                                  EngineOutput &output,
                                  std::unique_ptr<Compilation> &compilation) {
  auto begin = std::chrono::steady_clock::now();
  LATHE_RETURN_IF_ERROR(folderIsThere(options.remarksFile));
  LATHE_RETURN_IF_ERROR(applyLock(model, options));
  CompileResult result;
  Result<std::unique_ptr<Compilation>> opened = Compilation::open(model, options);
  if (!opened)
    return opened.status();
  compilation = std::move(*opened);
  Phase last = options.stopAfter.value_or(Phase::Engine);
  if (last < compilation->phase())
    return usageError("the text is of phase '" + std::string(toString(compilation->phase())) +
                          "', which comes later",
                      "--stop-after=" + std::string(toString(last)));
  result.isEngine = last == Phase::Engine;
  bool keeps = result.isEngine && options.dumpDir.empty() && options.remarksFile.empty() &&
               options.cache;
  std::string key = keeps ? engineCacheKey(compilation->text()) : "";
  size_t warnings = compilation->warnings().size();
  Result<std::optional<uint64_t>> cached = takeCached(key, output);
  if (!cached)
    return cached.status();
  if (*cached) {
    result.size = **cached;
    result.fromCache = true;
  } else {
    LATHE_RETURN_IF_ERROR(compilation->runTo(std::min(last, Phase::Codegen)));
    if (result.isEngine) {
      Result<engine::EngineWriter> writer = compilation->engine();
      if (!writer)
        return writer.status();
      // Who compiles again is to be warned again.
      bool warned = compilation->warnings().size() != warnings;
      Result<uint64_t> size = writeEngine(*writer, warned ? "" : key, output);
      if (!size)
        return size.status();
      result.size = *size;
    } else {
      result.bytes = compilation->text();
      result.size = result.bytes.size();
    }
  }
  result.phase = last;
  result.warnings = compilation->warnings();
  result.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

} // namespace

Status addCompileOption(CompileOptions &options, const std::string &name,
                        const std::string &value) {
  if (name == "target") {
    Result<std::vector<Target>> targets = Target::parseList(value);
    if (!targets)
      return Status(ErrorCode::Usage, targets.status().message(), "--target");
    addList(options.targets, value);
  } else if (name == "dim") {
    ImportOptions check;
    LATHE_RETURN_IF_ERROR(parseDimOption(value, check));
    options.dims.push_back(value);
  } else if (name == "shape") {
    ImportOptions check;
    LATHE_RETURN_IF_ERROR(parseShapeOption(value, check));
    options.shapes.push_back(value);
  } else if (name == "entry") {
    LATHE_RETURN_IF_ERROR(addPair(options.entries, name, value, ':', "NAME:DIM=SIZE"));
  } else if (name == "donate") {
    LATHE_RETURN_IF_ERROR(addPair(options.donate, name, value, '=', "INPUT=OUTPUT"));
  } else if (name == "parameter") {
    if (value.empty())
      return usageError("wants the name of an input", "--parameter");
    options.parameters.push_back(value);
  } else if (name == "paged") {
    if (value != "" && value != "1")
      return usageError("takes no value, not '" + value + "'", "--paged");
    options.paged = true;
  } else if (name == "kv") {
    if (value != "int8" && value != "int4")
      return usageError("keys and values are kept as int8 or int4, not as '" + value + "'", "--kv");
    options.kvCodes = value;
  } else if (name == "kv-window") {
    auto [window, sinks] = llvm::StringRef(value).split(':');
    uint32_t last = 0, first = 0;
    if (window.getAsInteger(10, last) || last < 1 || last > 1u << 30 ||
        (!sinks.empty() && (sinks.getAsInteger(10, first) || first > 1u << 30)) || value.back() == ':')
      return usageError("wants how many of the last tokens are seen, and maybe of the first, as 4096:4, not '" + value + "'",
                        "--kv-window");
    options.kvWindow = std::to_string(last) + ":" + std::to_string(first);
  } else if (name == "batch-invariant") {
    if (value != "" && value != "1")
      return usageError("takes no value, not '" + value + "'", "--batch-invariant");
    options.batchInvariant = true;
  } else if (name == "replace") {
    LATHE_RETURN_IF_ERROR(addPair(options.replace, name, value, '=', "KERNEL=FILE.cu"));
  } else if (name == "config") {
    LATHE_RETURN_IF_ERROR(addPair(options.configs, name, value, '=', "KERNEL=CONFIGURATION"));
  } else if (name == "lock") {
    options.lock = value;
  } else if (name == "winograd-tolerance") {
    double tolerance = 0;
    if (llvm::StringRef(value).getAsDouble(tolerance) || !(tolerance > 0 && tolerance < 1))
      return usageError("wants a number between 0 and 1, as 1e-5, not '" + value + "'",
                        "--winograd-tolerance");
    options.winogradTolerance = value;
  } else if (name == "sparse-weights") {
    if (value != "auto" && value != "never" && value != "always")
      return usageError("takes auto, never or always, not '" + value + "'", "--sparse-weights");
    options.sparseWeights = value;
  } else if (name == "streams") {
    if (llvm::StringRef(value).getAsInteger(10, options.streams) || options.streams < 1 ||
        options.streams > 16)
      return usageError("wants a number from 1 to 16, not '" + value + "'", "--streams");
  } else if (name == "allow") {
    addList(options.allow, value);
    for (const std::string &what : options.allow)
      if (what != "tf32" && what != "reduced-sums")
        return usageError("takes tf32 and reduced-sums, not '" + what + "'", "--allow");
  } else if (name == "mesh") {
    auto [axis, size] = llvm::StringRef(value).split('=');
    int64_t ranks = 0;
    if (axis.empty() || size.getAsInteger(10, ranks) || ranks < 1 || ranks > 64)
      return usageError("wants an axis and its size from 1 to 64, as tp=2, not '" + value + "'", "--mesh");
    if (!options.mesh.empty())
      return unsupportedError("a mesh has one axis", "--mesh");
    options.mesh.push_back(value);
  } else if (name == "shard") {
    auto [named, layout] = llvm::StringRef(value).rsplit('=');
    int64_t dim = 0;
    if (named.empty() || !(layout == "all" || (layout.consume_front("dim:") &&
                                                !layout.getAsInteger(10, dim) && dim >= 0)))
      return usageError("wants NAME=dim:1 or NAME=all, not '" + value + "'", "--shard");
    options.shard.push_back(value);
  } else if (name == "rank-memory") {
    options.rankMemory = int64_t(parseBytes(value));
    if (!options.rankMemory)
      return usageError("wants a size, as 16G or 500M, not '" + value + "'", "--rank-memory");
  } else if (name == "const") {
    LATHE_RETURN_IF_ERROR(addPair(options.constants, name, value, '=', "INPUT=FILE"));
  } else if (name == "random-weights") {
    uint64_t seed = 0;
    if (llvm::StringRef(value).getAsInteger(10, seed))
      return usageError("wants a seed, not '" + value + "'", "--random-weights");
    options.randomWeights = seed;
  } else if (name == "stop-after") {
    options.stopAfter = parsePhase(value);
    if (!options.stopAfter) {
      std::string names;
      for (std::string_view phase : kPhaseNames)
        names += (names.empty() ? "" : ", ") + std::string(phase);
      return usageError("there is no phase '" + value + "'; there are " + names, "--stop-after");
    }
  } else if (name == "dump-dir") {
    options.dumpDir = value;
  } else if (name == "remarks") {
    options.remarksFile = value;
  } else if (name == "threads") {
    if (llvm::StringRef(value).getAsInteger(10, options.threads))
      return usageError("wants a number, not '" + value + "'", "--threads");
  } else {
    return usageError("there is no option '" + name + "'");
  }
  return okStatus();
}

Result<CompileResult> compileModel(const std::string &model, const CompileOptions &options) {
  std::unique_ptr<Compilation> compilation;
  StringSink engine;
  EngineOutput output{engine, ""};
  Result<CompileResult> result = compileWith(model, options, output, compilation);
  if (result && result->isEngine)
    result->bytes = std::move(engine.bytes);
  return result;
}

Result<CompileResult> compileToFile(const std::string &model, const CompileOptions &options,
                                    const std::string &output) {
  Result<bool> replaceable = isReplaceable(output);
  if (!replaceable)
    return replaceable.status();
  std::unique_ptr<Compilation> compilation;
  StringSink memory;
  FileSink file(output);
  EngineOutput engine{*replaceable ? static_cast<ByteSink &>(file) : memory,
                      *replaceable ? output : ""};
  Result<CompileResult> result = compileWith(model, options, engine, compilation);
  if (!result)
    return result;
  if (!*replaceable) {
    LATHE_RETURN_IF_ERROR(writeAsItIs(output, result->isEngine ? memory.bytes : result->bytes));
  } else if (result->isEngine) {
    LATHE_RETURN_IF_ERROR(engine.shared ? okStatus() : file.commit(FileSync::None));
  } else {
    LATHE_RETURN_IF_ERROR(writeFileAtomically(output, result->bytes, FileSync::None));
    LATHE_RETURN_IF_ERROR(
        compilation->writeWeights((fs::path(output).parent_path() / "weights.bin").string()));
  }
  return result;
}

bool isEngineFile(const std::string &path) {
  char magic[8] = {};
  std::ifstream in(path, std::ios::binary);
  return in.read(magic, sizeof magic) && std::string_view(magic, 6) == "LATHEE";
}

const std::string &compilerVersion() {
  static const std::string version = "lathe 0.1.0";
  return version;
}

} // namespace lathe
