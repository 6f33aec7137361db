//===- Memory.cpp - blocks that grow, states that live on -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Memory.h"

#include <algorithm>

namespace lathe::runtime {

Block &Block::operator=(Block &&other) noexcept {
  if (this != &other) {
    release();
    device = other.device;
    onHost = other.onHost;
    isResult = other.isResult;
    grow = std::move(other.grow);
    memory = std::exchange(other.memory, nullptr);
    capacity = std::exchange(other.capacity, 0);
  }
  return *this;
}

Result<void *> Block::allocate(size_t bytes) {
  return onHost     ? device->allocateHost(bytes)
         : isResult ? device->allocateResult(bytes)
                    : device->allocate(bytes);
}

void Block::free(void *block) {
  onHost     ? device->freeHost(block)
  : isResult ? device->freeResult(block)
             : device->free(block);
}

void Block::release() {
  if (memory && device)
    free(memory);
  memory = nullptr;
  capacity = 0;
}

Status Block::reserve(size_t bytes, bool &moved, bool preserve) {
  bytes = std::max<size_t>(bytes, 64);
  if (bytes <= capacity)
    return okStatus();
  if (grow) {
    Result<void *> same = grow(bytes);
    if (!same)
      return same.status();
    memory = *same;
    capacity = bytes;
    moved = true;
    return okStatus();
  }
  Result<void *> fresh = allocate(bytes);
  if (!fresh)
    return fresh.status();
  // Work in flight may still use the old memory.
  Status status = memory ? device->sync() : okStatus();
  if (status.ok() && preserve && capacity) {
    if (onHost)
      std::copy_n(static_cast<char *>(memory), capacity, static_cast<char *>(*fresh));
    else
      status = device->copy(*fresh, memory, capacity, CopyKind::DeviceToDevice);
    if (status.ok())
      status = device->sync();
  }
  if (!status.ok()) {
    free(*fresh);
    return status;
  }
  release();
  memory = *fresh;
  capacity = bytes;
  moved = true;
  return okStatus();
}

Result<StateSlot *> StateStore::prepare(const engine::State &state,
                                        const std::vector<int64_t> &physical, size_t bytes,
                                        const void *initial, bool &moved) {
  auto [it, isNew] = slots.try_emplace(state.name);
  StateSlot &slot = it->second;
  if (isNew) {
    slot.memory = Block(device, false);
    slot.dtype = state.dtype;
    slot.axis = state.axis;
    slot.zeroInit = state.zeroInit;
    slot.initial = initial;
  }
  if (!isNew && slot.physical == physical)
    return &slot;
  if (slot.written || slot.length > 0)
    return usageError("the state holds values for other sizes: reset it before a run with a "
                      "new batch size",
                      "state '" + state.name + "'");
  if (Status s = slot.memory.reserve(bytes, moved); !s.ok()) {
    if (isNew)
      slots.erase(it);
    return Status(s.code(), s.message(), "state '" + state.name + "'");
  }
  slot.physical = physical;
  slot.bytes = bytes;
  LATHE_RETURN_IF_ERROR(reset(slot));
  return &slot;
}

StateSlot *StateStore::find(const std::string &name) {
  auto it = slots.find(name);
  return it == slots.end() ? nullptr : &it->second;
}

Status StateStore::reset(StateSlot &slot) {
  slot.length = 0;
  slot.written = false;
  if (!slot.memory.data() || !slot.bytes || !(slot.initial || slot.zeroInit))
    return okStatus();
  LATHE_RETURN_IF_ERROR(slot.initial ? device.copy(slot.memory.data(), slot.initial, slot.bytes, CopyKind::HostToDevice)
                                     : device.zero(slot.memory.data(), slot.bytes));
  return device.sync();
}

size_t StateStore::totalBytes() const {
  size_t total = 0;
  for (const auto &item : slots)
    total += item.second.bytes;
  return total;
}

} // namespace lathe::runtime
