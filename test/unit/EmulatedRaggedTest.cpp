//===- EmulatedRaggedTest.cpp - attention over tokens of many sequences ---===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// attention_ragged.cuh on the host against loops in double precision: prompts, answers and both together, in pages that
// lie in any order; windows, sinks, scores of their own; a sequence's rows do not depend on who is in the batch.
//
//===----------------------------------------------------------------------===//

#define LATHE_EMULATE
#include "../../codegen/device/emulate.h"

#include "EmulatedRaces.h"

#include "../../codegen/device/base.cuh"
#include "../../codegen/device/math.cuh"
#include "../../codegen/device/reduce.cuh"
#include "../../codegen/device/split.cuh"
#include "../../codegen/device/mma.cuh"
#include "../../codegen/device/attention_tile.cuh"
#include "../../codegen/device/attention_ragged.cuh"

#include "DeviceBuffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace {

/// Launches that race are errors.
const bool racesAreFound = lathe::test::findRacesHere();

enum class Scores { Plain, Flags, Own };

/// Tokens of sequences whose pages of sixteen a table names; queries [tokens, HEADS of each of `groups` key heads].
template <class T, int HEADS, int DQ, int DV, Scores SCORES = Scores::Plain, bool SINK = false, bool IN_ROWS = true> struct Tokens {
  typedef T Element;
  static constexpr int kHeadQK = DQ, kHeadV = DV, kLanes = 8;
  static constexpr bool kRowsQ = IN_ROWS, kPlainScore = SCORES == Scores::Plain, kMaskOnly = SCORES == Scores::Flags, kPairs = false;
  static constexpr bool kWholeTiles = false, kCausal = false, kZeroMasked = true, kSink = SINK, kKeyMask = false, kLogSumExp = true;
  static constexpr f32 kScale = 0.3f;
  i64 groups, window; // window: keys ahead of a token's own that it sees; -1: all
  const T *q, *poolK, *poolV;
  const i64 *numbers, *positions, *tables;
  i64 pages; // of a table
  f32 *o, *sums;

  i64 keysOf(i64 b) const { return numbers[b]; }
  i64 keyEnd(i64 b, i64, i64) const { return positions[b] + 1; }
  i64 keyBegin(i64 b, i64, i64) const { return window < 0 ? 0 : positions[b] - window; }
  const T *rowQ(i64 b, i64 h, i64 i) const { return q + ((b * groups + h) * HEADS + i) * DQ; }
  T elementQ(i64 b, i64 h, i64 i, i64 d) const { return rowQ(b, h, i)[d]; }
  const T *sixteenK(i64 b, i64 h, i64 n) const { return poolK + (tables[numbers[b] * pages + n] * 16 * groups + h) * DQ; }
  const T *sixteenV(i64 b, i64 h, i64 n) const { return poolV + (tables[numbers[b] * pages + n] * 16 * groups + h) * DV; }
  i64 strideK() const { return groups * DQ; }
  i64 strideV() const { return groups * DV; }
  f32 sink(i64 b, i64 h, i64 i) const { return 0.5f * (f32)((positions[b] + h + i) % 4); }
  bool seen(i64 b, i64 h, i64 i, i64 k) const { return k >= keyBegin(b, h, i) && (3 * positions[b] + k) % 7 < 5; }
  f32 score(i64 b, i64 h, i64 i, i64 k, f32 dot) const {
    if (SCORES == Scores::Plain) return dot * kScale;
    if (SCORES == Scores::Flags) return seen(b, h, i, k) ? dot * kScale : -INFINITY;
    return k < keyBegin(b, h, i) ? -INFINITY : dot * kScale + (f32)((positions[b] - k) % 5 + h + i) * 0.1f;
  }
  void store(i64 b, i64 h, i64 i, i64 d, const Vec<T, 8> &v) const {
    for (int e = 0; e < 8; ++e) o[((b * groups + h) * HEADS + i) * DV + d + e] = toF32(v.v[e]);
  }
  void storeLogSumExp(i64 b, i64 h, i64 i, f32 value) const { sums[(b * groups + h) * HEADS + i] = value; }
};

