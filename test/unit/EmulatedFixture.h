//===- EmulatedFixture.h - models for a GPU without one ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Whole models for sm_90a on the fake device, whose kernels are the generated
// CUDA text under emulation: plan, launches, arguments, device memory and
// kernels together, compared with the CPU's results of the same engine.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_TEST_UNIT_EMULATEDFIXTURE_H
#define LATHE_TEST_UNIT_EMULATEDFIXTURE_H

#include "EmulatedKernels.h"

#include "../../runtime/device/FakeDriver.h"

#include "lathe/codegen/Nvrtc.h"
#include "lathe/compiler/Compiler.h"
#include "lathe/runtime/lathe.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <unistd.h>

namespace lathe::test {

namespace fs = std::filesystem;

/// Makes the fake device run the kernels of a dump; "" or why not.
inline std::string installKernels(const fs::path &dump, const fs::path &folder) {
  EmulatedKernels kernels;
  if (std::string why = kernels.build(dump, folder); !why.empty())
    return why;
  return kernels.install([](const std::string &name, const std::string &message) {
    ADD_FAILURE() << name << ": " << message;
  });
}

struct Outputs {
  std::string error;
  std::vector<std::vector<char>> data;
  std::vector<lathe_dtype> types;
};

/// Runs the first entry with random inputs; `sizes` gives symbols other values than the usual ones.
inline Outputs runOn(const lathe_engine *engine, const char *device,
                     const std::map<std::string, int64_t> &sizes) {
  Outputs out;
  auto failed = [&](lathe_error *e) {
    if (e)
      out.error = lathe_error_message(e);
    lathe_error_free(e);
    return e != nullptr;
  };
  lathe_options options{};
  options.size = sizeof options;
  options.no_graphs = 1; // a captured launch of a real cubin keeps no parameters here
  lathe_context *context = nullptr;
  if (failed(lathe_context_create(engine, device, &options, &context)))
    return out;
  auto sizeOf = [&](const std::string &formula) -> int64_t {
    if (auto it = sizes.find(formula); it != sizes.end())
      return it->second;
    for (size_t i = 0; i < lathe_engine_symbol_count(engine, nullptr); ++i)
      if (const lathe_symbol *s = lathe_engine_symbol(engine, nullptr, i); formula == s->name)
        return s->opt;
    return std::stoll(formula);
  };
  size_t count = lathe_engine_input_count(engine, nullptr);
  std::vector<std::vector<int64_t>> dims(count);
  std::vector<std::vector<char>> data(count);
  std::vector<lathe_tensor> inputs;
  for (size_t i = 0; i < count; ++i) {
    const lathe_port *port = lathe_engine_input(engine, nullptr, i);
    for (int32_t d = 0; d < port->rank; ++d)
      dims[i].push_back(sizeOf(port->dims[d]));
    data[i].resize(lathe_tensor_bytes(port->dtype, port->rank, dims[i].data()));
    std::mt19937 gen(i + 1);
    std::uniform_real_distribution<float> noise(-1, 1);
    if (port->dtype == LATHE_F32)
      for (size_t k = 0; k < data[i].size() / 4; ++k)
        reinterpret_cast<float *>(data[i].data())[k] = noise(gen);
    else if (port->dtype == LATHE_I32)
      for (size_t k = 0; k < data[i].size() / 4; ++k)
        reinterpret_cast<int32_t *>(data[i].data())[k] = static_cast<int32_t>(gen() % 256);
    inputs.push_back({data[i].data(), data[i].size(), port->dtype, LATHE_HOST, port->rank,
                      dims[i].data(), nullptr});
  }
  std::vector<lathe_tensor> outputs(lathe_engine_output_count(engine, nullptr));
  if (!failed(lathe_run(context, nullptr, inputs.data(), inputs.size(), outputs.data(),
                        outputs.size())))
    for (const lathe_tensor &t : outputs) {
      auto *p = static_cast<const char *>(t.data);
      out.data.emplace_back(p, p + t.bytes);
      out.types.push_back(t.dtype);
    }
  lathe_context_destroy(context);
  return out;
}

class EmulatedFixture : public ::testing::Test {
protected:
  void SetUp() override {
    if (auto nvrtc = nvrtc::Compiler::open(); !nvrtc)
      GTEST_SKIP() << nvrtc.status().str();
    char name[] = "/tmp/lathe-emulated-XXXXXX";
    folder = mkdtemp(name);
  }
  void TearDown() override {
    if (!folder.empty())
      fs::remove_all(folder);
  }

  /// Both devices agree within `tolerance` of the largest value, for each of the sizes.
  void check(const std::string &model, const std::vector<std::map<std::string, int64_t>> &sizes,
             double tolerance, std::vector<std::string> dims = {}) {
    CompileOptions options;
    options.targets = {"x86-64-v3", "sm_90a"};
    options.dims = std::move(dims);
    options.dumpDir = folder / "dump";
    Result<CompileResult> compiled = compileModel(model, options);
    ASSERT_TRUE(compiled.ok()) << compiled.status().str();
    ASSERT_EQ(installKernels(folder / "dump", folder), "");
    lathe_engine *engine = nullptr;
    lathe_error *e =
        lathe_engine_open_memory(compiled->bytes.data(), compiled->bytes.size(), &engine);
    ASSERT_EQ(e, nullptr) << lathe_error_message(e);
    for (const auto &values : sizes) {
      Outputs want = runOn(engine, "cpu", values), got = runOn(engine, "fake:0", values);
      ASSERT_EQ(want.error, "");
      ASSERT_EQ(got.error, "");
      ASSERT_EQ(want.data.size(), got.data.size());
      EXPECT_FALSE(runtime::cuda::fakeGpu().launches.empty());
      for (size_t o = 0; o < want.data.size(); ++o) {
        ASSERT_EQ(want.data[o].size(), got.data[o].size());
        if (want.types[o] != LATHE_F32) {
          EXPECT_EQ(want.data[o], got.data[o]);
          continue;
        }
        auto *w = reinterpret_cast<const float *>(want.data[o].data());
        auto *g = reinterpret_cast<const float *>(got.data[o].data());
        size_t n = want.data[o].size() / 4;
        float largest = 0;
        for (size_t i = 0; i < n; ++i)
          largest = std::max(largest, std::fabs(w[i]));
        for (size_t i = 0; i < n; ++i)
          ASSERT_NEAR(g[i], w[i], tolerance * largest) << "output " << o << " at " << i;
      }
    }
    lathe_engine_close(engine);
  }

  fs::path folder;
};

} // namespace lathe::test

#endif // LATHE_TEST_UNIT_EMULATEDFIXTURE_H
