//===- TwoOfFourTest.cpp - 2:4 sparse matrices and their packing --*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "lathe/support/Packing.h"
#include "lathe/support/TwoOfFour.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <tuple>

using namespace lathe;

namespace {

constexpr uint16_t kMinusZero = 0x8000;

/// [K, N] words of 16 bits with at most two of four along K other than zero; zeros are 0 or -0.
std::vector<uint16_t> sparseMatrix(int64_t k, int64_t n) {
  std::mt19937 gen(7);
  std::vector<uint16_t> w(k * n);
  for (int64_t c = 0; c < n; ++c)
    for (int64_t g = 0; g < k; g += kGroupOfFour) {
      const int64_t a = gen() % 4, b = gen() % 4; // one, where they are the same
      for (int64_t i = 0; i < std::min(kGroupOfFour, k - g); ++i)
        w[(g + i) * n + c] = i == a || i == b ? uint16_t(1 + gen() % 30000) : gen() % 3 ? 0 : kMinusZero;
    }
  return w;
}

std::vector<uint16_t> stored(const std::vector<uint16_t> &w, int64_t k, int64_t n, bool transposed) {
  std::vector<uint16_t> out = w;
  for (int64_t i = 0; transposed && i < k; ++i)
    for (int64_t c = 0; c < n; ++c)
      out[c * k + i] = w[i * n + c];
  return out;
}

MatrixBytes matrixOf(const std::vector<uint16_t> &words, int64_t k, int64_t n, bool transposed) {
  return {std::as_bytes(std::span(words)), 16, k, n, transposed};
}

TEST(TwoOfFour, TheFirstThirdOfFourIsFound) {
  for (bool transposed : {false, true}) {
    std::vector<uint16_t> w = sparseMatrix(16, 5);
    EXPECT_FALSE(firstOffence(matrixOf(stored(w, 16, 5, transposed), 16, 5, transposed)));
    for (int64_t k = 8; k < 12; ++k)
      w[k * 5 + 3] = k == 9 ? 0 : 1; // the third is at 11
    for (int64_t k = 0; k < 4; ++k)
      w[k * 5 + 4] = 1;
    const std::vector<uint16_t> bytes = stored(w, 16, 5, transposed);
    std::optional<TwoOfFourOffence> bad = firstOffence(matrixOf(bytes, 16, 5, transposed));
    ASSERT_TRUE(bad);
    EXPECT_EQ(bad->k, 11);
    EXPECT_EQ(bad->n, 3);
    EXPECT_DOUBLE_EQ(sampledTwoOfFour(matrixOf(bytes, 16, 5, transposed)).good, 18 / 20.0);
    auto packer = WeightPacker::of(twoOfFourRecipe(transposed), DType::F16,
                                   transposed ? std::vector<int64_t>{5, 16} : std::vector<int64_t>{16, 5});
    ASSERT_TRUE(packer.ok());
    Status refused = packer->prepare(std::as_bytes(std::span(bytes)));
    EXPECT_FALSE(refused.ok());
    EXPECT_NE(refused.message().find("k 11, column 3"), std::string::npos) << refused.message();
  }
}

TEST(TwoOfFour, SamplesTellWhatWasMeant) {
  std::vector<uint16_t> dense(64, 1), none(64), two(64);
  for (int64_t i = 0; i < 64; i += 4)
    two[i] = two[i + 3] = 1;
  auto sampleOf = [](const std::vector<uint16_t> &w) { return sampledTwoOfFour(matrixOf(w, 64, 1, false), 8); };
  EXPECT_EQ(sampleOf(dense).good, 0);
  EXPECT_EQ(sampleOf(none).good, 1);
  EXPECT_EQ(sampleOf(none).full, 0);
  EXPECT_EQ(sampleOf(two).good, 1);
  EXPECT_EQ(sampleOf(two).full, 1);
  EXPECT_EQ(sampledTwoOfFour({}).good, 0);
}

TEST(TwoOfFour, KeptPlacesDifferAndAscend) {
  std::vector<uint16_t> w = {0, 0, 0, 5, kMinusZero, 0, 0, 0, 9, 0, 8, 0, 0, 3};
  const MatrixBytes m = matrixOf(w, 14, 1, false);
  EXPECT_EQ(keptOfFour(m, 0, 0), (std::array<int, 2>{0, 3}));
  EXPECT_EQ(keptOfFour(m, 1, 0), (std::array<int, 2>{0, 1}));
  EXPECT_EQ(keptOfFour(m, 2, 0), (std::array<int, 2>{0, 2}));
  EXPECT_EQ(keptOfFour(m, 3, 0), (std::array<int, 2>{0, 1})); // a group of two
}

/// Element [k, n] as mma.sp finds it: an element of a core matrix, where its word's lane says that it was.
uint16_t unpacked(const std::vector<std::byte> &packed, int64_t k, int64_t n, int64_t depth, int64_t columns) {
  const int64_t panels = (columns + 15) / 16, steps = (depth + 63) / 64, step = k / 64, panel = n / 16, row = n % 16;
  const int64_t half = k % 64 / 32, group = k % 32 / 4; // of a product by 32 of K
  uint32_t word;
  const int64_t lane = row % 8 * 4 + half * 2 + group / 4;
  std::memcpy(&word, packed.data() + panels * steps * 1024 + ((panel * steps + step) * 32 + lane) * 4, 4);
  for (int64_t i = 0; i < 2; ++i)
    if ((word >> (row / 8 * 16 + group % 4 * 4 + i * 2) & 3) == k % 4) {
      const int64_t kept = half * 16 + group * 2 + i;
      uint16_t value;
      std::memcpy(&value, packed.data() + (((panel * steps + step) * 2 + row / 8) * 4 + kept / 8) * 128 + row % 8 * 16 + kept % 8 * 2, 2);
      return value;
    }
  return 0;
}

TEST(TwoOfFour, PackingKeepsEveryElement) {
  for (auto [k, n] : {std::pair<int64_t, int64_t>{64, 16}, {200, 45}, {8, 1}, {132, 130}, {6, 3}})
    for (bool transposed : {false, true}) {
      const std::vector<uint16_t> w = sparseMatrix(k, n), bytes = stored(w, k, n, transposed);
      auto packer = WeightPacker::of(twoOfFourRecipe(transposed), DType::BF16,
                                     transposed ? std::vector<int64_t>{1, n, k} : std::vector<int64_t>{k, n});
      ASSERT_TRUE(packer.ok());
      auto from = std::as_bytes(std::span(bytes));
      ASSERT_TRUE(packer->prepare(from).ok());
      std::vector<std::byte> packed(packer->bytes());
      EXPECT_EQ(int64_t(packed.size()), (n + 15) / 16 * ((k + 63) / 64) * (1024 + 128)); // 9/16 of whole panels
      packer->pack(from, 0, packed);
      for (int64_t i = 0; i < k; ++i)
        for (int64_t c = 0; c < n; ++c)
          EXPECT_EQ(unpacked(packed, i, c, k, n) & 0x7fff, w[i * n + c] & 0x7fff) << i << ", " << c;
      // Pieces of any size are parts of the whole.
      for (size_t at = 0; at < packed.size(); at += 700) {
        std::vector<std::byte> part(std::min<size_t>(700, packed.size() - at));
        packer->pack(from, at, part);
        EXPECT_TRUE(std::equal(part.begin(), part.end(), packed.begin() + int64_t(at)));
      }
    }
}

/// Element [k, n] of 8 bits as wgmma.sp finds it: a word has the places of 32 of K of a column.
uint8_t unpackedByte(const std::vector<std::byte> &packed, int64_t k, int64_t n, int64_t depth, int64_t columns) {
  const int64_t panels = (columns + 15) / 16, steps = (depth + 127) / 128, step = k / 128, panel = n / 16, row = n % 16;
  const int64_t lane = row % 8 * 4 + k % 64 / 32 * 2 + row / 8, group = k % 32 / 4;
  uint32_t word;
  std::memcpy(&word, packed.data() + panels * steps * 1024 + (((panel * steps + step) * 32 + lane) * 2 + k % 128 / 64) * 4, 4);
  for (int64_t i = 0; i < 2; ++i)
    if ((word >> (group * 4 + i * 2) & 3) == k % 4) {
      const int64_t kept = k % 128 / 4 * 2 + i;
      return uint8_t(packed[(((panel * steps + step) * 2 + row / 8) * 4 + kept / 16) * 128 + row % 8 * 16 + kept % 16]);
    }
  return 0;
}

TEST(TwoOfFour, PackingKeepsEveryByte) {
  for (DType type : {DType::F8E4M3FN, DType::F8E5M2, DType::I8, DType::UI8})
    for (auto [k, n] : {std::pair<int64_t, int64_t>{128, 16}, {400, 45}, {8, 1}, {6, 3}})
      for (bool transposed : {false, true}) {
        const std::vector<uint16_t> wide = sparseMatrix(k, n);
        std::vector<uint8_t> w(wide.size());
        for (size_t i = 0; i < w.size(); ++i) // of integers 0x80 is a number
          w[i] = (wide[i] & 0x7fff) == 0 ? (isFloat(type) && wide[i] ? 0x80 : 0) : wide[i] % 3 ? uint8_t(1 + wide[i] % 120) : 0x80;
        std::vector<uint8_t> bytes = w;
        for (int64_t i = 0; transposed && i < k; ++i)
          for (int64_t c = 0; c < n; ++c)
            bytes[c * k + i] = w[i * n + c];
        auto packer = WeightPacker::of(twoOfFourRecipe(transposed, 8), type,
                                       transposed ? std::vector<int64_t>{n, k} : std::vector<int64_t>{k, n});
        ASSERT_TRUE(packer.ok());
        auto from = std::as_bytes(std::span(bytes));
        ASSERT_TRUE(packer->prepare(from).ok());
        std::vector<std::byte> packed(packer->bytes());
        EXPECT_EQ(int64_t(packed.size()), (n + 15) / 16 * ((k + 127) / 128) * (1024 + 256)); // 5/8 of whole panels
        packer->pack(from, 0, packed);
        const uint8_t counted = isFloat(type) ? 0x7f : 0xff;
        for (int64_t i = 0; i < k; ++i)
          for (int64_t c = 0; c < n; ++c)
            EXPECT_EQ(unpackedByte(packed, i, c, k, n) & counted, w[i * n + c] & counted) << i << ", " << c;
      }
}

TEST(TwoOfFour, OtherTypesAndShapesAreRefused) {
  EXPECT_FALSE(WeightPacker::of("sparse24", DType::F32, {64, 16}).ok());
  EXPECT_FALSE(WeightPacker::of("sparse24", DType::I16, {64, 16}).ok());
  EXPECT_FALSE(WeightPacker::of("sparse24x", DType::F16, {64, 16}).ok());
  EXPECT_FALSE(WeightPacker::of("sparse24x8", DType::F16, {64, 16}).ok());
  EXPECT_FALSE(WeightPacker::of("sparse24", DType::F8E4M3FN, {64, 16}).ok());
  EXPECT_FALSE(WeightPacker::of("sparse24x8", DType::Bool, {64, 16}).ok());
  EXPECT_FALSE(WeightPacker::of("sparse24t", DType::F16, {2, 64, 16}).ok());
  EXPECT_FALSE(WeightPacker::of("sparse24", DType::F16, {64}).ok());
  EXPECT_FALSE(WeightPacker::of("sparse24", DType::F16, {0, 16}).ok());
}

} // namespace
