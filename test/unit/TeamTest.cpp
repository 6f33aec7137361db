//===- TeamTest.cpp - threads that run together and meet ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Built with the thread sanitizer. Teams of 1 to 8 on the cores that there are:
// more threads than cores take turns, and still meet. LATHE_TEAMS=100000 is a
// long run.
//
//===----------------------------------------------------------------------===//

#include "../../runtime/device/Team.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

using namespace lathe::runtime;

namespace {

constexpr int kMost = 8;

struct Work {
  MeetingPoint point;
  int rounds = 0;
  std::atomic<uint32_t> seatsTaken{0};
  std::atomic<int> wrong{0};
  int seats = 0;
  int64_t cells[kMost] = {}; ///< plain: only the meetings keep threads apart
};

/// Each writes its cell, meets, and reads its neighbour's.
void body(void *context, int seat, int seats) {
  Work &w = *static_cast<Work *>(context);
  w.wrong += (w.seatsTaken.fetch_or(1u << seat) >> seat) & 1;
  if (seat == 0)
    w.seats = seats;
  for (int r = 1; r <= w.rounds; ++r) {
    w.cells[seat] = r;
    w.point.wait(static_cast<uint64_t>(seats));
    w.wrong += w.cells[(seat + 1) % seats] != r;
    w.point.wait(static_cast<uint64_t>(seats));
  }
}

TEST(Team, EachSeatOnceAndAllMeet) {
  const char *text = std::getenv("LATHE_TEAMS");
  const int runs = text ? std::atoi(text) : 1500;
  for (int threads = 1; threads <= kMost; ++threads) {
    ThreadPool pool(threads, true);
    int grown = 0;
    // Threads without a core of their own take turns: by time as well as by number.
    auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(text ? 600'000 : 200);
    int done = 0;
    for (; done < runs && (done < 20 || std::chrono::steady_clock::now() < end); ++done) {
      Work w;
      w.rounds = 1 + done % 5;
      int most = 1 + done % (threads + 1); // more than there are, too
      runTogether(pool, most, body, &w);
      ASSERT_EQ(w.wrong, 0) << threads << " threads, run " << done;
      ASSERT_GE(w.seats, 1);
      ASSERT_LE(w.seats, std::min(most, threads));
      ASSERT_EQ(w.seatsTaken, (1u << w.seats) - 1);
      grown += w.seats > 1;
    }
    EXPECT_TRUE(threads == 1 || grown > 0) << "nobody ever joined " << threads << " threads";
  }
}

// A team neither disturbs the loops of its pool nor what other pools do beside it.
TEST(Team, SharesThePoolWithLoopsAndCoresWithOtherPools) {
  auto session = [](int *wrong) {
    ThreadPool pool(3, true);
    for (int i = 0; i < 60; ++i) {
      Work w;
      w.rounds = 20;
      runTogether(pool, 3, body, &w);
      *wrong += w.wrong;
      std::atomic<int64_t> sum = 0;
      pool.run(
          100,
          [](void *to, int, int64_t begin, int64_t end) {
            for (int64_t at = begin; at < end; ++at)
              *static_cast<std::atomic<int64_t> *>(to) += at;
          },
          &sum);
      *wrong += sum != 4950;
    }
  };
  int wrong[3] = {};
  std::vector<std::thread> others;
  for (int i = 1; i < 3; ++i)
    others.emplace_back(session, &wrong[i]);
  session(&wrong[0]);
  for (std::thread &t : others)
    t.join();
  EXPECT_EQ(wrong[0] + wrong[1] + wrong[2], 0);
}

} // namespace