template <class Tile, class H> void listKernel(H h, i64 batch, RaggedList *list) { attentionRaggedTiles<Tile, 64>(h, batch, list); }
template <class Tile, class H> void raggedKernel(H h, i64 batch, i64 keys, RaggedList *list) {
  attentionRagged<Tile>(h, batch, h.groups, keys, list);
}

/// Blocks that share a tile as those of a cluster do: the last one, which runs last, finds here what all give.
template <int BLOCKS> struct Shared {
  static u32 rank() { return blockIdx.x % BLOCKS; }
  static f32 *parts(f32 *) { return given_; }
  static void give(f32 *place, f32 value) { *place = value; }
  static void begin() {}
  static void meet() {}
  static void given() { __syncthreads(); }
  static inline f32 given_[1 << 16];
};
template <class Tile, class H> void aloneKernel(H h, i64 keys) { attentionRaggedAlone<Tile, Shared<Tile::BLOCKS>>(h, h.groups, keys); }

/// A part of a sequence: tokens from `first` to `end`.
struct Piece { i64 sequence, first, end; };

template <class T, int HEADS, int DQ, int DV, Scores SCORES = Scores::Plain, bool SINK = false, bool IN_ROWS = true, int ROWS = 64>
std::vector<f32> check(const std::vector<Piece> &pieces, i64 groups, i64 window = -1, int blocks = 3) {
  typedef Tokens<T, HEADS, DQ, DV, SCORES, SINK, IN_ROWS> H;
  typedef AttentionRaggedTile<(ROWS == 16 ? 8 : 4), ROWS, HEADS, 2, DQ, DV> Tile;
  std::vector<i64> numbers, positions;
  i64 sequences = 0, longest = 1;
  for (const Piece &p : pieces) {
    for (i64 i = p.first; i < p.end; ++i) {
      numbers.push_back(p.sequence);
      positions.push_back(i);
    }
    sequences = std::max(sequences, p.sequence + 1);
    longest = std::max(longest, p.end);
  }
  const i64 batch = (i64)numbers.size(), pages = (longest + 15) / 16 + 1, slots = 16 * sequences * pages;
  // A sequence's data depends on its number and positions alone. What no token has is NaN, and no table names it but
  // behind the last key.
  Buffer<T> q(batch * groups * HEADS * DQ), k(slots * groups * DQ), v(slots * groups * DV);
  for (i64 i = 0; i < k.size; ++i) k[i] = convert<T>(NAN);
  for (i64 i = 0; i < v.size; ++i) v[i] = convert<T>(NAN);
  std::vector<i64> tables(sequences * pages);
  for (i64 i = 0; i < (i64)tables.size(); ++i)
    tables[i] = (i64)tables.size() - 1 - i;
  std::vector<i64> ends(sequences);
  for (const Piece &p : pieces) ends[p.sequence] = std::max(ends[p.sequence], p.end);
  for (i64 s = 0; s < sequences; ++s) {
    Buffer<T> keys(16 * pages * groups * DQ), values(16 * pages * groups * DV);
    keys.random(10 + (unsigned)s);
    values.random(50 + (unsigned)s);
    for (i64 i = 0; i < ends[s]; ++i) {
      const i64 slot = tables[s * pages + i / 16] * 16 + i % 16;
      std::copy_n(keys.data + i * groups * DQ, groups * DQ, k.data + slot * groups * DQ);
      std::copy_n(values.data + i * groups * DV, groups * DV, v.data + slot * groups * DV);
    }
  }
  for (i64 b = 0; b < batch; ++b) {
    Buffer<T> row(groups * HEADS * DQ);
    row.random(1000 * (unsigned)numbers[b] + (unsigned)positions[b]);
    std::copy_n(row.data, row.size, q.data + b * row.size);
  }
  Buffer<f32> o(batch * groups * HEADS * DV), sums(batch * groups * HEADS);
  Buffer<u8> list(16 + 8 * RAGGED_PARTS * batch + RAGGED_PLACES * groups * (8 + 4 * RaggedParts<Tile>::SIZE));
  H h{groups, window, q.data, k.data, v.data, numbers.data(), positions.data(), tables.data(), pages, o.data, sums.data};
  RaggedList *const to = (RaggedList *)list.data;
  EXPECT_EQ(run_emulated(listKernel<Tile, H>, 1, 64, 0, h, batch, to), "");
  EXPECT_EQ(run_emulated(raggedKernel<Tile, H>, blocks, Tile::THREADS, Tile::SHARED_BYTES, h, batch, 16 * pages, to), "");
  if constexpr (ROWS == kRowsOfOneOrder)
    if (sequences == batch) { // without a list, of several blocks a tile: the same bits
      const std::vector<f32> listed(o.data, o.data + o.size), listedSums(sums.data, sums.data + sums.size);
      std::fill_n(o.data, o.size, NAN);
      std::fill_n(sums.data, sums.size, NAN);
      typedef AttentionRaggedTile<1, ROWS, HEADS, 3, DQ, DV, 8> Part;
      EXPECT_EQ(run_emulated(aloneKernel<Part, H>, unsigned(8 * batch * groups), Part::THREADS, Part::SHARED_BYTES, h, 16 * pages), "");
      EXPECT_TRUE(std::equal(listed.begin(), listed.end(), o.data) && std::equal(listedSums.begin(), listedSums.end(), sums.data));
    }
  const double tolerance = IsSame<T, bf16>::value ? 8e-3 : 1e-3;
  i64 at = 0;
  for (i64 b = 0; b < batch; ++b)
    for (i64 g = 0; g < groups; ++g)
      for (i64 i = 0; i < HEADS; ++i, ++at) {
        auto keyRow = [&](const T *pool, i64 j, i64 size) {
          return pool + ((tables[numbers[b] * pages + j / 16] * 16 + j % 16) * groups + g) * size;
        };
        std::vector<double> p(positions[b] + 1);
        double most = SINK ? h.sink(b, g, i) : -INFINITY, total = 0;
        for (i64 j = 0; j <= positions[b]; ++j) {
          double dot = 0;
          for (int d = 0; d < DQ; ++d) dot += (double)toF32(h.rowQ(b, g, i)[d]) * toF32(keyRow(k.data, j, DQ)[d]);
          p[j] = h.score(b, g, i, j, (f32)dot);
          most = std::max(most, p[j]);
        }
        for (double &w : p) total += w = most == -INFINITY ? 0 : std::exp(w - most);
        if (SINK) total += std::exp(h.sink(b, g, i) - most);
        if (total > 0)
          EXPECT_NEAR(sums[at], most + std::log(total), tolerance) << "token " << b << " head " << i;
        else
          EXPECT_EQ(sums[at], -INFINITY);
        for (int d = 0; d < DV; ++d) {
          double sum = 0;
          for (i64 j = 0; j <= positions[b]; ++j) sum += p[j] ? p[j] * toF32(keyRow(v.data, j, DV)[d]) : 0;
          EXPECT_NEAR(o[at * DV + d], total == 0 ? 0 : sum / total, tolerance) << "token " << b << " head " << i << " column " << d;
          if (::testing::Test::HasFailure()) return {};
        }
      }
  std::vector<f32> results; // of each token: what attention gives, and log-sum-exp, whose last bits no rounding to 16 bits hides
  for (i64 b = 0; b < batch; ++b) {
    results.insert(results.end(), o.data + b * (o.size / batch), o.data + (b + 1) * (o.size / batch));
    results.insert(results.end(), sums.data + b * (sums.size / batch), sums.data + (b + 1) * (sums.size / batch));
  }
  return results;
}

