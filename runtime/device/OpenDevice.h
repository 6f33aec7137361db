//===- OpenDevice.h - what a name of a device stands for --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_RUNTIME_DEVICE_OPENDEVICE_H
#define LATHE_RUNTIME_DEVICE_OPENDEVICE_H

#include "CudaDriver.h"

#include <string>

namespace lathe::runtime {

/// The kind of a device's name: "cpu", "cuda", "fake", or what it begins with.
std::string deviceKind(const std::string &name);

struct DriverDevice {
  const cuda::Driver *driver = nullptr;
  std::string kind; ///< "cuda" or "fake"
  int ordinal = 0;
};
/// Of several processes of a host the device of the one at `place`, from 0: "cuda" and "fake" stand for as many GPUs,
/// or for the only one that a process sees. Other names are what they are.
Result<std::string> deviceAt(const std::string &name, int64_t place);
/// Of "cuda", "cuda:N" and "fake:N". Usage for other names, Unsupported without a driver.
Result<DriverDevice> driverDevice(const std::string &name);

} // namespace lathe::runtime

#endif // LATHE_RUNTIME_DEVICE_OPENDEVICE_H
