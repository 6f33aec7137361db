//===- CpuDevice.cpp - runs kernels on this machine's cores -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "CpuDevice.h"
#include "CpuFeatures.h"
#include "CpuImage.h"
#include "Helpers.h"

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

namespace lathe::runtime {
namespace {

constexpr size_t kPage = 4096, kHugePage = 2 << 20;
constexpr int64_t kMaxGrid = int64_t(1) << 40;

/// Gives memory its pages now. A kernel before Linux 5.14 does not know the advice; and where it
/// fails for want of memory, the writes below meet what a run would have met.
void makePages(void *memory, size_t bytes) {
#ifdef MADV_POPULATE_WRITE
  if (madvise(memory, bytes, MADV_POPULATE_WRITE) == 0)
    return;
#endif
  for (size_t at = 0; at < bytes; at += kPage) {
    auto *byte = static_cast<volatile char *>(memory) + at;
    *byte = *byte;
  }
}

struct CpuFunction : Function {
  LatheCpuKernel entry = nullptr;
};

class CpuModule : public Module {
public:
  explicit CpuModule(CpuImage image) : image(std::move(image)) {}
  Result<Function *> function(const std::string &, const engine::Launch &launch) override {
    const std::string &name = launch.function;
    auto [it, isNew] = functions.try_emplace(name);
    if (isNew) {
      void *symbol = image.symbol(name);
      if (!symbol) {
        functions.erase(it);
        return invalidError("the image has no function '" + name + "'");
      }
      it->second.entry = reinterpret_cast<LatheCpuKernel>(symbol);
    }
    return &it->second;
  }

private:
  CpuImage image;
  std::map<std::string, CpuFunction> functions;
};

/// One thread's place in a team.
struct Seat : LatheCpuTeam {
  MeetingPoint *point;
};

const LatheCpuTeam kAlone = {0, 1, [](const LatheCpuTeam *) {}};

} // namespace

struct CpuDevice::Call {
  LatheCpuKernel entry;
  LatheCpuArgs args;
  Scratch *scratch;
  // In teams.
  int64_t blocks = 0;
  MeetingPoint *meetings = nullptr;
};

CpuDevice::CpuDevice(int threads, bool pin, bool prefault)
    : pool(threads, pin), scratch(pool.size()), meetings(pool.size()), prefault(prefault) {}

CpuDevice::~CpuDevice() {
  for (Scratch &s : scratch)
    std::free(s.memory);
}

int CpuDevice::suitability(const engine::Plan &plan) const {
  if (plan.cuda || !missingCpuFeature(plan.cpuFeatures).empty())
    return 0;
  return 1 + static_cast<int>(std::min<size_t>(plan.cpuFeatures.size(), 1000));
}

Result<void *> CpuDevice::allocate(size_t bytes) {
  size_t alignment = bytes >= kHugePage ? kHugePage : kPage;
  if (bytes > SIZE_MAX / 2)
    return runtimeError("out of memory: " + std::to_string(bytes) + " bytes");
  size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void *memory = std::aligned_alloc(alignment, rounded);
  if (!memory)
    return runtimeError("out of memory: " + std::to_string(bytes) + " bytes");
  if (bytes >= kHugePage)
    madvise(memory, rounded, MADV_HUGEPAGE);
  if (prefault)
    makePages(memory, rounded);
  return memory;
}

void CpuDevice::free(void *memory) { std::free(memory); }

Result<std::unique_ptr<Module>> CpuDevice::load(std::string_view bytes) {
  Result<CpuImage> image = CpuImage::load(bytes);
  if (!image)
    return image.status();
  return std::unique_ptr<Module>(std::make_unique<CpuModule>(std::move(*image)));
}

Status CpuDevice::copy(void *to, const void *from, size_t bytes, CopyKind) {
  if (bytes)
    std::memmove(to, from, bytes);
  return okStatus();
}

Status CpuDevice::zero(void *memory, size_t bytes) {
  if (bytes)
    std::memset(memory, 0, bytes);
  return okStatus();
}

Status CpuDevice::reserveScratch(size_t bytes) {
  for (Scratch &s : scratch) {
    if (s.bytes >= bytes)
      continue;
    Result<void *> memory = allocate(bytes);
    if (!memory)
      return memory.status();
    std::free(s.memory);
    s = {*memory, bytes};
  }
  return okStatus();
}

/// Blocks that are fewer than the workers: each team, of neighbours in number, takes every so many.
void CpuDevice::runInTeams(Call &call, int64_t blocks, int64_t members) {
  call.blocks = blocks;
  call.meetings = meetings.data();
  for (MeetingPoint &m : meetings)
    m.reset();
  runTogether(
      pool, static_cast<int>(std::min<int64_t>(pool.size(), blocks * members)),
      [](void *context, int seat, int seats) {
        const Call &call = *static_cast<Call *>(context);
        int64_t teams = std::min<int64_t>(call.blocks, seats), team = seat % teams;
        Seat place{{seat / teams, (seats - team + teams - 1) / teams,
                    [](const LatheCpuTeam *t) {
                      static_cast<const Seat *>(t)->point->wait(static_cast<uint64_t>(t->members));
                    }},
                   &call.meetings[team]};
        LatheCpuArgs args = call.args;
        args.scratch = call.scratch[team].memory;
        args.team = place.members > 1 ? &place : &kAlone;
        for (int64_t block = team; block < call.blocks; block += teams)
          call.entry(&args, block, block + 1);
      },
      &call);
}

Status CpuDevice::launch(const LaunchCommand &c) {
  int64_t blocks = 1, members = 1, grid[3] = {c.grid[0], c.grid[1], c.grid[2]};
  if (c.spec->cluster[1] > 1) {
    members = std::clamp<int64_t>(grid[1], 1, c.spec->cluster[1]);
    grid[1] = 1;
  }
  for (int64_t g : grid)
    if (g < 0 || __builtin_mul_overflow(blocks, g, &blocks) || blocks > kMaxGrid)
      return runtimeError("the grid of a kernel is out of range");
  if (blocks == 0)
    return okStatus();
  if (c.scratchBytes > 0)
    LATHE_RETURN_IF_ERROR(reserveScratch(static_cast<size_t>(c.scratchBytes)));

  Call call;
  buffers.clear();
  symbols.clear();
  for (const engine::KernelArg &a : c.spec->args) {
    if (a.kind == engine::KernelArg::Kind::Buffer)
      buffers.push_back(c.buffers[a.index]);
    else if (a.kind == engine::KernelArg::Kind::Symbol)
      symbols.push_back(c.symbols[a.index]);
  }
  call.entry = static_cast<CpuFunction *>(c.function)->entry;
  call.args = {buffers.data(), symbols.data(), &helperTable(), c.status, nullptr, &kAlone};
  call.scratch = scratch.data();
  if (members > 1 && blocks < pool.size()) {
    runInTeams(call, blocks, members);
    return okStatus();
  }
  pool.run(
      blocks,
      [](void *context, int worker, int64_t begin, int64_t end) {
        const Call &call = *static_cast<Call *>(context);
        LatheCpuArgs args = call.args;
        args.scratch = call.scratch[worker].memory;
        call.entry(&args, begin, end);
      },
      &call);
  return okStatus();
}

Status CpuDevice::beginTiming() {
  start = std::chrono::steady_clock::now();
  return okStatus();
}

Result<double> CpuDevice::endTiming() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

} // namespace lathe::runtime
