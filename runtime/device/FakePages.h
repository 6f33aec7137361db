//===- FakePages.h - virtual memory of the fake driver ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Physical memory is a file of the system, so that several processes (and several ranks of one) map it as the real
// driver's shareable handles let them.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_DEVICE_FAKEPAGES_H
#define LATHE_RUNTIME_DEVICE_FAKEPAGES_H

#include "CudaDriver.h"

#include <map>

namespace lathe::runtime::cuda {

/// Results are those of the driver's functions of the same meaning.
class FakePages {
public:
  static constexpr size_t kGranularity = size_t(2) << 20;

  CUresult create(CUmemHandle &handle, size_t bytes);
  CUresult release(CUmemHandle handle);
  CUresult exportFile(CUmemHandle handle, int &file);
  CUresult importFile(CUmemHandle &handle, int file);
  CUresult reserve(CUdeviceptr &begin, size_t bytes);
  CUresult unreserve(CUdeviceptr begin, size_t bytes);
  CUresult map(CUdeviceptr begin, size_t bytes, CUmemHandle handle);
  CUresult unmap(CUdeviceptr begin, size_t bytes);
  /// What is mapped there may be used from now on.
  CUresult open(CUdeviceptr begin, size_t bytes);

  /// [p, p + bytes) is open, in mappings side by side of one range of addresses.
  bool holds(CUdeviceptr p, size_t bytes) const;
  /// Of what is open, without memory of others.
  size_t ownBytes() const;

private:
  struct Physical {
    size_t bytes = 0;
    int file = -1;
    bool isOwn = true; ///< else imported
  };
  struct Mapping {
    size_t bytes = 0;
    bool isOwn = true, isOpen = false;
  };
  std::map<CUmemHandle, Physical> physical; ///< handles that are not released
  std::map<CUdeviceptr, size_t> reserved;   ///< ranges of addresses: bytes
  std::map<CUdeviceptr, Mapping> mappings;
  CUmemHandle lastHandle = 0;
};

} // namespace lathe::runtime::cuda

#endif // LATHE_RUNTIME_DEVICE_FAKEPAGES_H
