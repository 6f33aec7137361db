//===- CpuDeviceTest.cpp - thread pool, images, helpers ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "../../runtime/device/CpuDevice.h"
#include "../../runtime/device/CpuFeatures.h"
#include "../../runtime/device/CpuImage.h"
#include "../../runtime/device/Helpers.h"
#include "RuntimeFixture.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <sched.h>
#include <sys/mman.h>

using namespace lathe;
using namespace lathe::runtime;

// Under a sanitizer an absurd allocation shall fail as without it.
extern "C" const char *__asan_default_options() { return "allocator_may_return_null=1"; }
extern "C" const char *__tsan_default_options() { return "allocator_may_return_null=1"; }

namespace {

TEST(ThreadPool, CoversEachIndexOnce) {
  for (int threads : {1, 2, 7}) {
    ThreadPool pool(threads, true);
    std::vector<std::atomic<int>> hits(3000);
    for (int64_t total : {0, 1, 2, 17, 1000, 3000})
      for (int round = 0; round < 50; ++round) {
        pool.run(
            total,
            [](void *context, int, int64_t begin, int64_t end) {
              auto &h = *static_cast<std::vector<std::atomic<int>> *>(context);
              for (int64_t i = begin; i < end; ++i)
                h[static_cast<size_t>(i)].fetch_add(1);
            },
            &hits);
        for (int64_t i = 0; i < 3000; ++i)
          ASSERT_EQ(hits[static_cast<size_t>(i)].exchange(0), i < total) << i;
      }
  }
}

// Where the caller moves to the core of a pinned worker, the worker makes room.
TEST(ThreadPool, LeavesTheCallerItsCore) {
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  std::vector<int> cores;
  for (int i = 0; i < CPU_SETSIZE && cores.size() < 2; ++i)
    if (CPU_ISSET(i, &all))
      cores.push_back(i);
  if (cores.size() < 2)
    GTEST_SKIP() << "one core";
  ThreadPool pool(2, true);
  for (int round = 0; round < 6; ++round) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cores[round % 2], &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    std::atomic<int> seen = -1; // the worker's core
    auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (seen < 0 && std::chrono::steady_clock::now() < end)
      pool.run(
          1000,
          [](void *context, int worker, int64_t, int64_t) {
            if (worker == 1)
              static_cast<std::atomic<int> *>(context)->store(sched_getcpu());
          },
          &seen);
    EXPECT_GE(seen, 0) << "the worker took no part";
    EXPECT_NE(seen, cores[round % 2]);
  }
  sched_setaffinity(0, sizeof all, &all);
}

TEST(CpuImage, LoadsSeveralAtOnce) {
  std::string bytes = test::cpuImage();
  for (int round = 0; round < 3; ++round) {
    auto first = CpuImage::load(bytes), second = CpuImage::load(bytes);
    ASSERT_TRUE(first.ok()) << first.status().str();
    ASSERT_TRUE(second.ok());
    EXPECT_NE(first->symbol("relu"), nullptr);
    EXPECT_NE(first->symbol("relu"), second->symbol("relu"));
    EXPECT_EQ(first->symbol("malloc"), nullptr);
  }
}

TEST(CpuImage, RefusesOtherFiles) {
  std::string bytes = test::cpuImage();
  EXPECT_EQ(CpuImage::load("").status().code(), ErrorCode::Invalid);
  EXPECT_EQ(CpuImage::load(std::string(1000, 'x')).status().code(), ErrorCode::Invalid);
  std::string executable = bytes;
  executable[16] = 2; // ET_EXEC
  EXPECT_EQ(CpuImage::load(executable).status().code(), ErrorCode::Invalid);
  std::string elsewhere = bytes; // EM_X86_64 becomes EM_AARCH64, and the other way round
  elsewhere[18] = static_cast<char>(bytes[18] == 62 ? 183 : 62);
  EXPECT_EQ(CpuImage::load(elsewhere).status().code(), ErrorCode::Unsupported);
  for (size_t n = 0; n < bytes.size() / 4; n += 97)
    EXPECT_FALSE(CpuImage::load(std::string_view(bytes).substr(0, n)).ok()) << n;
}

