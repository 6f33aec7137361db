//===- Exclusive.h - one caller at a time -----------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_RUNTIME_EXEC_EXCLUSIVE_H
#define LATHE_RUNTIME_EXEC_EXCLUSIVE_H

#include "lathe/support/Status.h"

#include <atomic>

namespace lathe::runtime {

/// Holds a context for one call; a second caller gets an error instead of a race.
class Exclusive {
public:
  explicit Exclusive(std::atomic_flag &flag)
      : flag(flag), owner(!flag.test_and_set(std::memory_order_acquire)) {}
  ~Exclusive() {
    if (owner)
      flag.clear(std::memory_order_release);
  }
  Exclusive(const Exclusive &) = delete;
  Status status() const {
    return owner ? okStatus()
                 : usageError("the context is in use by another thread, or from within a callback");
  }

private:
  std::atomic_flag &flag;
  bool owner;
};

} // namespace lathe::runtime

#endif // LATHE_RUNTIME_EXEC_EXCLUSIVE_H
