//===- CudaScope.h - whose CUDA context is current --------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_RUNTIME_DEVICE_CUDASCOPE_H
#define LATHE_RUNTIME_DEVICE_CUDASCOPE_H

#include "CudaDriver.h"

namespace lathe::runtime::cuda {

/// The driver's notion of a current context is per thread; ours is per call, or from enter() to
/// leave().
class Scope {
public:
  Scope(const Driver &driver, CUcontext context, bool isCurrent = false)
      : driver(driver), isCurrent(isCurrent) {
    if (!isCurrent)
      driver.cuCtxPushCurrent(context);
  }
  ~Scope() {
    CUcontext popped;
    if (!isCurrent)
      driver.cuCtxPopCurrent(&popped);
  }
  Scope(const Scope &) = delete;

private:
  const Driver &driver;
  const bool isCurrent;
};

} // namespace lathe::runtime::cuda

#endif // LATHE_RUNTIME_DEVICE_CUDASCOPE_H
