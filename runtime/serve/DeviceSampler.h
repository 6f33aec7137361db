//===- DeviceSampler.h - draws where the logits are -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_RUNTIME_SERVE_DEVICESAMPLER_H
#define LATHE_RUNTIME_SERVE_DEVICESAMPLER_H

#include "../exec/Engine.h"
#include "../memory/Memory.h"
#include "Draws.h"

namespace lathe::serve {

/// The kernels of an engine's image `lathe.sample` on a GPU. One thread, in the order of the device's stream.
class DeviceSampler {
public:
  /// Null where the engine has no such image for the target. `device` outlives the sampler.
  static Result<std::unique_ptr<DeviceSampler>> create(std::shared_ptr<const runtime::Engine> engine,
                                                       const std::string &target, runtime::Device &device,
                                                       uint32_t vocabulary);

  /// Draws from `logits` [R, vocabulary] on the device, of the type that the engine's steps give, and waits: a token a
  /// draw, -1 where no logit is a number above -infinity, and what logprobs follow from for each of the list's ranks.
  Status draw(const void *logits, const DrawList &list, std::span<int64_t> tokens, std::span<engine::RankResult> ranked);

private:
  DeviceSampler(std::shared_ptr<const runtime::Engine> engine, runtime::Device &device, uint32_t vocabulary)
      : engine(std::move(engine)), device(device), vocabulary(vocabulary), powers(device, false), spare(device, false),
        given(device, false), taken(device, false), staged(device, true) {}
  Status load(bool clusters);
  Status launch(const engine::Launch &spec, runtime::Function *function, std::span<void *const> buffers, size_t rows);

  std::shared_ptr<const runtime::Engine> engine; ///< has the image
  runtime::Device &device;
  uint32_t vocabulary;
  std::unique_ptr<runtime::Module> module;
  engine::Launch sampleSpec, rankSpec;
  runtime::Function *sample = nullptr, *rank = nullptr;
  runtime::Block powers, spare;
  runtime::Block given, taken; ///< one upload and one download a step
  runtime::Block staged;       ///< of both, pinned
  bool inShared = false;
};

} // namespace lathe::serve

#endif // LATHE_RUNTIME_SERVE_DEVICESAMPLER_H
