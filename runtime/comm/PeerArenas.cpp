//===- PeerArenas.cpp - what the GPUs of a mesh exchange through -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "PeerArenas.h"

#include "../device/OpenDevice.h"

#include <algorithm>
#include <cstring>

namespace lathe::runtime {

using namespace engine;

namespace {
constexpr int64_t kPage = int64_t(2) << 20;
int64_t wholePages(int64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }
/// Addresses cost nothing: an area can be as large as any device of today.
constexpr int64_t kAreaBytes = int64_t(16) << 30;
int64_t operandsOf(size_t ranks) { return wholePages(arenaOperandOffset(int64_t(ranks))); }
uint64_t strideOf(size_t ranks) {
  return uint64_t(operandsOf(ranks) + (1 + int64_t(PeerArenas::kContextArenas)) * kAreaBytes);
}

Status checkRanks(int64_t ranks) {
  return ranks <= kMostCollectiveRanks ? okStatus()
                                       : unsupportedError("collectives of " + std::to_string(ranks) + " GPUs: at most " +
                                                          std::to_string(kMostCollectiveRanks));
}
} // namespace

std::shared_ptr<PeerArenas> PeerArenas::around(std::unique_ptr<SymmetricMemory> memory, int64_t patience) {
  std::shared_ptr<PeerArenas> arenas(new PeerArenas(std::move(memory)));
  arenas->operands = operandsOf(arenas->memory->ranks());
  arenas->areaBytes = kAreaBytes;
  arenas->patience = patience;
  constexpr int64_t kDay = int64_t(24) * 3600 * 1000000000;
  arenas->kernelTimeout = patience < 0 || patience > kDay ? kDay : std::max<int64_t>(patience / 4 * 3, 1);
  return arenas;
}

Result<std::shared_ptr<PeerArenas>> PeerArenas::create(const std::vector<std::string> &devices, int64_t patience) {
  LATHE_RETURN_IF_ERROR(checkRanks(int64_t(devices.size())));
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
  auto made = SymmetricMemory::create(*driver, ordinals, strideOf(devices.size()));
  if (!made)
    return made.status();
  std::shared_ptr<PeerArenas> arenas = around(std::move(*made), patience);
  for (size_t rank = 0; rank < devices.size(); ++rank) {
    arenas->here.push_back(int64_t(rank));
    LATHE_RETURN_IF_ERROR(arenas->memory->map(rank, 0, uint64_t(arenas->operands)));
  }
  LATHE_RETURN_IF_ERROR(arenas->prepare());
  return arenas;
}

Result<std::shared_ptr<PeerArenas>> PeerArenas::join(const std::string &device, const Joined &joined,
                                                     const std::string &what, int64_t patience) {
  WorldRank &world = *joined.communicator;
  const int64_t rank = world.rank(), ranks = world.ranks();
  std::shared_ptr<PeerArenas> arenas;
  cuda::CUuuid card{};
  auto open = [&]() -> Status {
    LATHE_RETURN_IF_ERROR(checkRanks(ranks));
    if (joined.onThisHost != ranks)
      return unsupportedError("ranks on GPUs are on one host so far: " + std::to_string(joined.onThisHost) + " of " +
                              std::to_string(ranks) + " are on this one");
    Result<DriverDevice> found = driverDevice(device);
    if (!found)
      return found.status();
    auto made = SymmetricMemory::createApart(*found->driver, found->ordinal, size_t(rank), size_t(ranks),
                                             strideOf(size_t(ranks)));
    if (!made)
      return made.status();
    arenas = around(std::move(*made), patience);
    arenas->here = {rank};
    Result<cuda::CUuuid> uuid = arenas->memory->uuid(size_t(rank));
    if (!uuid)
      return uuid.status();
    card = *uuid;
    LATHE_RETURN_IF_ERROR(arenas->memory->map(size_t(rank), 0, uint64_t(arenas->operands)));
    return arenas->prepare();
  };
  auto connect = [&]() -> Status {
    auto connected = HandOver::create(joined.session, rank, ranks, card, Deadline::in(patience),
                                      [&] { return world.lost(); });
    if (!connected)
      return connected.status();
    arenas->handOver = std::move(*connected);
    for (int64_t other = 0; other < ranks; ++other) {
      if (other == rank)
        continue;
      const cuda::CUuuid &theirs = arenas->handOver->card(other);
      if (!std::memcmp(&theirs, &card, sizeof card))
        return usageError("ranks " + std::to_string(std::min(rank, other)) + " and " +
                              std::to_string(std::max(rank, other)) + " are on the same GPU, whose kernels cannot wait "
                              "for each other",
                          "device '" + device + "'");
      LATHE_RETURN_IF_ERROR(arenas->memory->checkReach(theirs));
    }
    return okStatus();
  };
  // Each part happens on all ranks or ends on all: none waits for memory of one that has none.
  const std::string together = "arenas of " + what;
  LATHE_RETURN_IF_ERROR(world.begin(together, open(), {}));
  LATHE_RETURN_IF_ERROR(world.begin(together, connect(), {}));
  LATHE_RETURN_IF_ERROR(world.begin(together, arenas->shareFresh([&] { return world.lost(); }), {}));
  world.onLoss([known = std::weak_ptr<PeerArenas>(arenas)] {
    if (std::shared_ptr<PeerArenas> held = known.lock())
      held->abort();
  });
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

Status PeerArenas::shareFresh(const Communicator::Stop &stop) {
  LATHE_RETURN_IF_ERROR(unusable);
  unusable = handOver->exchange(
      memory->takeFresh(), [&](int64_t rank, const SharedPages &pages) { return memory->take(size_t(rank), pages); },
      Deadline::in(patience), stop);
  return unusable;
}

Status PeerArenas::prepare() {
  for (int64_t rank : here) {
    LATHE_RETURN_IF_ERROR(memory->fill(size_t(rank), 0, 0, uint64_t(kArenaHeaderBytes)));
    LATHE_RETURN_IF_ERROR(memory->fill(size_t(rank), uint64_t(kArenaHeaderBytes), 0xff,
                                       uint64_t(arenaSlotBytes(int64_t(memory->ranks())))));
  }
  broken = false;
  return unusable;
}

void PeerArenas::abort() {
  broken = true;
  // Best effort: a rank whose device is lost waits for nobody.
  auto tell = [&](int64_t rank) {
    (void)memory->write(size_t(rank), offsetof(ArenaHeader, abort), &kAbortByHost, sizeof kAbortByHost);
  };
  for (int64_t rank : here)
    tell(rank);
  for (int64_t rank = 0; rank < ranks(); ++rank)
    if (std::find(here.begin(), here.end(), rank) == here.end())
      tell(rank);
}

} // namespace lathe::runtime
