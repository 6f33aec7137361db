//===- SampleKernels.cpp - the kernels that draw tokens ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "SampleKernels.h"

#include "lathe/codegen/DeviceLibrary.h"
#include "lathe/engine/SampleAbi.h"

namespace lathe {

const char *sampleKernelName(const Target &target) {
  return target.hasClusters() ? engine::kSampleClusterKernel : engine::kSampleKernel;
}

std::string sampleKernelText(DType logits, const Target &target) {
  const char *type = logits == DType::F32 ? "f32" : logits == DType::F16 ? "f16" : logits == DType::BF16 ? "bf16" : nullptr;
  if (!type)
    return {};
  const bool clusters = target.hasClusters();
  const std::string threads = std::to_string(engine::kSampleThreads);
  const std::string peers = clusters ? "ClusterOf<" + std::to_string(engine::kSampleBlocks) + ">" : "OneBlock";
  const std::string head = "extern \"C\" __global__ void __launch_bounds__(" + threads + ") ";
  return devicePrelude({clusters ? "sample_cluster" : "sample"}) + "\n// Kernel " + sampleKernelName(target) +
         "\n\n" + head + "sampleRows(const " + type + R"( *logits, const SampleDraw *draws, const u32 *words,
    const f64 *powers, u32 *spare, i64 *tokens, i64 vocabulary, i64 inShared, StatusWord *) {
  LATHE_DYNAMIC_SHARED(memory);
  sampleTokens<)" + peers + ", " + threads + R"(>(logits, draws, words, powers, memory, spare, tokens, vocabulary, inShared);
}

)" + head + "rankRows(const " + type + R"( *logits, const RankDraw *draws, const f64 *powers, u32 *spare,
    const i64 *tokens, RankResult *results, i64 vocabulary, i64 inShared, StatusWord *) {
  LATHE_DYNAMIC_SHARED(memory);
  rankTokens<)" + peers + ", " + threads + R"(>(logits, draws, powers, memory, spare, tokens, results, vocabulary, inShared);
}

)" + head + R"(feedTokens(i64 *next, const i64 *best, const i64 *tokens, i64 count, StatusWord *) {
  feedStep(next, best, tokens, count);
}
)";
}

} // namespace lathe
