//===- Nvrtc.h - CUDA C++ text to cubin -------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// NVRTC, opened with dlopen at compile time only: no CUDA toolkit is needed to
// build lathe, no GPU to compile for one, and nothing of this to run an engine.
// Compiled kernels are kept on disk, keyed by everything that matters.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_CODEGEN_NVRTC_H
#define LATHE_CODEGEN_NVRTC_H

#include "lathe/support/Status.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lathe::nvrtc {

/// What ptxas says of one kernel function.
struct KernelResources {
  std::string name;
  int registers = 0;        ///< per thread
  int64_t stackBytes = 0;   ///< local frame per thread
  int64_t spillStoreBytes = 0, spillLoadBytes = 0;
  int64_t sharedBytes = 0;  ///< static shared memory of a block
  bool operator==(const KernelResources &) const = default;
};

/// A remark of ptxas that makes a kernel slow without making it wrong.
struct Finding {
  enum class Kind {
    Spills,              ///< more than 64 bytes of registers spilled to local memory
    IgnoredSetMaxNReg,   ///< C7508: setmaxnreg without launch bounds
    SerializedWgmma,     ///< C7510 to C7519: wgmma is waited for after each instruction
    RegisterAllocation,  ///< C76xx
  };
  Kind kind;
  std::string text; ///< the line of the log
  bool operator==(const Finding &) const = default;
};
const char *toString(Finding::Kind kind);

struct LogReport {
  std::vector<KernelResources> kernels; ///< in the order of the log
  std::vector<Finding> findings;
};
/// Reads the log of a compilation with `--ptxas-options=-v`.
LogReport parseLog(std::string_view log);

struct CompileJob {
  std::string name;   ///< for messages; "softmax_3.cu"
  std::string source; ///< complete CUDA C++, no includes
  std::string target; ///< "sm_80", "sm_89", "sm_90a", "sm_100a"
  /// The file of a person who wrote the source; empty: it is generated. Stands in messages in the
  /// place of `name`, and what is wrong with the source is a usage error.
  std::string writtenIn;
  std::vector<std::string> options; ///< additional NVRTC options, one each
  /// Accept a kernel that spills or otherwise has findings (a lockfile may say
  /// that it was measured to be the fastest).
  bool tolerateFindings = false;
};

struct Cubin {
  std::string image; ///< ELF, for cuLibraryLoadData
  std::string log;
  LogReport report;
  bool fromCache = false;
  double milliseconds = 0; ///< compile time; 0 from the cache
};

class Compiler {
public:
  /// Opens NVRTC. Looks at $LATHE_NVRTC (a file), then for the Python package
  /// nvidia-cuda-nvrtc beside the Python package that holds this library, in
  /// `.venv` folders beside and above the file that holds this code and in
  /// $VIRTUAL_ENV, then for the system's libnvrtc.so.13 and .12.
  /// Unsupported error that lists the places otherwise.
  static Result<std::shared_ptr<Compiler>> open();

  ~Compiler();
  /// "13.0": the version, part of every cache key.
  const std::string &version() const;
  /// The file that was opened.
  const std::string &path() const;
  /// Whether this NVRTC knows the target.
  bool supports(std::string_view target) const;

  /// Compiles, or takes the result from the cache. A compile error is an
  /// internal error located at `name:line` where the text is generated, a usage
  /// error at `writtenIn:line` where a person wrote it; a finding that is not
  /// tolerated is an unsupported error that names its kind.
  /// Thread-safe.
  Result<Cubin> compile(const CompileJob &job) const;
  /// Compiles all jobs on up to `threads` threads (0: all cores that the process may use), results
  /// in the order of the jobs.
  std::vector<Result<Cubin>> compileAll(const std::vector<CompileJob> &jobs,
                                        unsigned threads = 0) const;

  struct Library;

private:
  explicit Compiler(std::unique_ptr<Library> library);
  std::unique_ptr<Library> library;
};

/// Where results are kept: $LATHE_CACHE_DIR, else $XDG_CACHE_HOME/lathe, else
/// $HOME/.cache/lathe; empty (no caching) when none is set or when
/// LATHE_NO_CACHE is set.
std::string cacheDirectory();

} // namespace lathe::nvrtc

#endif // LATHE_CODEGEN_NVRTC_H
