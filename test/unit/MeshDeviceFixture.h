//===- MeshDeviceFixture.h - a mesh of fake GPUs ----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An engine for two or more ranks, and its collective kernels as functions that keep to lathe/engine/CollectiveAbi.h.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_TEST_UNIT_MESHDEVICEFIXTURE_H
#define LATHE_TEST_UNIT_MESHDEVICEFIXTURE_H

#include "FakeGpuFixture.h"
#include "lathe/engine/CollectiveAbi.h"

#include <functional>

namespace lathe::test {

using namespace lathe::engine;

/// The collective kernels as functions. One call of all ranks at a time; each gives its part into its slots, of which
/// there are two in turns, and goes on when all have.
struct Collectives {
  int64_t lost = -1; ///< a rank that does not come: what waits for it says so
  int64_t ranks = 2;

  void install() {
    for (const char *name : {"allReduceOneShot", "allReduceTwoShot", "allReduceDirect"})
      fakeGpu().meetings[name] = [this, name = std::string(name)](const FakeLaunch &, void **p) {
        const auto count = parameter<int64_t>(p, 5);
        return meet(p, 6, name == "allReduceDirect", name == "allReduceDirect", count * 4,
                    [=](std::vector<const float *> parts, float *out) {
          for (int64_t i = 0; i < count; ++i) {
            out[i] = 0;
            for (const float *part : parts)
              out[i] += part[i];
          }
        });
      };
    fakeGpu().meetings["allGather"] = [this](const FakeLaunch &, void **p) {
      const auto rows = parameter<int64_t>(p, 5), run = parameter<int64_t>(p, 6) / 4;
      EXPECT_EQ(run % 4, 0);
      return meet(p, 7, false, true, rows * run * 4, [=](std::vector<const float *> parts, float *out) {
        for (int64_t row = 0; row < rows; ++row)
          for (const float *part : parts)
            out = std::copy_n(part + row * run, run, out);
      });
    };
    fakeGpu().meetings["reduceScatter"] = [this](const FakeLaunch &, void **p) {
      const auto rows = parameter<int64_t>(p, 5), run = parameter<int64_t>(p, 6), rank = parameter<int64_t>(p, 4);
      EXPECT_EQ(run % 4, 0);
      return meet(p, 7, true, false, rows * run * ranks * 4,
                  [=, ranks = ranks](std::vector<const float *> wholes, float *out) {
        for (int64_t row = 0; row < rows; ++row)
          for (int64_t i = 0; i < run; ++i) {
            out[row * run + i] = 0;
            for (const float *whole : wholes)
              out[row * run + i] += whole[(row * ranks + rank) * run + i];
          }
      });
    };
  }

  bool meet(void **p, int next, bool wantsIn, bool wantsOut, int64_t bytes,
            const std::function<void(std::vector<const float *>, float *)> &finish) {
    const auto *in = parameter<const float *>(p, 0);
    auto *out = parameter<float *>(p, 1);
    auto *arenas = parameter<char *>(p, 2);
    const auto stride = parameter<int64_t>(p, 3), rank = parameter<int64_t>(p, 4);
    EXPECT_GT(parameter<int64_t>(p, next), 0) << "a timeout";
    auto *status = parameter<LatheStatusWord *>(p, next + 2);
    auto isOperand = [&](const void *at) {
      const auto *byte = static_cast<const char *>(at), *own = arenas + rank * stride;
      return byte >= own + arenaOperandOffset(ranks) && byte < own + stride;
    };
    EXPECT_TRUE(!wantsIn || isOperand(in));
    EXPECT_TRUE(!wantsOut || isOperand(out));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(in) % 16, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(out) % 16, 0u);
    auto headerOf = [&](int64_t r) { return reinterpret_cast<ArenaHeader *>(arenas + r * stride); };
    ArenaHeader &own = *headerOf(rank);
    const uint32_t call = own.epochs[0] + 1;
    const int64_t half = arenaSlotBytes(ranks) / 2;
    EXPECT_LE(bytes, half);
    auto slotOf = [&](int64_t r) { return arenas + r * stride + kArenaHeaderBytes + call % 2 * half; };
    if (lost >= 0 && lost != rank)
      for (int64_t r = 0; r < ranks; ++r)
        headerOf(r)->abort = uint32_t(1 + lost);
    if (own.abort) {
      *status = {kStatusPeerLost, uint64_t(lost >= 0 ? lost : (rank + 1) % ranks) << 32};
      return true;
    }
    if (lost == rank)
      return false;
    if (own.begun[0][rank] != call) {
      std::memcpy(slotOf(rank), in, size_t(bytes));
      own.begun[0][rank] = call;
    }
    std::vector<const float *> parts;
    for (int64_t r = 0; r < ranks; ++r) {
      if (headerOf(r)->begun[0][r] < call)
        return false;
      parts.push_back(reinterpret_cast<const float *>(slotOf(r)));
    }
    finish(parts, out);
    own.epochs[0] = call;
    return true;
  }
};

