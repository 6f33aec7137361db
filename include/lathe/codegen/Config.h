//===- Config.h - configurations by name ------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The chosen configuration of a kernel as data, and its name: the contract
// between select, which writes `KernelSpec::config`, and the schedules and
// skeletons, which read it. A name is a family and parameters: "row.t128.v8".
//
//   family              a block of the grid (axis 0 unless said) computes
//   pointwise  t v      a share of the output's vectors, one a thread when the grid is that large
//   row        t v r s  a share of the outer indices: reductions, then what depends on them; with r,
//                       r warps with an index each; with a cluster in the launch, one index for all of it;
//                       with s, s blocks share a multiprocessor, and 16-bit elements are kept as such
//   columns    t v r      32*v columns of the reduced rows that fall to one of r blocks of a cluster
//   scan       t v      a share of what lies beside the scanned axis
//   scatter    t v      everything, in order
//   scatter.unordered t v  a share of the updates, which go into the operand's memory
//   transpose  t v m    an m x m tile of the last dimension and the one contiguous in the input; CPU: a share
//                       of its squares of v x v
//   gemm       v m n r k  CPU: a share of the units: batch x groups of k panels (n columns) x chunks of r
//                       rows, in register tiles of m rows
//   conv       v m n r k s  CPU: the same; rows are pixels, columns filters. With s, blocks of s rows of
//                       results, whose images are copied with zeros around
//   conv.winograd2 conv.winograd4  v m n r k s  CPU: the same by Winograd's F(2,3), of stride 1 or 2, and
//                       F(4,3), r tiles; with s, s panels of a point follow each other
//   gemm.mma gemm.simt  t m n k s   one m x n tile, tiles of one batch after another
//   gemm.pingpong gemm.cooperative  t m n k s r c  sm_90a: every so many tiles (m x n, r rows of A loaded); with
//                       c = 2 the two blocks of a cluster load columns for each other
//   gemm.pingpong.shared gemm.cooperative.shared  t m n k s r  the same; tiles beyond whole rounds are shared by
//                       all blocks, which add up their sums through a work buffer
//   gemm.pingpong.swapped gemm.cooperative.swapped  t m n k s  the same with the columns of B as rows of the
//                       instruction: m any multiple of 16, n of 64 or 128
//   gemm.promoted       t m n k s r the same for 8-bit floats; sums over more than 128 of k in f32 registers
//   gemm.split gemm.split.promoted  t n k s r c   sm_90a: one tile of 64 x n for c blocks of a cluster, which split K
//   gemm.widened  t m n s c  sm_90a: one tile of m x n for c blocks of a cluster, which split K; weights of 8 bits
//   gemv.row            t n s       n columns of C for one row, K split among the warps, s pieces a round
//   gemv.columns        t n k s     the same for weights with contiguous n; k blocks of a cluster split K
//   gemm.skinny         t n r s     n columns of C for up to r rows, the same
//   gemm.stream         t n r s     every so many tiles of n (16, of pairs 8) columns of C for up to r rows, K
//                       split among the warps, each with a ring of s stages
//   gemv.along          t r         one column of C, K split among the threads, up to r rows
//   gemv.across         t v r       32*v columns of C, K split among the warps, up to r rows
//   conv.mma conv.simt  t m n k s   one tile of (filters x pixels) or, channels last, (pixels x filters)
//   conv.pingpong conv.cooperative conv.split  as gemm.*, sm_90a: rows are pixels of all results, columns filters
//   conv.pingpong.swapped conv.cooperative.swapped  the same
//   conv.stem           t m n s     sm_90a: every so many tiles of m rows of n results, 64 filters
//   conv.direct         t v         t*v outputs, a thread each v
//   conv.depthwise      t v r       t*v*r outputs, channels last: a thread has v channels of r neighbours
//   attention.stream    t r         t/32*r queries of head (axis 1) and batch (axis 2)
//   attention.mma       t n         t/2 queries of head (axis 1) and batch (axis 2), keys in tiles of n
//   attention.wgmma     t n s       t/2-64 queries of one head and batch, tiles after tiles, s of them in shared
//                       memory; with two launches, the first of which lists the tiles of keys that the mask
//                       lets through, only those
//   attention.wgmma.keymask  the same; a mask that is the same for all queries is read once for a tile
//   attention.split     t n k r s   up to n queries and heads of a key head (axis 1) and batch (axis 2); keys
//                       split among the r blocks of a cluster, s of which fit into a multiprocessor; each
//                       warp copies k times 16 keys ahead
//   attention.split.early  the same; keys and values are copied before the kernels ahead are over
//   attention.decode    t           one query of head (axis 1) and batch (axis 2)
//   attention  v m n r    CPU: a share of the chunks of r queries of one head; scores and panels of n keys
//                       in scratch memory
//   recurrent  v r        CPU: all steps of r rows of a batch
//
// t threads of a block, v lanes of a vector, r rows, m n k sizes of a tile, s
// stages of a pipeline, c blocks of a cluster. The first six families work with any number of blocks.
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

