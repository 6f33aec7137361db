//===- ParallelTest.cpp - work on the cores that a process may use --------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "lathe/support/Parallel.h"

#include <gtest/gtest.h>

#include <sched.h>

using namespace lathe;

TEST(Parallel, CountsTheCoresThatAreLeftToTheProcess) {
  cpu_set_t all, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  EXPECT_EQ(usableCores(), unsigned(CPU_COUNT(&all)));
  CPU_ZERO(&one);
  for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++i)
    if (CPU_ISSET(i, &all))
      CPU_SET(i, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(usableCores(), 1u);
  std::vector<int> order; // on one core the caller does all of it
  inParallel(5, [&](size_t i) { order.push_back(int(i)); });
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));
  ASSERT_EQ(sched_setaffinity(0, sizeof all, &all), 0);
}
