//===- OpenDevice.cpp - devices by name -------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "CpuDevice.h"
#include "CudaDevice.h"
#include "FakeDriver.h"

#include <charconv>

namespace lathe::runtime {

Result<std::unique_ptr<Device>> openDevice(const std::string &name, const DeviceOptions &options) {
  std::string kind = name.substr(0, name.find(':'));
  int ordinal = 0;
  bool wellFormed = true;
  if (kind.size() < name.size()) {
    const char *first = name.data() + kind.size() + 1, *last = name.data() + name.size();
    auto [end, error] = std::from_chars(first, last, ordinal);
    wellFormed = error == std::errc() && end == last && ordinal >= 0;
  }
  if (wellFormed && kind == "cpu" && ordinal == 0)
    return std::unique_ptr<Device>(
        std::make_unique<CpuDevice>(options.threads, options.pinThreads, options.prefault));
  if (wellFormed && kind == "fake")
    return CudaDevice::open(cuda::fakeDriver(), "fake", ordinal, options.stream);
  if (wellFormed && kind == "cuda") {
    Result<const cuda::Driver *> driver = cuda::openDriver();
    if (!driver)
      return driver.status();
    return CudaDevice::open(**driver, "cuda", ordinal, options.stream);
  }
  return usageError("unknown device '" + name + "': cpu, cuda:N or fake:N");
}

} // namespace lathe::runtime