TEST(EmulatedRagged, ListsTilesOfNeighbours) {
  typedef Tokens<bf16, 4, 16, 16> H;
  std::vector<i64> numbers;
  for (auto [number, count] : {std::pair{0, 1}, {1, 40}, {2, 16}, {3, 1}, {4, 1}, {0, 2}, {5, 100}})
    numbers.insert(numbers.end(), (size_t)count, number);
  std::vector<i64> positions(numbers.size());
  H h{};
  h.numbers = numbers.data();
  h.positions = positions.data();
  h.window = -1;
  Buffer<u8> memory(8 * RAGGED_PARTS * (i64)numbers.size() + 8);
  RaggedList *list = (RaggedList *)memory.data;
  ASSERT_EQ(run_emulated(listKernel<AttentionRaggedTile<4, 64, 4, 2, 16, 16>, H>, 1, 64, 0, h, (i64)numbers.size(), list), "");
  std::vector<std::pair<u32, u32>> found;
  for (u32 i = 0; i < list->count; ++i)
    found.push_back({list->tiles[i].first, list->tiles[i].count});
  const std::vector<std::pair<u32, u32>> want = {{0, 1},   {1, 16},  {17, 16}, {33, 8},   {41, 16},  {57, 1},   {58, 1},   {59, 2},
                                                 {61, 16}, {77, 16}, {93, 16}, {109, 16}, {125, 16}, {141, 16}, {157, 4}};
  EXPECT_EQ(found, want);
  EXPECT_EQ(list->next, 0u);
}

