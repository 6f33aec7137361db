//===- Choice.h - what choosers and descriptors share -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a descriptor (Skeleton.h) says that its family shall run a kernel.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_CODEGEN_CHOICE_H
#define LATHE_CODEGEN_CHOICE_H

#include "lathe/codegen/KernelDesc.h"
#include "lathe/codegen/Skeleton.h"

namespace lathe::select {

/// A spec with the buffers, symbols and status channel of `desc` and one launch
/// with this grid on axis 0.
KernelSpec specFor(const KernelDesc &desc, const KernelConfig &config, const DimExpr &grid);

/// Gives a kernel memory that it writes and reads while it runs, behind its other buffers.
void addWorkspace(KernelSpec &spec, DimExpr bytes);

/// Adds a variant; function names get the variant's number from the second on. Of `otherwise`
/// (KernelVariant) those that need the same buffers and workspace are kept.
void addVariant(std::vector<KernelVariant> &to, std::vector<DimCondition> guard, KernelSpec spec,
                std::vector<KernelSpec> otherwise = {});

/// Whether `e` is a multiple of `d` whatever the symbols are.
bool divides(int64_t d, const DimExpr &e);
DimRange rangeOf(const DimExpr &e, const KernelDesc &desc);
inline bool isHalf(DType t) { return t == DType::F16 || t == DType::BF16; }

// Vectors of kernels that memory bounds.
/// Lanes of 16 bytes of the narrowest float or integer data of the kernel; the wide ones then take
/// several loads.
int64_t vectorLanes(const KernelDesc &desc);
/// Lanes that divide `extent`. A size that is only known at run time gets none: its addresses are
/// aligned to one element, and neighbouring threads still take neighbouring elements.
int64_t lanesFor(int64_t lanes, const DimExpr &extent);
/// The innermost size; 1 of a scalar.
DimExpr lastOf(const std::vector<DimExpr> &dims);
/// Whether what is combined has whole words, as the blocks of a cluster read them from each other.
bool combinesWords(const KernelDesc &desc);

// Tiles of the portable skeletons for products and convolutions, and the spec of one.
KernelConfig mmaTile(const Skeleton &form, int64_t tile, int64_t threads, int64_t stages);
KernelConfig simtTile(const Skeleton &form, int64_t m, int64_t n, int64_t threads);
KernelSpec tiled(const KernelDesc &desc, const KernelConfig &c, const DimExpr &batch,
                 const DimExpr &m, const DimExpr &n);

/// Sizes of a convolution for the portable skeletons, which have up to three spatial dimensions and
/// know the number of filters; a volume is a picture for each plane of its results.
struct PictureSizes {
  DimExpr images, pixels;
  int64_t filters = 0, groupFilters = 0;
  static std::optional<PictureSizes> of(const KernelDesc &desc);
};
/// Tiles of a convolution as a product whose rows TMA makes from images (HopperConv.h).
Result<bool> offerWindows(const KernelDesc &desc, const Target &target,
                          std::vector<KernelVariant> &out);
Result<bool> offerStem(const KernelDesc &desc, const Target &target,
                       std::vector<KernelVariant> &out);

} // namespace lathe::select

#endif // LATHE_CODEGEN_CHOICE_H
