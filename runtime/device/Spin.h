//===- Spin.h - what a thread does between two looks ------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_RUNTIME_DEVICE_SPIN_H
#define LATHE_RUNTIME_DEVICE_SPIN_H

namespace lathe::runtime {

/// Gives the core's other thread its turn for some 10 to 50 ns. On ARM `isb`: `yield` does nothing on
/// cores without a second thread.
inline void spinOnce() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");
#endif
}

} // namespace lathe::runtime

#endif // LATHE_RUNTIME_DEVICE_SPIN_H
