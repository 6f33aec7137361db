//===- ThreadMesh.cpp - ranks that are threads of one process ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ThreadMesh.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace lathe::runtime {

/// One rank's end of a mesh.
class ThreadRank : public Communicator {
public:
  ThreadRank(std::shared_ptr<ThreadMesh> mesh, int64_t rank) : mesh(std::move(mesh)), own(rank) {
    all.resize(this->mesh->posts.size());
    std::iota(all.begin(), all.end(), 0);
  }
  int64_t rank() const override { return own; }
  int64_t ranks() const override { return int64_t(all.size()); }
  Status begin(const std::string &what, const Status &status, const Stop &stop) override;
  Status exchange(std::span<const int64_t> members, const Exchange &exchange, const Stop &stop) override;
  Status end(const Status &status, const Stop &stop) override;

private:
  std::shared_ptr<ThreadMesh> mesh;
  const int64_t own;
  std::vector<int64_t> all;
};

std::shared_ptr<ThreadMesh> ThreadMesh::create(int64_t ranks, int64_t patience, int64_t awake) {
  return std::shared_ptr<ThreadMesh>(new ThreadMesh(ranks, patience, awake));
}

std::shared_ptr<Communicator> ThreadMesh::communicator(int64_t rank) {
  return std::make_shared<ThreadRank>(shared_from_this(), rank);
}

Status ThreadMesh::meet(const std::vector<int64_t> &members, char kind, int64_t rank, bool failing,
                        const Communicator::Stop &stop, const std::function<Status()> &decide) {
  using namespace std::chrono_literals;
  std::unique_lock lock(mutex);
  if (!broken.ok())
    return broken;
  if (failing && !failure.ok())
    return failure;
  Meeting &meeting = meetings[{kind, members}];
  size_t place = std::find(members.begin(), members.end(), rank) - members.begin();
  meeting.here.resize(members.size());
  meeting.here[place] = true;
  const uint64_t round = meeting.round;
  if (++meeting.arrived == members.size()) {
    meeting.arrived = 0;
    meeting.here.assign(members.size(), false);
    meeting.outcome = decide();
    ++meeting.round;
    tellAll();
    return meeting.outcome;
  }
  // No member can come to the next meeting of this kind before all have left this one: `outcome` stays.
  Deadline deadline = Deadline::in(patience);
  Status why;
  if (awake > 0) {
    const uint64_t seen = changes.load(std::memory_order_acquire);
    lock.unlock();
    for (Deadline sleep = Deadline::in(awake); changes.load(std::memory_order_acquire) == seen && !sleep.passed();)
      std::this_thread::yield();
    lock.lock();
  }
  for (;;) {
    if (meeting.round == round)
      changed.wait_for(lock, 5ms);
    if (meeting.round != round)
      return meeting.outcome;
    if (!broken.ok())
      why = broken;
    else if (failing && !failure.ok())
      why = failure;
    else
      why = stop ? stop() : okStatus();
    if (why.ok() && deadline.passed()) {
      std::string missing;
      for (size_t i = 0; i < members.size(); ++i)
        if (!meeting.here[i])
          missing += (missing.empty() ? "" : ", ") + std::to_string(members[i]);
      why = Status(ErrorCode::Deadline, "these ranks have not come in time: " + missing);
    }
    if (!why.ok())
      break;
  }
  --meeting.arrived;
  meeting.here[place] = false;
  return why;
}

Status ThreadRank::begin(const std::string &what, const Status &status, const Stop &stop) {
  {
    std::lock_guard lock(mesh->mutex);
    mesh->posts[own].what = what;
    mesh->posts[own].own = status;
  }
  Status outcome = mesh->meet(all, 'b', own, /*failing=*/false, stop, [&]() -> Status {
    mesh->failure = okStatus();
    for (int64_t r : all)
      if (const Status &theirs = mesh->posts[r].own; !theirs.ok())
        return ofRank(r, theirs);
    for (int64_t r : all)
      if (mesh->posts[r].what != mesh->posts[0].what)
        return usageError("rank " + std::to_string(r) + " runs '" + mesh->posts[r].what +
                          "', rank 0 '" + mesh->posts[0].what + "'");
    return okStatus();
  });
  return status.ok() ? outcome : status;
}

