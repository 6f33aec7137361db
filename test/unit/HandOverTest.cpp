//===- HandOverTest.cpp - ranks of one host pass files --------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Three ranks, which are threads here, and one of them that does not do as the others.
//
//===----------------------------------------------------------------------===//
#include "../../runtime/comm/HandOver.h"

#include <atomic>
#include <chrono>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

using namespace lathe;
using namespace lathe::runtime;

namespace {

constexpr int64_t kSecond = 1000000000;
using Clock = std::chrono::steady_clock;

int makeFile(int64_t bytes) {
  const int file = memfd_create("pages", MFD_CLOEXEC);
  EXPECT_EQ(ftruncate(file, bytes), 0);
  return file;
}

struct Ranks {
  std::vector<std::unique_ptr<HandOver>> ends{3};
  std::vector<Status> results{3};

  /// What becomes of each rank of `who`.
  void each(const std::vector<int64_t> &who, const std::function<Status(int64_t)> &body) {
    std::vector<std::thread> threads;
    for (int64_t r : who)
      threads.emplace_back([&, r] { results[size_t(r)] = body(r); });
    for (std::thread &thread : threads)
      thread.join();
  }
  void connect(const std::vector<int64_t> &who, int64_t patience) {
    static int count = 0;
    const std::string session = "test-" + std::to_string(getpid()) + "-" + std::to_string(++count);
    each(who, [&](int64_t r) {
      cuda::CUuuid card{};
      card.bytes[0] = char(r);
      auto made = HandOver::create(session, r, 3, card, Deadline::in(patience), {});
      if (made)
        ends[size_t(r)] = std::move(*made);
      return made.status();
    });
  }
  Ranks() {
    connect({0, 1, 2}, 20 * kSecond);
    for (const Status &s : results)
      EXPECT_TRUE(s.ok()) << s.str();
  }
  explicit Ranks(const std::vector<int64_t> &who) { connect(who, kSecond / 5); }

  /// `refuses`: what the rank says of all that comes; `got`: rank * 1000 + offset of each file.
  Status exchange(int64_t r, std::vector<SharedPages> own, Status refuses = okStatus(),
                  std::vector<int64_t> *got = nullptr, const Communicator::Stop &stop = {}) {
    return ends[size_t(r)]->exchange(
        std::move(own),
        [&](int64_t from, const SharedPages &pages) {
          struct stat file = {};
          EXPECT_EQ(fstat(pages.file, &file), 0);
          EXPECT_EQ(uint64_t(file.st_size), pages.bytes);
          close(pages.file);
          if (got)
            got->push_back(from * 1000 + int64_t(pages.offset));
          return refuses;
        },
        Deadline::in(60 * kSecond), stop);
  }
};

std::vector<SharedPages> pagesOf(int64_t rank, int count) {
  std::vector<SharedPages> pages;
  for (int i = 0; i < count; ++i)
    pages.push_back({uint64_t(i), uint64_t(100 * rank + i), makeFile(100 * rank + i)});
  return pages;
}

TEST(HandOver, GivesTheFilesOfAllToAll) {
  Ranks ranks;
  EXPECT_EQ(ranks.ends[0]->card(2).bytes[0], 2);
  EXPECT_EQ(ranks.ends[2]->card(1).bytes[0], 1);
  for (int count : {1, 0, 400}) { // more than a connection holds at once
    std::vector<int64_t> got[3];
    ranks.each({0, 1, 2}, [&](int64_t r) { return ranks.exchange(r, pagesOf(r, r == 1 ? count : 2), {}, &got[r]); });
    for (int64_t r = 0; r < 3; ++r) {
      EXPECT_TRUE(ranks.results[r].ok()) << ranks.results[r].str();
      EXPECT_EQ(got[r].size(), size_t(r == 1 ? 4 : 2 + count));
    }
  }
}

TEST(HandOver, NamesARankThatDoesNotCome) {
  Ranks ranks({0, 2});
  for (int64_t r : {0, 2}) {
    EXPECT_EQ(ranks.results[r].code(), ErrorCode::Deadline);
    EXPECT_NE(ranks.results[r].message().find("rank 1 "), std::string::npos) << ranks.results[r].str();
  }
}

TEST(HandOver, HearsOutTheOthersWhereARankRefuses) {
  Ranks ranks;
  const auto begin = Clock::now();
  ranks.each({0, 1, 2}, [&](int64_t r) {
    return ranks.exchange(r, pagesOf(r, 3), r == 1 ? runtimeError("no room") : okStatus());
  });
  EXPECT_EQ(ranks.results[1].message(), "no room");
  EXPECT_TRUE(ranks.results[0].ok() && ranks.results[2].ok()) << "they have got all";
  ranks.each({0, 2}, [&](int64_t r) { return ranks.exchange(r, pagesOf(r, 3)); });
  for (int64_t r : {0, 2})
    EXPECT_EQ(ranks.results[r].code(), ErrorCode::PeerLost) << ranks.results[r].str();
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(10));
}

