//===- SymmetricMemory.cpp - memory at one place on each rank ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "SymmetricMemory.h"

#include "CudaScope.h"
#include "Deadline.h"

#include <algorithm>

namespace lathe::runtime {

using namespace cuda;

namespace {

Status checked(const Driver &driver, CUresult result, const char *call) {
  return result == kSuccess ? okStatus() : driverError(driver, result, call);
}

CUmemAllocationProp memoryOf(CUdevice device) {
  CUmemAllocationProp prop{};
  prop.type = kAllocationPinned;
  prop.handleTypes = kHandleNone;
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

Result<std::unique_ptr<SymmetricMemory>> SymmetricMemory::create(const Driver &driver, const std::vector<int> &ordinals,
                                                                 uint64_t stride) {
  std::unique_ptr<SymmetricMemory> memory(new SymmetricMemory(driver));
  int count = 0;
  LATHE_RETURN_IF_ERROR(checked(driver, driver.cuDeviceGetCount(&count), "cuDeviceGetCount"));
  for (int ordinal : ordinals) {
    if (ordinal < 0 || ordinal >= count)
      return unsupportedError("there is no GPU " + std::to_string(ordinal) + " for a rank (" + std::to_string(count) +
                              " found)");
    Member member;
    LATHE_RETURN_IF_ERROR(checked(driver, driver.cuDeviceGet(&member.device, ordinal), "cuDeviceGet"));
    for (const Member &other : memory->members)
      if (other.device != member.device) {
        LATHE_RETURN_IF_ERROR(checkAccess(driver, other.device, member.device));
        LATHE_RETURN_IF_ERROR(checkAccess(driver, member.device, other.device));
      }
    CUmemAllocationProp prop = memoryOf(member.device);
    size_t page = 1;
    LATHE_RETURN_IF_ERROR(checked(driver, driver.cuMemGetAllocationGranularity(&page, &prop, kGranularityMinimum),
                                  "cuMemGetAllocationGranularity"));
    memory->granularity = std::max<uint64_t>(memory->granularity, page);
    LATHE_RETURN_IF_ERROR(checked(driver, driver.cuDevicePrimaryCtxRetain(&member.context, member.device),
                                  "cuDevicePrimaryCtxRetain"));
    memory->members.push_back(std::move(member));
    Member &added = memory->members.back();
    Scope current(driver, added.context);
    LATHE_RETURN_IF_ERROR(checked(driver, driver.cuStreamCreate(&added.stream, kStreamNonBlocking), "cuStreamCreate"));
  }
  const uint64_t page = memory->granularity;
  memory->rankBytes = (stride + page - 1) / page * page;
  LATHE_RETURN_IF_ERROR(checked(
      driver, driver.cuMemAddressReserve(&memory->begin, memory->rankBytes * memory->ranks(), page, 0, 0),
      "cuMemAddressReserve"));
  return memory;
}

SymmetricMemory::~SymmetricMemory() {
  if (abandoned)
    return;
  for (size_t rank = 0; rank < members.size(); ++rank) {
    Member &member = members[rank];
    Scope current(driver, member.context);
    if (member.stream)
      driver.cuStreamDestroy(member.stream);
    for (auto [from, to] : member.pages)
      driver.cuMemUnmap(begin + rank * rankBytes + from, to - from);
  }
  if (begin)
    driver.cuMemAddressFree(begin, rankBytes * members.size());
  for (Member &member : members)
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
  Member &member = members[rank];
  Scope current(driver, member.context);
  CUmemAllocationProp prop = memoryOf(member.device);
  const uint64_t bytes = to - from;
  const CUdeviceptr place = begin + rank * rankBytes + from;
  CUmemHandle handle = 0;
  CUresult made = driver.cuMemCreate(&handle, bytes, &prop, 0);
  if (made == kOutOfMemory)
    return runtimeError("out of device memory: " + std::to_string(bytes) + " bytes that ranks share");
  LATHE_RETURN_IF_ERROR(checked(driver, made, "cuMemCreate"));
  Status status = checked(driver, driver.cuMemMap(place, bytes, 0, handle, 0), "cuMemMap");
  driver.cuMemRelease(handle); // what is mapped lives on
  LATHE_RETURN_IF_ERROR(status);
  std::vector<CUmemAccessDesc> access;
  for (const Member &other : members)
    if (std::none_of(access.begin(), access.end(),
                     [&](const CUmemAccessDesc &known) { return known.location.id == other.device; }))
      access.push_back({{kLocationDevice, other.device}, kAccessReadWrite});
  status = checked(driver, driver.cuMemSetAccess(place, bytes, access.data(), access.size()), "cuMemSetAccess");
  if (!status.ok()) {
    driver.cuMemUnmap(place, bytes);
    return status;
  }
  auto &pages = member.pages;
  pages.insert(std::upper_bound(pages.begin(), pages.end(), std::pair(from, to)), {from, to});
  return okStatus();
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
  Member &member = members[rank];
  Scope current(driver, member.context);
  LATHE_RETURN_IF_ERROR(
      checked(driver,
              driver.cuMemsetD8Async(begin + rank * rankBytes + offset, value, bytes, member.stream),
              "cuMemsetD8Async"));
  return settle(member);
}

Status SymmetricMemory::write(size_t rank, uint64_t offset, const void *from, uint64_t bytes) {
  Member &member = members[rank];
  Scope current(driver, member.context);
  LATHE_RETURN_IF_ERROR(
      checked(driver, driver.cuMemcpyHtoDAsync(begin + rank * rankBytes + offset, from, bytes, member.stream),
              "cuMemcpyHtoDAsync"));
  return settle(member);
}

} // namespace lathe::runtime
