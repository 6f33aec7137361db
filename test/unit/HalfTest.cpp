//===- HalfTest.cpp - narrow floating-point formats ------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All codes of every narrow type, known values (from ml_dtypes), and rounding
// against the neighbours.
//
//===----------------------------------------------------------------------===//
#include "lathe/support/Half.h"
#include "lathe/support/HostTensor.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <random>

using namespace lathe;

namespace {

constexpr DType kNarrow[] = {DType::F16,        DType::BF16,   DType::F8E4M3FN, DType::F8E4M3FNUZ,
                             DType::F8E5M2,     DType::F8E5M2FNUZ, DType::F8E8M0, DType::F4E2M1};
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

TEST(Half, EveryCodeRoundTrips) {
  for (DType type : kNarrow)
    for (uint64_t bits = 0; bits < uint64_t(1) << bitWidth(type); ++bits) {
      double value = decodeFloat(type, bits);
      uint64_t again = encodeFloat(type, value);
      if (std::isnan(value))
        EXPECT_TRUE(std::isnan(decodeFloat(type, again))) << name(type) << " " << bits;
      else
        EXPECT_EQ(again, bits) << name(type);
    }
}

TEST(Half, RoundsToNearestEvenNeighbour) {
  for (DType type : kNarrow) {
    if (type == DType::F8E8M0)
      continue;
    uint64_t end = uint64_t(1) << (bitWidth(type) - 1);
    for (uint64_t bits = 0; bits + 1 < end; ++bits) {
      double low = decodeFloat(type, bits), high = decodeFloat(type, bits + 1);
      if (!std::isfinite(low) || !std::isfinite(high))
        continue;
      double middle = low + (high - low) / 2;
      EXPECT_EQ(encodeFloat(type, middle), bits + (bits & 1)) << name(type) << " " << bits;
      EXPECT_EQ(encodeFloat(type, std::nextafter(middle, 0)), bits);
      EXPECT_EQ(encodeFloat(type, std::nextafter(middle, kInf)), bits + 1);
    }
  }
}

TEST(Half, KnownCodes) {
  struct Case {
    DType type;
    double value;
    uint64_t bits;
  };
  double nan = std::nan("");
  for (Case c : std::initializer_list<Case>{
           {DType::F16, 1, 0x3c00},          {DType::F16, 65519, 0x7bff},
           {DType::F16, 65520, 0x7c00},      {DType::F16, 0x1p-25, 0},
           {DType::F16, -0.0, 0x8000},       {DType::F16, nan, 0x7e00},
           {DType::BF16, 1, 0x3f80},         {DType::BF16, nan, 0x7fc0},
           {DType::F8E4M3FN, 464, 0x7e},     {DType::F8E4M3FN, 465, 0x7f},
           {DType::F8E4M3FN, -kInf, 0xff},   {DType::F8E4M3FN, 3, 0x44},
           {DType::F8E4M3FNUZ, -0.0, 0},     {DType::F8E4M3FNUZ, kInf, 0x80},
           {DType::F8E4M3FNUZ, 6, 0x54},     {DType::F8E5M2, 1e9, 0x7c},
           {DType::F8E5M2, 449, 0x5f},       {DType::F8E5M2FNUZ, 480, 0x64},
           {DType::F8E8M0, 1e9, 0x9d},       {DType::F8E8M0, 1e-9, 0x61},
           {DType::F8E8M0, 0, 0xff},         {DType::F8E8M0, 3, 0x81},
           {DType::F4E2M1, 1e9, 0x7},        {DType::F4E2M1, -1e9, 0xf},
           {DType::F4E2M1, 3, 0x5},          {DType::F4E2M1, nan, 0x8}})
    EXPECT_EQ(encodeFloat(c.type, c.value), c.bits) << name(c.type) << " " << c.value;
  EXPECT_EQ(encodeFloat(DType::F8E4M3FN, 1e9, Overflow::Saturate), 0x7eu);
  EXPECT_EQ(encodeFloat(DType::F8E5M2, -kInf, Overflow::Saturate), 0xfbu);
  EXPECT_EQ(encodeFloat(DType::F16, 1e300, Overflow::Saturate), 0x7bffu);
  EXPECT_EQ(decodeFloat(DType::F32, encodeFloat(DType::F32, kInf, Overflow::Saturate)),
            std::numeric_limits<float>::max());
}

TEST(Half, FastPathsAgreeWithTheTable) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    double f16 = decodeFloat(DType::F16, bits), bf16 = decodeFloat(DType::BF16, bits);
    if (std::isnan(f16))
      EXPECT_TRUE(std::isnan(f16ToFloat(bits)));
    else
      EXPECT_EQ(f16ToFloat(bits), f16);
    if (std::isnan(bf16))
      EXPECT_TRUE(std::isnan(bf16ToFloat(bits)));
    else
      EXPECT_EQ(bf16ToFloat(bits), bf16);
  }
  std::mt19937 rng(7);
  for (int i = 0; i < 200000; ++i) {
    float value = std::bit_cast<float>(static_cast<uint32_t>(rng()));
    EXPECT_EQ(floatToBf16(value), encodeFloat(DType::BF16, value)) << value;
  }
}

TEST(HostTensor, PackedElements) {
  HostTensor t(DType::I4, {5});
  ASSERT_EQ(t.data.size(), 3u);
  for (int i = 0; i < 5; ++i)
    t.setInteger(i, i - 3);
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(t.integer(i), i - 3);
  EXPECT_EQ(std::to_integer<int>(t.data[0]), 0xed); // low nibble first: -3, -2
}

TEST(HostTensor, Conversions) {
  HostTensor t(DType::I8, {1});
  // Through i32, whose least value stands for what is beyond it and NaN (lib/reference/README.md).
  for (auto [value, stored] : {std::pair(300.0, 44), {-300.0, -44}, {-1.9, -1}, {kInf, 0}, {-kInf, 0}, {kNaN, 0}}) {
    t.setReal(0, value);
    EXPECT_EQ(t.integer(0), stored);
  }
  t.setInteger(0, 200);
  EXPECT_EQ(t.integer(0), -56);
  HostTensor u(DType::UI64, {1});
  u.setReal(0, 1e30);
  EXPECT_EQ(u.real(0), 0x1p63);
  HostTensor c(DType::C64, {2});
  c.setComplex(1, {1, -2});
  EXPECT_EQ(c.complexAt(1), std::complex<double>(1, -2));
  EXPECT_FALSE(checkedElementCount(std::vector<int64_t>{1 << 30, 1 << 30, 1 << 30}).ok());
  EXPECT_FALSE(checkedElementCount(std::vector<int64_t>{2, -1}).ok());
  EXPECT_EQ(*checkedElementCount(std::vector<int64_t>{1 << 30, 0, 1 << 30}), 0);
}

} // namespace
