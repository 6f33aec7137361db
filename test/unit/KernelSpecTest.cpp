//===- KernelSpecTest.cpp - text of specs, guards and targets ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "lathe/codegen/KernelSpec.h"
#include "lathe/codegen/TargetRates.h"

#include <gtest/gtest.h>

using namespace lathe;

namespace {

DimExpr dim(const char *text) {
  Result<DimExpr> e = DimExpr::parse(text);
  EXPECT_TRUE(e.ok()) << text;
  return *e;
}

KernelSpec rich() {
  KernelSpec s;
  s.config = "row.t128 \"v8\"";
  s.numInputs = s.numOutputs = 1;
  BufferArg in;
  in.dtype = DType::BF16;
  in.dims = in.physical = {dim("B*S"), 768};
  in.packing = "panels32";
  BufferArg out = in;
  out.dtype = DType::F32;
  out.access = BufferArg::Access::Write;
  out.physical = {dim("B*S"), dim("ceildiv(max(S, 3), 4)*4")};
  out.alignment = 128;
  out.aliases = 0;
  out.packing.clear();
  BufferArg work;
  work.access = BufferArg::Access::ReadWrite;
  work.dtype = DType::UI8;
  work.dims = work.physical = {dim("4*B")};
  s.buffers = {in, out, work};
  s.symbols = {"B", "S"};
  TensorMapArg map;
  map.buffer = 0;
  map.dims = {768, dim("B*S")};
  map.strides = {1536};
  map.box = {64, 128};
  map.swizzleBytes = 128;
  map.im2col = true;
  map.lowerCorner = {-1, -1};
  map.upperCorner = {-2, 0};
  map.steps = {1, 2};
  map.elementBytes = 8;
  TensorMapArg stored = map;
  stored.buffer = 1;
  stored.role = TensorMapArg::Role::Result;
  s.tensorMaps = {map, stored, map};
  s.tensorMaps.back().role = TensorMapArg::Role::Residual;
  LaunchSpec l;
  l.function = "k3";
  l.grid[0] = dim("ceildiv(B, 4)");
  l.grid[1] = dim("min(S, 7)");
  l.block[0] = 128;
  l.cluster[0] = 2;
  l.sharedBytes = dim("4*B + 16");
  l.programmaticDependent = true;
  l.buffers = {0, 2};
  LaunchSpec plain;
  plain.function = "k3_sum";
  s.launches = {l, plain};
  s.workspaceBytes = dim("4*B");
  s.scratchBytes = 4096;
  s.status = true;
  return s;
}

TEST(KernelSpec, RoundTripsEveryField) {
  KernelSpec s = rich();
  Result<KernelSpec> back = KernelSpec::parse(s.str());
  ASSERT_TRUE(back.ok()) << back.status().str() << "\n" << s.str();
  EXPECT_EQ(back->str(), s.str());
  EXPECT_TRUE(*back == s);
}

TEST(KernelSpec, DefaultRoundTrips) {
  KernelSpec s;
  Result<KernelSpec> back = KernelSpec::parse(s.str());
  ASSERT_TRUE(back.ok());
  EXPECT_TRUE(*back == s);
}

TEST(KernelSpec, EveryFieldShowsInTheText) {
  std::string base = rich().str();
  auto differs = [&](auto change) {
    KernelSpec s = rich();
    change(s);
    return s.str() != base;
  };
  EXPECT_TRUE(differs([](KernelSpec &s) { s.config = "x"; }));
  EXPECT_TRUE(differs([](KernelSpec &s) { s.numInputs = 2, s.numOutputs = 0; }));
  EXPECT_TRUE(differs([](KernelSpec &s) { s.buffers[1].aliases = -1; }));
  EXPECT_TRUE(differs([](KernelSpec &s) { s.buffers[0].packing = ""; }));
  EXPECT_TRUE(differs([](KernelSpec &s) { s.buffers[0].alignment = 16; }));
  EXPECT_TRUE(differs([](KernelSpec &s) { s.launches[0].programmaticDependent = false; }));
  EXPECT_TRUE(differs([](KernelSpec &s) { s.launches[0].cluster[0] = 1; }));
  EXPECT_TRUE(differs([](KernelSpec &s) { s.tensorMaps[0].upperCorner[1] = 1; }));
  EXPECT_TRUE(differs([](KernelSpec &s) { s.scratchBytes = 0; }));
  EXPECT_TRUE(differs([](KernelSpec &s) { s.status = false; }));
}

TEST(KernelSpec, ErrorsNameTheLine) {
  struct Case {
    const char *text, *line, *what;
  } cases[] = {
      {"config \"a\nbuffer", "line 1", "unterminated name"},
      {"config \"a\"\nbuffer in read f33 [1] align 4", "line 2", "unknown element type 'f33'"},
      {"buffer in read f32 [1, (2] align 4", "line 1", "unterminated list"},
      {"buffer in read f32 [1+] align 4", "line 1", "bad expression"},
      {"buffer out write f32 [1] align 4\nbuffer in read f32 [1] align 4", "line 2", "in this order"},
      {"launch \"k\" grid [1, 1] block [1, 1, 1]", "line 1", "three values"},
      {"launch \"k\" grid [1, 1, 1] block [B, 1, 1]", "line 1", "expected constants"},
      {"status yes", "line 1", "unexpected text"},
      {"speed 9", "line 1", "unknown item 'speed'"},
  };
  for (const Case &c : cases) {
    Result<KernelSpec> r = KernelSpec::parse(c.text);
    ASSERT_FALSE(r.ok()) << c.text;
    EXPECT_EQ(r.status().code(), ErrorCode::Invalid);
    EXPECT_NE(r.status().str().find(c.line), std::string::npos) << r.status().str();
    EXPECT_NE(r.status().str().find(c.what), std::string::npos) << r.status().str();
  }
}

TEST(KernelSpec, EveryTruncationParsesOrFailsCleanly) {
  std::string text = rich().str();
  for (size_t n = 0; n < text.size(); ++n)
    (void)KernelSpec::parse(std::string_view(text).substr(0, n)).ok();
}

TEST(Guard, RoundTrips) {
  std::vector<DimCondition> g = {
      {DimCondition::Kind::LessEqual, dim("M"), 1},
      {DimCondition::Kind::Divisible, dim("B*K + 1"), 8},
      {DimCondition::Kind::Equal, dim("floordiv(N, 2)"), dim("M + N")},
  };
  EXPECT_EQ(str(g), "M <= 1 && (B*K + 1) % 8 == 0 && floordiv(N, 2) == (M + N)");
  Result<std::vector<DimCondition>> back = parseGuard(str(g));
  ASSERT_TRUE(back.ok()) << back.status().str();
  EXPECT_TRUE(*back == g);
  EXPECT_EQ(str(std::vector<DimCondition>{}), "true");
  EXPECT_TRUE(parseGuard(" true ").ok());
}

TEST(Guard, Errors) {
  for (const char *bad : {"", "M", "M <= ", "M % 8 == 1", "M <= 1 &&", "M < 1"})
    EXPECT_FALSE(parseGuard(bad).ok()) << bad;
}

TEST(Target, KnownNames) {
  for (const std::string &name : Target::knownNames()) {
    Result<Target> t = Target::parse(name);
    if (name == "native" && !t.ok())
      continue; // an old CPU
    ASSERT_TRUE(t.ok()) << name;
    EXPECT_NE(t->name, "native");
    EXPECT_EQ(Target::parse(t->name)->name, t->name);
  }
  Target gpu = *Target::parse("sm_90");
  EXPECT_EQ(gpu.name, "sm_90a");
  EXPECT_TRUE(gpu.isCuda() && gpu.hasTensorCores() && gpu.hasWgmma());
  EXPECT_EQ(gpu.lanes(DType::BF16), 8);
  Target cpu = *Target::parse("x86-64-v4");
  EXPECT_EQ(cpu.lanes(DType::F32), 16);
  EXPECT_EQ(Target::parse("x86-64-v3")->lanes(DType::F64), 4);
}

// A CPU's caches and cores are part of its name where they are not those of its level.
TEST(Target, FactsOfCpus) {
  Target level = *Target::parse("x86-64-v3");
  EXPECT_EQ(level.factsText(), "caches of 32K, 512K and 2M a core, 4 cores");
  Target wide = *Target::parse("x86-64-v3:cores=2:l2=2M");
  EXPECT_EQ(wide.name, "x86-64-v3:l2=2M:cores=2");
  EXPECT_EQ(wide.level(), "x86-64-v3");
  EXPECT_EQ(wide.l2Bytes, 2 << 20);
  EXPECT_EQ(wide.l3Bytes, level.l3Bytes);
  EXPECT_EQ(*Target::parse(wide.name), wide);
  // What a level has anyway is not said twice: equal descriptions are equal targets.
  EXPECT_EQ(*Target::parse("x86-64-v3:l1=32K:l2=512K:l3=2048K:cores=4"), level);
  EXPECT_EQ(Target::parse("native:l2=1M")->l2Bytes, 1 << 20);
  EXPECT_EQ(*Target::parse(Target::parse("native")->name), *Target::parse("native"));
  for (const char *bad : {"x86-64-v3:", "x86-64-v3:l2", "x86-64-v3:l2=", "x86-64-v3:l2=2", "x86-64-v3:l2=2G",
                          "x86-64-v3:l2=0K", "x86-64-v3:l2=9999999999999999999K", "x86-64-v3:l2=-1M", "x86-64-v3:l4=2M",
                          "x86-64-v3:cores=0", "x86-64-v3:cores=2K", "x86-64-v3:l2=2M:", "sm_90a:l2=2M"}) {
    Result<Target> t = Target::parse(bad);
    ASSERT_FALSE(t.ok()) << bad;
    EXPECT_EQ(t.status().code(), ErrorCode::Usage) << bad;
  }
}

TEST(Target, Capabilities) {
  auto can = [](const char *name) {
    Target t = *Target::parse(name);
    std::string all;
    auto say = [&](bool has, const char *what) { all += has ? std::string(" ") + what : ""; };
    say(t.hasTensorCores(), "mma");
    say(t.hasAsyncCopy(), "cp.async");
    say(t.hasClusters(), "clusters");
    say(t.hasProgrammaticLaunch(), "pdl");
    say(t.hasTma(), "tma");
    say(t.hasWgmma(), "wgmma");
    say(t.hasFp8TensorCores(), "fp8");
    return all;
  };
  EXPECT_EQ(can("x86-64-v4"), "");
  EXPECT_EQ(can("sm_80"), " mma cp.async");
  EXPECT_EQ(can("sm_89"), " mma cp.async");
  EXPECT_EQ(can("sm_90a"), " mma cp.async clusters pdl tma wgmma fp8");
  EXPECT_EQ(can("sm_100a"), " mma cp.async clusters pdl"); // what its skeletons are made of
}

TEST(KernelSpec, TensorMapsByRole) {
  KernelSpec spec = rich();
  using Role = TensorMapArg::Role;
  EXPECT_EQ(spec.mapsOf(Role::Operand), std::vector<int>{0});
  EXPECT_EQ(spec.mapsOf(Role::Result), std::vector<int>{1});
  EXPECT_EQ(spec.mapOf(Role::Residual), &spec.tensorMaps[2]);
  EXPECT_EQ(spec.mapOf(Role::Mask), nullptr);
}

TEST(Target, OfAComputeCapability) {
  auto name = [](int major, int minor) { return Target::forGpu(major, minor).name; };
  EXPECT_EQ(name(7, 5), "sm_80");
  EXPECT_EQ(name(8, 0), "sm_80");
  EXPECT_EQ(name(8, 6), "sm_86"); // its blocks have less shared memory than those of sm_80
  EXPECT_EQ(name(8, 9), "sm_89");
  EXPECT_EQ(name(9, 0), "sm_90a");
  EXPECT_EQ(name(10, 0), "sm_100a");
}

TEST(Target, DataSheets) {
  for (const std::string &name : Target::knownNames()) {
    Target target = *Target::parse(name);
    TargetRates rates = ratesOf(target);
    EXPECT_EQ(rates.bytesPerSecond > 0 && rates.fmaFlops > 0 && !rates.card.empty(), target.isCuda())
        << name;
  }
}

TEST(Target, TimesOfLaunches) {
  const Target hopper = *Target::parse("sm_90a");
  auto timeOf = [&](const LaunchWork &work) { return launchTime(hopper, work, 1e12, 1e9); };
  // A grid that fills the device, once bound by operations and once by memory.
  EXPECT_DOUBLE_EQ(timeOf({1000, 2e12, 1e9}).seconds, 2);
  EXPECT_DOUBLE_EQ(timeOf({1000, 2e12, 3e9}).seconds, 3);
  // A quarter of the multiprocessors computes a quarter, and draws half of what memory gives.
  const double quarter = hopper.smCount / 4.0;
  EXPECT_DOUBLE_EQ(timeOf({quarter, 1e12, 0}).seconds, 4);
  EXPECT_DOUBLE_EQ(timeOf({quarter, 1e12, 0}).share, 0.25);
  EXPECT_DOUBLE_EQ(timeOf({quarter, 0, 1e9}).seconds, 2);
  EXPECT_DOUBLE_EQ(timeOf({quarter, 0, 1e9}).share, 0.5);
  EXPECT_DOUBLE_EQ(launchTime(*Target::parse("x86-64-v3"), {1, 2e12, 1e9}, 1e12, 1e9).seconds, 2);
}

TEST(Target, Lists) {
  Result<std::vector<Target>> list = Target::parseList("x86-64-v3, sm_80,sm_90a,sm_90");
  ASSERT_TRUE(list.ok());
  EXPECT_EQ(list->size(), 3u);
  Result<std::vector<Target>> bad = Target::parseList("sm_80,sm_13");
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().code(), ErrorCode::Usage);
  EXPECT_NE(bad.status().message().find("sm_90a"), std::string::npos);
}

} // namespace
