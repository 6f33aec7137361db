//===- gemm.cpp - descriptors of gemm.cuh: products in tiles, portable
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Instances.h"

#include "lathe/codegen/ProductChoice.h"

#include <algorithm>

namespace lathe {

using select::ProductChoice;

MmaWarps mmaWarps(const KernelConfig &config) {
  int64_t warps = config.threads / 32;
  // As square as it goes, wider than high: the rows of B are the longer ones.
  for (int64_t m = warps; m > 1; --m)
    if (warps % m == 0 && m * m <= warps && config.tileM % (16 * m) == 0)
      return {m, warps / m};
  return {1, warps};
}

int64_t mmaSharedBytes(const KernelConfig &config, const TileFacts &) {
  int64_t pipeline = config.stages * (config.tileM + config.tileN) * config.tileK * 2;
  int64_t epilogue = config.tileM * (config.tileN + 8) * 4;
  return std::max(pipeline, epilogue);
}

std::string mmaTileText(const KernelConfig &c) {
  MmaWarps w = mmaWarps(c);
  return "MmaTile<" + joined({c.tileM, c.tileN, c.tileK, w.m, w.n, c.stages}) + ">";
}

std::string simtTileText(const KernelConfig &c) {
  // Square pieces for each thread.
  int64_t side = 1;
  while (side * side * c.threads < c.tileM * c.tileN)
    side *= 2;
  return "SimtTile<" +
         joined({c.tileM, c.tileN, c.tileK, side, c.tileM * c.tileN / (c.threads * side)}) + ">";
}

/// The last that is asked: any types, any places of the operands, any sizes.
static bool offerTiles(ProductChoice &p) {
  using namespace select;
  KernelConfig small =
      p.mma ? mmaTile(kGemmMma, 64, 128, 4) : simtTile(kGemmSimt, 64, 64, 128);
  KernelConfig large =
      p.mma ? mmaTile(kGemmMma, 128, 256, 4) : simtTile(kGemmSimt, 128, 128, 256);
  // Sums of 32 bits leave room for twice the depth.
  if (!p.mma && bitWidth(p.desc.operands[0].dtype) <= 32)
    large.tileK = 16;
  // The large tile pays once it fills the card.
  int64_t columns = p.sizes.n.constant().value_or(1024);
  int64_t enough =
      std::max<int64_t>(128, p.target.smCount * 128 * 128 / std::max<int64_t>(columns, 1));
  // ... and not where half of its columns would be empty.
  if (columns <= 64)
    enough = DimRange::kUnbounded;
  auto spec = [&](const KernelConfig &c) {
    return tiled(p.desc, c, p.sizes.batch, p.sizes.m, p.sizes.n);
  };
  if (p.rows.lo > enough || p.add(spec(small), enough))
    p.add(spec(large), DimRange::kUnbounded);
  return false;
}

const Skeleton kGemmMma = {
    .family = "gemm.mma",
    .block = "t m n k s: one m x n tile, tiles of one batch after another",
    .code = Skeleton::Code::Product,
    .sharedBytes = mmaSharedBytes,
    .product = {.units = ProductForm::Units::Mma,
                .blockScales = true, // its offer gives gemm.simt for operands that are not of 16 bits
                .epilogueLanes = 8,
                .offer = offerTiles,
                .text = [](const KernelConfig &c, const ProductText &t) {
                  std::string tile = mmaTileText(c);
                  return Instance{{"gemm"}, "gemmMma<" + tile + ">(" + sizesOf(t) + ");", tile};
                }}};

const Skeleton kGemmSimt = {
    .family = "gemm.simt",
    .block = "t m n k: the same without tensor cores",
    .code = Skeleton::Code::Product,
    .product = {.text = [](const KernelConfig &c, const ProductText &t) {
      return Instance{{"gemm"}, "gemmSimt<" + simtTileText(c) + ">(" + sizesOf(t) + ");", ""};
    }}};

} // namespace lathe
