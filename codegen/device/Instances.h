//===- Instances.h - pieces of instantiations --------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What descriptors share when they write the text of an instantiation.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_CODEGEN_DEVICE_INSTANCES_H
#define LATHE_CODEGEN_DEVICE_INSTANCES_H

#include "lathe/codegen/Skeleton.h"
#include "lathe/codegen/Target.h"

#include <initializer_list>
#include <string>

namespace lathe {

/// "8, 1, 6"
inline std::string joined(std::initializer_list<int64_t> values) {
  std::string out;
  for (int64_t v : values)
    out += (out.empty() ? "" : ", ") + std::to_string(v);
  return out;
}
inline const char *truth(bool b) { return b ? "true" : "false"; }

/// "h, M, N, K"
inline std::string sizesOf(const ProductText &t) { return "h, " + t.m + ", " + t.n + ", " + t.k; }

/// "MmaTile<64, 64, 32, 2, 2, 4>", "SimtTile<...>": of gemm.cuh, for convolutions too.
std::string mmaTileText(const KernelConfig &config);
std::string simtTileText(const KernelConfig &config);
int64_t mmaSharedBytes(const KernelConfig &config, const TileFacts &);

/// The packing of weights of 4 or 8 bits that are read as fragments; empty where they cannot be.
std::string packedRecipe(const select::ProductChoice &product);
/// Where no stages are asked for, as many as shared memory holds, 8 at most. Whether 2 or more fit.
bool fitStages(KernelConfig &config, const Target &target);

/// Parameters of gemmWgmma: the maps of results and of what comes to them; where there is none, another
/// one, which is not read.
std::string resultMaps(const StoredByTma &tma);

/// Tiles of gemm_hopper.cuh and gemm_split.cuh, for windows of images too.
int64_t wgmmaSharedBytes(const KernelConfig &config, const TileFacts &facts);
int64_t splitSharedBytes(const KernelConfig &config, const TileFacts &);
inline constexpr int64_t kWgmmaStepBytes = 128; ///< of k in a stage: what the swizzle spans
inline constexpr int64_t kMostStages = 12;
/// As many stages as so much shared memory holds, two at least.
KernelConfig withStages(KernelConfig config, int64_t most, int64_t bytes, const TileFacts &facts);
KernelConfig completeWgmma(KernelConfig config, const TileFacts &facts, const Target &target);
/// "WgmmaTile<128, 128, 4, 128, true, Holes>"
std::string wgmmaTileText(const KernelConfig &config);
/// "SplitTile<64, 4, 64, 2, Holes>"
std::string splitTileText(const KernelConfig &config);
/// Elements of a row that topk_few.cuh takes at most: half of a list. More are sorted.
inline constexpr int64_t kListCount = 1024;

/// Columns of a head of attention in shared memory: a power of two.
int64_t headColumns(int64_t head);
/// Names of tiles: a family, rows, numbers of columns, and what follows.
void addTiles(std::vector<std::string> &names, std::string_view family, int rows,
              std::initializer_list<int> columns, std::string_view more = "");

} // namespace lathe

#endif // LATHE_CODEGEN_DEVICE_INSTANCES_H
