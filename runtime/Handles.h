//===- Handles.h - what stands behind handles of the C interface -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_RUNTIME_HANDLES_H
#define LATHE_RUNTIME_HANDLES_H

#include "exec/Engine.h"
#include "lathe/runtime/lathe.h"

#include <exception>
#include <new>

struct lathe_error {
  lathe::Status status;
};

namespace lathe::runtime {

class Context;

/// What a handle stands for; Api.cpp has it.
std::shared_ptr<const Engine> engineOf(const lathe_engine *handle);
const std::shared_ptr<Context> &contextOf(const lathe_context *handle);

/// Null for success; out of memory, too.
inline lathe_error *give(Status status) {
  if (status.ok())
    return nullptr;
  return new (std::nothrow) lathe_error{std::move(status)};
}

/// Runs `body`, which returns a Status, behind a barrier for exceptions.
template <typename F> lathe_error *guarded(F body) {
  try {
    return give(body());
  } catch (const std::bad_alloc &) {
    return give(runtimeError("out of memory"));
  } catch (const std::exception &e) {
    return give(internalError(e.what()));
  }
}

} // namespace lathe::runtime

#endif // LATHE_RUNTIME_HANDLES_H
