//===- Target.h - what a machine can do -------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The description of a compilation target that choices are made from: a CPU
// level or a GPU architecture. `native` is resolved to a named level when it is
// parsed, so that a target's name alone reproduces a build anywhere.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_CODEGEN_TARGET_H
#define LATHE_CODEGEN_TARGET_H

#include "lathe/support/DType.h"
#include "lathe/support/Status.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lathe {

struct Target {
  enum class Kind { Cpu, Cuda };

  Kind kind = Kind::Cpu;
  /// Canonical name: "x86-64-v3", "x86-64-v4", "sm_80", "sm_90a". Never "native".
  std::string name = "x86-64-v3";

  // CPU facts.
  std::string triple = "x86_64-unknown-linux-gnu";
  std::string cpu = "x86-64-v3"; ///< LLVM's -mcpu
  int vectorBits = 256;          ///< widest register that pays
  int vectorRegisters = 16;
  int64_t l1Bytes = 32 << 10;    ///< data cache of a core, assumed
  int64_t l2Bytes = 512 << 10;   ///< second-level cache of a core, assumed

  // CUDA facts of the usual card of the architecture.
  int smVersion = 0;             ///< 80, 89, 90, 100
  bool archSpecific = false;     ///< the `a` suffix: instructions of exactly this architecture
  int smCount = 0;
  int64_t sharedPerBlock = 0;    ///< bytes a block may opt in to
  int64_t sharedPerSm = 0;       ///< bytes of a multiprocessor
  int64_t registersPerSm = 65536;
  int maxThreadsPerSm = 2048;

  bool isCuda() const { return kind == Kind::Cuda; }
  /// Elements of one vector register: a CPU register, or 16 bytes a GPU thread.
  /// 1 for types wider than that or narrower than a byte.
  int lanes(DType type) const;
  /// bf16 and f16 matrix products with f32 accumulation (mma.sync).
  bool hasTensorCores() const { return isCuda() && smVersion >= 80; }
  bool operator==(const Target &) const = default;

  /// One of the names above, or "native" for the CPU of this machine.
  /// Usage error that lists the known names otherwise.
  static Result<Target> parse(std::string_view name);
  /// A comma list without repetitions, in the order given.
  static Result<std::vector<Target>> parseList(std::string_view names);
  /// All names that `parse` takes, for help texts.
  static std::vector<std::string> knownNames();
  /// Whether this machine's CPU runs code for a CPU target; names the level
  /// that is missing otherwise.
  Status supportedByHostCpu() const;
};

} // namespace lathe

#endif // LATHE_CODEGEN_TARGET_H
