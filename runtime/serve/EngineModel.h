//===- EngineModel.h - the steps of an engine -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_RUNTIME_SERVE_ENGINEMODEL_H
#define LATHE_RUNTIME_SERVE_ENGINEMODEL_H

#include "../memory/Memory.h"
#include "DeviceSampler.h"
#include "Scheduler.h"
#include "lathe/engine/Llm.h"
#include "lathe/runtime/lathe.h"

#include <array>
#include <cstddef>
#include <string>

namespace lathe::serve {

struct EngineModelOptions {
  std::string device = "cpu";
  int32_t threads = 0;     ///< CPU; 0: all cores this process may use
  uint32_t blocks = 0;     ///< of the pool
  uint32_t hostBlocks = 0; ///< in host memory, for requests that give way
  uint32_t stepTokens = 0; ///< the most of a step
  bool batchInvariant = false; ///< steps are padded so that the bits of an answer depend on its tokens alone, not
                               ///< on who shares its steps; on a GPU only for
                               ///< engines compiled so, which need no padding
  bool graphs = true;      ///< CUDA
  bool overlap = false;    ///< steps are launched before the ones ahead of them are waited for, where that can be
};

/// An engine with a section `llm` on a device, through the C interface, and the pool of its keys and values.
class EngineModel : public StepModel {
public:
  /// Takes the engine's part of `info`; Unsupported where the device has no kernels for it, Invalid where entry and
  /// section do not fit.
  static Result<std::unique_ptr<EngineModel>> create(const lathe_engine *engine, const engine::LlmInfo &info,
                                                     const EngineModelOptions &options);
  ~EngineModel() override;

  Status launch(Batch &batch, StepResults &into) override;
  int64_t roundedPages(int64_t pages) const override;
  bool draws() const override { return sampler != nullptr; }
  Status draw(const DrawList &list) override;
  bool overlaps() const override { return overlap; }
  Status wait() override;
  void abandon() override;
  Status copyBlock(kv::BlockId from, kv::BlockId to) override;
  Status swapBlock(kv::BlockId device, kv::BlockId host, SwapWay way) override;

private:
  EngineModel() = default;
  /// A step that was launched. What it works on stays until the step after the next one.
  struct Flight {
    const Batch *batch = nullptr;
    std::vector<float> logits; ///< of a padded step
    std::vector<int64_t> best;
    std::vector<std::byte> narrow; ///< logits that are no f32
    int64_t rows = 0, logitDims[2] = {};
    lathe_tensor outputs[4] = {};
    StepResults *into = nullptr;
    const DrawList *draws = nullptr;
    uint64_t step = 0; ///< of the context; 0: nothing is left to wait for there
    // Of a step whose results come from the device by the sampler's side:
    runtime::Block upload;  ///< pinned: what the step takes, on its way there
    runtime::Block results; ///< pinned: `best`, which kernels write there
    runtime::Block drawn;   ///< pinned: what DeviceSampler stages
    runtime::MarkHandle mark = nullptr; ///< behind the draws

    bool isPadded() const { return size_t(rows) != into->best.size(); }
  };

  Status makePool(uint32_t hostBlocks);
  size_t rounded(size_t count) const;
  void giveInputs(const Flight &flight, const int64_t *tokens);
  void pad(Batch &batch) const;
  void tellTokens(Batch &batch) const;
  Status start(Flight &flight);
  Status upload(Flight &flight);
  Status finish(Flight &flight);
  /// The same one for all steps where none overlap, so that graphs find its memory where they know it.
  size_t placeOf(uint64_t number) const { return overlap ? number % std::size(flights) : 0; }
  Flight &flightAt(uint64_t number) { return flights[placeOf(number)]; }

  lathe_context *context = nullptr;
  std::shared_ptr<runtime::Device> device; ///< the context's; outlives the pool
  runtime::Block pool, swapSpace; ///< the blocks; those in host memory
  runtime::Block scales;          ///< of the blocks' codes, if they are codes
  std::unique_ptr<DeviceSampler> sampler; ///< where the engine has kernels that draw
  runtime::Block logitsOnDevice; ///< of the last step, for the sampler
  runtime::Block uploaded;       ///< what it takes, tokens first
  std::string entry;
  std::vector<lathe_tensor> inputs; ///< of a step, as lathe/engine/Llm.h has them
  std::vector<std::array<int64_t, 2>> tableDims; ///< of each group, in those
  std::vector<int64_t> poolDims, scaleDims; ///< scaleDims: empty where keys and values are no codes
  uint64_t poolBytes = 0, blockBytes = 0, scaleBytes = 0, blockScales = 0; ///< blockScales: bytes of a block's scales
  size_t padTo = 1;      ///< tokens and requests of a step are a multiple of it
  bool buckets = false;  ///< sizes of a step are of a short list
  int64_t spareSlot = 0; ///< the first one behind the cache's blocks
  bool overlap = false;
  Flight flights[2];
  uint64_t launchedSteps = 0, waitedSteps = 0;
  uint32_t vocabulary = 0;
  lathe_dtype dtype = LATHE_F32, logitType = LATHE_F32; ///< of the pool; of what the step gives
};

} // namespace lathe::serve

#endif // LATHE_RUNTIME_SERVE_ENGINEMODEL_H
