//===- PeerArenas.cpp - what the GPUs of a mesh exchange through -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "PeerArenas.h"

#include "../device/OpenDevice.h"

namespace lathe::runtime {

using namespace engine;

namespace {
constexpr int64_t kPage = int64_t(2) << 20;
int64_t wholePages(int64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }
} // namespace

Result<std::shared_ptr<PeerArenas>> PeerArenas::create(const std::vector<std::string> &devices, int64_t patience) {
  if (int64_t(devices.size()) > kMostCollectiveRanks)
    return unsupportedError("collectives of " + std::to_string(devices.size()) + " GPUs: at most " +
                            std::to_string(kMostCollectiveRanks));
  const cuda::Driver *driver = nullptr;
  std::vector<int> ordinals;
  for (const std::string &name : devices) {
    if (deviceKind(name) != deviceKind(devices.front()))
      return usageError("ranks of a mesh are devices of one kind", "device '" + name + "'");
    Result<DriverDevice> device = driverDevice(name);
    if (!device)
      return device.status();
    driver = device->driver;
    ordinals.push_back(device->ordinal);
  }
  // Addresses cost nothing: an area can be as large as any device of today.
  const int64_t operands = wholePages(arenaOperandOffset(int64_t(devices.size())));
  const int64_t area = int64_t(16) << 30;
  auto made = SymmetricMemory::create(*driver, ordinals, uint64_t(operands + (1 + int64_t(kContextArenas)) * area));
  if (!made)
    return made.status();
  std::shared_ptr<PeerArenas> arenas(new PeerArenas(std::move(*made)));
  arenas->operands = operands;
  arenas->areaBytes = area;
  constexpr int64_t kDay = int64_t(24) * 3600 * 1000000000;
  arenas->kernelTimeout = patience < 0 || patience > kDay ? kDay : std::max<int64_t>(patience / 4 * 3, 1);
  for (size_t rank = 0; rank < devices.size(); ++rank)
    LATHE_RETURN_IF_ERROR(arenas->memory->map(rank, 0, uint64_t(operands)));
  LATHE_RETURN_IF_ERROR(arenas->prepare());
  return arenas;
}

bool PeerArenas::holds(int64_t rank, const void *data, int64_t bytes) const {
  const char *at = static_cast<const char *>(data), *arena = memory->at(size_t(rank));
  return at >= arena + operands && at + bytes <= arena + memory->stride();
}

Result<void *> PeerArenas::copies(int64_t rank, int64_t bytes) {
  if (bytes > areaBytes)
    return runtimeError("a collective of " + std::to_string(bytes) + " bytes is too large");
  LATHE_RETURN_IF_ERROR(memory->map(size_t(rank), uint64_t(areaOffset(0)), uint64_t(bytes)));
  return static_cast<void *>(memory->at(size_t(rank)) + areaOffset(0));
}

Result<void *> PeerArenas::arena(int64_t rank, size_t number, int64_t bytes) {
  if (bytes > areaBytes)
    return runtimeError("an arena of " + std::to_string(bytes) + " bytes is too large for a mesh of GPUs");
  LATHE_RETURN_IF_ERROR(memory->map(size_t(rank), uint64_t(areaOffset(1 + number)), uint64_t(bytes)));
  return static_cast<void *>(memory->at(size_t(rank)) + areaOffset(1 + number));
}

Status PeerArenas::prepare() {
  for (size_t rank = 0; rank < memory->ranks(); ++rank) {
    LATHE_RETURN_IF_ERROR(memory->fill(rank, 0, 0, uint64_t(kArenaHeaderBytes)));
    LATHE_RETURN_IF_ERROR(
        memory->fill(rank, uint64_t(kArenaHeaderBytes), 0xff, uint64_t(arenaSlotBytes(int64_t(memory->ranks())))));
  }
  broken = false;
  return okStatus();
}

void PeerArenas::abort() {
  broken = true;
  for (size_t rank = 0; rank < memory->ranks(); ++rank)
    // Best effort: a rank whose device is lost waits for nobody.
    (void)memory->write(rank, offsetof(ArenaHeader, abort), &kAbortByHost, sizeof kAbortByHost);
}

} // namespace lathe::runtime
