//===- PeerArenas.h - what the GPUs of a mesh exchange through --*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The arenas of lathe/engine/CollectiveAbi.h, one a rank: header and slots of the collective kernels, then operands.
// Of these each rank has an area for copies of operands that lie elsewhere, and one for each of the first arenas of
// its context, whose buffers are operands where they lie: equal programs have them at equal places.
//
// After a failed step the ranks are not at the same call any more: prepare() begins anew when none of them does anything.
//
// Of ranks that are processes each has its own view of all arenas: memory that an area has got since is for the others
// when shareFresh() has passed it to them, which all ranks do at once.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_COMM_PEERARENAS_H
#define LATHE_RUNTIME_COMM_PEERARENAS_H

#include "../device/SymmetricMemory.h"
#include "HandOver.h"
#include "World.h"
#include "lathe/engine/CollectiveAbi.h"

#include <atomic>
#include <memory>
#include <string>
#include <vector>

namespace lathe::runtime {

class PeerArenas {
public:
  /// Arenas of a context that are among the operands.
  static constexpr size_t kContextArenas = 4;

  /// Of the devices of the ranks, named as for openDevice(). `patience`: nanoseconds that a step may take; negative:
  /// endless. Unsupported for devices that cannot reach each other's memory, or more ranks than kernels can have.
  static Result<std::shared_ptr<PeerArenas>> create(const std::vector<std::string> &devices, int64_t patience);

  /// As a rank that is a process, on a device named as for openDevice(); all ranks of the world call it at once, and
  /// have errors together. `what`: what else they must agree on. Usage for two ranks on one GPU, Unsupported as above
  /// and for ranks on several hosts.
  static Result<std::shared_ptr<PeerArenas>> join(const std::string &device, const Joined &world,
                                                  const std::string &what, int64_t patience);

  int64_t ranks() const { return int64_t(memory->ranks()); }
  /// Where the arena of rank 0 is; those of the others follow, each so many bytes behind the one before.
  void *begin() const { return memory->at(0); }
  int64_t arenaBytes() const { return int64_t(memory->stride()); }
  /// Nanoseconds that a kernel waits for a peer: it gives up before those who wait for the kernel do.
  int64_t timeout() const { return kernelTimeout; }
  /// Whether [data, data + bytes) is operands of the rank.
  bool holds(int64_t rank, const void *data, int64_t bytes) const;

  /// The area for copies, at least so large. By the thread of the rank's step, as the next one.
  Result<void *> copies(int64_t rank, int64_t bytes);
  /// The area of an arena of the rank's context, which is below kContextArenas, at least so large.
  Result<void *> arena(int64_t rank, size_t number, int64_t bytes);

  /// Whether this process has memory that the others do not know of.
  bool hasFresh() const { return memory->hasFresh(); }
  /// Passes it to them, and takes theirs. After an error the arenas are of no use any more, and it is the error of all
  /// calls to come.
  Status shareFresh(const Communicator::Stop &stop);

  /// Header and slots of the ranks of this process as they are before the first call.
  Status prepare();
  /// Kernels of all ranks that wait for others end with an error, those of this step and all behind it.
  void abort();
  /// Whether that has happened since prepare(), by abort() or because it was noted that a kernel has done it.
  bool isBroken() const { return broken; }
  void noteBroken() { broken = true; }
  void abandon() { memory->abandon(); }

private:
  explicit PeerArenas(std::unique_ptr<SymmetricMemory> memory) : memory(std::move(memory)) {}
  static std::shared_ptr<PeerArenas> around(std::unique_ptr<SymmetricMemory> memory, int64_t patience);
  int64_t areaOffset(size_t area) const { return operands + int64_t(area) * areaBytes; }

  std::unique_ptr<SymmetricMemory> memory;
  std::unique_ptr<HandOver> handOver; ///< of ranks that are processes; else null
  std::vector<int64_t> here;          ///< ranks of this process
  Status unusable;
  int64_t operands = 0, areaBytes = 0, kernelTimeout = 0, patience = 0;
  std::atomic<bool> broken = false;
};

} // namespace lathe::runtime

#endif // LATHE_RUNTIME_COMM_PEERARENAS_H
