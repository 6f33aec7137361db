//===- EmulatedStreamKTest.cpp - one token each of sequences of many lengths -===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// attention_streamk.cuh on the host against loops in double precision: lengths from none to many pages, on one block, a few,
// and more than there are steps; windows, sinks; what blocks hand over does not race.
//
//===----------------------------------------------------------------------===//

#define LATHE_EMULATE
#include "../../codegen/device/emulate.h"

#include "EmulatedRaces.h"

#include "../../codegen/device/base.cuh"
#include "../../codegen/device/math.cuh"
#include "../../codegen/device/reduce.cuh"
#include "../../codegen/device/mma.cuh"
#include "../../codegen/device/scan.cuh"
#include "../../codegen/device/split.cuh"
#include "../../codegen/device/widen.cuh"
#include "../../codegen/device/attention_tile.cuh"
#include "../../codegen/device/attention_codes.cuh"
#include "../../codegen/device/attention_split.cuh"
#include "../../codegen/device/attention_streamk.cuh"

#include "DeviceBuffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace {

/// Launches that race are errors.
const bool racesAreFound = lathe::test::findRacesHere();

/// A token a sequence, which sees its keys up to `lengths`, or the last WINDOW of them, in pages that `tables` names;
/// queries [sequences, groups, GROUP].
template <class T, int GROUP, int D, bool SINK = false, i64 WINDOW = -1> struct Sequences {
  typedef T Element;
  static constexpr int kHeadQK = D, kHeadV = D, kLanes = 8, kGroup = GROUP, kCodeBits = 16;
  static constexpr bool kRowsQ = true, kPlainScore = WINDOW < 0, kMaskOnly = false, kPairs = false, kEarly = false, kPaged = true;
  static constexpr bool kWholeTiles = false, kCausal = false, kZeroMasked = true, kSink = SINK, kKeyMask = false, kLogSumExp = true;
  static constexpr f32 kScale = 0.3f;
  i64 groups, pages; ///< pages: of a table
  const T *q;
  const T *pool[2]; ///< of keys, of values: [page, group, 16, D]
  const i64 *lengths, *tables;
  f32 *o, *sums;

  i64 keyEnd(i64 b, i64, i64) const { return lengths[b]; }
  i64 keyBegin(i64 b, i64, i64) const { return WINDOW < 0 ? 0 : std::max<i64>(0, lengths[b] - WINDOW); }
  const T *rowQ(i64 b, i64 h, i64) const { return q + (b * groups * GROUP + h) * D; }
  T elementQ(i64 b, i64 h, i64 i, i64 d) const { return rowQ(b, h, i)[d]; }
  i64 sixteen(i64 b, i64 h, i64 n) const { return (tables[b * pages + n] * groups + h / GROUP) * 16; }
  const T *sixteenK(i64 b, i64 h, i64 n) const { return pool[0] + sixteen(b, h, n) * D; }
  const T *sixteenV(i64 b, i64 h, i64 n) const { return pool[1] + sixteen(b, h, n) * D; }
  i64 strideK() const { return D; }
  i64 strideV() const { return D; }
  f32 sink(i64 b, i64 h, i64) const { return 0.5f * (f32)((b + h) % 4); }
  bool seen(i64, i64, i64, i64) const { return true; }
  f32 score(i64 b, i64 h, i64 i, i64 k, f32 dot) const { return k < keyBegin(b, h, i) ? -INFINITY : dot * kScale; }
  void store(i64 b, i64 h, i64, i64 d, const Vec<T, 8> &v) const {
    for (int e = 0; e < 8; ++e) o[(b * groups * GROUP + h) * D + d + e] = toF32(v.v[e]);
  }
  void storeLogSumExp(i64 b, i64 h, i64, f32 value) const { sums[b * groups * GROUP + h] = value; }
  double element(int part, i64 b, i64 h, i64 j, i64 d) const {
    return toF32(pool[part][(sixteen(b, h, j / 16) + j % 16) * D + d]);
  }
};

template <class Tile, class H> void kernel(H h, i64 batch, i64 keys, u8 *work) {
  attentionStreamK<Tile>(h, batch, h.groups * H::kGroup, 1, keys, work);
}

