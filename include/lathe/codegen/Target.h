//===- Target.h - what a machine can do -------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The description of a compilation target that choices are made from: a CPU
// level with its caches and cores, or a GPU architecture. `native` is resolved
// to a level and facts when it is parsed, so that a target's name alone
// reproduces a build anywhere.
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

/// The largest head whose queries, keys and values a form of attention on GPUs holds.
constexpr int64_t kLargestAttentionHead = 256;

struct Target {
  enum class Kind { Cpu, Cuda };

  Kind kind = Kind::Cpu;
  /// Canonical name: "x86-64-v3", "x86-64-v4-vnni:l1=48K:l2=2M", "armv8-a", "sm_80", "sm_90a". Never "native". Of a
  /// CPU the level, and those of its facts that differ from what a level by itself is taken to have.
  std::string name = "x86-64-v3";

  // CPU facts.
  std::string triple = "x86_64-unknown-linux-gnu";
  std::string cpu = "x86-64-v3"; ///< LLVM's -mcpu
  std::string features;          ///< LLVM's -mattr: what it has beyond those of `cpu`
  int vectorBits = 256;          ///< widest register that pays
  int vectorRegisters = 16;
  // What choices for CPUs go by. A level by itself stands for these: of the processors that have it, few have less.
  int64_t l1Bytes = 32 << 10;    ///< data cache of a core
  int64_t l2Bytes = 512 << 10;   ///< second-level cache: a core's share
  int64_t l3Bytes = 2 << 20;     ///< third-level cache: a core's share
  int64_t cores = 4;             ///< that may work on a run

  // CUDA facts of the usual card of the architecture.
  int smCount = 0;
  int64_t sharedPerBlock = 0;    ///< bytes a block may opt in to
  int64_t sharedPerSm = 0;       ///< bytes of a multiprocessor
  int64_t registersPerSm = 65536;
  int maxThreadsPerSm = 2048;

  bool isCuda() const { return kind == Kind::Cuda; }
  /// Elements of one vector register: a CPU register, or 16 bytes a GPU thread.
  /// 1 for types wider than that or narrower than a byte.
  int lanes(DType type) const;

  // What kernels for a target can use: the questions of passes and choosers, which never ask for a
  // version. Of a CPU all but the first two are false.
  /// Products of 16-bit integers, of which two neighbours are added into 32 bits (vpmaddwd).
  bool hasPairProducts() const;
  /// Products of unsigned and signed bytes, of which four neighbours are added into 32 bits without
  /// saturation (vpdpbusd; sdot after a change of signs).
  bool hasByteProducts() const;
  /// mma.sync on f16 and bf16 with sums in f32.
  bool hasTensorCores() const;
  /// cp.async, copies from global to shared memory that pass by the registers, and the hints of
  /// loads to the caches that came with it.
  bool hasAsyncCopy() const;
  /// Blocks of a cluster that read each other's shared memory.
  bool hasClusters() const;
  /// A kernel may start while the one ahead of it in the stream ends (griddepcontrol).
  bool hasProgrammaticLaunch() const;
  /// cp.async.bulk.tensor: tensor maps describe what is copied, with swizzles and im2col.
  bool hasTma() const;
  /// wgmma: products of a warpgroup on operands in shared memory, of 16-bit types, bytes and TF32.
  /// The skeletons that use it take their operands by TMA.
  bool hasWgmma() const;
  /// The same on 8-bit floats.
  bool hasFp8TensorCores() const;
  /// Whether a block a multiprocessor that streams weights through rings (gemm.stream), and clusters
  /// that split the depth of one row's product (gemv.columns), were measured here and paid.
  bool paysToStreamWeights() const;

  bool operator==(const Target &) const = default;

  /// One of the names above, or "native" for the CPU of this machine, which facts may follow:
  /// "native:l2=512K:cores=1". Usage error that lists the known names otherwise.
  static Result<Target> parse(std::string_view name);
  /// The newest of the GPU targets that a GPU of this compute capability is as new as; of one that is
  /// older than all, the oldest.
  static Target forGpu(int major, int minor);
  /// A comma list without repetitions, in the order given.
  static Result<std::vector<Target>> parseList(std::string_view names);
  /// All names that `parse` takes, for help texts.
  static std::vector<std::string> knownNames();
  /// Whether this machine's CPU runs code for a CPU target; names the level
  /// that is missing otherwise.
  Status supportedByHostCpu() const;
  /// The level without facts: "x86-64-v4-vnni"; of a GPU the name.
  std::string level() const { return name.substr(0, name.find(':')); }
  /// "caches of 48 KB, 2 MB and 8 MB a core, 4 cores", for people; of a GPU empty.
  std::string factsText() const;

private:
  // Read by codegen/select/Target.cpp alone (tools/layering.py): who needs to know asks for a
  // capability.
  int smVersion = 0;         ///< 80, 89, 90, 100
  bool archSpecific = false; ///< the `a` suffix: instructions of exactly this architecture
};

} // namespace lathe

#endif // LATHE_CODEGEN_TARGET_H
