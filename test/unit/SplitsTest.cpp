//===- SplitsTest.cpp - kernels dealt out to 1 to 64 threads ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Workers claim blocks of a kernel's grid as ThreadPool does; here a block takes
// one unit of time and nobody is disturbed. What a kernel of this machine's two
// cores would do on more cores follows from its grid alone.
//
//===----------------------------------------------------------------------===//
#include "../../runtime/device/ThreadPool.h"

#include "lathe/codegen/KernelDesc.h"

#include <gtest/gtest.h>

#include <algorithm>

using namespace lathe;
using runtime::Shares;

namespace {

struct Split {
  int64_t longest = 0; ///< blocks of the busiest worker
  int busy = 0;        ///< workers that got a block
};

/// The worker that is done first claims next.
Split deal(int64_t blocks, int workers) {
  std::vector<int64_t> load(workers);
  Shares shares(workers);
  shares.deal(blocks);
  int64_t begin, end;
  for (auto next = load.begin(); shares.claim(int(next - load.begin()), begin, end);
       next = std::min_element(load.begin(), load.end()))
    *next += end - begin;
  Split split;
  for (int64_t l : load) {
    split.longest = std::max(split.longest, l);
    split.busy += l > 0;
  }
  return split;
}

struct Case {
  std::string name;
  KernelDesc desc;
  double work; ///< floating-point operations, or bytes
};

KernelDesc describe(KernelDesc::Kind kind, std::vector<DimExpr> parallel,
                    std::vector<DimExpr> reduction, std::vector<std::vector<DimExpr>> inputs) {
  KernelDesc d;
  d.name = "k";
  d.kind = kind;
  d.parallel = parallel;
  d.reduction = reduction;
  d.numInputs = inputs.size();
  d.numOutputs = 1;
  inputs.push_back(parallel);
  for (const auto &dims : inputs) {
    BufferArg b;
    b.dims = b.physical = dims;
    d.buffers.push_back(b);
  }
  for (int i = 0; i < d.numInputs; ++i)
    d.operands.push_back({.buffer = i, .isWeight = i == 1 && kind != KernelDesc::Kind::Attention});
  return d;
}

Case gemm(int64_t m, int64_t n, int64_t k) {
  return {"gemm " + std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k),
          describe(KernelDesc::Kind::Gemm, {m, n}, {k}, {{m, k}, {k, n}}), 2.0 * m * n * k};
}

Case conv(int64_t size, int64_t channels, int64_t filters, int64_t window, int64_t stride) {
  KernelDesc d = describe(KernelDesc::Kind::Conv, {1, size, size, filters}, {window, window, channels},
                          {{1, size * stride, size * stride, channels}, {filters, channels, window, window}});
  d.window = {window, window};
  d.strides = {stride, stride};
  d.pads.assign(4, window / 2);
  d.dilations = {1, 1};
  d.groupChannels = channels;
  d.channelsLast = true;
  return {"conv " + std::to_string(size) + " " + std::to_string(channels) + "->" +
              std::to_string(filters) + " " + std::to_string(window) + "/" + std::to_string(stride),
          d, 2.0 * size * size * filters * channels * window * window};
}

std::vector<Case> cases() {
  std::vector<Case> all = {gemm(128, 768, 768),   gemm(128, 3072, 768), gemm(128, 768, 3072),
                           gemm(64, 50257, 768),  gemm(197, 3072, 768), gemm(4096, 768, 768),
                           gemm(1, 3072, 768),    conv(112, 3, 64, 7, 2), conv(56, 64, 256, 1, 1),
                           conv(56, 64, 64, 3, 1), conv(28, 128, 128, 3, 2), conv(14, 256, 1024, 1, 1)};
  auto attention = describe(KernelDesc::Kind::Attention, {1, 12, 128, 64}, {128, 64},
                            {{1, 12, 128, 64}, {1, 12, 128, 64}, {1, 12, 128, 64}});
  all.push_back({"attention", attention, 4.0 * 12 * 128 * 128 * 64});
  all.push_back({"pointwise", describe(KernelDesc::Kind::Pointwise, {128, 3072}, {}, {{128, 3072}}),
                 8.0 * 128 * 3072});
  all.push_back({"rows", describe(KernelDesc::Kind::Reduction, {128}, {768}, {{128, 768}}), 4.0 * 128 * 768});
  auto steps = describe(KernelDesc::Kind::Scan, {32}, {100, 256}, {{100, 32, 1024}, {1024, 256}});
  all.push_back({"recurrence", steps, 2.0 * 100 * 32 * 1024 * 256});
  return all;
}