TEST(Helpers, AreInTheOrderOfTheAbi) {
  const LatheHelpers &h = helperTable();
  double x = 0.7;
  double expected[] = {std::sin(x),   std::cos(x),   std::tan(x),   std::asin(x),  std::acos(x),
                       std::atan(x),  std::sinh(x),  std::cosh(x),  std::tanh(x),  std::asinh(x),
                       std::acosh(1.7), std::atanh(x), std::exp(x), std::expm1(x), std::log(x),
                       std::log1p(x), std::log2(x),  std::erf(x),   std::sqrt(x),  std::cbrt(x),
                       0,             1,             1,             0};
  for (int i = 0; i < LATHE_HELPERS_UNARY; ++i)
    EXPECT_DOUBLE_EQ(h.unary[i](i == 10 ? 1.7 : x), expected[i]) << i;
  EXPECT_EQ(h.unary[22](2.5), 2) << "ties to even";
  EXPECT_DOUBLE_EQ(h.binary[0](x, 2), x * x);
  EXPECT_DOUBLE_EQ(h.binary[1](x, 2), std::atan2(x, 2));
  EXPECT_DOUBLE_EQ(h.binary[2](x, 0.3), std::fmod(x, 0.3));
}

TEST(CpuFeatures, KnowsWhatIsThere) {
  EXPECT_EQ(missingCpuFeature({}), "");
#if defined(__x86_64__)
  EXPECT_EQ(missingCpuFeature({"sse2", "cmov"}), "");
  EXPECT_EQ(missingCpuFeature({"avx2"}), __builtin_cpu_supports("avx2") ? "" : "avx2");
  EXPECT_EQ(missingCpuFeature({"avx512f"}), __builtin_cpu_supports("avx512f") ? "" : "avx512f");
  EXPECT_EQ(missingCpuFeature({"fma"}), __builtin_cpu_supports("fma") ? "" : "fma");
  EXPECT_EQ(missingCpuFeature({"neon"}), "neon");
  EXPECT_EQ(missingCpuFeature({"sse2", "no-such-thing"}), "no-such-thing");
#elif defined(__aarch64__)
  EXPECT_EQ(missingCpuFeature({"fp-armv8", "neon"}), "");
  EXPECT_EQ(missingCpuFeature({"avx2"}), "avx2");
  EXPECT_EQ(missingCpuFeature({"neon", "no-such-thing"}), "no-such-thing");
#endif
}

/// exp through the helper table, with scratch memory per worker.
TEST(CpuDevice, GivesHelpersAndScratch) {
  CpuDevice device(3, false);
  std::string bytes = test::cpuImage();
  auto module = device.load(bytes);
  ASSERT_TRUE(module.ok()) << module.status().str();
  engine::Kernel k = test::makeKernel("exponential", 2), none = test::makeKernel("nothing", 2);
  auto function = (*module)->function("", k.variants[0].launches[0]);
  ASSERT_TRUE(function.ok());
  EXPECT_FALSE((*module)->function("", none.variants[0].launches[0]).ok());
  std::vector<float> x(1000, 0.5f), y(1000);
  void *buffers[] = {x.data(), y.data()};
  int64_t n = 1000;
  LaunchCommand c;
  c.function = *function;
  c.variant = &k.variants[0];
  c.spec = &k.variants[0].launches[0];
  c.grid[0] = 63;
  c.scratchBytes = 64;
  c.buffers = buffers;
  c.symbols = {&n, 1};
  ASSERT_TRUE(device.launch(c).ok());
  for (float v : y)
    ASSERT_FLOAT_EQ(v, std::exp(0.5f));
  c.grid[1] = INT64_MAX;
  EXPECT_EQ(device.launch(c).code(), ErrorCode::RuntimeFailure);
}

size_t pagesThere(void *memory, size_t bytes) {
  std::vector<unsigned char> there(bytes / 4096);
  EXPECT_EQ(mincore(memory, bytes, there.data()), 0);
  size_t count = 0;
  for (unsigned char page : there)
    count += page & 1;
  return count;
}

/// Memory has its pages when it is made where that is asked for, and else when it is written.
TEST(CpuDevice, MakesPagesAheadWhereWanted) {
  constexpr size_t kBytes = size_t(48) << 20, kPages = kBytes / 4096;
  CpuDevice lazy(1, false), eager(1, false, /*prefault=*/true);
  Result<void *> later = lazy.allocate(kBytes), now = eager.allocate(kBytes);
  ASSERT_TRUE(later.ok() && now.ok());
  EXPECT_LT(pagesThere(*later, kBytes), kPages / 2);
  EXPECT_EQ(pagesThere(*now, kBytes), kPages);
  lazy.setPrefault(true);
  Result<void *> after = lazy.allocate(kBytes);
  ASSERT_TRUE(after.ok());
  EXPECT_EQ(pagesThere(*after, kBytes), kPages);
  lazy.free(*later), lazy.free(*after), eager.free(*now);
}

TEST(CpuDevice, FailsAllocationsPolitely) {
  CpuDevice device(1, false);
  EXPECT_EQ(device.allocate(SIZE_MAX - 4096).status().code(), ErrorCode::RuntimeFailure);
  EXPECT_EQ(device.allocate(size_t(1) << 60).status().code(), ErrorCode::RuntimeFailure);
}

} // namespace
