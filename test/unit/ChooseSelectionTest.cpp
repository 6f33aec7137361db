//===- ChooseSelectionTest.cpp - configurations of selections -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "lathe/codegen/Config.h"
#include "lathe/codegen/KernelDesc.h"
#include "lathe/codegen/Skeleton.h"

#include <gtest/gtest.h>

using namespace lathe;

namespace {

KernelDesc scan(std::vector<DimExpr> rows) {
  KernelDesc d;
  d.name = "k";
  d.kind = KernelDesc::Kind::Scan;
  d.parallel = rows;
  d.numInputs = d.numOutputs = 1;
  d.buffers.resize(2);
  return d;
}

/// Of the variant that a run with so many elements takes.
std::string familyAt(const std::vector<KernelVariant> &all, int64_t length) {
  for (const KernelVariant &v : all) {
    bool holds = true;
    for (const DimCondition &c : v.guard)
      holds &= *c.lhs.evaluate({{"N", length}}) <= *c.rhs.evaluate({{"N", length}});
    if (holds)
      return std::string(KernelConfig::parse(v.spec.config)->family());
  }
  return "none";
}

TEST(Choose, TransformsByLengths) {
  auto chosen = [](DimExpr rows, int64_t length, bool complexRows = false) {
    KernelDesc d = scan({rows});
    d.transform = {rows, length, complexRows, 8};
    d.symbols["N"] = {0, DimRange::kUnbounded};
    auto all = chooseVariants(d, *Target::parse("sm_90a"));
    return all.ok() && all->size() == 1 ? all->front().spec : KernelSpec{};
  };
  EXPECT_EQ(chosen(24000, 400).config, "fourier.t128.r5");
  EXPECT_EQ(chosen(24000, 400).launches[0].grid[0], DimExpr(4800));
  EXPECT_EQ(chosen(24000, 400).launches[0].sharedBytes, DimExpr(5 * 212 * 32));
  EXPECT_EQ(chosen(998, 512).config, "fourier.t128.r2"); // three blocks for each multiprocessor
  EXPECT_EQ(chosen(2045, 2048).config, "fourier.t256");
  EXPECT_EQ(chosen(DimExpr::symbol("N"), 512).config, "fourier.t128.r4");
  EXPECT_EQ(chosen(9, 4096, true).config, "fourier.t512");
}

TEST(Choose, SelectionsBySizes) {
  auto chosen = [](int64_t rows, int64_t length, int64_t count, int64_t keyBits = 32) {
    KernelDesc d = scan({rows});
    d.selection = {KernelDesc::Selection::Kind::TopK, rows, length, count, keyBits};
    auto all = chooseVariants(d, *Target::parse("sm_90a"));
    return all.ok() && all->size() == 1 ? all->front().spec : KernelSpec{};
  };
  EXPECT_EQ(chosen(8192, 128, 8).config, "topk.short.t128.r4");
  EXPECT_EQ(chosen(8192, 128, 8).launches[0].grid[0], DimExpr(2048));
  EXPECT_EQ(chosen(4096, 50257, 50).config, "topk.row.t256.n2048");
  EXPECT_EQ(chosen(1, 2000, 2000).config, "topk.t512.n2048");
  KernelSpec parts = chosen(1, 131072, 50);
  EXPECT_EQ(parts.config, "topk.parts.t256.n2048");
  ASSERT_EQ(parts.launches.size(), 2u);
  EXPECT_EQ(parts.launches[0].grid[0], DimExpr(32));
  EXPECT_EQ(parts.workspaceBytes, DimExpr(32 * 50 * 8));
  EXPECT_EQ(chosen(1, 1 << 24, 1 << 24).launches.size(), 6u);
  EXPECT_EQ(chosen(1, 1 << 24, 1 << 24, 64).config, "topk.sort.t256.s8");
  EXPECT_EQ(chosen(1, 1 << 24, 1 << 24, 64).launches.size(), 10u);
  // What the device code lays out there (CudaSelectionTest.cpp, radix and radix_part).
  EXPECT_EQ(chosen(2, 9000, 9000).workspaceBytes, DimExpr(333056));
  EXPECT_EQ(chosen(1, 5000, 3000, 64).workspaceBytes, DimExpr(158912));

  // Sizes of the run.
  const DimExpr n = DimExpr::symbol("N");
  KernelDesc d = scan({1});
  d.symbols["N"] = DimRange{0, int64_t(1) << 33};
  d.selection = {KernelDesc::Selection::Kind::TopK, 1, n, n, 32};
  auto all = chooseVariants(d, *Target::parse("sm_90a"));
  ASSERT_TRUE(all.ok());
  for (auto [length, family] : std::initializer_list<std::pair<int64_t, const char *>>{
           {20, "topk.short"}, {1000, "topk.row"}, {2000, "topk"}, {5000, "topk.sort"}, {int64_t(1) << 32, "topk"}})
    EXPECT_EQ(familyAt(*all, length), family) << length;

  d.selection = {KernelDesc::Selection::Kind::Nonzero, 1, n, n, 32};
  all = chooseVariants(d, *Target::parse("sm_90a"));
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(familyAt(*all, 100), "nonzero.block");
  EXPECT_EQ(familyAt(*all, 1 << 20), "nonzero");

  for (auto [kind, family] : {std::pair(KernelDesc::Selection::Kind::Mark, "marks"),
                              std::pair(KernelDesc::Selection::Kind::MarkedPlaces, "marks.places")}) {
    d.selection = {kind, 1, n, n, 32};
    all = chooseVariants(d, *Target::parse("sm_90a"));
    ASSERT_TRUE(all.ok());
    for (int64_t length : {0, 100, 1 << 20})
      EXPECT_EQ(familyAt(*all, length), family) << length;
  }
}

// On a CPU few places of a row are kept in order while it is read, up to 256 of a long one; else it is sorted, a long row by
// digits.
TEST(Choose, SelectionsOnACpu) {
  auto chosen = [](int64_t length, int64_t count, int64_t keyBits = 32) {
    KernelDesc d = scan({3});
    d.selection = {KernelDesc::Selection::Kind::TopK, 3, length, count, keyBits};
    auto all = chooseVariants(d, *Target::parse("x86-64-v3"));
    return all.ok() && all->size() == 1 ? all->front().spec : KernelSpec{};
  };
  auto family = [&](int64_t length, int64_t count) { return std::string(KernelConfig::parse(chosen(length, count).config)->family()); };
  EXPECT_EQ(family(40, 40), "topk.insert");
  EXPECT_EQ(family(100, 48), "topk.insert");
  EXPECT_EQ(family(100, 49), "topk.merge");
  EXPECT_EQ(family(127, 127), "topk.merge");
  EXPECT_EQ(family(128, 128), "topk.radix");
  EXPECT_EQ(family(6400, 50), "topk.insert");
  EXPECT_EQ(family(6400, 51), "topk.radix");
  EXPECT_EQ(family(32768, 256), "topk.insert");
  EXPECT_EQ(family(1 << 20, 256), "topk.insert");
  EXPECT_EQ(family(1 << 20, 257), "topk.radix");
  EXPECT_EQ(family(int64_t(1) << 32, 300), "topk.merge"); // a place has 32 bits there
  EXPECT_EQ(chosen(1 << 20, 256).scratchBytes, DimExpr(256 * 12 + 64));
  EXPECT_EQ(chosen(5000, 5000).scratchBytes, radixScratchBytes(5000, 32));
  EXPECT_EQ(radixScratchBytes(5000, 32), DimExpr(8 * (256 + 2 * 5000)));
  EXPECT_EQ(radixScratchBytes(5000, 64), DimExpr(8 * (256 + 4 * 5000)));

  const DimExpr n = DimExpr::symbol("N");
  KernelDesc d = scan({1});
  d.symbols["N"] = DimRange{0, DimRange::kUnbounded};
  d.selection = {KernelDesc::Selection::Kind::TopK, 1, n, n, 64};
  auto all = chooseVariants(d, *Target::parse("x86-64-v3"));
  ASSERT_TRUE(all.ok());
  for (auto [length, family] : std::initializer_list<std::pair<int64_t, const char *>>{
           {48, "topk.insert"}, {49, "topk.merge"}, {128, "topk.radix"}, {UINT32_MAX, "topk.radix"}, {int64_t(1) << 32, "topk.merge"}})
    EXPECT_EQ(familyAt(*all, length), family) << length;
}

} // namespace
