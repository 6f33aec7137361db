//===- FakePages.cpp - virtual memory of the fake driver --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "FakePages.h"

#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

namespace lathe::runtime::cuda {

namespace {

constexpr CUresult kInvalidValue = 1;

void *host(CUdeviceptr p) { return reinterpret_cast<void *>(p); }
/// Addresses without memory behind them; at `place`, or anywhere.
void *addresses(void *place, size_t bytes) {
  return mmap(place, bytes, PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (place ? MAP_FIXED : 0), -1, 0);
}

} // namespace

CUresult FakePages::create(CUmemHandle &handle, size_t bytes) {
  const int file = memfd_create("lathe fake GPU", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, off_t(bytes))) {
    close(file);
    return kOutOfMemory;
  }
  handle = ++lastHandle;
  physical[handle] = {bytes, file, true};
  return kSuccess;
}

CUresult FakePages::release(CUmemHandle handle) {
  auto it = physical.find(handle);
  if (it == physical.end())
    return kInvalidValue;
  close(it->second.file);
  physical.erase(it);
  return kSuccess;
}

CUresult FakePages::exportFile(CUmemHandle handle, int &file) {
  auto it = physical.find(handle);
  if (it == physical.end())
    return kInvalidValue;
  file = dup(it->second.file);
  return file < 0 ? kInvalidValue : kSuccess;
}

CUresult FakePages::importFile(CUmemHandle &handle, int file) {
  const off_t bytes = lseek(file, 0, SEEK_END);
  const int own = bytes > 0 ? dup(file) : -1;
  if (own < 0)
    return kInvalidValue;
  handle = ++lastHandle;
  physical[handle] = {size_t(bytes), own, false};
  return kSuccess;
}

CUresult FakePages::reserve(CUdeviceptr &begin, size_t bytes) {
  void *p = addresses(nullptr, bytes);
  if (p == MAP_FAILED)
    return kOutOfMemory;
  begin = reinterpret_cast<CUdeviceptr>(p);
  reserved[begin] = bytes;
  return kSuccess;
}

CUresult FakePages::unreserve(CUdeviceptr begin, size_t bytes) {
  auto it = reserved.find(begin);
  auto mapped = mappings.lower_bound(begin);
  if (it == reserved.end() || it->second != bytes || (mapped != mappings.end() && mapped->first < begin + bytes))
    return kInvalidValue;
  reserved.erase(it);
  return munmap(host(begin), bytes) ? kInvalidValue : kSuccess;
}

CUresult FakePages::map(CUdeviceptr begin, size_t bytes, CUmemHandle handle) {
  auto range = reserved.upper_bound(begin);
  auto memory = physical.find(handle);
  auto next = mappings.lower_bound(begin);
  if (range == reserved.begin() || memory == physical.end() || memory->second.bytes != bytes ||
      (next != mappings.end() && next->first < begin + bytes) ||
      (next != mappings.begin() && std::prev(next)->first + std::prev(next)->second.bytes > begin))
    return kInvalidValue;
  --range;
  if (begin + bytes > range->first + range->second)
    return kInvalidValue;
  if (mmap(host(begin), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory->second.file, 0) == MAP_FAILED)
    return kOutOfMemory;
  if (memory->second.isOwn)
    std::memset(host(begin), 0xcd, bytes); // fresh memory is not zero
  mappings[begin] = {bytes, memory->second.isOwn, false};
  return kSuccess;
}

CUresult FakePages::unmap(CUdeviceptr begin, size_t bytes) {
  auto it = mappings.find(begin);
  if (it == mappings.end() || it->second.bytes != bytes)
    return kInvalidValue;
  mappings.erase(it);
  return addresses(host(begin), bytes) == MAP_FAILED ? kInvalidValue : kSuccess;
}

CUresult FakePages::open(CUdeviceptr begin, size_t bytes) {
  auto it = mappings.find(begin);
  if (it == mappings.end() || it->second.bytes != bytes || it->second.isOpen)
    return kInvalidValue;
  it->second.isOpen = true;
  return kSuccess;
}

bool FakePages::holds(CUdeviceptr p, size_t bytes) const {
  const CUdeviceptr end = p + bytes;
  auto range = reserved.upper_bound(p);
  if (range == reserved.begin() || end > std::prev(range)->first + std::prev(range)->second)
    return false;
  for (auto it = mappings.upper_bound(p); it != mappings.begin();) {
    const auto &[begin, mapping] = *std::prev(it);
    if (p < begin || p >= begin + mapping.bytes || !mapping.isOpen)
      return false;
    p = begin + mapping.bytes;
    if (end <= p)
      return true;
    it = mappings.upper_bound(p);
  }
  return false;
}

size_t FakePages::ownBytes() const {
  size_t total = 0;
  for (const auto &[begin, mapping] : mappings)
    total += mapping.isOwn && mapping.isOpen ? mapping.bytes : 0;
  return total;
}

} // namespace lathe::runtime::cuda
