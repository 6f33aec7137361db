//===- Group.cpp - one engine on several devices ----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Group.h"

#include "../comm/ThreadMesh.h"
#include "../device/OpenDevice.h"
#include "../device/ThreadPool.h"

#include <algorithm>

namespace lathe::runtime {

Result<std::unique_ptr<Group>> Group::create(std::shared_ptr<const Engine> engine,
                                             const std::vector<std::string> &devices,
                                             const Context::Options &options) {
  if (devices.empty())
    return usageError("a group without devices");
  if (options.device.stream)
    return usageError("a group has no single stream of the caller");
  std::unique_ptr<Group> group(new Group());
  group->patience = options.patience;
  group->names = devices;
  Context::Options wanted = options;
  std::shared_ptr<ThreadMesh> mesh;
  if (const auto ranks = size_t(engine->ranks()); ranks > 1) {
    if (ranks != devices.size())
      return usageError("the engine is for a mesh of " + std::to_string(ranks) + " ranks, not of " +
                        std::to_string(devices.size()));
    const bool onGpus =
        std::any_of(devices.begin(), devices.end(), [](const auto &name) { return deviceKind(name) != "cpu"; });
    mesh = ThreadMesh::create(int64_t(ranks), options.patience, onGpus ? Context::kAwake : 0);
    // All ranks compute at the same time: each has its share of the cores.
    wanted.device.threads = std::max(1, numberOfWorkers(wanted.device.threads) / int(ranks));
    wanted.device.pinThreads = false;
    if (onGpus) {
      auto peers = PeerArenas::create(devices, options.patience);
      if (!peers)
        return peers.status();
      wanted.peers = group->peers = *peers;
    }
  }
  for (size_t i = 0; i < devices.size(); ++i) {
    if (mesh)
      wanted.communicator = mesh->communicator(int64_t(i));
    Result<std::shared_ptr<Context>> made = Context::create(engine, devices[i], wanted);
    if (!made)
      return group->located(i, made.status());
    group->members.push_back(std::move(*made));
  }
  return group;
}

Group::~Group() {
  for (auto &member : members)
    member->cancel(0);
  for (auto &member : members)
    Context::close(std::move(member));
}

Status Group::located(size_t member, const Status &status) const {
  std::string where = "device " + std::to_string(member) + " (" + names[member] + ")";
  return Status(status.code(), status.message(),
                status.location().empty() ? where : where + ": " + status.location());
}

Result<uint64_t> Group::submit(const std::string &entry, std::span<const lathe_tensor> inputs,
                               std::span<lathe_tensor> outputs) {
  if (inputs.size() % members.size() || outputs.size() % members.size())
    return usageError("a group of " + std::to_string(members.size()) +
                      " takes as many tensors of each member");
  size_t in = inputs.size() / members.size(), out = outputs.size() / members.size();
  std::vector<uint64_t> numbers;
  for (size_t i = 0; i < members.size(); ++i) {
    Result<uint64_t> step =
        members[i]->submit(entry, inputs.subspan(i * in, in), outputs.subspan(i * out, out), {});
    if (!step) {
      // None has done what one cannot do.
      Status why = located(i, step.status());
      for (size_t j = 0; j < i; ++j) {
        Deadline deadline = Deadline::in(patience);
        members[j]->cancel(numbers[j]);
        LATHE_RETURN_IF_ERROR(members[j]->takeBack(numbers[j], why, deadline));
        (void)members[j]->release(numbers[j]);
      }
      return why;
    }
    numbers.push_back(*step);
  }
  std::lock_guard lock(mutex);
  steps[++submitted] = std::move(numbers);
  return submitted;
}

Status Group::wait(uint64_t step, int64_t nanoseconds) {
  if (step > submitted)
    return usageError("step " + std::to_string(step) + " was never submitted");
  if (step == 0)
    step = submitted;
  Deadline deadline = Deadline::in(nanoseconds < 0 ? patience : nanoseconds);
  std::vector<std::pair<uint64_t, std::vector<uint64_t>>> due;
  {
    std::lock_guard lock(mutex);
    for (auto it = steps.begin(); it != steps.end() && it->first <= step; ++it)
      due.push_back(*it);
  }
  Status result;
  for (auto &[number, numbers] : due) {
    for (size_t i = 0; i < members.size(); ++i)
      if (Status s = members[i]->settle(numbers[i], deadline); !s.ok())
        return located(i, s);
    // What others' failures led to tells less than what went wrong.
    auto weight = [](const Status &s) {
      return s.ok() ? 0 : s.code() == ErrorCode::PeerLost ? 1 : s.code() == ErrorCode::Cancelled ? 2 : 3;
    };
    Status first;
    for (size_t i = 0; i < members.size(); ++i)
      if (Status s = members[i]->outcomeOf(numbers[i]); weight(s) > weight(first))
        first = located(i, s);
    if (!first.ok())
      for (size_t i = 0; i < members.size(); ++i)
        if (members[i]->outcomeOf(numbers[i]).ok())
          LATHE_RETURN_IF_ERROR(members[i]->takeBack(numbers[i], first, deadline));
    // A kernel of a step that nobody asks any more may have given up, too.
    if (peers && (peers->isBroken() || !first.ok()))
      LATHE_RETURN_IF_ERROR(mend(deadline));
    if (number == step)
      result = first;
    else if (!first.ok() && result.ok())
      result = Status(ErrorCode::Cancelled, "cancelled: " + first.message(), first.location());
  }
  for (auto &[number, numbers] : due)
    for (size_t i = 0; i < members.size(); ++i)
      (void)members[i]->release(numbers[i]);
  std::lock_guard lock(mutex);
  for (auto &[number, numbers] : due)
    steps.erase(number);
  return result;
}

/// Kernels of the members are at different calls, or have given up: they begin anew when nobody does anything.
Status Group::mend(Deadline deadline) {
  for (size_t i = 0; i < members.size(); ++i)
    if (Status s = members[i]->rest(deadline); !s.ok())
      return located(i, s);
  return peers->prepare();
}

void Group::cancel(uint64_t step) {
  std::lock_guard lock(mutex);
  auto from = steps.lower_bound(step);
  for (size_t i = 0; from != steps.end() && i < members.size(); ++i)
    members[i]->cancel(from->second[i]);
}

} // namespace lathe::runtime