Status ThreadRank::exchange(std::span<const int64_t> list, const Exchange &x, const Stop &stop) {
  std::vector<int64_t> members(list.begin(), list.end());
  {
    std::lock_guard lock(mesh->mutex);
    mesh->posts[own].exchange = x;
  }
  auto alike = [&]() -> Status {
    for (int64_t r : members) {
      const Exchange &other = mesh->posts[r].exchange, &first = mesh->posts[members[0]].exchange;
      if (other.kind != first.kind || other.reduction != first.reduction || other.dtype != first.dtype ||
          other.rows != first.rows || other.run != first.run)
        return internalError("ranks " + std::to_string(r) + " and " + std::to_string(members[0]) +
                             " meet at different collectives");
    }
    return okStatus();
  };
  LATHE_RETURN_IF_ERROR(mesh->meet(members, 'x', own, /*failing=*/true, stop, alike));
  // Until all have left below, the posts of the members stay as they are.
  const size_t count = members.size();
  const size_t mine = std::find(members.begin(), members.end(), own) - members.begin();
  std::vector<const void *> ins;
  std::vector<void *> outs;
  for (int64_t r : members) {
    ins.push_back(mesh->posts[r].exchange.in);
    outs.push_back(mesh->posts[r].exchange.out);
  }
  const int64_t elements = x.rows * x.run;
  if (x.kind == Exchange::Kind::AllReduce) {
    // Each member its share, for all: an input may be the output of its own rank, and nobody else
    // reads or writes the share.
    int64_t n = int64_t(count), i = int64_t(mine);
    int64_t begin = elements / n * i + std::min(i, elements % n), size = elements / n + (i < elements % n);
    reduceElements(x, mine, ins, outs, begin, begin + size);
  } else if (x.kind == Exchange::Kind::ReduceScatter) {
    reduceElements(x, mine, ins, {&outs[mine], 1}, 0, elements);
  } else {
    size_t bytes = size_t(x.run) * bitWidth(x.dtype) / 8;
    for (int64_t row = 0; row < x.rows; ++row)
      for (size_t m = 0; m < count && bytes; ++m)
        std::memcpy(static_cast<char *>(x.out) + (row * count + m) * bytes,
                    static_cast<const char *>(ins[m]) + row * bytes, bytes);
  }
  return mesh->meet(members, 'y', own, /*failing=*/true, stop, [] { return okStatus(); });
}

Status ThreadRank::end(const Status &status, const Stop &) {
  if (!status.ok()) {
    std::lock_guard lock(mesh->mutex);
    // Others end with the error of the first that failed; what that caused in them is not told.
    if (mesh->failure.ok())
      mesh->failure = ofRank(own, status);
    mesh->tellAll();
  }
  // Not to be stopped: the others may be on their way here.
  Status outcome = mesh->meet(all, 'e', own, /*failing=*/false, {}, [&] {
    // Rounds that a failure ended in the middle begin anew.
    for (auto &[key, meeting] : mesh->meetings)
      if (key.first == 'x' || key.first == 'y') {
        meeting.arrived = 0;
        meeting.here.assign(meeting.here.size(), false);
      }
    return mesh->failure;
  });
  if (outcome.code() == ErrorCode::Deadline && outcome.location().empty()) {
    std::lock_guard lock(mesh->mutex);
    if (mesh->broken.ok())
      mesh->broken = runtimeError("a step has not ended on all ranks: " + outcome.message());
    mesh->tellAll();
  }
  return status.ok() ? outcome : status;
}

} // namespace lathe::runtime