int64_t blocksOf(const Case &c, const Target &target) {
  auto variants = chooseVariants(c.desc, target);
  EXPECT_TRUE(variants.ok()) << c.name << ": " << variants.status().str();
  return variants.ok() ? *variants->back().spec.launches[0].grid[0].evaluate(std::map<std::string, int64_t>{}) : 0;
}

TEST(Splits, EveryBlockOnceAndNobodyIdle) {
  for (int64_t blocks : {1, 2, 7, 24, 64, 65, 1000, 100000})
    for (int workers = 1; workers <= 64; ++workers) {
      Split split = deal(blocks, workers);
      EXPECT_EQ(split.busy, std::min<int64_t>(blocks, workers)) << blocks << " on " << workers;
      EXPECT_LE(split.longest, (blocks + workers - 1) / workers + 1) << blocks << " on " << workers;
    }
}

// A worker whose core is busy elsewhere keeps only what it has begun; ranges too long for 32 bits
// are dealt out in grains.
TEST(Splits, OthersTakeWhatAWorkerLeaves) {
  for (int64_t blocks : {int64_t(1), int64_t(1000), int64_t(1) << 40}) {
    Shares shares(4);
    shares.deal(blocks);
    std::vector<std::pair<int64_t, int64_t>> taken;
    int64_t begin, end;
    while (shares.claim(2, begin, end))
      taken.push_back({begin, end});
    EXPECT_FALSE(shares.claim(0, begin, end));
    std::sort(taken.begin(), taken.end());
    int64_t at = 0;
    for (auto [first, last] : taken) {
      EXPECT_EQ(first, at);
      EXPECT_LT(first, last);
      at = last;
    }
    EXPECT_EQ(at, blocks);
    EXPECT_LE(taken.size(), 4 * 42u);
  }
}

/// Work that a block may hold at least: some ten microseconds of a core.
constexpr double kGrain = 1.5e6;

TEST(Splits, KernelsKeepWorkersBusy) {
  for (const char *name : {"x86-64-v3", "x86-64-v4", "armv8-a"}) {
    Target target = *Target::parse(name);
    for (const Case &c : cases()) {
      int64_t blocks = blocksOf(c, target);
      for (int workers : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64}) {
        Split split = deal(blocks, workers);
        double speedup = double(blocks) / double(split.longest);
        // As many as there is work for; a block more than there are workers takes a second round.
        double wanted = std::min<double>(workers, c.work / kGrain);
        // Rows of a batch share each step's weights; windows share what they read of one image, so
        // that a batch of one has blocks for eight.
        if (c.name == "recurrence" || (!c.desc.window.empty() && c.desc.window[0] > 1))
          wanted = std::min(wanted, 8.0);
        EXPECT_GE(speedup, 0.5 * wanted)
            << name << ", " << c.name << ": " << blocks << " blocks on " << workers << " threads";
      }
    }
  }
}

// One row has one block: threads share its steps, as many as have a microsecond's work in each.
TEST(Splits, ThreadsShareTheStepsOfARow) {
  struct Row {
    int64_t steps, hidden, members;
  };
  for (Row row : {Row{100, 512, 16}, Row{100, 256, 8}, Row{20, 512, 10}, Row{1, 512, 1},
                  Row{100, 32, 1}}) {
    int64_t gates = 4 * row.hidden;
    KernelDesc d = describe(KernelDesc::Kind::Scan, {1}, {row.steps, row.hidden},
                            {{row.steps, 1, gates}, {gates, row.hidden}});
    auto variants = chooseVariants(d, *Target::parse("x86-64-v4"));
    ASSERT_TRUE(variants.ok());
    const LaunchSpec &l = variants->back().spec.launches[0];
    EXPECT_EQ(std::min(l.cluster[1], l.grid[1].constant().value_or(0)), row.members)
        << row.steps << " x " << row.hidden;
  }
}

} // namespace