/// Rank r: t = x * w[r] + x, then a collective of t into u, in the arena or y itself; w[0] = {1, 2, 3, 4}, ten times
/// that on rank 1, and so on.
inline Plan meshPlan(const std::string &collective = "all_reduce", bool intoArena = false, int64_t ranks = 2) {
  Plan p = makeScalePlan("sm_90a", true);
  p.ranks = ranks;
  p.weights[0].shards = ranks;
  const DimExpr b = DimExpr::symbol("B");
  const int64_t columns = collective == "all_gather" ? 4 * ranks : collective == "reduce_scatter" ? 4 / ranks : 4;
  p.buffers[3] = makeBuffer("y", BufferKind::Output, 0, DType::F32, {b, columns});
  p.outputs[0].dims = {b, columns};
  int32_t to = 3;
  if (intoArena) {
    p.arenas[0].bytes = b * 64 + 128;
    to = int32_t(p.buffers.size());
    p.buffers.push_back(makeBuffer("u", BufferKind::Arena, 0, DType::F32, {b, columns}, b * 16 + 64));
    p.buffers.back().alignment = 16;
  }
  p.blocks[0][1] = Step{CollectiveStep{collective, 0, {2}, {to}, Reduction::Sum, 1}, {"Sum_2"}};
  if (intoArena)
    p.blocks[0].push_back(Step{LaunchStep{1, {to, 3}, {b * columns}}, {"Relu_3"}});
  else
    p.kernels.resize(1);
  return p;
}

inline std::string meshEngine(const Plan &plan) {
  EngineWriter w("mesh test");
  float factor = 1;
  for (int32_t rank = 0; rank < plan.ranks; ++rank, factor *= 10) {
    float weights[4] = {factor, 2 * factor, 3 * factor, 4 * factor};
    EXPECT_TRUE(w.addWeight(shardSection("weights", rank), {reinterpret_cast<char *>(weights), 16}).ok());
  }
  Status added = w.addPlan(plan);
  EXPECT_TRUE(added.ok()) << added.str();
  std::string all = "fake\nallReduceOneShot 8 8 8 8 8 8 8 8 8\nallReduceTwoShot 8 8 8 8 8 8 8 8 8\n"
                    "allReduceDirect 8 8 8 8 8 8 8 8 8\nallGather 8 8 8 8 8 8 8 8 8 8\n"
                    "reduceScatter 8 8 8 8 8 8 8 8 8 8\n";
  EXPECT_TRUE(w.addKernels(plan.target, packArchive({{"scale_add", "fake\nscale_add 8 8 8 8\n"},
                                                     {"relu", "fake\nrelu 8 8 8\n"},
                                                     {collectiveImage(Reduction::Sum, DType::F32), all}}))
                  .ok());
  return *w.str();
}

} // namespace lathe::test

#endif // LATHE_TEST_UNIT_MESHDEVICEFIXTURE_H
