//===- NvrtcTest.cpp - compiling the device library --------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "lathe/codegen/CollectiveKernels.h"
#include "lathe/codegen/DeviceLibrary.h"
#include "lathe/codegen/Nvrtc.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <unistd.h>
#include <gtest/gtest.h>

using namespace lathe;
using namespace lathe::nvrtc;
namespace fs = std::filesystem;

namespace {

/// Opens NVRTC with an empty cache folder of its own; skips the test without NVRTC.
class NvrtcTest : public ::testing::Test {
protected:
  void SetUp() override {
    folder = fs::temp_directory_path() /
             ("lathe-nvrtc-test-" + std::to_string(::testing::UnitTest::GetInstance()->random_seed()) +
              "-" + std::to_string(getpid()) + "-" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder);
    setenv("LATHE_CACHE_DIR", folder.c_str(), 1);
    Result<std::shared_ptr<Compiler>> opened = Compiler::open();
    if (!opened)
      GTEST_SKIP() << opened.status().str();
    compiler = *opened;
  }
  void TearDown() override { fs::remove_all(folder); }

  fs::path folder;
  std::shared_ptr<Compiler> compiler;
};

constexpr const char *kTargets[] = {"sm_80", "sm_89", "sm_90a", "sm_100a"};

CompileJob job(std::string source, std::string target = "sm_80") {
  CompileJob j;
  j.name = "k.cu";
  j.source = std::move(source);
  j.target = std::move(target);
  return j;
}

constexpr const char *kScale =
    "extern \"C\" __global__ void __launch_bounds__(128) scale(f32 *x, i64 n) {\n"
    "  i64 i = (i64)blockIdx.x * 128 + threadIdx.x;\n"
    "  if (i < n) x[i] = mathExp(x[i]);\n"
    "}\n";

TEST_F(NvrtcTest, CompilesForEveryTarget) {
  std::vector<CompileJob> jobs;
  for (const char *t : kTargets)
    jobs.push_back(job(devicePrelude({"math"}) + kScale, t));
  std::vector<Result<Cubin>> cubins = compiler->compileAll(jobs);
  for (size_t i = 0; i < jobs.size(); ++i) {
    ASSERT_TRUE(cubins[i].ok()) << jobs[i].target << ": " << cubins[i].status().str();
    EXPECT_EQ(cubins[i]->image.substr(0, 4), "\x7f" "ELF");
    ASSERT_EQ(cubins[i]->report.kernels.size(), 1u);
    EXPECT_EQ(cubins[i]->report.kernels[0].name, "scale");
    EXPECT_GT(cubins[i]->report.kernels[0].registers, 0);
    EXPECT_FALSE(cubins[i]->fromCache);
  }
}

TEST_F(NvrtcTest, EveryModuleCompilesAlone) {
  std::vector<CompileJob> jobs;
  for (std::string_view m : deviceModules())
    jobs.push_back(job(devicePrelude({m}) + "extern \"C\" __global__ void k() {}\n"));
  std::vector<Result<Cubin>> cubins = compiler->compileAll(jobs);
  for (size_t i = 0; i < jobs.size(); ++i)
    EXPECT_TRUE(cubins[i].ok()) << cubins[i].status().str();
}

TEST_F(NvrtcTest, CollectivesCompileForAnyRanks) {
  std::vector<CompileJob> jobs;
  for (int64_t ranks : {2, 3, 4, 8})
    jobs.push_back(job(collectiveKernelText(ranks, "sum", DType::BF16, true), "sm_90a"));
  jobs.push_back(job(collectiveKernelText(8, "max", DType::F32, false), "sm_80"));
  jobs.push_back(job(collectiveKernelText(2, "sum", DType::F16, true), "sm_100a"));
  jobs.push_back(job(collectiveKernelText(4, "min", DType::I8, false), "sm_80"));
  jobs.push_back(job(collectiveKernelText(4, "prod", DType::F64, false), "sm_80"));
  const size_t kernels[] = {5, 5, 5, 5, 5, 5, 3, 3};
  std::vector<Result<Cubin>> cubins = compiler->compileAll(jobs);
  for (size_t i = 0; i < jobs.size(); ++i) {
    ASSERT_TRUE(cubins[i].ok()) << i << ": " << cubins[i].status().str();
    EXPECT_EQ(cubins[i]->report.kernels.size(), kernels[i]) << i;
  }
  EXPECT_EQ(collectiveKernelText(1, "sum", DType::F32, true), "");
  EXPECT_EQ(collectiveKernelText(9, "sum", DType::F32, true), "");
  EXPECT_EQ(collectiveKernelText(2, "mean", DType::F32, true), "");
  EXPECT_EQ(collectiveKernelText(2, "sum", DType::Bool, true), "");
}

TEST_F(NvrtcTest, CacheGivesTheSameBytes) {
  CompileJob j = job(devicePrelude({"math"}) + kScale);
  Result<Cubin> first = compiler->compile(j), second = compiler->compile(j);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_FALSE(first->fromCache);
  EXPECT_TRUE(second->fromCache);
  EXPECT_EQ(first->image, second->image);
  EXPECT_EQ(first->report.kernels, second->report.kernels);
  CompileJob other = j;
  other.options.push_back("-DOTHER=1");
  EXPECT_FALSE(compiler->compile(other)->fromCache);
}

TEST_F(NvrtcTest, DamagedCacheFileIsCompiledAgain) {
  CompileJob j = job(devicePrelude({"math"}) + kScale);
  Result<Cubin> first = compiler->compile(j);
  ASSERT_TRUE(first.ok());
  fs::path file;
  for (const fs::directory_entry &e : fs::recursive_directory_iterator(folder))
    if (e.is_regular_file())
      file = e.path();
  ASSERT_FALSE(file.empty());
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary).seekp(200).put('?');
  Result<Cubin> second = compiler->compile(j);
  ASSERT_TRUE(second.ok());
  EXPECT_FALSE(second->fromCache);
  EXPECT_EQ(first->image, second->image);
  fs::resize_file(file, 10);
  EXPECT_FALSE(compiler->compile(j)->fromCache);
}

