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

  /// Enqueues draws from `logits` [R, vocabulary] on the device, of the type that the engine's steps give: a token a
  /// draw, -1 where no logit is a number above -infinity, and what logprobs follow from for each of the list's ranks.
  /// Both come to `staged`, pinned, where read() finds them when all that is over.
  Status draw(const void *logits, const DrawList &list, runtime::Block &staged);
  static void read(const runtime::Block &staged, const DrawList &list, std::span<int64_t> tokens,
                   std::span<engine::RankResult> ranked);
  /// Whether the engine has what feed() launches.
  bool feeds() const { return feeder != nullptr; }
  /// Enqueues, for `count` tokens on the device: those below 0 become what Batch::tokens says of them, by `best` [R] on
  /// the device and the last draws. 0 where there was none to draw.
  Status feed(int64_t *tokens, const int64_t *best, size_t count);

private:
  DeviceSampler(std::shared_ptr<const runtime::Engine> engine, runtime::Device &device, uint32_t vocabulary)
      : engine(std::move(engine)), device(device), vocabulary(vocabulary), powers(device, false), spare(device, false),
        given(device, false), taken(device, false) {}
  Status load(bool clusters);
  Status launch(const engine::Launch &spec, runtime::Function *function, std::span<void *const> buffers,
                std::span<const int64_t> symbols, size_t rows, int64_t sharedBytes);
  Status launchRows(const engine::Launch &spec, runtime::Function *function, std::span<void *const> buffers, size_t rows);

  std::shared_ptr<const runtime::Engine> engine; ///< has the image
  runtime::Device &device;
  uint32_t vocabulary;
  std::unique_ptr<runtime::Module> module;
  engine::Launch sampleSpec, rankSpec, feedSpec;
  runtime::Function *sample = nullptr, *rank = nullptr, *feeder = nullptr;
  runtime::Block powers, spare;
  runtime::Block given, taken; ///< one upload and one download a step
  bool inShared = false;
};

} // namespace lathe::serve

#endif // LATHE_RUNTIME_SERVE_DEVICESAMPLER_H
