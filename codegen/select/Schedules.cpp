//===- Schedules.cpp - families of the CPU's skeletons -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Their emitters are in codegen/tile.
//
//===----------------------------------------------------------------------===//

#include "lathe/codegen/KernelDesc.h"
#include "lathe/codegen/Skeleton.h"
#include "lathe/support/Winograd.h"

#include <algorithm>
#include <cmath>

namespace lathe {

using Code = Skeleton::Code;
using InPlace = Skeleton::InPlace;

const Skeleton kCpuGemm = {
    .family = "gemm",
    .block = "v m n r k s: a share of the units: batch x groups of k panels (n columns) x chunks of r rows, "
             "in register tiles of m rows; s1: each element is one sum along K whatever the rows of its tile, otherwise "
             "tiles of few rows have several",
    .code = Code::CpuProduct,
    .inPlace = InPlace::OneThread};
const Skeleton kCpuGemmBlocks = {
    .family = "gemm.bsr",
    .block = "v m n r k s: as gemm, of constant columns whose blocks of zeros are neither stored nor multiplied; where "
             "a row is not finite, what they would have made of it is added",
    .code = Code::CpuProduct,
    .inPlace = InPlace::OneThread,
    .product = {.leavesOutZeros = true}};
const Skeleton kCpuGemmActive = {
    .family = "gemm.active",
    .block = "v m n r k: as gemm, of one row (m1, r1), whose elements other than zero are listed first: constant columns that "
             "zeros meet are not read",
    .code = Code::CpuProduct,
    .inPlace = InPlace::OneThread,
    .product = {.leavesOutInputs = true}};
const Skeleton kCpuGemmPairs = {
    .family = "gemm.pairs",
    .block = "v m n r k: as gemm, of integers of 8 bits: rows are widened to 16 bits in scratch memory, columns "
             "as they are read, and two neighbours of K are multiplied and added at once",
    .code = Code::CpuProduct,
    .inPlace = InPlace::OneThread,
    .product = {.interleave = 2}};

const Skeleton kCpuGemmBytes = {
    .family = "gemm.bytes",
    .block = "v m n r k: as gemm.pairs, of unsigned bytes by signed ones, four neighbours of K at once",
    .code = Code::CpuProduct,
    .inPlace = InPlace::OneThread,
    .product = {.interleave = 4}};

/// ConvForm::products, by Winograd's algorithm where `form` is not null.
static double convProducts(const KernelDesc &desc, const winograd::Form *form) {
  size_t rank = desc.parallel.size();
  // Unknown sizes stand for large ones.
  auto size = [&](size_t d) {
    return double(desc.parallel[d].constant().value_or(d == 0 ? 1 : 56));
  };
  double images = size(0), high = size(rank - 3), wide = size(rank - 2);
  // Sums that a core makes in the time in which a weight comes from memory.
  constexpr double kStream = 14;
  if (!form)
    return std::max(9 * images * high * wide, 9 * kStream);
  double rows = 0, columns = 0, out = double(form->out), tiles = images;
  for (double length : {high, wide})
    tiles *= std::ceil(length / out);
  for (int64_t i = 0; i < form->in(); ++i) {
    auto have = [&](double length) {
      return form->isForLast(i) ? std::floor(length / out) : std::ceil(length / out);
    };
    rows += have(high);
    columns += have(wide);
  }
  // A transform of a tile's vector of channels or filters takes some cycles a point.
  constexpr double kForward = 6, kBack = 4;
  double transforms = tiles * double(form->points()) *
                      (kForward / double(*desc.parallel[rank - 1].constant()) +
                       kBack / double(desc.groupChannels));
  return std::max(images * rows * columns, kStream * double(form->filters())) + transforms;
}

const Skeleton kCpuConv = {
    .family = "conv",
    .block = "v m n r k s: as gemm; rows are pixels, columns filters. With s, blocks of s rows of results, "
             "whose images are copied with zeros around",
    .code = Code::CpuConv,
    .inPlace = InPlace::OneThread,
    .conv = {.products = [](const KernelDesc &desc) { return convProducts(desc, nullptr); }}};
const Skeleton kCpuConvPairs = {
    .family = "conv.pairs",
    .block = "v m n r k s: as conv, of integers of 8 bits, two neighbouring channels at once (gemm.pairs)",
    .code = Code::CpuConv,
    .product = {.interleave = 2}};
const Skeleton kCpuConvBytes = {
    .family = "conv.bytes",
    .block = "v m n r k s: as conv, of bytes, four neighbouring channels at once (gemm.bytes)",
    .code = Code::CpuConv,
    .product = {.interleave = 4}};
const Skeleton kCpuConvWinograd2 = {
    .family = "conv.winograd2",
    .block = "v m n r k s: as conv, by Winograd's F(2,3) of stride 1 or 2, r tiles; with s, s panels of a "
             "point follow each other",
    .code = Code::CpuConv,
    .inPlace = InPlace::OneThread,
    .conv = {.products = [](const KernelDesc &desc) {
      winograd::Form form{2, desc.strides[0]};
      return convProducts(desc, &form);
    }}};
const Skeleton kCpuConvWinograd4 = {.family = "conv.winograd4",
                                    .block = "v m n r k s: the same by F(4,3)",
                                    .code = Code::CpuConv,
                                    .inPlace = InPlace::OneThread,
                                    .conv = {.products = [](const KernelDesc &desc) {
                                      winograd::Form form{4};
                                      return convProducts(desc, &form);
                                    }}};
const Skeleton kCpuAttention = {
    .family = "attention",
    .block = "v m n r k s: a share of the chunks of r queries of one head; scores and panels of n keys in "
             "scratch memory; k: chunks are of k neighbours in the batch, of which those with equal keys share panels; "
             "s1: as of gemm",
    .code = Code::CpuAttention};
const Skeleton kCpuAttentionListed = {
    .family = "attention.listed",
    .block = "v m n r: as attention's; panels of keys of which the mask hides all from the chunk's queries are listed first "
             "and left out",
    .code = Code::CpuAttention,
    .attention = {.listed = true}};
const Skeleton kCpuTopKInsert = {
    .family = "topk.insert",
    .block = "v: a share of the rows; the best elements so far stay in order in scratch memory",
    .code = Code::InsertTopK};
const Skeleton kCpuTopKMerge = {.family = "topk.merge",
                                .block = "v: a share of the rows, sorted whole in scratch memory",
                                .code = Code::MergeTopK};
const Skeleton kCpuTopKRadix = {
    .family = "topk.radix",
    .block = "v: a share of the rows, each sorted whole in scratch memory by digits of 8 bits, the lowest first",
    .code = Code::RadixTopK};
const Skeleton kCpuNonzero = {
    .family = "nonzero.serial", .block = "everything, in order", .code = Code::CpuNonzero};
const Skeleton kCpuRecurrent = {.family = "recurrent",
                                .block = "v r: all steps of r rows of a batch",
                                .code = Code::Recurrent};

DimExpr radixScratchBytes(const DimExpr &length, int64_t keyBits) {
  constexpr int64_t kCounters = 256, kWord = 8;
  return DimExpr(kWord) * (DimExpr(kCounters) + length * DimExpr(keyBits == 32 ? 2 : 4));
}

DimExpr nmsScratchBytes(const DimExpr &boxes) {
  constexpr int64_t kParts = 5, kNumber = 8, kVector = 128;
  return DimExpr(kParts * kNumber) * boxes + DimExpr(kVector);
}

DimExpr attentionScratchBytes(const KernelConfig &config, const DimExpr &keys,
                              const DimExpr &head) {
  DimExpr rows(config.rows), n(config.tileN);
  DimExpr panels = DimExpr::ceilDiv(keys, n), padded = panels * n;
  DimExpr list = config.form && config.form->attention.listed ? panels : DimExpr(0);
  return DimExpr(4) * (rows * head + head * n + rows * padded + rows + padded * n + list);
}

} // namespace lathe
