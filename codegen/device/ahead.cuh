//===- ahead.cuh - what comes before, in a block ---------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: reduce
//
// A sum over the threads of a block that come before each of them.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_AHEAD
#define LATHE_DEVICE_AHEAD

/// The sum of what the threads of the block ahead of this one have; `total`: of the whole block.
/// All threads take part.
template <int THREADS> LATHE_DEV u32 sumAhead(u32 value, u32 &total) {
  constexpr int warps = THREADS / 32;
  __shared__ u32 sums[warps];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  u32 sum = value;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const u32 other = shuffleFrom32(sum, lane < d ? lane : lane - d);
    if (lane >= d) sum += other;
  }
  if (lane == 31) sums[warp] = sum;
  __syncthreads();
  u32 before = 0, all = 0;
#pragma unroll
  for (int w = 0; w < warps; ++w) {
    if (w < warp) before += sums[w];
    all += sums[w];
  }
  __syncthreads(); // sums are free for the next count
  total = all;
  return before + sum - value;
}

/// How many threads of the block ahead of this one have `flag` set.
template <int THREADS> LATHE_DEV u32 countAhead(bool flag, u32 &total) { return sumAhead<THREADS>(flag, total); }

#endif // LATHE_DEVICE_AHEAD
