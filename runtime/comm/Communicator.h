//===- Communicator.h - what a rank does with the others --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Of the ranks of a mesh each has one. A step begins and ends on all ranks together:
// begin() tells of ranks that cannot take part or were given something else, end() of
// those that failed on the way. So a step has an effect on all ranks or on none, and
// none waits for one that is gone: waits know a deadline and look at `stop`.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_COMM_COMMUNICATOR_H
#define LATHE_RUNTIME_COMM_COMMUNICATOR_H

#include "lathe/support/DType.h"
#include "lathe/support/Status.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace lathe::runtime {

/// One collective as a rank calls it, on dense memory of the host. A part is [rows][run] elements, the
/// whole [rows][members][run].
struct Exchange {
  enum class Kind { AllReduce, AllGather, ReduceScatter };
  enum class Reduction { Sum, Prod, Max, Min };
  Kind kind = Kind::AllReduce;
  Reduction reduction = Reduction::Sum;
  DType dtype = DType::F32;
  int64_t rows = 1, run = 0;
  const void *in = nullptr; ///< AllReduce: a part; AllGather: the part; ReduceScatter: the whole
  void *out = nullptr;      ///< may be `in` of an AllReduce
};

/// An error as other ranks are told of it.
inline Status ofRank(int64_t rank, const Status &status) {
  std::string where = "rank " + std::to_string(rank);
  return Status(status.code(), status.message(),
                status.location().empty() ? where : where + ": " + status.location());
}

/// Types that can be reduced: integers, and floats of 16 bits and more.
bool isReducible(DType dtype);

/// Elements [begin, end) of an AllReduce or ReduceScatter, which are numbered within a part of `member`,
/// by what all members gave, in their order: equal bits whoever computes it. Sums of 16-bit floats are
/// in f32. Written to each of `outs`.
void reduceElements(const Exchange &exchange, size_t member, std::span<const void *const> ins,
                    std::span<void *const> outs, int64_t begin, int64_t end);

class Communicator {
public:
  virtual ~Communicator() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t ranks() const = 0;

  /// Asked while waiting: an error ends the wait.
  using Stop = std::function<Status()>;
  /// A step, which `what` describes; `own`: why this rank cannot take part, or ok. Returns an error on all
  /// ranks when one of them has one, when descriptions differ, or when a rank does not come in time.
  virtual Status begin(const std::string &what, const Status &own, const Stop &stop) = 0;
  /// Between begin() and end(): the ranks of `members`, among them this one, in this order.
  virtual Status exchange(std::span<const int64_t> members, const Exchange &exchange, const Stop &stop) = 0;
  /// The end of a step that has begun; `own`: how it went here. What it came to on all ranks.
  virtual Status end(const Status &own, const Stop &stop) = 0;
};

} // namespace lathe::runtime

#endif // LATHE_RUNTIME_COMM_COMMUNICATOR_H
