//===- HopperConv.h - convolutions of sm_90a --------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_CODEGEN_SELECT_HOPPERCONV_H
#define LATHE_CODEGEN_SELECT_HOPPERCONV_H

#include "Choose.h"

#include <optional>
#include <span>

namespace lathe::select {

/// Whether windows fit into the fields of an im2col map and of its instruction; `pads`: low ones, then high.
bool fitsImageMaps(std::span<const int64_t> window, std::span<const int64_t> strides, std::span<const int64_t> pads,
                   std::span<const int64_t> dilations);

/// A convolution that conv_hopper.cuh can compute as a product whose rows TMA
/// makes from images: channels last, floats of 16 bits or integers of 8, constant weights.
class HopperConv {
public:
  /// Nothing where the target, the types, the places of the operands or the limits of tensor
  /// maps forbid it.
  static std::optional<HopperConv> of(const KernelDesc &desc, const Target &target);

  /// The tile for numbers of pixels between `from` and `to`, at least 1, whose threads hold fewer
  /// than `sums` sums; no family where there is none.
  KernelConfig choose(int64_t from, int64_t to, int64_t sums = 1 << 20) const;
  /// Whether a configuration of the families conv.pingpong to conv.split is one of this convolution.
  bool allows(const KernelConfig &c) const;
  /// Threads, depth and as many stages as shared memory holds.
  KernelConfig complete(KernelConfig c) const;
  KernelSpec spec(const KernelConfig &config) const;

  DimExpr pixels; ///< of all results

private:
  HopperConv(const KernelDesc &desc, const Target &target) : desc(desc), target(target) {}
  TileFacts facts() const;
  int64_t steps() const { return (depth / channels + tapsOfStage - 1) / tapsOfStage; } ///< stages of the depth
  /// What the descriptor's model says of a configuration for so many pixels of results.
  double timeOf(const KernelConfig &c, double pixelCount) const;
  TensorMapArg imageMap(int64_t rows) const;

  const KernelDesc &desc;
  const Target &target;
  int64_t elementBytes = 2; ///< of images and weights
  int64_t channels = 64;    ///< of a tap in a stage: 128 bytes, what the swizzle spans, or 64
  int64_t tapsOfStage = 1;  ///< taps in a stage: two where channels have 64 bytes
  int64_t filters = 0;      ///< of a group
  int64_t depth = 0;        ///< taps times channels of a group, these filled to a stage
  int64_t taps = 1;
  int64_t resultBytes = 0; ///< of results that go through TMA; 0: they do not
};

/// The first layer of a network: up to four channels given as planes, every second pixel.
class HopperStem {
public:
  static std::optional<HopperStem> of(const KernelDesc &desc, const Target &target);
  KernelSpec spec() const;

private:
  HopperStem(const KernelDesc &desc, const Target &target) : desc(desc), target(target) {}
  const KernelDesc &desc;
  const Target &target;
};

} // namespace lathe::select

#endif // LATHE_CODEGEN_SELECT_HOPPERCONV_H
