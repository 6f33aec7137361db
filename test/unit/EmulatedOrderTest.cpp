//===- EmulatedOrderTest.cpp - tiles of attention dealt out, on the host -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which block takes which tile of queries (codegen/device/attention_order.cuh).
//
//===----------------------------------------------------------------------===//

#define LATHE_EMULATE
#include "../../codegen/device/emulate.h"

#include "EmulatedRaces.h"

#include "../../codegen/device/base.cuh"
#include "../../codegen/device/math.cuh"
#include "../../codegen/device/reduce.cuh"
#include "../../codegen/device/attention_order.cuh"

#include "DeviceBuffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace {

/// Launches that race are errors.
const bool racesAreFound = lathe::test::findRacesHere();

constexpr int kThreads = 64;

void orderKernel(u32 tiles, u32 blocks, u32 *order, u32 *kept, const u32 *work) {
  attentionOrder<kThreads>(tiles, blocks, order, kept, [&](u32 t) { return work[t]; });
}

/// The tiles of each block.
std::vector<std::vector<u32>> dealt(const std::vector<u32> &work, u32 blocks) {
  const u32 tiles = static_cast<u32>(work.size()), places = attentionPlaces(tiles, blocks);
  Buffer<u32> order(blocks * places), kept(tiles), costs(tiles);
  std::copy(work.begin(), work.end(), costs.data);
  std::fill(order.data, order.data + order.size, ~0u);
  EXPECT_EQ(run_emulated(orderKernel, 1, kThreads, 0, tiles, blocks, order.data, kept.data, costs.data), "");
  std::vector<std::vector<u32>> out(blocks);
  std::vector<int> seen(tiles);
  for (u32 b = 0; b < blocks; ++b) {
    u32 place = 0;
    for (; place < places && order[b * places + place] < tiles; ++place) {
      out[b].push_back(order[b * places + place]);
      ++seen[out[b].back()];
    }
    EXPECT_LT(place, places);
    EXPECT_EQ(order[b * places + place], tiles) << "behind the last of block " << b;
  }
  EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](int n) { return n == 1; }));
  return out;
}

TEST(Emulation, TilesOfQueriesAreDealtOutByTheirWork) {
  for (u32 blocks : {1u, 7u, 60u})
    for (u32 rows : {1u, 5u, 64u, 200u}) {
      std::vector<u32> work; // of three heads, whose first tiles see all keys
      for (u32 t = 0; t < 3 * rows; ++t)
        work.push_back(t % rows == 0 ? 128 : 9 + t % 4);
      const u32 total = std::accumulate(work.begin(), work.end(), 0u);
      for (const std::vector<u32> &tiles : dealt(work, blocks)) {
        u32 load = 0;
        for (u32 t : tiles)
          load += work[t];
        EXPECT_LE(load, std::max(128u, total / blocks) + 13) << blocks << " blocks, " << rows << " rows";
        // Long ones are first, and each kind is in order.
        EXPECT_TRUE(std::is_sorted(tiles.begin(), tiles.end(), [&](u32 a, u32 b) {
          return work[a] / 100 != work[b] / 100 ? work[a] > work[b] : a < b;
        }));
      }
    }
}

TEST(Emulation, TilesOfOneKindAreDealtOutInTurn) {
  const std::vector<std::vector<u32>> all = dealt(std::vector<u32>(20, 4), 6);
  EXPECT_EQ(all[0], (std::vector<u32>{0, 6, 12, 18}));
  EXPECT_EQ(all[1], (std::vector<u32>{1, 7, 13, 19}));
  EXPECT_EQ(all[5], (std::vector<u32>{5, 11, 17}));
}

TEST(Emulation, MoreTilesThanSharedMemoryHoldsAreDealtOut) {
  std::vector<u32> work; // of five heads
  for (u32 t = 0; t < 4500; ++t)
    work.push_back(t % 900 == 0 ? 128 : 9 + t % 4);
  const u32 blocks = 60, share = std::accumulate(work.begin(), work.end(), 0u) / blocks;
  for (const std::vector<u32> &tiles : dealt(work, blocks))
    EXPECT_LE(std::accumulate(tiles.begin(), tiles.end(), 0u, [&](u32 sum, u32 t) { return sum + work[t]; }), share + 24);
}

} // namespace
