//===- PeakFlops.cpp - what a configuration can compute at most --*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "lathe/codegen/Skeleton.h"
#include "lathe/codegen/TargetRates.h"

namespace lathe {

static bool usesTensorCores(const Skeleton &form) {
  return form.product.units != ProductForm::Units::Fma || form.conv.tensorCores || form.conv.windows ||
         form.conv.stem || form.attention.tiles;
}

double peakFlops(const Target &target, std::string_view config) {
  const TargetRates rates = ratesOf(target);
  Result<KernelConfig> parsed = KernelConfig::parse(config);
  if (!parsed || !usesTensorCores(*parsed->form))
    return rates.fmaFlops;
  // A stage of wgmma is 128 bytes deep: 64 elements of 16 bits. Bytes are multiplied twice as fast, TF32
  // half as fast.
  constexpr double kHalves = 64;
  bool stages = parsed->form->product.units == ProductForm::Units::Wgmma && parsed->tileK > 0;
  return rates.tensorCoreFlops * (stages ? double(parsed->tileK) / kHalves : 1);
}

bool goesThroughTiles(std::string_view config) {
  Result<KernelConfig> parsed = KernelConfig::parse(config);
  return parsed && usesTensorCores(*parsed->form) && !parsed->form->product.streamsWeights;
}

} // namespace lathe
