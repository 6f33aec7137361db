//===- HostOps.h - operations on small host tensors -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What shape arithmetic needs beyond formulas when values arrive at run time: a short,
// named list. Each op documents its attributes in HostOps.cpp and checks its operands;
// a plan that does not fit is an error, never an access out of bounds.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_HOST_HOSTOPS_H
#define LATHE_RUNTIME_HOST_HOSTOPS_H

#include "lathe/engine/Plan.h"
#include "lathe/support/Status.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lathe::runtime {

/// A dense host tensor; memory of at least the dense size.
struct HostView {
  void *data = nullptr;
  DType dtype = DType::F32;
  std::vector<int64_t> dims;

  int64_t count() const {
    int64_t n = 1;
    for (int64_t d : dims)
      if (__builtin_mul_overflow(n, d, &n))
        return 0; // only an empty tensor can have such sizes
    return n;
  }
};

class Lists;

struct HostCall {
  std::span<const HostView> inputs;
  std::span<const HostView> outputs; ///< data is written
  std::span<const engine::Attribute> attributes;
  Lists *lists = nullptr; ///< of the run; only ops on lists look at it

  /// Integers of an attribute; empty when it is not there.
  std::span<const int64_t> ints(std::string_view name) const;
  int64_t integer(std::string_view name, int64_t otherwise) const;
};

using HostOp = Status (*)(const HostCall &call);

/// Null for an unknown name.
HostOp findHostOp(std::string_view name);
/// All names, sorted.
std::vector<std::string> hostOpNames();

} // namespace lathe::runtime

#endif // LATHE_RUNTIME_HOST_HOSTOPS_H
