//===- CudaDriver.cpp - the CUDA driver as a table --------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "CudaDriver.h"

#include <dlfcn.h>
#include <string>

namespace lathe::runtime::cuda {
namespace {

struct Loaded {
  Driver driver;
  Status status;

  Loaded() {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      status = unsupportedError("no CUDA driver on this machine (libcuda.so.1)");
      return;
    }
    using GetProcAddress =
        CUresult (*)(const char *, void **, int version, uint64_t flags, int *queryResult);
    auto lookUp = reinterpret_cast<GetProcAddress>(dlsym(library, "cuGetProcAddress_v2"));
    if (!lookUp) {
      status = unsupportedError("the CUDA driver is older than 12.0");
      return;
    }
    auto find = [&](const char *name, int version, auto &slot, bool required) {
      void *address = nullptr;
      int queryResult = 0;
      if (lookUp(name, &address, version, 0, &queryResult) != kSuccess || !address) {
        if (required && status.ok())
          status = unsupportedError(std::string("the CUDA driver has no ") + name);
        return;
      }
      slot = reinterpret_cast<std::remove_reference_t<decltype(slot)>>(address);
    };
#define CUDA_FUNCTION(name, version, parameters) find(#name, version, driver.name, true);
#define CUDA_FUNCTION_IF_THERE(name, version, parameters)                                          \
  find(#name, version, driver.name, false);
#include "CudaFunctions.def"
    if (status.ok())
      if (CUresult r = driver.cuInit(0); r != kSuccess)
        status = driverError(driver, r, "cuInit");
  }
};

} // namespace

Result<const Driver *> openDriver() {
  static const Loaded loaded;
  if (!loaded.status.ok())
    return loaded.status;
  return &loaded.driver;
}

Status driverError(const Driver &driver, CUresult result, const char *call) {
  const char *name = nullptr, *text = nullptr;
  if (driver.cuGetErrorName)
    driver.cuGetErrorName(result, &name);
  if (driver.cuGetErrorString)
    driver.cuGetErrorString(result, &text);
  return runtimeError(std::string(call) + " failed: " + (name ? name : "unknown error") + " (" +
                      (text ? text : std::to_string(result)) + ")");
}

} // namespace lathe::runtime::cuda