TEST(EmulatedRagged, PromptsAndAnswers) {
  check<bf16, 4, 128, 128>({{0, 0, 70}}, 1);
  check<bf16, 4, 32, 32>({{0, 99, 100}, {1, 0, 37}, {2, 5, 6}, {3, 60, 90}, {4, 0, 1}}, 2);
  check<f16, 1, 64, 64>({{0, 0, 130}, {1, 300, 301}}, 2);
  check<f16, 3, 24, 40>({{0, 0, 50}, {1, 64, 66}}, 1); // heads of odd sizes, rows that fill no warp
  check<bf16, 16, 16, 16>({{0, 63, 64}, {1, 64, 65}, {2, 0, 9}}, 1);
  check<bf16, 2, 192, 160>({{0, 0, 40}, {1, 70, 71}}, 1); // queries are read again
  check<f16, 4, 32, 32, Scores::Plain, false, false>({{0, 600, 601}, {1, 520, 560}}, 1); // more sixteens than lanes
}

/// Tiles behind many keys are several units; the sums of all rows come out right, sinks count once, and the bits do not depend
/// on the number of blocks.
TEST(EmulatedRagged, FewTokensBehindManyKeys) {
  const std::vector<Piece> pieces = {{0, 40, 41}, {1, 9000, 9019}, {2, 4200, 4208}, {3, 0, 20}};
  const std::vector<f32> one = check<bf16, 4, 32, 32>(pieces, 1, -1, 1);
  EXPECT_EQ(one, (check<bf16, 4, 32, 32>(pieces, 1, -1, 7)));
  check<f16, 8, 16, 24, Scores::Own, true>({{0, 6200, 6217}, {1, 5000, 5001}}, 2);
}

