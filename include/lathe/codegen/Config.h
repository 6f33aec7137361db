//===- Config.h - configurations by name ------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The chosen configuration of a kernel as data, and its name: the contract
// between select, which writes `KernelSpec::config`, and the schedules and
// skeletons, which read it. A name is a family and parameters: "row.t128.v8".
// What a block of each family computes stands in its descriptor (Skeleton.h).
//
// t threads of a block, v lanes of a vector, r rows, m n k sizes of a tile, s
// stages of a pipeline, c blocks of a cluster.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_CODEGEN_CONFIG_H
#define LATHE_CODEGEN_CONFIG_H

#include "lathe/support/DimExpr.h"
#include "lathe/support/Status.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace lathe {

struct Skeleton;

struct KernelConfig {
  const Skeleton *form = nullptr; ///< the family; null: none yet
  int64_t threads = 1;  ///< t
  int64_t lanes = 1;    ///< v
  int64_t rows = 1;     ///< r
  int64_t tileM = 0, tileN = 0, tileK = 0; ///< m, n, k
  int64_t stages = 0;   ///< s
  int64_t cluster = 1;  ///< c
  bool operator==(const KernelConfig &) const = default;

  /// The family's name; "" for none.
  std::string_view family() const;
  /// "gemm.mma.t128.m64.n64.k32.s3"; parameters at their defaults are left out.
  std::string str() const;
  /// An error for unknown families and parameters.
  static Result<KernelConfig> parse(std::string_view name);
};

/// Threads of `gemm.mma` and `conv.mma` and how their warps divide a tile.
struct MmaWarps {
  int64_t m, n;
};
MmaWarps mmaWarps(const KernelConfig &config);
/// How much of k the warps of a `gemm.stream` block take in a step together.
int64_t streamDepth(const KernelConfig &config);
/// Whether a tile of gemm.pingpong or gemm.cooperative takes so long, for so much of k, that weights
/// which come early gain nothing: the kernel waits for those ahead of it, and lets the next one start
/// when its last loads are under way.
bool wgmmaStartsLate(const KernelConfig &config, int64_t k);
/// Columns of results that a block of gemm_hopper.cuh stages together; `windows`: of a convolution.
int64_t wgmmaStagedColumns(int64_t tileN, int64_t resultBytes, bool windows = false);
/// The same where operands are swapped: rows of 64 columns.
int64_t wgmmaStagedRows(int64_t tileM);

/// Scratch memory of a CPU `attention` worker in bytes, for keys of a length and a
/// head size: queries, one panel of keys and one of values, scores, sums, and the list of panels where there is one.
DimExpr attentionScratchBytes(const KernelConfig &config, const DimExpr &keys, const DimExpr &head);
/// Where lists of tiles of keys begin in the workspace of `attention.wgmma`, behind the order of so many tiles of queries
/// (codegen/device/attention_order.cuh): bytes.
inline DimExpr attentionOrderBytes(const DimExpr &tiles, int64_t smCount) {
  return DimExpr(12) * tiles + DimExpr(12 * smCount);
}
/// Scratch memory of a CPU `topk.radix` worker in bytes, for rows of a length and keys of 32 or 64 bits: counters of a digit,
/// and the elements twice.
DimExpr radixScratchBytes(const DimExpr &length, int64_t keyBits);
/// The same of an `nms` worker: the corners and areas of all boxes, and what a vector reads behind the last.
DimExpr nmsScratchBytes(const DimExpr &boxes);

} // namespace lathe

#endif // LATHE_CODEGEN_CONFIG_H