TEST(HandOver, EndsOnAllWhereARankGivesUp) {
  Ranks ranks;
  const auto begin = Clock::now();
  std::atomic<bool> hasLeft = false;
  ranks.each({0, 1, 2}, [&](int64_t r) {
    while (r == 2 && !hasLeft)
      std::this_thread::yield(); // so that rank 1 waits
    Status status = ranks.exchange(r, pagesOf(r, 3), {}, nullptr,
                                   [&] { return r == 1 ? Status(ErrorCode::Cancelled, "enough") : okStatus(); });
    hasLeft = hasLeft || r == 1;
    return status;
  });
  EXPECT_EQ(ranks.results[1].code(), ErrorCode::Cancelled);
  EXPECT_EQ(ranks.results[2].code(), ErrorCode::PeerLost) << ranks.results[2].str();
  EXPECT_TRUE(ranks.results[0].ok() || ranks.results[0].code() == ErrorCode::PeerLost)
      << "it may have got all: " << ranks.results[0].str();
  ranks.each({0}, [&](int64_t r) { return ranks.exchange(r, pagesOf(r, 3)); });
  EXPECT_EQ(ranks.results[0].code(), ErrorCode::PeerLost) << ranks.results[0].str();
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(10));
}

TEST(HandOver, NamesARankThatIsGone) {
  Ranks ranks;
  ranks.ends[1].reset();
  ranks.each({0, 2}, [&](int64_t r) { return ranks.exchange(r, pagesOf(r, 3)); });
  EXPECT_EQ(ranks.results[0].code(), ErrorCode::PeerLost);
  EXPECT_NE(ranks.results[0].message().find("rank 1 is lost"), std::string::npos) << ranks.results[0].str();
  EXPECT_EQ(ranks.results[2].code(), ErrorCode::PeerLost);
}

TEST(HandOver, RefusesWhatIsNoMemory) {
  Ranks ranks;
  ranks.each({0, 1, 2}, [&](int64_t r) {
    return ranks.exchange(r, r == 0 ? std::vector<SharedPages>{{0, 4096, -1}} : pagesOf(r, 1));
  });
  EXPECT_TRUE(ranks.results[0].ok()) << ranks.results[0].str();
  for (int64_t r : {1, 2})
    EXPECT_EQ(ranks.results[r].message(), "rank 0 passes what is no memory");
}

TEST(HandOver, SaysThatTooManyFilesAreOpen) {
  Ranks ranks;
  // A file that is beyond the limit, which is the lowest number that is free: closing it makes no room.
  const int made = makeFile(0), given = fcntl(made, F_DUPFD_CLOEXEC, 200);
  close(made);
  const int free = dup(given);
  close(free);
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = rlim_t(free);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  ranks.each({0, 1, 2}, [&](int64_t r) {
    return ranks.exchange(r, r == 0 ? std::vector<SharedPages>{{0, 0, given}} : std::vector<SharedPages>());
  });
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(ranks.results[0].ok()) << ranks.results[0].str();
  for (int64_t r : {1, 2})
    EXPECT_EQ(ranks.results[r].message(), "memory of rank 0 cannot be taken: too many open files")
        << ranks.results[r].str();
}

} // namespace
