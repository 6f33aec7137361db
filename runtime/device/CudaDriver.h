//===- CudaDriver.h - the CUDA driver as a table ----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Own declarations of the driver interface, so that building needs no CUDA headers,
// and a table of its functions, filled from libcuda.so.1 or by the fake driver.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_DEVICE_CUDADRIVER_H
#define LATHE_RUNTIME_DEVICE_CUDADRIVER_H

#include "lathe/support/Status.h"

#include <cstddef>
#include <cstdint>

namespace lathe::runtime::cuda {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct CUctx_st *;
using CUstream = struct CUstream_st *;
using CUevent = struct CUevent_st *;
using CUmodule = struct CUmod_st *;
using CUfunction = struct CUfunc_st *;
using CUgraph = struct CUgraph_st *;
using CUgraphExec = struct CUgraphExec_st *;
using CUgraphNode = struct CUgraphNode_st *;
struct CUgraphEdgeData; // never looked at
struct CUgraphExecUpdateResultInfo {
  int result;
  void *errorNode, *errorFromNode;
};
struct alignas(64) CUtensorMap {
  uint64_t opaque[16];
};
static_assert(sizeof(CUtensorMap) == 128);

struct CUlaunchAttribute {
  int id;
  char padding[4];
  union {
    char bytes[64];
    struct {
      unsigned x, y, z;
    } clusterDim;
    int programmaticStreamSerializationAllowed;
  } value;
};
static_assert(sizeof(CUlaunchAttribute) == 72);
struct CUlaunchConfig {
  unsigned gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes;
  CUstream stream;
  CUlaunchAttribute *attributes;
  unsigned attributeCount;
};
static_assert(sizeof(CUlaunchConfig) == 56);

/// What a kernel node of a graph launches.
struct CUkernelNodeParams {
  CUfunction function;
  unsigned gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes;
  void **parameters;
  void **extra;
  void *kernel;
  CUcontext context;
};
static_assert(sizeof(CUkernelNodeParams) == 72);
/// A copy node of a graph: one row here.
struct CUcopyEnd {
  size_t xBytes, y, z, lod;
  int memoryType; ///< kMemoryHost, kMemoryDevice
  void *host;
  CUdeviceptr device;
  void *array, *reserved;
  size_t pitch, height;
};
struct CUcopyNodeParams {
  CUcopyEnd source, target;
  size_t widthBytes, height, depth;
};
static_assert(sizeof(CUcopyNodeParams) == 200);

/// Physical memory of a device, which has no address until it is mapped.
using CUmemHandle = unsigned long long;
struct CUmemLocation {
  int type; ///< kLocationDevice
  int id;   ///< its ordinal
};
struct CUmemAllocationProp {
  int type;        ///< kAllocationPinned
  int handleTypes; ///< how other processes may be given it: kHandleNone, kHandleFile
  CUmemLocation location;
  void *windows;
  struct {
    unsigned char compression, directRdma;
    unsigned short usage;
    unsigned char reserved[4];
  } flags;
};
static_assert(sizeof(CUmemAllocationProp) == 32);
struct CUmemAccessDesc {
  CUmemLocation location;
  int flags; ///< kAccessReadWrite
};
static_assert(sizeof(CUmemAccessDesc) == 12);
struct CUuuid {
  char bytes[16];
};

inline constexpr CUresult kSuccess = 0, kOutOfMemory = 2, kNotReady = 600, kNotSupported = 801;
inline constexpr int kLocationDevice = 1, kAllocationPinned = 1, kAccessReadWrite = 3;
inline constexpr int kHandleNone = 0, kHandleFile = 1; ///< File: a descriptor, which processes pass to each other
inline constexpr int kGranularityMinimum = 0;
inline constexpr int kMemoryHost = 1, kMemoryDevice = 2;
inline constexpr int kEventNoTiming = 2;
inline constexpr int kAttributeClusterDimension = 4, kAttributeProgrammaticSerialization = 6;
inline constexpr int kFunctionMaxDynamicShared = 8, kFunctionNonPortableCluster = 14;
inline constexpr int kDeviceMaxGridX = 5, kDeviceMaxGridY = 6, kDeviceMaxGridZ = 7;
inline constexpr int kDeviceMajor = 75, kDeviceMinor = 76;
inline constexpr int kStreamNonBlocking = 1;
inline constexpr int kCaptureThreadLocal = 1;
inline constexpr int kJitErrorLog = 5, kJitErrorLogBytes = 6;

struct Driver {
#define CUDA_FUNCTION(name, version, parameters) CUresult(*name) parameters = nullptr;
#include "CudaFunctions.def"
};

/// Opens libcuda.so.1 and looks all functions up; the library stays loaded for the life
/// of the process, as the driver requires. Unsupported when it is missing or too old.
Result<const Driver *> openDriver();

/// Error of a failed call: name and text from the driver.
Status driverError(const Driver &driver, CUresult result, const char *call);

} // namespace lathe::runtime::cuda

#endif // LATHE_RUNTIME_DEVICE_CUDADRIVER_H
