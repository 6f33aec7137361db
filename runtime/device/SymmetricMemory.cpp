//===- SymmetricMemory.cpp - memory at one place on each rank ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "SymmetricMemory.h"

#include "CudaScope.h"
#include "Deadline.h"

#include <algorithm>
#include <cstring>
#include <unistd.h>

namespace lathe::runtime {

using namespace cuda;

namespace {

Status checked(const Driver &driver, CUresult result, const char *call) {
  return result == kSuccess ? okStatus() : driverError(driver, result, call);
}

CUmemAllocationProp memoryOf(CUdevice device, bool isForOthers) {
  CUmemAllocationProp prop{};
  prop.type = kAllocationPinned;
  prop.handleTypes = isForOthers ? kHandleFile : kHandleNone;
  prop.location = {kLocationDevice, device};
  return prop;
}

Status checkAccess(const Driver &driver, CUdevice from, CUdevice to) {
  int can = 0;
  LATHE_RETURN_IF_ERROR(checked(driver, driver.cuDeviceCanAccessPeer(&can, from, to), "cuDeviceCanAccessPeer"));
  return can ? okStatus()
             : unsupportedError("GPU " + std::to_string(from) + " has no access to the memory of GPU " +
                                std::to_string(to) + ", which collectives need");
}

} // namespace

/// A device for a rank of this process, behind those that are there.
Status SymmetricMemory::open(size_t rank, int ordinal) {
  Member &member = members[rank];
  int count = 0;
  LATHE_RETURN_IF_ERROR(checked(driver, driver.cuDeviceGetCount(&count), "cuDeviceGetCount"));
  if (ordinal < 0 || ordinal >= count)
    return unsupportedError("there is no GPU " + std::to_string(ordinal) + " for a rank (" + std::to_string(count) +
                            " found)");
  CUdevice device = -1;
  LATHE_RETURN_IF_ERROR(checked(driver, driver.cuDeviceGet(&device, ordinal), "cuDeviceGet"));
  for (const Member &other : members)
    if (other.device >= 0 && other.device != device) {
      LATHE_RETURN_IF_ERROR(checkAccess(driver, other.device, device));
      LATHE_RETURN_IF_ERROR(checkAccess(driver, device, other.device));
    }
  CUmemAllocationProp prop = memoryOf(device, apart);
  size_t page = 1;
  LATHE_RETURN_IF_ERROR(checked(driver, driver.cuMemGetAllocationGranularity(&page, &prop, kGranularityMinimum),
                                "cuMemGetAllocationGranularity"));
  granularity = std::max<uint64_t>(granularity, page);
  LATHE_RETURN_IF_ERROR(
      checked(driver, driver.cuDevicePrimaryCtxRetain(&member.context, device), "cuDevicePrimaryCtxRetain"));
  member.device = device;
  Scope current(driver, member.context);
  return checked(driver, driver.cuStreamCreate(&member.stream, kStreamNonBlocking), "cuStreamCreate");
}

Status SymmetricMemory::reserve(uint64_t stride) {
  rankBytes = (stride + granularity - 1) / granularity * granularity;
  return checked(driver, driver.cuMemAddressReserve(&begin, rankBytes * ranks(), granularity, 0, 0),
                 "cuMemAddressReserve");
}

Result<std::unique_ptr<SymmetricMemory>> SymmetricMemory::create(const Driver &driver, const std::vector<int> &ordinals,
                                                                 uint64_t stride) {
  std::unique_ptr<SymmetricMemory> memory(new SymmetricMemory(driver));
  memory->members.resize(ordinals.size());
  for (size_t rank = 0; rank < ordinals.size(); ++rank)
    LATHE_RETURN_IF_ERROR(memory->open(rank, ordinals[rank]));
  LATHE_RETURN_IF_ERROR(memory->reserve(stride));
  return memory;
}

Result<std::unique_ptr<SymmetricMemory>> SymmetricMemory::createApart(const Driver &driver, int ordinal, size_t rank,
                                                                      size_t ranks, uint64_t stride) {
  std::unique_ptr<SymmetricMemory> memory(new SymmetricMemory(driver));
  memory->members.resize(ranks);
  memory->own = rank;
  memory->apart = true;
  LATHE_RETURN_IF_ERROR(memory->open(rank, ordinal));
  LATHE_RETURN_IF_ERROR(memory->reserve(stride));
  return memory;
}

SymmetricMemory::~SymmetricMemory() {
  for (const SharedPages &pages : fresh)
    close(pages.file);
  if (abandoned)
    return;
  for (size_t rank = 0; rank < members.size(); ++rank) {
    Member &member = members[rank];
    if (!writerTo(rank).context) // it was not opened, and nothing is mapped
      continue;
    Scope current(driver, writerTo(rank).context);
    if (member.stream)
      driver.cuStreamDestroy(member.stream);
    for (auto [from, to] : member.pages)
      driver.cuMemUnmap(begin + rank * rankBytes + from, to - from);
  }
  if (begin)
    driver.cuMemAddressFree(begin, rankBytes * members.size());
  for (Member &member : members)
    if (member.context)
      driver.cuDevicePrimaryCtxRelease(member.device);
}

Status SymmetricMemory::map(size_t rank, uint64_t offset, uint64_t bytes) {
  if (bytes > rankBytes || offset > rankBytes - bytes)
    return runtimeError("out of device memory: " + std::to_string(bytes) + " bytes that ranks share");
  uint64_t at = offset / granularity * granularity;
  const uint64_t end = (offset + bytes + granularity - 1) / granularity * granularity;
  while (at < end) {
    // The first range that ends behind `at`.
    const auto &pages = members[rank].pages;
    auto next = std::find_if(pages.begin(), pages.end(), [&](const auto &range) { return range.second > at; });
    const uint64_t begins = next == pages.end() ? end : next->first;
    if (begins <= at) {
      at = next->second;
      continue;
    }
    const uint64_t to = std::min(begins, end);
    LATHE_RETURN_IF_ERROR(mapPages(rank, at, to));
    at = to;
  }
  return okStatus();
}

Status SymmetricMemory::mapPages(size_t rank, uint64_t from, uint64_t to) {
  Scope current(driver, members[rank].context);
  CUmemAllocationProp prop = memoryOf(members[rank].device, apart);
  const uint64_t bytes = to - from;
  CUmemHandle handle = 0;
  CUresult made = driver.cuMemCreate(&handle, bytes, &prop, 0);
  if (made == kOutOfMemory)
    return runtimeError("out of device memory: " + std::to_string(bytes) + " bytes that ranks share");
  LATHE_RETURN_IF_ERROR(checked(driver, made, "cuMemCreate"));
  SharedPages pages{from, bytes, -1};
  Status status = !apart ? okStatus()
                         : checked(driver, driver.cuMemExportToShareableHandle(&pages.file, handle, kHandleFile, 0),
                                   "cuMemExportToShareableHandle");
  if (status.ok())
    status = mapHandle(rank, from, to, handle);
  driver.cuMemRelease(handle); // what is mapped lives on
  if (pages.file >= 0 && status.ok())
    fresh.push_back(pages);
  else if (pages.file >= 0)
    close(pages.file);
  return status;
}

/// By all devices of this process.
Status SymmetricMemory::mapHandle(size_t rank, uint64_t from, uint64_t to, CUmemHandle handle) {
  const CUdeviceptr place = begin + rank * rankBytes + from;
  LATHE_RETURN_IF_ERROR(checked(driver, driver.cuMemMap(place, to - from, 0, handle, 0), "cuMemMap"));
  std::vector<CUmemAccessDesc> access;
  for (const Member &other : members)
    if (other.device >= 0 && std::none_of(access.begin(), access.end(), [&](const CUmemAccessDesc &known) {
          return known.location.id == other.device;
        }))
      access.push_back({{kLocationDevice, other.device}, kAccessReadWrite});
  Status status =
      checked(driver, driver.cuMemSetAccess(place, to - from, access.data(), access.size()), "cuMemSetAccess");
  if (!status.ok()) {
    driver.cuMemUnmap(place, to - from);
    return status;
  }
  auto &pages = members[rank].pages;
  pages.insert(std::upper_bound(pages.begin(), pages.end(), std::pair(from, to)), {from, to});
  return okStatus();
}

//===--- other processes --------------------------------------------------===//

std::vector<SharedPages> SymmetricMemory::takeFresh() { return std::exchange(fresh, {}); }

Status SymmetricMemory::take(size_t rank, const SharedPages &given) {
  Scope current(driver, members[own].context);
  CUmemHandle handle = 0;
  Status status = given.bytes > rankBytes || given.offset > rankBytes - given.bytes || given.bytes % granularity ||
                          given.offset % granularity || members[rank].device >= 0
                      ? internalError("rank " + std::to_string(rank) + " gives memory that has no place")
                      : checked(driver,
                                driver.cuMemImportFromShareableHandle(
                                    &handle, reinterpret_cast<void *>(intptr_t(given.file)), kHandleFile),
                                "cuMemImportFromShareableHandle");
  close(given.file);
  LATHE_RETURN_IF_ERROR(status);
  status = mapHandle(rank, given.offset, given.offset + given.bytes, handle);
  driver.cuMemRelease(handle);
  return status;
}

Result<CUuuid> SymmetricMemory::uuid(size_t rank) const {
  CUuuid uuid{};
  LATHE_RETURN_IF_ERROR(checked(driver, driver.cuDeviceGetUuid(&uuid, members[rank].device), "cuDeviceGetUuid"));
  return uuid;
}

Status SymmetricMemory::checkReach(const CUuuid &other) const {
  int count = 0;
  LATHE_RETURN_IF_ERROR(checked(driver, driver.cuDeviceGetCount(&count), "cuDeviceGetCount"));
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CUdevice device = -1;
    CUuuid uuid{};
    LATHE_RETURN_IF_ERROR(checked(driver, driver.cuDeviceGet(&device, ordinal), "cuDeviceGet"));
    LATHE_RETURN_IF_ERROR(checked(driver, driver.cuDeviceGetUuid(&uuid, device), "cuDeviceGetUuid"));
    if (device != members[own].device && !std::memcmp(&uuid, &other, sizeof uuid))
      return checkAccess(driver, members[own].device, device);
  }
  return okStatus(); // hidden from this process: mapping its memory tells
}

