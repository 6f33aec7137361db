//===- BlockStepsTest.cpp - block-sparse matrices and their packing --*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "lathe/support/BlockSteps.h"
#include "lathe/support/Half.h"
#include "lathe/support/Packing.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <tuple>

using namespace lathe;

namespace {

constexpr uint16_t kMinusZero = 0x8000;

struct Matrix {
  int64_t k, n;
  std::vector<uint16_t> words; ///< [K, N]
  uint16_t at(int64_t i, int64_t c) const { return words[i * n + c]; }
};

/// Floats of 16 bits; of the blocks of 64 x 64 a share is all 0 or -0.
Matrix blockSparse(int64_t k, int64_t n, double zeros) {
  std::mt19937 gen(5);
  const int64_t numbers = (k + 63) / 64, panels = (n + 63) / 64;
  std::vector<bool> has(numbers * panels);
  for (size_t i = 0; i < has.size(); ++i)
    has[i] = double(gen() % 1000) >= zeros * 1000;
  Matrix m{k, n, std::vector<uint16_t>(k * n)};
  for (int64_t i = 0; i < k; ++i)
    for (int64_t c = 0; c < n; ++c)
      m.words[i * n + c] = has[i / 64 * panels + c / 64] ? uint16_t(0x3c00 + gen() % 0x400) : gen() % 4 ? 0 : kMinusZero;
  return m;
}

std::vector<uint16_t> stored(const Matrix &m, bool transposed) {
  std::vector<uint16_t> out = m.words;
  for (int64_t i = 0; transposed && i < m.k; ++i)
    for (int64_t c = 0; c < m.n; ++c)
      out[c * m.k + i] = m.at(i, c);
  return out;
}

BlockSteps stepsOf(const Matrix &m, bool transposed = false) {
  const std::vector<uint16_t> words = stored(m, transposed);
  return BlockSteps::of(MatrixBytes{std::as_bytes(std::span(words)), 16, m.k, m.n, transposed});
}

Result<WeightPacker> packerOf(const Matrix &m, int64_t capacity, bool transposed) {
  return WeightPacker::of(bsrRecipe(capacity, transposed), DType::F16,
                          transposed ? std::vector<int64_t>{m.n, m.k} : std::vector<int64_t>{1, m.k, m.n});
}

TEST(BlockSteps, BlocksThatAreNotAllZero) {
  Matrix m{200, 300, std::vector<uint16_t>(200 * 300)}; // 4 steps of 64 by 5 panels, a pair's second one missing
  auto set = [&](int64_t k, int64_t n) { m.words[k * m.n + n] = 1; };
  set(199, 0);                // number 3 of panel 0
  set(64, 127);               // number 1 of panel 1
  set(150, 64);               // number 2 of panel 1
  set(130, 129), set(191, 191); // both number 2 of panel 2
  m.words[0] = kMinusZero;
  for (bool transposed : {false, true}) {
    const BlockSteps found = stepsOf(m, transposed);
    // Panels 3 and 4 have nothing, and panel 5 is not there: the first block of each stands for it.
    EXPECT_EQ(found.blocks, 3 + 2 + 2);
    // Panels 1 and 2 have number 2 in common, 4 and 5 number 0.
    EXPECT_EQ(found.panels, (std::vector<uint32_t>{0, 3, 1, 2, 4, 5}));
    EXPECT_EQ(found.begins, (std::vector<uint32_t>{0, 2, 4, 5}));
    ASSERT_EQ(found.steps.size(), 5u);
    EXPECT_EQ(found.steps[0].number, 0u);
    EXPECT_FALSE(found.steps[0].has[0]);
    EXPECT_TRUE(found.steps[0].has[1]);
    EXPECT_EQ(found.steps[1].number, 3u);
    EXPECT_TRUE(found.steps[1].has[0]);
    EXPECT_EQ(found.steps[3].number, 2u);
    EXPECT_TRUE(found.steps[3].has[0] && found.steps[3].has[1]);
    EXPECT_EQ(found.steps[3].first, 3u);
    EXPECT_EQ(found.steps[4].first, 5u);
  }
  EXPECT_EQ(BlockSteps::most(200, 300), (std::pair<int64_t, int64_t>(24, 12)));
}

/// The sums of a row as the device computes them: step by step, blocks found where their step says, elements where the
/// swizzle put them.
std::vector<double> multiplied(const std::vector<std::byte> &packed, const std::vector<double> &row, int64_t n) {
  auto word = [&](size_t at) {
    uint32_t w;
    std::memcpy(&w, packed.data() + at, 4);
    return w;
  };
  const size_t bits = word(0), steps = word(4), blocks = word(8), panels = word(12), words = (row.size() + 2047) / 2048;
  std::vector<double> sums((n + 127) / 128 * 128);
  for (int64_t pair = 0; pair < (n + 127) / 128; ++pair)
    for (uint32_t s = word(16 + 4 * pair); s < word(20 + 4 * pair); ++s) {
      const uint32_t number = word(steps + 8 * s), has = word(steps + 8 * s + 4);
      uint32_t block = has >> 2;
      for (int64_t panel = 0; panel < 2; ++panel) {
        EXPECT_EQ(word(bits + 4 * ((2 * pair + panel) * words + number / 32)) >> number % 32 & 1, has >> panel & 1);
        if (!(has >> panel & 1))
          continue;
        for (int64_t c = 0; c < 64; ++c)
          for (int64_t k = 0; k < 64; ++k) {
            uint16_t w;
            std::memcpy(&w, packed.data() + blocks + block * size_t(8192) + c * 128 + ((k / 8) ^ (c % 8)) * 16 + k % 8 * 2, 2);
            const size_t at = number * 64 + k;
            sums[word(panels + 4 * (2 * pair + panel)) * 64 + c] += double(f16ToFloat(w)) * (at < row.size() ? row[at] : 0);
          }
        ++block;
      }
    }
  sums.resize(n);
  return sums;
}

TEST(BlockSteps, PackedWeightsMultiplyAsTheyAre) {
  for (auto [k, n, zeros] : {std::tuple<int64_t, int64_t, double>{256, 256, 0.5}, {200, 330, 0.8}, {64, 8, 0}, {72, 64, 1}, {1032, 520, 0.97}})
    for (bool transposed : {false, true}) {
      const Matrix m = blockSparse(k, n, zeros);
      const std::vector<uint16_t> words = stored(m, transposed);
      const std::span<const std::byte> from = std::as_bytes(std::span(words));
      const int64_t blocks = stepsOf(m).blocks;
      for (int64_t capacity : {blocks, std::min(blocks + 3, BlockSteps::most(k, n).first)}) {
        Result<WeightPacker> packer = packerOf(m, capacity, transposed);
        ASSERT_TRUE(packer.ok()) << packer.status().message();
        ASSERT_TRUE(packer->prepare(from).ok());
        std::vector<std::byte> packed(packer->bytes());
        packer->pack(from, 0, packed);
        std::mt19937 gen(3);
        std::vector<double> row(k), want(n);
        for (double &x : row)
          x = double(int(gen() % 17) - 8);
        for (int64_t c = 0; c < n; ++c)
          for (int64_t i = 0; i < k; ++i)
            want[c] += row[i] * double(f16ToFloat(m.at(i, c)));
        EXPECT_EQ(multiplied(packed, row, n), want) << k << " x " << n;
        // Pieces of any size are parts of the whole.
        for (size_t at = 0; at < packed.size(); at += 5000) {
          std::vector<std::byte> part(std::min<size_t>(5000, packed.size() - at));
          packer->pack(from, at, part);
          EXPECT_TRUE(std::equal(part.begin(), part.end(), packed.begin() + int64_t(at)));
        }
      }
    }
}

TEST(BlockSteps, PanelsThatShareStepsArePaired) {
  // Panels have their blocks in one of three thirds of K, in an order that pairs none.
  Matrix m{12 * 64, 12 * 64, std::vector<uint16_t>(12 * 64 * 12 * 64)};
  for (int64_t n = 0; n < m.n; ++n)
    for (int64_t k = 0; k < m.k; ++k)
      m.words[k * m.n + n] = k / 64 % 3 == n / 64 % 3 ? 0x3c00 : 0;
  const BlockSteps found = stepsOf(m);
  EXPECT_EQ(found.blocks, 12 * 4);
  EXPECT_EQ(found.steps.size(), 6u * 4);
  for (size_t p = 0; p < found.panels.size(); p += 2)
    EXPECT_EQ(found.panels[p] % 3, found.panels[p + 1] % 3);
  // Chance leaves some in common; pairs with more steps come first.
  const BlockSteps random = stepsOf(blockSparse(64 * 64, 32 * 64, 0.75));
  EXPECT_LT(double(random.steps.size()), 0.41 * 64 * 16); // neighbours would have 0.44
  for (size_t p = 2; p < random.begins.size(); ++p)
    EXPECT_LE(random.begins[p] - random.begins[p - 1], random.begins[p - 1] - random.begins[p - 2]);
}

TEST(BlockSteps, WhatDoesNotFitIsRefused) {
  const Matrix m = blockSparse(256, 256, 0.5);
  const int64_t blocks = stepsOf(m).blocks;
  Result<WeightPacker> few = packerOf(m, blocks - 1, false);
  ASSERT_TRUE(few.ok());
  Status refused = few->prepare(std::as_bytes(std::span(m.words)));
  EXPECT_NE(refused.message().find(std::to_string(blocks) + " blocks"), std::string::npos) << refused.message();
  EXPECT_FALSE(packerOf(m, 17, false).ok()); // there are 16
  EXPECT_FALSE(packerOf(m, 0, false).ok());
  EXPECT_FALSE(WeightPacker::of("bsr64c4", DType::F32, {64, 256}).ok());
  EXPECT_FALSE(WeightPacker::of("bsr64c4", DType::I16, {64, 256}).ok());
  for (const char *recipe : {"bsr64c", "bsr64ct", "bsr64c4x", "bsr64c4tt", "bsr64c99999999999999999999", "bsr64c-1"})
    EXPECT_FALSE(WeightPacker::of(recipe, DType::F16, {256, 256}).ok()) << recipe;
  EXPECT_FALSE(WeightPacker::of("bsr64c4", DType::F16, {2, 256, 256}).ok());
}

} // namespace
