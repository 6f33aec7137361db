//===- Group.h - one engine on several devices ------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_RUNTIME_EXEC_GROUP_H
#define LATHE_RUNTIME_EXEC_GROUP_H

#include "Context.h"

namespace lathe::runtime {

/// An ordered list of devices with a context each. A step is one step of every member: all
/// have done it, or none's states know of it. Members of an engine for a mesh are its ranks, in order.
class Group {
public:
  static Result<std::unique_ptr<Group>> create(std::shared_ptr<const Engine> engine,
                                               const std::vector<std::string> &devices,
                                               const Context::Options &options);
  ~Group();

  size_t size() const { return members.size(); }
  /// Owned by the group; for states and counters, not for steps of its own.
  const std::shared_ptr<Context> &member(size_t i) const { return members[i]; }

  /// Tensors of the first member, then of the second, ...: equal numbers of each.
  Result<uint64_t> submit(const std::string &entry, std::span<const lathe_tensor> inputs,
                          std::span<lathe_tensor> outputs);
  Status wait(uint64_t step, int64_t nanoseconds); ///< step 0: the last
  void cancel(uint64_t step);

private:
  Status located(size_t member, const Status &status) const;
  Status mend(Deadline deadline);

  std::shared_ptr<PeerArenas> peers; ///< of ranks on GPUs; else null
  std::vector<std::shared_ptr<Context>> members;
  std::vector<std::string> names;
  int64_t patience = 0;
  uint64_t submitted = 0;
  std::mutex mutex;                                ///< the map: cancel() comes from any thread
  std::map<uint64_t, std::vector<uint64_t>> steps; ///< not waited for: the members' numbers
};

} // namespace lathe::runtime

#endif // LATHE_RUNTIME_EXEC_GROUP_H
