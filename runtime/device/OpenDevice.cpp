//===- OpenDevice.cpp - devices by name -------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "OpenDevice.h"

#include "CpuDevice.h"
#include "CudaDevice.h"
#include "FakeDriver.h"

#include <charconv>
#include <optional>

namespace lathe::runtime {

std::string deviceKind(const std::string &name) { return name.substr(0, name.find(':')); }

namespace {

/// What is behind the colon; 0 without one.
std::optional<int> ordinalOf(const std::string &name) {
  const size_t colon = name.find(':');
  if (colon == std::string::npos)
    return 0;
  int ordinal = 0;
  const char *first = name.data() + colon + 1, *last = name.data() + name.size();
  auto [end, error] = std::from_chars(first, last, ordinal);
  return error == std::errc() && end == last && ordinal >= 0 ? std::optional(ordinal) : std::nullopt;
}

Status unknownDevice(const std::string &name) {
  return usageError("unknown device '" + name + "': cpu, cuda:N or fake:N");
}

} // namespace

Result<DriverDevice> driverDevice(const std::string &name) {
  const std::optional<int> ordinal = ordinalOf(name);
  const std::string kind = deviceKind(name);
  if (ordinal && kind == "fake")
    return DriverDevice{&cuda::fakeDriver(), kind, *ordinal};
  if (!ordinal || kind != "cuda")
    return unknownDevice(name);
  Result<const cuda::Driver *> driver = cuda::openDriver();
  if (!driver)
    return driver.status();
  return DriverDevice{*driver, kind, *ordinal};
}

Result<std::string> deviceAt(const std::string &name, int64_t place) {
  if (name != "cuda" && name != "fake")
    return name;
  Result<DriverDevice> found = driverDevice(name);
  if (!found)
    return found.status();
  int count = 0;
  if (cuda::CUresult r = found->driver->cuDeviceGetCount(&count))
    return cuda::driverError(*found->driver, r, "cuDeviceGetCount");
  if (count > 1 && place >= count)
    return unsupportedError("there is no GPU " + std::to_string(place) + " for a rank (" + std::to_string(count) +
                            " found)");
  return name + ":" + std::to_string(count > 1 ? place : 0);
}

Result<std::unique_ptr<Device>> openDevice(const std::string &name, const DeviceOptions &options) {
  if (deviceKind(name) == "cpu")
    return ordinalOf(name) == 0 ? Result<std::unique_ptr<Device>>(std::make_unique<CpuDevice>(
                                      options.threads, options.pinThreads, options.prefault))
                                : unknownDevice(name);
  Result<DriverDevice> device = driverDevice(name);
  if (!device)
    return device.status();
  return CudaDevice::open(*device->driver, device->kind, device->ordinal, options.stream);
}

} // namespace lathe::runtime
