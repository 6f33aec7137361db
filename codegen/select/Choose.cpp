//===- Choose.cpp - configurations for a kernel ------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the choosers of both backends share. A chooser only looks at sizes and
// types; the last variant it gives has no guard.
//
//===----------------------------------------------------------------------===//

#include "Choose.h"

#include <algorithm>

namespace lathe {

Result<std::vector<KernelVariant>> chooseVariants(const KernelDesc &desc, const Target &target) {
  if (desc.kind == KernelDesc::Kind::Host || desc.kind == KernelDesc::Kind::Custom)
    return internalError("host steps and custom calls are not generated", "kernel " + desc.name);
  return target.isCuda() ? select::chooseCuda(desc, target) : select::chooseCpu(desc, target);
}

namespace select {

/// Whether a kernel of this configuration computes each element of its result once, by the
/// thread that stores it, and reads what lies there before that. Reductions and products of
/// several threads are left out: one may store while another still reads.
static bool readsBeforeWriting(const KernelConfig &config) {
  if (config.family == "pointwise")
    return true;
  return config.threads == 1 &&
         (config.family == "row" || config.family == "gemm" ||
          config.family.starts_with("conv"));
}

KernelSpec specFor(const KernelDesc &desc, const KernelConfig &config, const DimExpr &grid) {
  KernelSpec spec;
  spec.config = config.str();
  spec.buffers = desc.buffers;
  if (!readsBeforeWriting(config))
    for (BufferArg &buffer : spec.buffers)
      buffer.aliases = -1;
  spec.numInputs = desc.numInputs;
  spec.numOutputs = desc.numOutputs;
  for (const auto &[symbol, range] : desc.symbols)
    spec.symbols.push_back(symbol);
  spec.status = desc.dataIndices;
  LaunchSpec launch;
  launch.function = desc.name;
  launch.grid[0] = grid;
  launch.block[0] = config.threads;
  spec.launches.push_back(std::move(launch));
  return spec;
}

void addVariant(std::vector<KernelVariant> &to, std::vector<DimCondition> guard, KernelSpec spec) {
  if (!to.empty())
    for (LaunchSpec &l : spec.launches)
      l.function += "_v" + std::to_string(to.size());
  to.push_back({std::move(guard), std::move(spec)});
}

bool divides(int64_t d, const DimExpr &e) { return e.exactDiv(DimExpr(d)).has_value(); }

DimRange rangeOf(const DimExpr &e, const KernelDesc &desc) { return e.range(desc.symbols); }

int64_t widestBits(const KernelDesc &desc) {
  int64_t bits = 8;
  for (const BufferArg &b : desc.buffers)
    bits = std::max<int64_t>(bits, bitWidth(b.dtype));
  return bits;
}

} // namespace select
} // namespace lathe
