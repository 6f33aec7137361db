//===- UlpTest.cpp - error measures ----------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Neighbours, zeros, infinities and NaN, for elements and for buffers.
//
//===----------------------------------------------------------------------===//
#include "lathe/support/Ulp.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>

using namespace lathe;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

uint64_t distance(DType type, double a, double b) {
  return ulpDistance(type, encodeFloat(type, a), encodeFloat(type, b));
}

TEST(Ulp, Distance) {
  for (DType type : {DType::F16, DType::BF16, DType::F32, DType::F64}) {
    EXPECT_EQ(distance(type, 0.0, -0.0), 0u);
    EXPECT_EQ(distance(type, 1, 1), 0u);
    uint64_t one = encodeFloat(type, 1.0);
    EXPECT_EQ(ulpDistance(type, one, one + 3), 3u);
    EXPECT_EQ(ulpDistance(type, one - 2, one), 2u);
    uint64_t sign = uint64_t(1) << (bitWidth(type) - 1);
    EXPECT_EQ(ulpDistance(type, 2, sign | 3), 5u); // across zero
    EXPECT_EQ(distance(type, kNan, kNan), 0u);
    EXPECT_EQ(distance(type, kNan, 1), UINT64_MAX);
    EXPECT_EQ(ulpDistance(type, encodeFloat(type, kInf) - 1, encodeFloat(type, kInf)), 1u);
  }
  EXPECT_EQ(distance(DType::F64, -kInf, kInf), 2 * 0x7ff0000000000000u);
}

TEST(Ulp, ErrorAgainstTruth) {
  EXPECT_EQ(ulpError(DType::F32, 1.0, 1.0), 0);
  EXPECT_DOUBLE_EQ(ulpError(DType::F32, 1 + 0x1p-23, 1 + 0x1p-24), 0.5);
  EXPECT_DOUBLE_EQ(ulpError(DType::F16, 2.0, 2.0 + 0x1p-10), 0.5);
  EXPECT_DOUBLE_EQ(ulpError(DType::F32, 0x1p-149, 0), 1);
  EXPECT_EQ(ulpError(DType::F16, kInf, 1e6), 0); // the right rounding
  EXPECT_EQ(ulpError(DType::F16, kInf, 1), kInf);
  EXPECT_EQ(ulpError(DType::F16, kNan, 1), kInf);
  EXPECT_EQ(ulpError(DType::F16, 1, kNan), kInf);
  EXPECT_EQ(ulpError(DType::F16, kNan, kNan), 0);
}

template <typename T> std::span<const std::byte> bytes(const std::vector<T> &v) {
  return std::as_bytes(std::span(v));
}

TEST(Ulp, Buffers) {
  std::vector<float> a{1, 2, 0, 4}, b{1, 2, 0, 4};
  Result<ErrorStats> same = compareBuffers(DType::F32, bytes(a), bytes(b));
  ASSERT_TRUE(same.ok());
  EXPECT_EQ(same->different, 0);
  EXPECT_EQ(same->maxUlp, 0);

  a[1] = std::nextafter(2.f, 3.f);
  a[2] = 0.5f;
  Result<ErrorStats> s = compareBuffers(DType::F32, bytes(a), bytes(b));
  EXPECT_EQ(s->different, 2);
  EXPECT_EQ(s->worstAbs, 2);
  EXPECT_EQ(s->maxAbs, 0.5);
  EXPECT_EQ(s->worstUlp, 2);
  EXPECT_EQ(s->specialMismatch, 0);

  a[3] = std::numeric_limits<float>::quiet_NaN();
  s = compareBuffers(DType::F32, bytes(a), bytes(b));
  EXPECT_EQ(s->specialMismatch, 1);
  EXPECT_EQ(s->worstUlp, 3);
  EXPECT_EQ(s->maxAbs, kInf);
  b[3] = a[3];
  EXPECT_EQ(compareBuffers(DType::F32, bytes(a), bytes(b))->specialMismatch, 0);
  EXPECT_FALSE(compareBuffers(DType::F32, bytes(a), bytes(b).first(8)).ok());
  EXPECT_FALSE(compareBuffers(DType::F32, bytes(a).first(7), bytes(b).first(7)).ok());
}

TEST(Ulp, BuffersOfOtherTypes) {
  std::vector<int64_t> a{int64_t(1) << 60, -5}, b{(int64_t(1) << 60) + 1, -5};
  Result<ErrorStats> s = compareBuffers(DType::I64, bytes(a), bytes(b));
  EXPECT_EQ(s->different, 1);
  EXPECT_EQ(s->maxUlp, 1);
  std::vector<float> c{1, 2, 3, 4}, d{1, 2, 3, 5};
  s = compareBuffers(DType::C64, bytes(c), bytes(d));
  EXPECT_EQ(s->count, 2);
  EXPECT_EQ(s->worstAbs, 1);
  std::vector<uint8_t> e{0x21}, f{0x31};
  s = compareBuffers(DType::UI4, bytes(e), bytes(f));
  EXPECT_EQ(s->worstAbs, 1);
  EXPECT_EQ(s->maxAbs, 1);
}

TEST(Ulp, Truth) {
  std::vector<float> got{1, 2};
  std::vector<double> truth{1 + 0x1p-24, 2};
  Result<ErrorStats> s = compareToTruth(DType::F32, bytes(got), truth);
  ASSERT_TRUE(s.ok());
  EXPECT_DOUBLE_EQ(s->maxUlp, 0.5);
  EXPECT_EQ(s->worstUlp, 0);
  EXPECT_FALSE(compareToTruth(DType::F32, bytes(got), std::span(truth).first(1)).ok());
}

} // namespace
