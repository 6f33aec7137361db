//===- SymmetricMemory.h - memory at one place on each rank -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each rank of a group has a range of addresses, all of one size and one behind the other, and memory of its device in
// as much of it as was asked for. The devices of all ranks read and write it where it lies: collective kernels talk
// through it. What is mapped never moves.
//
// Made of virtual-memory handles. Ranks of one process share addresses, so that one mapping serves all of them; ranks
// that are processes would pass their handles as file descriptors. Never multicast.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_DEVICE_SYMMETRICMEMORY_H
#define LATHE_RUNTIME_DEVICE_SYMMETRICMEMORY_H

#include "CudaDriver.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lathe::runtime {

class SymmetricMemory {
public:
  /// `ordinals`: the device of each rank; a device may have several. `stride`: addresses of a rank in bytes, of which
  /// none has memory yet; rounded up to whole pages. Unsupported where a device cannot reach the memory of another.
  static Result<std::unique_ptr<SymmetricMemory>> create(const cuda::Driver &driver, const std::vector<int> &ordinals,
                                                         uint64_t stride);
  ~SymmetricMemory();
  SymmetricMemory(const SymmetricMemory &) = delete;

  size_t ranks() const { return members.size(); }
  uint64_t stride() const { return rankBytes; }
  char *at(size_t rank) const { return reinterpret_cast<char *>(begin) + rank * rankBytes; }

  /// Sees to it that [offset, offset + bytes) of a rank has memory, whatever is in it. One thread a rank at a time; the
  /// others may use it as soon as they know that it is there.
  Status map(size_t rank, uint64_t offset, uint64_t bytes);
  // Beside what the devices do, and over when they return: of memory that is there.
  Status fill(size_t rank, uint64_t offset, unsigned char value, uint64_t bytes);
  Status write(size_t rank, uint64_t offset, const void *from, uint64_t bytes);
  /// Kernels that never end use it: it is not freed, as the driver would wait for them.
  void abandon() { abandoned = true; }

private:
  struct Member {
    cuda::CUdevice device = -1;
    cuda::CUcontext context = nullptr;
    cuda::CUstream stream = nullptr; ///< of fill() and write(): never one that kernels run on
    std::vector<std::pair<uint64_t, uint64_t>> pages; ///< ranges with memory, by offset: begin and end
  };
  explicit SymmetricMemory(const cuda::Driver &driver) : driver(driver) {}
  Status mapPages(size_t rank, uint64_t from, uint64_t to);
  Status settle(Member &member);

  const cuda::Driver &driver;
  std::vector<Member> members; ///< by rank
  cuda::CUdeviceptr begin = 0;
  uint64_t rankBytes = 0, granularity = 1;
  bool abandoned = false;
};

} // namespace lathe::runtime

#endif // LATHE_RUNTIME_DEVICE_SYMMETRICMEMORY_H
