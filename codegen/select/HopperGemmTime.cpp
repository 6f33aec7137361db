//===- HopperGemmTime.cpp - how long tiles of a product take -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Blocks walk over tiles one after another, so the time is that of the block
// with most of them, and never less than the memory's:
//
//   round   steps of 64 of k, each as long as the longest of multiplying,
//           loading by this multiprocessor, loading by all, and a load's latency
//   store   what the results of a tile take, where no product hides it
//   memory  all bytes, slower where few loads are under way or blocks are over
//
// Sizes are those of the instruction: `high` rows by `wide` columns. With swapped
// operands its rows are columns of the results; the formulas are the same, except
// for the stores.
//
// fit_select.py (test/perf/gpu) has the same in Python, to fit the constants of
// HopperGemmFit.h.
//
//===----------------------------------------------------------------------===//

#include "HopperGemmTime.h"

#include "HopperGemmFit.h"

#include "lathe/codegen/ProductChoice.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace lathe::select {
namespace {

using namespace fit;

constexpr double kRowBytes = 128; ///< of k in a step

double over(double a, double b) { return std::ceil(a / b); }

/// Of several that run side by side the longest counts, and the others a little.
double blend(double sharp, std::initializer_list<double> parts) {
  double longest = std::max(parts), sum = 0;
  for (double part : parts)
    sum += std::pow(part / longest, sharp);
  return longest * std::pow(sum, 1 / sharp);
}

class TileTime {
public:
  TileTime(const KernelConfig &c, const ProductSizes &sizes);
  double total() const;

private:
  double step(double active) const;
  double factorOfSteps() const;
  double tile(double active) const;
  double shown() const;
  double busy() const;
  double memory() const;

