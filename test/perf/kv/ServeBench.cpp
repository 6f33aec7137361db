//===- ServeBench.cpp - what a step costs its scheduler ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The median of 400 steps of so many sequences that all generate, over a model that computes nothing: plan, blocks,
// tables, and what comes of the step. With one group of layers, and with one that has a window beside it.
//
//   lathe-serve-bench [SEQUENCES ...]
//
//===----------------------------------------------------------------------===//

#include "../../../runtime/serve/Scheduler.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

using namespace lathe;
using namespace lathe::serve;

namespace {

int64_t nowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class NoModel : public StepModel {
public:
  Status launch(Batch &, StepResults &into) override {
    std::fill(into.best.begin(), into.best.end(), 1);
    return okStatus();
  }
  bool draws() const override { return true; }
  Status draw(const DrawList &) override { return okStatus(); }
  bool overlaps() const override { return true; }
  Status wait() override { return okStatus(); }
  Status copyBlock(kv::BlockId, kv::BlockId) override { return okStatus(); }
};

double medianOfSteps(uint32_t sequences, bool windowed) {
  constexpr uint32_t kPrompt = 200, kSteps = 400;
  kv::Config config;
  config.groups.resize(1);
  if (windowed) {
    config.groups.push_back(config.groups[0]);
    config.groups[1].kind = engine::KvGroupKind::Window;
    config.groups[1].window = 128;
  }
  config.maxSequences = sequences;
  config.maxSequenceTokens = kPrompt + 2 * kSteps;
  config.maxStepTokens = sequences * kPrompt; // all prompts in one step: they generate from then on together
  config.blocks = sequences * (config.maxSequenceTokens / 16 + 1) * uint32_t(config.groups.size());
  NoModel model;
  Limits limits{config.maxStepTokens, sequences, config.maxSequenceTokens, 32000};
  limits.overlap = true;
  auto scheduler = std::move(*Scheduler::create(std::move(*kv::Cache::create(config)), model, limits, nowNs));
  RequestOptions request;
  request.prompt.assign(kPrompt, 7);
  request.maxTokens = 2 * kSteps;
  for (uint32_t i = 0; i < sequences; ++i) {
    request.prompt[0] = i;
    (void)scheduler->submit(request);
  }
  for (uint32_t i = 0; i < 8; ++i)
    (void)scheduler->step();
  if (scheduler->lastBatch().tokens.size() != sequences)
    std::abort(); // steps of something else
  std::vector<int64_t> times(kSteps);
  for (int64_t &time : times) {
    const int64_t begin = nowNs();
    (void)scheduler->step();
    time = nowNs() - begin;
  }
  std::nth_element(times.begin(), times.begin() + kSteps / 2, times.end());
  return double(times[kSteps / 2]) / 1e3;
}

} // namespace

int main(int argc, char **argv) {
  std::vector<uint32_t> counts;
  for (int i = 1; i < argc; ++i)
    counts.push_back(uint32_t(std::max(1, std::atoi(argv[i]))));
  if (counts.empty())
    counts = {1, 64, 256, 1024};
  for (uint32_t sequences : counts)
    std::printf("%5u sequences: %7.2f us a step, %7.2f with a windowed group beside\n", sequences,
                medianOfSteps(sequences, false), medianOfSteps(sequences, true));
}
