//===- CpuSkeleton.h - what tests of the CPU's skeletons share ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_TEST_UNIT_CPUSKELETON_H
#define LATHE_TEST_UNIT_CPUSKELETON_H

#include "CpuKernel.h"

#include "lathe/support/Packing.h"

#include "gtest/gtest.h"

#include <random>

namespace lathe::test {

/// A CPU target that this host runs: lanes of f32, rows of a register tile.
struct Machine {
  std::string target;
  int64_t lanes, rows;
};
inline std::vector<Machine> machines() {
  std::vector<Machine> all;
  if (Target::parse("x86-64-v3")->supportedByHostCpu().ok())
    all.push_back({"x86-64-v3", 8, 6});
  if (Target::parse("x86-64-v4")->supportedByHostCpu().ok())
    all.push_back({"x86-64-v4", 16, 8});
  return all;
}
inline std::string tileConfig(const std::string &family, const Machine &m) {
  return family + ".v" + std::to_string(m.lanes) + ".r" + std::to_string(8 * m.rows) + ".m" +
         std::to_string(m.rows) + ".n" + std::to_string(2 * m.lanes);
}

inline std::vector<float> noise(size_t n, unsigned seed = 1) {
  std::mt19937 gen(seed);
  std::uniform_real_distribution<float> d(-1, 1);
  std::vector<float> v(n);
  for (float &x : v)
    x = d(gen);
  return v;
}

inline void expectNear(const std::vector<float> &got, const std::vector<float> &want,
                       float tolerance, const std::string &what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], want[i], tolerance) << what << " at " << i;
}

inline Bytes packed(const std::string &recipe, const Bytes &raw, DType dtype,
                    const std::vector<int64_t> &dims) {
  auto packer = WeightPacker::of(recipe, dtype, dims);
  EXPECT_TRUE(packer.ok());
  EXPECT_EQ(packer->sourceBytes(), raw.size());
  EXPECT_TRUE(packer->prepare(raw).ok());
  Bytes whole(packer->bytes()), pieces(packer->bytes(), std::byte(0xff));
  packer->pack(raw, 0, whole);
  // Cut anywhere it is the same.
  size_t step = pieces.size() / 7 + 1;
  for (size_t at = 0; at < pieces.size(); at += step)
    packer->pack(raw, at, std::span(pieces).subspan(at, std::min(step, pieces.size() - at)));
  EXPECT_TRUE(whole == pieces) << recipe;
  return whole;
}
inline Bytes packed(const std::string &recipe, const std::vector<float> &w,
                    const std::vector<int64_t> &dims) {
  return packed(recipe, bytesOf(w), DType::F32, dims);
}

} // namespace lathe::test

#endif // LATHE_TEST_UNIT_CPUSKELETON_H