  const KernelConfig &c;
  const ProductSizes &sizes;
  bool turns, swapped, alone;
  double parts; ///< blocks of a cluster that share k
  double sms;
  double m, n;       ///< rows and columns of the product
  double high, wide; ///< of a tile
  double rowsLoaded; ///< of `high`
  double down, across, blocks;
  double rounds, whole, left; ///< of all blocks at a time: begun, full, blocks of the last
  double steps, results;      ///< of a tile
  double large;               ///< 0 to 1: how many products there are
  double reuse;               ///< loads of large products come from the cache
  double stores;              ///< results of a tile, counted by what storing one takes
  double finishes;            ///< the same with what becomes of them first
};

TileTime::TileTime(const KernelConfig &c, const ProductSizes &sizes)
    : c(c), sizes(sizes), turns(isPingPong(c)), swapped(isSwapped(c)),
      alone(isSplit(c) && c.cluster == 1),
      parts(isSplit(c) ? static_cast<double>(c.cluster) : 1), sms(static_cast<double>(sizes.smCount)) {
  auto number = [](int64_t v) { return static_cast<double>(v); };
  m = number(swapped ? sizes.n : sizes.m);
  n = number(swapped ? sizes.m : sizes.n);
  high = number(swapped ? c.tileN : c.tileM);
  wide = number(swapped ? c.tileM : c.tileN);
  rowsLoaded = c.rows > 1 ? number(c.rows) : high;
  down = isPaired(c) ? 2 * over(m, 2 * high) : over(m, high);
  across = over(n, wide);
  blocks = down * across * number(sizes.batch) * parts;
  rounds = over(blocks, sms);
  whole = std::floor(blocks / sms);
  left = blocks - whole * sms;
  steps = over(over(number(sizes.k), number(c.tileK)), parts);
  results = high * wide;
  // In large products power sets the clock, and most of what is loaded is in the cache.
  constexpr double kManyProducts = 3e10;
  double products = m * n * number(sizes.k * sizes.batch);
  large = products / (products + kManyProducts);
  reuse = 1 + kReuse * large;
  // Results are staged by 64 columns, or fewer. What follows from a column alone is one value of a
  // thread where operands are swapped, and takes fewer instructions.
  stores = results * (std::fmod(wide, 32) != 0 ? kNarrow : std::fmod(wide, 64) != 0 ? kMiddle : 1);
  finishes = stores;
  if (!sizes.bare)
    finishes *= (swapped ? kFinishSwapped : kFinish) + (sizes.residual ? kFinishBeside : 0);
}

/// What makes all steps of a form slower.
double TileTime::factorOfSteps() const {
  double factor = 1;
  if (!turns && rounds > 1)
    factor *= kCooperative + kCooperativeLarge * large;
  if (std::fmod(wide, 64) != 0)
    factor *= 1 + kUneven * large;
  // One round of large tiles: nothing is hidden behind anything.
  if (!turns && rounds == 1 && results > 128 * 224)
    factor *= kLarge;
  if (turns && rounds == 1 && high == 128 && wide > 64)
    factor *= kTurnAlone;
  if (high == 64 && c.rows == 1)
    factor *= kHalfRows;
  if (parts > 1 && m > high)
    factor *= kSplitRows;
  if (!sizes.bAlongK && std::fmod(wide, 64) != 0)
    factor *= kAcross; // chunks of 32 columns are read more slowly
  // Products of 8-bit elements take half the time, their results as long as those of 16 bits.
  if (!turns && c.form->wgmma.plain() && sizes.elementBytes == 1 && rounds > 1)
    factor *= kBytesShown;
  return factor;
}

/// A step when so many blocks run.
double TileTime::step(double active) const {
  // Rows that begin between the lines of the cache, or even its sectors, take more of them; all
  // multiprocessors together load less than each of them could. Rows beyond a tensor are slow.
  int64_t align = sizes.rowAlignment;
  int at = align >= 128 ? 0 : align == 64 ? 1 : align == 32 ? 2 : 3;
  double feed = std::array{kFeed, kFeedLines, kFeedSectors, kFeedBetween}[at];
  double feedAll = std::array{kAll, kAllLines, kAllSectors, kAllBetween}[at] * feed;
  double below = c.rows > 1 ? 0 : down * high - m, right = across * wide - n;
  double mean = below / down + right / across;
  double asked = rowsLoaded + wide * (isPaired(c) ? kPaired : 1);
  double load = asked + kOutside * (rounds == 1 ? below + right : mean);
  double loadAll = asked + kOutsideAll * mean;
  double time = factorOfSteps() *
                blend(kBlendStep, {results * 64 / kMultiply * (1 + kHeat * large),
                                   load * kRowBytes / feed / reuse,
                                   loadAll * kRowBytes / feedAll / reuse * active / sms,
                                   kLatency / static_cast<double>(c.stages) / reuse});
  // Sums of 8-bit floats are promoted to f32 registers once or twice a step.
  if (c.form->wgmma.promoted)
    time = std::max(time * (wide > 128 ? kPromotedWide : 1), kPromotedStep + kPromotedColumn * wide);
  return time;
}

/// The time of one tile of a block. With ping-pong one warpgroup stores while the other multiplies, and
/// starts to multiply only when it has stored.
double TileTime::tile(double active) const {
  constexpr double kFewSteps = 8; // too few to wait for a residual
  double waits = turns && sizes.residual && steps <= kFewSteps ? kBesideFew : 1;
  double turn = kRound * (swapped && rounds > 1 ? kSwapped : 1);
  double products = waits * steps * step(active) + turn;
  return turns && rounds > 1 ? std::max(products, (products + finishes * kEpilogue) / 2) : products;
}

/// The part of the stores that no product hides: with ping-pong only those of the last tile.
double TileTime::shown() const {
  return turns ? stores * kEpilogue : kShown * (rounds > 1 ? rounds * finishes : 0.5 * stores);
}

/// The block with most tiles.
double TileTime::busy() const {
  double time = whole * tile(sms) + shown();
  if (isStreamK(c) && left > 0)
    time += left * steps / sms * step(sms) + kShare;
  else if (left > 0)
    time += tile(left);
  // Blocks of a cluster begin and wait together, those of a pair too, which add nothing up.
  if (c.cluster > 1 && !c.form->wgmma.parts)
    time += kTogether + kTogetherEach * parts + kTogetherSums * rowsLoaded * wide * std::sqrt(parts);
  return time + (alone ? kAlone : 0); // a lone group of warps starts later
}

/// Memory is as fast as loads are under way; columns beyond the tensor are none.
double TileTime::memory() const {
  double k = static_cast<double>(sizes.k);
  double bytes = static_cast<double>(sizes.batch * sizes.elementBytes) *
                 (m * k + n * (k + (sizes.residual ? 2 : 1) * m));
  double ahead = std::min(blocks, sms) *
                 std::min(steps * rounds, static_cast<double>(c.stages)) *
                 (n / across + (rounds > 1 ? rowsLoaded : 0)) * kRowBytes;
  double idle = isStreamK(c) && left > 0 ? 1 : rounds * sms / blocks;
  double time = bytes / kMemory * (1 + kAhead / ahead) * std::pow(idle, kIdle);
  if (c.cluster > 1 && !c.form->wgmma.parts)
    time += kTogetherMoved;
  return time * (sizes.residual && sumsOfThread(c) > 64 ? kBesideWide : 1);
}

double TileTime::total() const { return blend(kBlend, {busy(), memory()}) + kStart; }

} // namespace

int64_t sumsOfThread(const KernelConfig &c) {
  return c.tileM * c.tileN / (isPingPong(c) || isSplit(c) ? 128 : 256);
}

int64_t multiprocessorsOf(const Target &target, int64_t cluster) {
  return target.smCount * (cluster <= 2 ? 132 : cluster <= 4 ? 112 : 96) / 132;
}

double timeOfTile(const KernelConfig &c, const ProductSizes &sizes) {
  return TileTime(c, sizes).total();
}

} // namespace lathe::select
