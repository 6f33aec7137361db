//===- CulpritsTest.cpp - all culprits, in few questions ------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/quantize/Culprits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

using namespace lathe;
using namespace lathe::quantize;

namespace {

/// Finds them, and says how many questions that took.
size_t find(size_t count, const std::vector<bool> &bad) {
  size_t asked = 0;
  Result<std::vector<size_t>> found = findCulprits(count, [&](const std::vector<bool> &changes) -> Result<bool> {
    ++asked;
    EXPECT_EQ(changes.size(), count);
    for (size_t i = 0; i < count; ++i)
      if (changes[i] && bad[i])
        return true;
    return false;
  });
  EXPECT_TRUE(found.ok());
  std::vector<bool> blamed(count);
  for (size_t i : *found)
    blamed[i] = true;
  EXPECT_EQ(blamed, bad);
  return asked;
}

double bound(size_t count, size_t bad) { return double(bad) * (std::log2(double(count)) + 1) + 2; }

TEST(Culprits, AnySetOfUpToTwelve) {
  for (size_t count = 1; count <= 12; ++count)
    for (size_t mask = 0; mask < size_t(1) << count; ++mask) {
      std::vector<bool> bad(count);
      for (size_t i = 0; i < count; ++i)
        bad[i] = mask >> i & 1;
      ASSERT_LE(double(find(count, bad)), bound(count, size_t(std::popcount(mask)))) << count << ", set " << mask;
    }
}

TEST(Culprits, AnyPairOfUpToHundred) {
  for (size_t count : {13, 31, 32, 33, 48, 63, 64, 65, 96, 97, 100})
    for (size_t a = 0; a < count; ++a)
      for (size_t b = a; b < count; ++b) {
        std::vector<bool> bad(count);
        bad[a] = bad[b] = true;
        ASSERT_LE(double(find(count, bad)), bound(count, a == b ? 1 : 2)) << count << ": " << a << ", " << b;
      }
}

TEST(Culprits, RandomSetsOfMany) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    const size_t count = 1 + random() % 500, wanted = random() % 9;
    std::vector<bool> bad(count);
    for (size_t i = 0; i < wanted; ++i)
      bad[random() % count] = true;
    ASSERT_LE(double(find(count, bad)), bound(count, size_t(std::count(bad.begin(), bad.end(), true))));
  }
}

TEST(Culprits, NoneIsAskedOnceAndErrorsEndIt) {
  EXPECT_EQ(find(7, std::vector<bool>(7)), 1u);
  EXPECT_EQ(find(0, {}), 0u);
  int left = 3;
  Result<std::vector<size_t>> found = findCulprits(9, [&](const std::vector<bool> &) -> Result<bool> {
    if (left-- == 0)
      return invalidError("no more");
    return true;
  });
  EXPECT_EQ(found.status().message(), "no more");
}

} // namespace
