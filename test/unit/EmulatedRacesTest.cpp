//===- EmulatedRacesTest.cpp - the emulation finds races --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Small kernels with and without what orders their accesses.
//
//===----------------------------------------------------------------------===//

#define LATHE_EMULATE
#include "../../codegen/device/emulate.h"

#include "EmulatedRaces.h"

#include "../../codegen/device/base.cuh"
#include "../../codegen/device/mma.cuh"

#include <gtest/gtest.h>

namespace {

constexpr unsigned kThreads = 64;

/// "" or the race that running a kernel finds, on memory for 64 words of 4 blocks.
template <class Kernel> std::string run(Kernel kernel, unsigned blocks = 1) {
  std::vector<u32> memory(256 + 1);
  lathe_race_hooks(lathe::test::findRaces());
  return run_emulated(kernel, blocks, kThreads, 4 * kThreads, memory.data());
}

/// Each thread leaves a word in shared memory and reads its neighbour's.
template <bool BARRIER, unsigned DISTANCE> void neighbours(u32 *y) {
  LATHE_DYNAMIC_SHARED(raw);
  u32 *s = (u32 *)raw;
  s[threadIdx.x] = threadIdx.x;
  if (BARRIER) __syncthreads();
  else __syncwarp();
  y[threadIdx.x] = s[threadIdx.x ^ DISTANCE];
}

TEST(EmulatedRaces, BarriersOrderTheBlock) {
  EXPECT_EQ(run(neighbours<true, 32>), "");
  std::string race = run(neighbours<false, 32>);
  EXPECT_NE(race.find("of shared memory"), std::string::npos) << race;
  EXPECT_NE(race.find("EmulatedRacesTest.cpp"), std::string::npos) << race;
}

TEST(EmulatedRaces, WarpBarriersOrderTheWarp) { EXPECT_EQ(run(neighbours<false, 1>), ""); }

template <bool ORDERED> void lanes(u32 *y) {
  __shared__ u32 s[kThreads];
  s[threadIdx.x] = threadIdx.x;
  if (ORDERED) __syncwarp();
  u32 other = s[threadIdx.x ^ 1]; // shuffles order no memory
  y[threadIdx.x] = shuffleXor32(other, 1);
}
TEST(EmulatedRaces, LanesOfAWarpRace) {
  EXPECT_EQ(run(lanes<true>), "");
  EXPECT_NE(run(lanes<false>), "");
}

/// Memory is written again while others still read it.
template <bool BARRIER> void reuse(u32 *y) {
  __shared__ u32 s;
  u32 sum = 0;
  for (u32 i = 0; i < 3; ++i) {
    if (threadIdx.x == 0) s = i;
    __syncthreads();
    sum += s;
    if (BARRIER) __syncthreads();
  }
  y[threadIdx.x] = sum;
}
TEST(EmulatedRaces, WritesAfterReads) {
  EXPECT_EQ(run(reuse<true>), "");
  EXPECT_NE(run(reuse<false>), "");
}

/// Bytes of one word are no race, the same byte is.
template <u32 SHIFT> void bytes(u32 *y) { ((u8 *)y)[threadIdx.x >> SHIFT] = (u8)threadIdx.x; }
TEST(EmulatedRaces, BytesAreApart) {
  EXPECT_EQ(run(bytes<0>), "");
  EXPECT_NE(run(bytes<1>), "");
}

/// Blocks add up; atomically or not.
template <bool ATOMIC> void total(u32 *y) {
  if (threadIdx.x != 0) return;
  if (ATOMIC) atomicAdd(y, 1u);
  else *y += 1;
}
TEST(EmulatedRaces, BlocksRaceInGlobalMemory) {
  EXPECT_EQ(run(total<true>, 4), "");
  std::string race = run(total<false>, 4);
  EXPECT_NE(race.find("of global memory"), std::string::npos) << race;
}

/// The last block reads what all have written: a counter, before and behind which blocks meet.
template <bool BEFORE, bool BEHIND> void lastBlock(u32 *y) {
  __shared__ u32 turn;
  y[1 + blockIdx.x * kThreads + threadIdx.x] = 1;
  if (BEFORE) __syncthreads();
  __threadfence();
  if (threadIdx.x == 0) turn = atomicAdd(y, 1u);
  if (BEHIND) __syncthreads();
  if (BEHIND ? turn + 1 < gridDim.x : blockIdx.x + 1 < gridDim.x) return;
  u32 sum = 0;
  for (u32 b = 0; b < gridDim.x; ++b) sum += y[1 + b * kThreads + threadIdx.x];
  y[1 + blockIdx.x * kThreads + threadIdx.x] = sum;
}
TEST(EmulatedRaces, ACounterOrdersBlocks) {
  EXPECT_EQ((run(lastBlock<true, true>, 4)), "");
  EXPECT_NE((run(lastBlock<false, true>, 4)), "");
  EXPECT_NE((run(lastBlock<true, false>, 4)), "");
}

/// A copy of 16 bytes that another thread reads; too early, its old value is seen as well.
template <bool WAIT> void copies(u32 *y) {
  LATHE_DYNAMIC_SHARED(raw);
  if (threadIdx.x < 16) cpAsync16(sharedAddr(raw + 16 * threadIdx.x), y + 4 * threadIdx.x, 16);
  cpAsyncCommit();
  if (WAIT) cpAsyncWait<0>();
  __syncthreads();
  y[64 + threadIdx.x] = ((u32 *)raw)[threadIdx.x];
}
TEST(EmulatedRaces, CopiesAreMadeWhenTheyAreWaitedFor) {
  for (bool wait : {true, false}) {
    std::vector<u32> y(128, 7);
    EXPECT_EQ(run_emulated(wait ? copies<true> : copies<false>, 1, kThreads, 4 * kThreads, y.data()), "");
    EXPECT_EQ(std::count(y.begin() + 64, y.end(), wait ? 7u : ~0u), 64);
  }
}

} // namespace
