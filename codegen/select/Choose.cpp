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

/// About what a kernel reads and writes: of what indices pick from no more than its results, of what it updates in
/// place the updates.
static DimExpr bytesMoved(const KernelDesc &desc) {
  DimExpr bytes = 0, picked = 0;
  for (int i = 0; i < desc.numOutputs; ++i) {
    const BufferArg &out = desc.buffers[desc.numInputs + i];
    auto updates = desc.updates.find(i);
    DimExpr elements = product(updates != desc.updates.end() ? updates->second : out.dims);
    picked = picked + elements;
    bytes = bytes + DimExpr::ceilDiv(elements * DimExpr(bitWidth(out.dtype)), 8);
  }
  for (int i = 0; i < desc.numInputs; ++i) {
    const BufferArg &in = desc.buffers[i];
    DimExpr elements = product(in.dims);
    if (desc.dataIndices)
      elements = DimExpr::min(elements, picked);
    bytes = bytes + DimExpr::ceilDiv(elements * DimExpr(bitWidth(in.dtype)), 8);
  }
  return bytes;
}

/// Whether a kernel takes so long that loads through the read-only cache, which are forbidden in a
/// kernel that starts early, gain more than the early start: at the sizes that are optimised for where those are
/// known, else at the largest.
static bool isLong(const KernelDesc &desc) {
  constexpr int64_t kLongBytes = 48 << 20; // about 12 us of an H200's memory
  DimExpr bytes = bytesMoved(desc);
  Result<int64_t> usual = bytes.evaluate(desc.usual);
  return (usual ? *usual : select::rangeOf(bytes, desc).hi) >= kLongBytes;
}

/// Whether a long kernel of rows has so few blocks that an early start pays nevertheless, and registers
/// for what it loads ahead.
static bool isShortOfBlocks(const KernelDesc &desc, const KernelSpec &spec, const KernelConfig &config) {
  constexpr int64_t kBlocks = 4096, kLeast = 128, kMost = 256, kBytes = 4 * 96;
  const LaunchSpec &launch = spec.launches[0];
  int64_t length = product(desc.reduction).constant().value_or(0), bytes = 0;
  for (int i = 0; i < desc.numInputs; ++i)
    if (product(desc.buffers[i].dims).constant().value_or(length) >= length)
      bytes += length * bitWidth(desc.buffers[i].dtype) / 8;
  return config.form->reducesRows && config.stages == 0 && launch.cluster[0] == 1 &&
         config.threads >= kLeast && config.threads <= kMost && bytes <= kBytes * config.threads &&
         launch.grid[0].constant().value_or(kBlocks + 1) <= kBlocks;
}

/// Kernels of one launch start while the one before them ends (programmatic dependent launch) and
/// wait for it before they touch anything; products decide for themselves, since they load weights
/// before.
static void startEarly(const KernelDesc &desc, std::vector<KernelVariant> &variants) {
  for (KernelVariant &variant : variants) {
    Result<KernelConfig> config = KernelConfig::parse(variant.spec.config);
    if (!config || variant.spec.launches.size() != 1)
      continue;
    using Early = Skeleton::Early;
    const Early early = config->form->early;
    if (early == Early::Always ||
        (early == Early::UnlessLong &&
         (!isLong(desc) || isShortOfBlocks(desc, variant.spec, *config))))
      variant.spec.launches[0].programmaticDependent = true;
  }
}

Result<std::vector<KernelVariant>> chooseVariants(const KernelDesc &desc, const Target &target) {
  if (desc.kind == KernelDesc::Kind::Host || desc.kind == KernelDesc::Kind::Custom)
    return internalError("host steps and custom calls are not generated", "kernel " + desc.name);
  if (!target.isCuda())
    return select::chooseCpu(desc, target);
  auto variants = select::chooseCuda(desc, target);
  if (variants.ok() && target.hasProgrammaticLaunch())
    startEarly(desc, *variants);
  return variants;
}

namespace select {

/// Whether a kernel of this configuration computes each element of its result once, by the
/// thread that stores it, and reads what lies there before that. Reductions and products of
/// several threads are left out: one may store while another still reads.
static bool readsBeforeWriting(const KernelConfig &config) {
  using InPlace = Skeleton::InPlace;
  return config.form->inPlace == InPlace::Always ||
         (config.form->inPlace == InPlace::OneThread && config.threads == 1);
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

void addWorkspace(KernelSpec &spec, DimExpr bytes) {
  BufferArg work;
  work.dtype = DType::UI8;
  work.access = BufferArg::Access::ReadWrite;
  work.dims = work.physical = {bytes};
  spec.workspaceBytes = std::move(bytes);
  spec.buffers.push_back(std::move(work));
}

void addVariant(std::vector<KernelVariant> &to, std::vector<DimCondition> guard, KernelSpec spec,
                std::vector<KernelSpec> otherwise) {
  std::erase_if(otherwise, [&](const KernelSpec &other) {
    return other.buffers != spec.buffers || other.workspaceBytes != spec.workspaceBytes ||
           other.launches.size() != spec.launches.size() || other.config == spec.config;
  });
  auto number = [&](KernelSpec &s) {
    for (LaunchSpec &l : s.launches)
      l.function += "_v" + std::to_string(to.size());
  };
  if (!to.empty()) {
    number(spec);
    for (KernelSpec &other : otherwise)
      number(other);
  }
  to.push_back({std::move(guard), std::move(spec), std::move(otherwise)});
}

bool divides(int64_t d, const DimExpr &e) { return e.exactDiv(DimExpr(d)).has_value(); }

DimRange rangeOf(const DimExpr &e, const KernelDesc &desc) { return e.range(desc.symbols); }

Result<std::vector<KernelConfig>> wantedConfigs(const KernelDesc &desc) {
  std::vector<KernelConfig> configs;
  for (size_t at = 0; at <= desc.wanted.size();) {
    size_t end = std::min(desc.wanted.find(',', at), desc.wanted.size());
    Result<KernelConfig> config = KernelConfig::parse(desc.wanted.substr(at, end - at));
    if (!config)
      return config.status();
    configs.push_back(*config);
    at = end + 1;
  }
  return configs;
}

} // namespace select
} // namespace lathe
