//===- CpuImage.h - a freestanding shared object in memory ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_RUNTIME_DEVICE_CPUIMAGE_H
#define LATHE_RUNTIME_DEVICE_CPUIMAGE_H

#include "lathe/support/Status.h"

#include <string>
#include <string_view>
#include <utility>

namespace lathe::runtime {

/// The kernels of an engine, mapped by the system's loader from a memfd. The image has
/// no undefined symbols and no initialisers (checked before it is loaded).
class CpuImage {
public:
  static Result<CpuImage> load(std::string_view bytes);
  CpuImage(CpuImage &&other) noexcept
      : handle(std::exchange(other.handle, nullptr)), fd(std::exchange(other.fd, -1)) {}
  CpuImage &operator=(CpuImage &&) = delete;
  ~CpuImage();

  /// Address of a function, or null.
  void *symbol(const std::string &name) const;

private:
  CpuImage() = default;
  void *handle = nullptr;
  int fd = -1;
};

} // namespace lathe::runtime

#endif // LATHE_RUNTIME_DEVICE_CPUIMAGE_H
