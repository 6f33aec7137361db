//===- SymmetricMemory.h - memory at one place on each rank -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each rank of a group has a range of addresses, all of one size and one behind the other, and memory of its device in
// as much of it as was asked for. The devices of all ranks read and write it where it lies: collective kernels talk
// through it. What is mapped never moves.
//
// Made of virtual-memory handles. Ranks of one process share addresses, so that one mapping serves all of them. Of ranks
// that are processes each has addresses of its own, and maps the memory of the others, whose handles come to it as file
// descriptors. Never multicast.
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

/// Memory of a rank as other processes get it.
struct SharedPages {
  uint64_t offset = 0, bytes = 0; ///< of the rank's range
  int file = -1;                  ///< closed by whoever has it
};

class SymmetricMemory {
public:
  /// `ordinals`: the device of each rank; a device may have several. `stride`: addresses of a rank in bytes, of which
  /// none has memory yet; rounded up to whole pages. Unsupported where a device cannot reach the memory of another.
  static Result<std::unique_ptr<SymmetricMemory>> create(const cuda::Driver &driver, const std::vector<int> &ordinals,
                                                         uint64_t stride);
  /// Of one of `ranks` that are processes, on the device `ordinal`: memory of the others comes by take().
  static Result<std::unique_ptr<SymmetricMemory>> createApart(const cuda::Driver &driver, int ordinal, size_t rank,
                                                              size_t ranks, uint64_t stride);
  ~SymmetricMemory();
  SymmetricMemory(const SymmetricMemory &) = delete;

  size_t ranks() const { return members.size(); }
  uint64_t stride() const { return rankBytes; }
  char *at(size_t rank) const { return reinterpret_cast<char *>(begin) + rank * rankBytes; }

  /// Sees to it that [offset, offset + bytes) of a rank of this process has memory, whatever is in it. One thread a rank
  /// at a time; the others may use it as soon as they know that it is there.
  Status map(size_t rank, uint64_t offset, uint64_t bytes);
  // Beside what the devices do, and over when they return: of memory that is there.
  Status fill(size_t rank, uint64_t offset, unsigned char value, uint64_t bytes);
  Status write(size_t rank, uint64_t offset, const void *from, uint64_t bytes);
  /// Of createApart(): what map() has got since the last call, for the other processes.
  std::vector<SharedPages> takeFresh();
  bool hasFresh() const { return !fresh.empty(); }
  /// What another process has given of its memory. It closes the file.
  Status take(size_t rank, const SharedPages &pages);
  /// Identity of the device of a rank of this process, the same in all processes.
  Result<cuda::CUuuid> uuid(size_t rank) const;
  /// Whether the device of this process reaches one that may be another process's alone: Unsupported where it does not,
  /// as far as this process can see.
  Status checkReach(const cuda::CUuuid &other) const;

  /// Kernels that never end use it: it is not freed, as the driver would wait for them.
  void abandon() { abandoned = true; }

private:
  struct Member {
    cuda::CUdevice device = -1; ///< -1: of another process
    cuda::CUcontext context = nullptr;
    cuda::CUstream stream = nullptr; ///< of fill() and write(): never one that kernels run on
    std::vector<std::pair<uint64_t, uint64_t>> pages; ///< ranges with memory, by offset: begin and end
  };
  explicit SymmetricMemory(const cuda::Driver &driver) : driver(driver) {}
  Status open(size_t rank, int ordinal);
  Status reserve(uint64_t stride);
  Status mapPages(size_t rank, uint64_t from, uint64_t to);
  Status mapHandle(size_t rank, uint64_t from, uint64_t to, cuda::CUmemHandle handle);
  /// Whose stream writes to memory of a rank.
  Member &writerTo(size_t rank) { return members[members[rank].device < 0 ? own : rank]; }
  Status settle(Member &member);

  const cuda::Driver &driver;
  std::vector<Member> members; ///< by rank
  cuda::CUdeviceptr begin = 0;
  uint64_t rankBytes = 0, granularity = 1;
  size_t own = 0;      ///< with `apart`: the rank of this process
  bool apart = false;  ///< the others are other processes
  std::vector<SharedPages> fresh;
  bool abandoned = false;
};

} // namespace lathe::runtime

#endif // LATHE_RUNTIME_DEVICE_SYMMETRICMEMORY_H
