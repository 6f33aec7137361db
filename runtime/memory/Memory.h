//===- Memory.h - blocks that grow, states that live on ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_RUNTIME_MEMORY_MEMORY_H
#define LATHE_RUNTIME_MEMORY_MEMORY_H

#include "../device/Device.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace lathe::runtime {

/// One allocation that is kept and replaced by a larger one when needed.
class Block {
public:
  Block() = default;
  Block(Device &device, bool onHost) : device(&device), onHost(onHost) {}
  /// Of memory that callers may get: what they give back is used again (Device::allocateResult).
  static Block ofResults(Device &device) {
    Block made(device, false);
    made.isResult = true;
    return made;
  }
  /// Memory of somebody else's that grows where it is: `grow` sees to so many bytes and says where they are.
  explicit Block(std::function<Result<void *>(size_t bytes)> grow) : grow(std::move(grow)) {}
  Block(Block &&other) noexcept { *this = std::move(other); }
  Block &operator=(Block &&other) noexcept;
  ~Block() { release(); }

  /// At least `bytes` (0 gives an address too). `moved` is set when the address changed, or the block grew where it
  /// is; `preserve`: the old contents are copied. After an error the block is as it was.
  Status reserve(size_t bytes, bool &moved, bool preserve = false);
  void release();
  /// Of a block of results: the memory, which whoever called frees by Device::freeResult; the block has none then.
  void *handOver() {
    capacity = 0;
    return std::exchange(memory, nullptr);
  }
  bool ofResults() const { return isResult; }
  /// What to reserve for `bytes` in a block of `capacity` that staging grows in small steps:
  /// an eighth more than before at least, so that addresses rarely change.
  static size_t roomFor(size_t bytes, size_t capacity) {
    return bytes <= capacity ? bytes : std::max(bytes, capacity + capacity / 8);
  }
  /// For at least `bytes`, with room; the old contents are lost where it moves, and who knows addresses asks for them anew.
  Status reserveWithRoom(size_t bytes) {
    bool moved = false;
    return reserve(roomFor(bytes, capacity), moved);
  }

  void *data() const { return memory; }
  size_t bytes() const { return capacity; }

private:
  Result<void *> allocate(size_t bytes);
  void free(void *memory);

  Device *device = nullptr;
  bool onHost = false, isResult = false;
  std::function<Result<void *>(size_t bytes)> grow;
  void *memory = nullptr;
  size_t capacity = 0;
};

/// A state of the context: memory for the whole capacity, and the current length.
struct StateSlot {
  Block memory;
  DType dtype = DType::F32;
  std::vector<int64_t> physical; ///< sizes the memory was made for
  int axis = -1;
  int64_t length = 0;
  size_t bytes = 0;
  bool zeroInit = true;
  const void *initial = nullptr; ///< what it is at first, in memory of the host; null: see zeroInit
  bool written = false; ///< holds something that a change of sizes would lose

  int64_t capacity() const { return axis < 0 || physical.empty() ? 0 : physical[axis]; }
  /// Bytes that one step along the axis takes.
  int64_t bytesPerStep() const { return capacity() ? int64_t(bytes) / capacity() : 0; }
};

class StateStore {
public:
  explicit StateStore(Device &device) : device(device) {}

  /// Makes the state ready for a run with these sizes. A state that holds something
  /// keeps its sizes: others are a Usage error. `initial`: what it is at first, or null; outlives the store.
  /// `moved` as for Block.
  Result<StateSlot *> prepare(const engine::State &state, const std::vector<int64_t> &physical,
                              size_t bytes, const void *initial, bool &moved);
  /// Null when no run has made it yet.
  StateSlot *find(const std::string &name);
  Status reset(StateSlot &slot);
  std::map<std::string, StateSlot> &all() { return slots; }
  size_t totalBytes() const;

private:
  Device &device;
  std::map<std::string, StateSlot> slots;
};

} // namespace lathe::runtime

#endif // LATHE_RUNTIME_MEMORY_MEMORY_H