struct KernelConfig {
  std::string family;
  int64_t threads = 1;  ///< t
  int64_t lanes = 1;    ///< v
  int64_t rows = 1;     ///< r
  int64_t tileM = 0, tileN = 0, tileK = 0; ///< m, n, k
  int64_t stages = 0;   ///< s
  int64_t cluster = 1;  ///< c
  bool operator==(const KernelConfig &) const = default;

  /// "gemm.mma.t128.m64.n64.k32.s3"; parameters at their defaults are left out.
  std::string str() const;
  static Result<KernelConfig> parse(std::string_view name);
};

/// Threads of `gemm.mma` and `conv.mma` and how their warps divide a tile.
struct MmaWarps {
  int64_t m, n;
};
MmaWarps mmaWarps(const KernelConfig &config);
/// Dynamic shared memory of a `*.mma` block in bytes, as codegen/device/gemm.cuh has it.
int64_t mmaSharedBytes(const KernelConfig &config);
/// The same of a `gemm.pingpong`, `gemm.cooperative` or `gemm.promoted` block, as gemm_hopper.cuh
/// has it. `resultBytes`: of an element that goes through shared memory, 0 when none does.
/// `pair`: a result is made of two columns of sums; `heads`: results are stored head by head, with
/// `pair` those of both halves together.
int64_t wgmmaSharedBytes(const KernelConfig &config, int64_t resultBytes, bool pair = false,
                         bool heads = false);
/// The same of a `gemm.split` block (gemm_split.cuh).
int64_t splitSharedBytes(const KernelConfig &config);
/// The same of a `gemm.widened` block (gemm_widened.cuh).
int64_t widenedSharedBytes(const KernelConfig &config);
/// The same of a `gemm.stream` block (stream.cuh), and how much of k its warps take in a step together.
int64_t streamSharedBytes(const KernelConfig &config);
int64_t streamDepth(const KernelConfig &config);
/// Families of gemm_hopper.cuh, gemm_split.cuh and conv_hopper.cuh.
inline bool inTurns(const KernelConfig &c) { return c.family.find(".pingpong") != std::string::npos; }
inline bool isShared(const KernelConfig &c) { return c.family.ends_with(".shared"); }
inline bool isSplit(const KernelConfig &c) { return c.family.find(".split") != std::string::npos; }
inline bool isSwapped(const KernelConfig &c) { return c.family.ends_with(".swapped"); }
/// Two blocks of a cluster have tiles one below the other, and load columns for each other.
inline bool isPaired(const KernelConfig &c) { return !isSplit(c) && c.cluster == 2; }
/// Whether a tile of gemm.pingpong or gemm.cooperative takes so long, for so much of k, that weights
/// which come early gain nothing: the kernel waits for those ahead of it, and lets the next one start
/// when its last loads are under way.
bool wgmmaStartsLate(const KernelConfig &config, int64_t k);
/// Columns of results that such a block stages together.
int64_t wgmmaStagedColumns(int64_t tileN, int64_t resultBytes);
/// The same where operands are swapped: rows of 64 columns.
int64_t wgmmaStagedRows(int64_t tileM);
/// Dynamic shared memory of an `attention.stream` block, as attention.cuh has it.
int64_t attentionSharedBytes(const KernelConfig &config, int64_t headQK, int64_t headV);

/// The same for `attention.mma`, `.split` and `.wgmma` (attention_mma.cuh and so on); `mask`: tiles of a
/// mask are copied.
int64_t attentionMmaSharedBytes(const KernelConfig &config, int64_t headQK, int64_t headV);
int64_t attentionSplitSharedBytes(const KernelConfig &config, int64_t headQK, int64_t headV);
int64_t attentionWgmmaSharedBytes(const KernelConfig &config, int64_t headQK, int64_t headV,
                                  bool mask = false);

/// Scratch memory of a CPU `attention` worker in bytes, for keys of a length and a
/// head size: queries, one panel of keys and one of values, scores, sums.
DimExpr attentionScratchBytes(const KernelConfig &config, const DimExpr &keys, const DimExpr &head);

} // namespace lathe

#endif // LATHE_CODEGEN_CONFIG_H
