//===- ChooseCuda.h - shared by the choosers for GPUs -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_CODEGEN_SELECT_CHOOSECUDA_H
#define LATHE_CODEGEN_SELECT_CHOOSECUDA_H

#include "Choose.h"

namespace lathe::select {

// Each adds the ordered variants of a kernel of its kind.
void pointwise(const KernelDesc &desc, std::vector<KernelVariant> &out);
void scatter(const KernelDesc &desc, std::vector<KernelVariant> &out);
void reduction(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out);
Status attention(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out);

Status gemm(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out);

// Tiles of the portable skeletons for products and convolutions, and the spec of one.
KernelConfig mmaTile(const char *family, int64_t tile, int64_t threads, int64_t stages);
KernelConfig simtTile(const char *family, int64_t m, int64_t n, int64_t threads);
KernelSpec tiled(const KernelDesc &desc, const KernelConfig &c, const DimExpr &batch,
                 const DimExpr &m, const DimExpr &n);

/// The configurations that `desc.wanted`, which is not empty, names.
Result<std::vector<KernelConfig>> wantedConfigs(const KernelDesc &desc);

inline bool isHalf(DType t) { return t == DType::F16 || t == DType::BF16; }

} // namespace lathe::select

#endif // LATHE_CODEGEN_SELECT_CHOOSECUDA_H