/// Until the member's stream has done what it was given.
Status SymmetricMemory::settle(Member &member) {
  CUevent done = nullptr;
  LATHE_RETURN_IF_ERROR(checked(driver, driver.cuEventCreate(&done, kEventNoTiming), "cuEventCreate"));
  Status status = checked(driver, driver.cuEventRecord(done, member.stream), "cuEventRecord");
  if (status.ok()) {
    constexpr int64_t kPatience = int64_t(10) * 1000000000;
    Result<bool> over = pollUntil(Deadline::in(kPatience), [&]() -> Result<bool> {
      CUresult r = driver.cuEventQuery(done);
      if (r == kNotReady)
        return false;
      LATHE_RETURN_IF_ERROR(checked(driver, r, "cuEventQuery"));
      return true;
    });
    if (!over)
      status = over.status();
    else if (!*over)
      status = Status(ErrorCode::Deadline, "writing memory that ranks share did not end within 10 s");
  }
  driver.cuEventDestroy(done);
  return status;
}

Status SymmetricMemory::fill(size_t rank, uint64_t offset, unsigned char value, uint64_t bytes) {
  Member &member = writerTo(rank);
  Scope current(driver, member.context);
  LATHE_RETURN_IF_ERROR(
      checked(driver,
              driver.cuMemsetD8Async(begin + rank * rankBytes + offset, value, bytes, member.stream),
              "cuMemsetD8Async"));
  return settle(member);
}

Status SymmetricMemory::write(size_t rank, uint64_t offset, const void *from, uint64_t bytes) {
  Member &member = writerTo(rank);
  Scope current(driver, member.context);
  LATHE_RETURN_IF_ERROR(
      checked(driver, driver.cuMemcpyHtoDAsync(begin + rank * rankBytes + offset, from, bytes, member.stream),
              "cuMemcpyHtoDAsync"));
  return settle(member);
}

} // namespace lathe::runtime