TEST_F(NvrtcTest, ErrorNamesTheLine) {
  Result<Cubin> r = compiler->compile(job("extern \"C\" __global__ void k() {\n  nonsense;\n}\n"));
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.status().code(), ErrorCode::Internal);
  EXPECT_EQ(r.status().location(), "k.cu:2");
  EXPECT_NE(r.status().message().find("nonsense"), std::string::npos);
}

TEST_F(NvrtcTest, SpillsFailUnlessTolerated) {
  CompileJob j = job("extern \"C\" __global__ void __launch_bounds__(1024, 2) k(float *x) {\n"
                     "  float v[64];\n"
                     "  for (int i = 0; i < 64; ++i) v[i] = x[i * 1024 + threadIdx.x];\n"
                     "  __syncthreads();\n"
                     "  for (int i = 0; i < 64; ++i) x[i * 1024 + threadIdx.x] = v[63 - i] * v[(i * 7) % 64];\n"
                     "}\n");
  Result<Cubin> r = compiler->compile(j);
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.status().code(), ErrorCode::Unsupported);
  EXPECT_NE(r.status().message().find("spill"), std::string::npos);
  j.tolerateFindings = true;
  r = compiler->compile(j);
  ASSERT_TRUE(r.ok());
  EXPECT_FALSE(r->report.findings.empty());
}

TEST_F(NvrtcTest, UnknownTarget) {
  Result<Cubin> r = compiler->compile(job("", "sm_13"));
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.status().code(), ErrorCode::Unsupported);
}

TEST(NvrtcLog, ReadsResourcesAndFindings) {
  LogReport r = parseLog(
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : Compiling entry function 'a' for 'sm_90a'\n"
      "ptxas info    : Function properties for a\n"
      "    32 bytes stack frame, 124 bytes spill stores, 128 bytes spill loads\n"
      "ptxas info    : Used 232 registers, used 1 barriers, 32 bytes cumulative stack size, 2048 bytes smem\n"
      "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized\n"
      "ptxas info    : Compiling entry function 'b' for 'sm_90a'\n"
      "ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored\n"
      "    8 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads\n" // around a call: harmless
      "ptxas info    : Used 16 registers\n");
  ASSERT_EQ(r.kernels.size(), 2u);
  EXPECT_EQ(r.kernels[0], (KernelResources{"a", 232, 32, 124, 128, 2048}));
  EXPECT_EQ(r.kernels[1].registers, 16);
  ASSERT_EQ(r.findings.size(), 3u);
  EXPECT_EQ(r.findings[0].kind, Finding::Kind::SerializedWgmma);
  EXPECT_EQ(r.findings[1].kind, Finding::Kind::IgnoredSetMaxNReg);
  EXPECT_EQ(r.findings[2].kind, Finding::Kind::Spills);
}

TEST(NvrtcOpen, MissingLibraryIsATypedError) {
  const char *old = std::getenv("LATHE_NVRTC");
  std::string saved = old ? old : "";
  setenv("LATHE_NVRTC", "/nonexistent/libnvrtc.so", 1);
  Result<std::shared_ptr<Compiler>> r = Compiler::open();
  if (old)
    setenv("LATHE_NVRTC", saved.c_str(), 1);
  else
    unsetenv("LATHE_NVRTC");
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.status().code(), ErrorCode::Unsupported);
  EXPECT_NE(r.status().message().find("/nonexistent/libnvrtc.so"), std::string::npos);
}

} // namespace
