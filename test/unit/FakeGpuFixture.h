//===- FakeGpuFixture.h - contexts on the fake GPU --------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kernels of the plans by hand as host functions, and a context that runs them.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_TEST_UNIT_FAKEGPUFIXTURE_H
#define LATHE_TEST_UNIT_FAKEGPUFIXTURE_H

#include "../../runtime/device/FakeDriver.h"
#include "RuntimeFixture.h"
#include "lathe/engine/KernelAbi.h"

#include <cstring>

namespace lathe::test {

using runtime::cuda::FakeLaunch;
using runtime::cuda::fakeGpu;
using Dims = std::vector<int64_t>;

template <typename T> T parameter(void **parameters, int i) {
  T v;
  std::memcpy(&v, parameters[i], sizeof v);
  return v;
}

/// The kernels of the scale plan as host functions.
inline void installKernels() {
  auto &gpu = fakeGpu();
  gpu.reset();
  gpu.kernels["scale_add"] = [](const FakeLaunch &, void **p) {
    auto *x = parameter<const float *>(p, 0), *w = parameter<const float *>(p, 1);
    auto *out = parameter<float *>(p, 2);
    for (int64_t i = 0; i < parameter<int64_t>(p, 3); ++i)
      out[i] = x[i] * w[i % 4] + x[i];
  };
  gpu.kernels["relu"] = [](const FakeLaunch &, void **p) {
    auto *x = parameter<const float *>(p, 0);
    auto *out = parameter<float *>(p, 1);
    for (int64_t i = 0; i < parameter<int64_t>(p, 2); ++i)
      out[i] = x[i] > 0 ? x[i] : 0;
  };
  gpu.kernels["look_up"] = [](const FakeLaunch &, void **p) {
    auto *index = parameter<const int64_t *>(p, 1);
    auto *status = parameter<LatheStatusWord *>(p, 5);
    for (int64_t i = 0; i < parameter<int64_t>(p, 3); ++i)
      if (index[i] >= parameter<int64_t>(p, 4))
        *status = {1, static_cast<uint64_t>(index[i]) << 32};
  };
  gpu.kernels["append"] = [](const FakeLaunch &l, void **p) {
    auto *x = parameter<const float *>(p, 0);
    auto *kv = parameter<float *>(p, 1);
    int64_t past = parameter<int64_t>(p, 3), s = parameter<int64_t>(p, 4);
    for (int64_t b = 0; b < l.grid[0]; ++b)
      std::copy_n(x + b * s * 4, s * 4, kv + (b * 8 + past) * 4);
  };
  // With a status channel: an error where the first value is negative.
  gpu.kernels["append_checked"] = [append = gpu.kernels["append"]](const FakeLaunch &l, void **p) {
    append(l, p);
    if (parameter<const float *>(p, 0)[0] < 0)
      *parameter<LatheStatusWord *>(p, 6) = {2, 0};
  };
}

inline std::string fakeImages() {
  return packArchive({{"scale_add", "fake\nscale_add 8 8 8 8\n"},
                      {"relu", "fake\nrelu 8 8 8\n"},
                      {"look_up", "fake\nlook_up 8 8 8 8 8 8\n"},
                      {"append", "fake\nappend 8 8 8 8 8 8\n"},
                      {"append_checked", "fake\nappend_checked 8 8 8 8 8 8 8\n"},
                      {"increment", "fake\nincrement 8 8\n"},
                      {"tma", "fake\ntma 8 128 8\n"},
                      {"count_positive", "fake\ncount_positive 8 8 8\n"},
                      {"pack_positive", "fake\npack_positive 8 8 8\n"}});
}

/// Moves a CPU plan to the fake GPU.
inline Plan onGpu(Plan p) {
  p.target = "sm_90a";
  p.cuda = true;
  for (Kernel &k : p.kernels)
    for (KernelVariant &v : k.variants)
      v.image = k.name;
  return p;
}

struct Gpu {
  rt::Engine engine;
  rt::Context context;
  explicit Gpu(const std::vector<Plan> &plans, bool graphs = true, bool overlap = true)
      : Gpu(plans, optionsOf(graphs, overlap)) {}
  static lathe_options optionsOf(bool graphs, bool overlap) {
    lathe_options o{};
    o.no_graphs = !graphs;
    o.no_overlap = !overlap;
    return o;
  }
  Gpu(const std::vector<Plan> &plans, lathe_options o) {
    installKernels();
    engine = openEngine(makeEngine(plans, fakeImages()));
    o.size = sizeof o;
    rt::Error e = context.create(engine, "fake:0", o);
    EXPECT_FALSE(e) << e.message();
  }
  std::string run(std::initializer_list<lathe_tensor> inputs, std::span<lathe_tensor> outputs,
                  lathe_code expected = LATHE_OK) {
    rt::Error e = context.run("", {inputs.begin(), inputs.size()}, outputs);
    EXPECT_EQ(e.code(), expected) << (e ? e.message() : "success");
    return e ? e.message() : "";
  }
};

inline std::vector<float> makeInput(int64_t b) {
  std::vector<float> x(static_cast<size_t>(b * 4));
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(i % 7) - 3;
  return x;
}
inline void expectScaled(const lathe_tensor &y, const std::vector<float> &x) {
  const auto *p = static_cast<const float *>(y.data);
  for (size_t i = 0; i < x.size(); ++i)
    ASSERT_EQ(p[i], std::max(0.0f, x[i] * static_cast<float>(i % 4 + 1) + x[i])) << i;
}

} // namespace lathe::test

#endif // LATHE_TEST_UNIT_FAKEGPUFIXTURE_H