/// What blocks of a grid give: results, then logarithms of sums, which no rounding to 16 bits hides.
template <class T, int GROUP, int D, bool SINK = false, i64 WINDOW = -1>
std::vector<f32> check(const std::vector<i64> &lengths, i64 groups, int blocks) {
  typedef Sequences<T, GROUP, D, SINK, WINDOW> H;
  typedef AttentionSplitTile<2, 1, (GROUP > 8 ? 2 : 1), 2, D, D> Tile;
  const i64 batch = (i64)lengths.size(), pages = *std::max_element(lengths.begin(), lengths.end()) / 16 + 2, rows = batch * pages * groups * 16;
  Buffer<T> q(batch * groups * GROUP * D);
  q.random(5);
  Buffer<T> pool[2] = {Buffer<T>(rows * D), Buffer<T>(rows * D)};
  Buffer<f32> o(q.size), sums(batch * groups * GROUP);
  std::vector<i64> tables(batch * pages);
  for (i64 i = 0; i < (i64)tables.size(); ++i) tables[i] = (i64)tables.size() - 1 - i;
  std::mt19937 gen(9);
  H h{groups, pages, q.data, {pool[0].data, pool[1].data}, lengths.data(), tables.data(), o.data, sums.data};
  for (Buffer<T> &part : pool) { // what no sequence has is NaN
    for (i64 i = 0; i < part.size; ++i) part[i] = convert<T>(NAN);
    for (i64 b = 0; b < batch; ++b)
      for (i64 g = 0; g < groups; ++g)
        for (i64 j = 0; j < lengths[b]; ++j)
          for (i64 d = 0; d < D; ++d)
            part[(h.sixteen(b, g * GROUP, j / 16) + j % 16) * D + d] = convert<T>(std::normal_distribution<f32>()(gen));
  }
  Buffer<u8> work((8 * blocks + 15) / 16 * 16 + 4 * blocks * HandedOver<Tile, D>::SIZE);
  const dim3 grid(blocks, unsigned((batch * groups + blocks - 1) / blocks));
  EXPECT_EQ(run_emulated(kernel<Tile, H>, grid, 32 * Tile::WARPS, Tile::SHARED_BYTES, h, batch, 16 * pages, work.data), "");
  const double tolerance = IsSame<T, bf16>::value ? 8e-3 : 1e-3;
  for (i64 b = 0; b < batch; ++b)
    for (i64 head = 0; head < groups * GROUP; ++head) {
      const i64 at = b * groups * GROUP + head, begin = h.keyBegin(b, head, 0);
      std::vector<double> p(lengths[b]);
      double most = SINK ? h.sink(b, head, 0) : -INFINITY, total = SINK ? 1 : 0;
      for (i64 j = begin; j < lengths[b]; ++j) {
        double dot = 0;
        for (int d = 0; d < D; ++d) dot += (double)toF32(h.rowQ(b, head, 0)[d]) * h.element(0, b, head, j, d);
        p[j] = dot * h.kScale;
        const double larger = std::max(most, p[j]);
        total = total * (most == larger ? 1 : std::exp(most - larger)) + std::exp(p[j] - larger);
        most = larger;
      }
      if (total > 0)
        EXPECT_NEAR(sums[at], most + std::log(total), tolerance) << b << ", head " << head;
      else
        EXPECT_EQ(sums[at], -INFINITY);
      for (int d = 0; d < D; ++d) {
        double sum = 0;
        for (i64 j = begin; j < lengths[b]; ++j) sum += std::exp(p[j] - most) * h.element(1, b, head, j, d);
        EXPECT_NEAR(o[at * D + d], total == 0 ? 0 : sum / total, tolerance) << b << ", head " << head << " column " << d;
        if (::testing::Test::HasFailure()) return {};
      }
    }
  std::vector<f32> results(o.data, o.data + o.size);
  results.insert(results.end(), sums.data, sums.data + sums.size);
  return results;
}

TEST(EmulatedStreamK, AnyLengthsOnAnyGrid) {
  const std::vector<i64> lengths = {700, 1, 0, 90, 16, 17, 333, 0};
  for (int blocks : {1, 2, 5, 13, 100})
    check<bf16, 4, 32>(lengths, 2, blocks);
  check<f16, 1, 64>({40, 1000}, 3, 9);
  check<bf16, 16, 128>({1, 129, 64}, 1, 4);
  check<f16, 8, 24>({250, 3}, 2, 6); // heads of odd sizes
  check<bf16, 2, 32>({0, 0}, 1, 3);
  check<bf16, 2, 32>({5}, 1, 3);
  check<bf16, 2, 16>(std::vector<i64>(150, 20), 1, 7); // more sequences than threads
  std::vector<i64> padded(40, 1); // a long one, and tokens that pad the batch
  padded[3] = 900;
  check<bf16, 4, 32>(padded, 2, 12);
}

/// Heads of nearly the same length are whole, whatever the grid: their bits are those of a sequence by itself.
TEST(EmulatedStreamK, HeadsOfNearlyTheSameLength) {
  const std::vector<i64> lengths = {130, 141, 120, 0, 160, 133, 129};
  const std::vector<f32> all = check<bf16, 4, 32>(lengths, 2, 7);
  EXPECT_EQ(all, (check<bf16, 4, 32>(lengths, 2, 14)));
  EXPECT_EQ(all, (check<bf16, 4, 32>(lengths, 2, 20)));
  check<f16, 4, 32, true, 100>({700, 660, 720, 690, 651}, 2, 3);
}

TEST(EmulatedStreamK, WindowsAndSinks) {
  check<bf16, 4, 32, false, 100>({700, 1, 90, 333}, 2, 5);
  check<f16, 4, 32, true>({700, 0, 90, 333}, 2, 11);
  check<bf16, 2, 32, true, 33>({300, 40, 7}, 1, 4);
}

/// The bits follow from lengths and grid: not from what lay in the workspace, and a head that one block has alone has the bits
/// that it has by itself.
TEST(EmulatedStreamK, BitsFollowFromLengthsAndGrid) {
  const std::vector<i64> lengths = {900, 30, 30, 500};
  EXPECT_EQ((check<bf16, 4, 32>(lengths, 1, 6)), (check<bf16, 4, 32>(lengths, 1, 6)));
  const std::vector<f32> one = check<bf16, 4, 32>({200, 30}, 1, 1), whole = check<bf16, 4, 32>({200, 30}, 1, 2);
  EXPECT_TRUE(std::equal(one.begin() + 4 * 32, one.begin() + 2 * 4 * 32, whole.begin() + 4 * 32));
}

} // namespace