TEST(EmulatedRagged, ListsPartsOfKeys) {
  typedef Tokens<bf16, 4, 16, 16> H;
  std::vector<i64> numbers, positions;
  for (i64 s = 0; s < 24; ++s) // more parts than have places: the last tiles stay whole
    for (i64 i = 0; i < 16; ++i) {
      numbers.push_back(s);
      positions.push_back((s == 0 ? 100 : 9000) + i);
    }
  H h{};
  h.numbers = numbers.data();
  h.positions = positions.data();
  h.window = -1;
  Buffer<u8> memory(8 * RAGGED_PARTS * (i64)numbers.size() + 8);
  RaggedList *list = (RaggedList *)memory.data;
  typedef AttentionRaggedTile<4, 64, 4, 2, 16, 16> Tile;
  ASSERT_EQ(run_emulated(listKernel<Tile, H>, 1, 64, 0, h, (i64)numbers.size(), list), "");
  constexpr u32 PARTS = RAGGED_PARTS;
  ASSERT_EQ(list->count, 1u + 23 * PARTS);
  EXPECT_EQ(list->tiles[0].parts, 1);
  for (u32 s = 1; s < 24; ++s)
    for (u32 p = 0; p < PARTS; ++p) {
      const RaggedTile &tile = list->tiles[1 + PARTS * (s - 1) + p];
      const bool room = s * (PARTS - 1) <= RAGGED_PLACES;
      EXPECT_EQ(tile.count, room || p == 0 ? 16 : 0) << s;
      EXPECT_EQ(tile.parts, room ? PARTS : 1) << s;
      EXPECT_EQ(tile.part, p);
      EXPECT_EQ(tile.place, (PARTS - 1) * (s - 1));
    }
}

TEST(EmulatedRagged, WindowsSinksAndScores) {
  check<bf16, 4, 32, 32, Scores::Flags>({{0, 0, 70}, {1, 30, 31}}, 2);
  check<f16, 4, 32, 32, Scores::Own, true>({{0, 0, 45}, {1, 90, 91}}, 2);
  check<bf16, 2, 32, 32, Scores::Own>({{0, 150, 200}, {1, 210, 211}, {2, 0, 3}}, 1, 40);
  check<bf16, 2, 32, 32, Scores::Flags, true>({{0, 120, 160}, {1, 210, 211}}, 1, 3); // some see the sink alone
}

template <int DQ, Scores SCORES, bool SINK> void companyChangesNothing(i64 window) {
  auto run = [=](const std::vector<Piece> &pieces, int blocks) {
    return check<bf16, 4, DQ, DQ, SCORES, SINK, true, kRowsOfOneOrder>(pieces, 1, window, blocks);
  };
  const std::vector<f32> all = run({{0, 0, 101}}, 3);
  const size_t row = all.size() / 101;
  for (const std::vector<Piece> &pieces :
       {std::vector<Piece>{{0, 80, 101}}, {{0, 100, 101}}, {{0, 33, 101}, {1, 0, 70}, {2, 33, 34}}}) {
    const std::vector<f32> some = run(pieces, 2);
    const size_t first = (size_t)pieces[0].first;
    const auto differing = std::mismatch(all.begin() + (ptrdiff_t)(first * row), all.end(), some.begin());
    EXPECT_EQ(differing.first, all.end()) << "heads of " << DQ << ", token " << (differing.first - all.begin()) / (ptrdiff_t)row
                                          << ", element " << (differing.first - all.begin()) % (ptrdiff_t)row << ": "
                                          << *differing.first << " and " << *differing.second;
  }
}

TEST(EmulatedRagged, OneTokenASequenceWithoutAList) {
  check<bf16, 4, 32, 32, Scores::Plain, false, true, 16>({{0, 299, 300}, {1, 0, 1}, {2, 16, 17}}, 2);
  check<f16, 1, 64, 64, Scores::Plain, true, true, 16>({{0, 400, 401}}, 3);
}

/// The same bits in any company, and however a prompt is cut, where all tiles have the same form; also where a tile of keys is
/// seen by some rows of a tile alone.
TEST(EmulatedRagged, CompanyChangesNothing) {
  companyChangesNothing<32, Scores::Own, true>(70);
  companyChangesNothing<128, Scores::Plain, false>(-1);
  companyChangesNothing<32, Scores::Flags, true>(40);
}

} // namespace
