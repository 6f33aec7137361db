//===- ChooseCuda.cpp - configurations on GPUs -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Asks the descriptors of families in the order of Skeletons.def. What those of
// products and attention see is made in ChooseCudaGemm.cpp and
// ChooseCudaAttention.cpp.
//
//===----------------------------------------------------------------------===//

#include "ChooseCuda.h"

#include <algorithm>

namespace lathe::select {

KernelConfig mmaTile(const Skeleton &form, int64_t tile, int64_t threads, int64_t stages) {
  KernelConfig c;
  c.form = &form;
  c.threads = threads;
  c.tileM = c.tileN = tile;
  c.tileK = 32;
  c.stages = stages;
  return c;
}

KernelConfig simtTile(const Skeleton &form, int64_t m, int64_t n, int64_t threads) {
  KernelConfig c;
  c.form = &form;
  c.threads = threads;
  c.tileM = m;
  c.tileN = n;
  c.tileK = m == 128 ? 8 : 16;
  return c;
}

KernelSpec tiled(const KernelDesc &desc, const KernelConfig &c, const DimExpr &batch,
                 const DimExpr &m, const DimExpr &n) {
  KernelSpec spec = specFor(desc, c,
                            batch * DimExpr::ceilDiv(m, DimExpr(c.tileM)) *
                                DimExpr::ceilDiv(n, DimExpr(c.tileN)));
  if (c.form->sharedBytes)
    spec.launches[0].sharedBytes = c.form->sharedBytes(c, {});
  return spec;
}

std::optional<PictureSizes> PictureSizes::of(const KernelDesc &desc) {
  size_t rank = desc.parallel.size();
  std::optional<int64_t> filters = desc.parallel[rank - 1].constant();
  if (!filters || rank > 5)
    return {};
  size_t outer = rank == 5 ? 2 : 1;
  return PictureSizes{product({desc.parallel.begin(), desc.parallel.begin() + outer}),
                      product({desc.parallel.begin() + outer, desc.parallel.end() - 1}), *filters,
                      *filters / std::max<int64_t>(desc.group, 1)};
}

/// Asks each family for its offer of a kind, until one takes the kernel; whether one did.
static Result<bool> ask(const KernelDesc &desc, const Target &target, Offer (*offerOf)(const Skeleton &),
                        std::vector<KernelVariant> &out) {
  for (const Skeleton *skeleton : skeletons())
    if (Offer offer = offerOf(*skeleton)) {
      Result<bool> chosen = offer(desc, target, out);
      if (!chosen || *chosen)
        return chosen;
    }
  return false;
}

static Result<bool> conv(const KernelDesc &desc, const Target &target, std::vector<KernelVariant> &out) {
  if (desc.parallel.size() < 3 || desc.operands.size() < 2)
    return internalError("a convolution needs images, pixels, channels", "kernel " + desc.name);
  return ask(desc, target, [](const Skeleton &s) { return s.conv.offer; }, out);
}

/// Skeletons of contractions; false where none takes the kernel.
static Result<bool> contraction(const KernelDesc &desc, const Target &target,
                                std::vector<KernelVariant> &out) {
  if (desc.serial)
    return false;
  switch (desc.kind) {
  case KernelDesc::Kind::Gemm:
    LATHE_RETURN_IF_ERROR(gemm(desc, target, out));
    return true;
  case KernelDesc::Kind::Conv:
    return conv(desc, target, out);
  case KernelDesc::Kind::Attention:
    return attention(desc, target, out);
  default:
    return false;
  }
}

Variants chooseCuda(const KernelDesc &desc, const Target &target) {
  std::vector<KernelVariant> out;
  Result<bool> chosen = contraction(desc, target, out);
  if (chosen.ok() && !*chosen)
    chosen = ask(desc, target, [](const Skeleton &s) { return s.memory.offer; }, out);
  if (!chosen)
    return chosen.status();
  // Of a row the one for any sizes; variants of products sum alike, and so do those of ragged attention.
  if (desc.batchInvariant && desc.kind != KernelDesc::Kind::Gemm && out.size() > 1) {
    auto formOf = [](const KernelVariant &v) {
      Result<KernelConfig> config = KernelConfig::parse(v.spec.config);
      return config ? config->form : nullptr;
    };
    const Skeleton *last = formOf(out.back());
    out.erase(std::remove_if(out.begin(), out.end() - 1,
                             [&](const KernelVariant &v) { return !last || !last->attention.ragged || formOf(v) != last; }),
              out.end() - 1);
  }
  return out;
}

} // namespace lathe::select
