//===- ThreadMesh.h - ranks that are threads of one process -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each rank is a thread at a time, which reads the memory of the others directly:
// of a reduction each member computes its share for all.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_COMM_THREADMESH_H
#define LATHE_RUNTIME_COMM_THREADMESH_H

#include "Communicator.h"

#include "../device/Deadline.h"

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <vector>

namespace lathe::runtime {

class ThreadMesh : public std::enable_shared_from_this<ThreadMesh> {
public:
  /// `patience`: nanoseconds that a rank waits for others; negative: for ever. `awake`: for how many of them a rank looks
  /// all the time before it sleeps, where each has a core of its own.
  static std::shared_ptr<ThreadMesh> create(int64_t ranks, int64_t patience, int64_t awake = 0);
  /// What a rank has of it; any thread may use it, one at a time.
  std::shared_ptr<Communicator> communicator(int64_t rank);

private:
  friend class ThreadRank;
  ThreadMesh(int64_t ranks, int64_t patience, int64_t awake) : posts(ranks), patience(patience), awake(awake) {}

  /// What a rank shows the others while they meet.
  struct Post {
    std::string what;
    Status own;
    Exchange exchange;
  };
  struct Meeting {
    size_t arrived = 0;
    uint64_t round = 0;
    std::vector<bool> here;
    Status outcome; ///< of the last round
  };
  /// Waits until all of `members` are here; the last one sets what the meeting comes to. `failing`: the
  /// failure of a rank ends the wait.
  Status meet(const std::vector<int64_t> &members, char kind, int64_t rank, bool failing,
              const Communicator::Stop &stop, const std::function<Status()> &decide);

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Post> posts; ///< by rank
  std::map<std::pair<char, std::vector<int64_t>>, Meeting> meetings;
  Status failure; ///< of the first rank that failed in this step
  Status broken;  ///< a step did not end on all ranks: there is no other
  std::atomic<uint64_t> changes = 0; ///< how often anybody who waits was told to look
  void tellAll() {
    changes.fetch_add(1, std::memory_order_release);
    changed.notify_all();
  }
  const int64_t patience, awake;
};

} // namespace lathe::runtime

#endif // LATHE_RUNTIME_COMM_THREADMESH_H
