//===- HopperGemmFit.h - constants of the model of tiles --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Written by test/perf/gpu/fit_select.py; what they were fitted to is listed there
// in results/README.md. Times in ns, which rank tiles and are no promise. Over the
// 1159 sizes of the fit the choice takes 1.0247 times the best tile's time.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_CODEGEN_SELECT_HOPPERGEMMFIT_H
#define LATHE_CODEGEN_SELECT_HOPPERGEMMFIT_H

namespace lathe::select::fit {

/// products of a tile a ns, over 64 of k
constexpr double kMultiply = 3626;
/// how much slower, in products so large that power sets the clock
constexpr double kHeat = 0.15;
/// how much faster all load there, from the cache instead of memory
constexpr double kReuse = 0.6;
/// bytes that a multiprocessor loads a ns
constexpr double kFeed = 84.35;
/// the same, rows that begin at multiples of 64 bytes
constexpr double kFeedLines = 105.3;
/// the same, of 32 bytes
constexpr double kFeedSectors = 108.6;
/// the same, of 16 bytes
constexpr double kFeedBetween = 67.48;
/// share of that which all multiprocessors load at a time
constexpr double kAll = 0.9879;
/// the same, rows that begin at multiples of 64 bytes
constexpr double kAllLines = 0.6748;
/// the same, of 32 bytes
constexpr double kAllSectors = 0.5902;
/// the same, of 16 bytes
constexpr double kAllBetween = 0.5497;
/// rows that one beyond a tensor counts for, where one block waits for it
constexpr double kOutside = 0.1613;
/// the same, where all blocks load
constexpr double kOutsideAll = 2.203;
/// a load, until it is there
constexpr double kLatency = 1691;
/// how sharp the longest part of a step hides the others
constexpr double kBlendStep = 9.253;
/// the same, of what multiprocessors and memory do
constexpr double kBlend = 4.43;
/// a launch
constexpr double kStart = 1212;
/// between a tile and the next
constexpr double kRound = 636.3;
/// ns a result, the last ones of ping-pong
constexpr double kEpilogue = 0.04492;
/// ns a result that nothing hides
constexpr double kShown = 0.07093;
/// factor of that, results staged by 16 columns
constexpr double kNarrow = 4.728;
/// the same, by 32
constexpr double kMiddle = 1.274;
/// bytes of memory a ns
constexpr double kMemory = 4400;
/// bytes under way that halve that
constexpr double kAhead = 75240;
/// how memory suffers from blocks that are over (exponent)
constexpr double kIdle = 0.5575;
/// adding up over a cluster
constexpr double kTogether = 743.6;
/// the same, a block
constexpr double kTogetherEach = 13.97;
/// the same, a sum and the root of the blocks
constexpr double kTogetherSums = 0.04538;
/// the same, where memory is slower
constexpr double kTogetherMoved = 202.4;
/// factor of a step: clusters with several rows of tiles
constexpr double kSplitRows = 1.247;
/// factor of a step: later rounds that do not take turns
constexpr double kCooperative = 1.01;
/// how much more than that, of large products
constexpr double kCooperativeLarge = 0.09;
/// how much slower, in large products, columns that are no multiple of 64
constexpr double kUneven = 0.02;
/// factor of a step: one round of the largest tiles that do not take turns
constexpr double kLarge = 1.094;
/// factor of a step: one round of tiles of 128 rows that take turns
constexpr double kTurnAlone = 1.01;
/// factor of a step: tiles of 64 rows, all of them loaded
constexpr double kHalfRows = 0.9482;
/// a lone group of warps starts later
constexpr double kAlone = 700.9;
/// factor of storing results that are more than the sums, but in a lone round
constexpr double kFinish = 7.408;
/// the same, operands swapped: what follows from a column is one value a thread
constexpr double kFinishSwapped = 1.243;
/// the same besides, with a tensor that is read beside the results
constexpr double kFinishBeside = 0.3629;
/// factor of memory, the same, more than 64 sums a thread
constexpr double kBesideWide = 1.469;
/// factor of a step, the same, groups that take turns and have few steps to wait in
constexpr double kBesideFew = 1.25;
/// factor of the time between tiles: operands swapped
constexpr double kSwapped = 0.3217;
/// handing over sums of tiles that blocks share
constexpr double kShare = 846.2;
/// share of the columns that a block of a pair loads
constexpr double kPaired = 0.09095;
/// factor of a step: B across k in chunks of 32 columns
constexpr double kAcross = 1.48;
/// factor of a step: operands of one byte whose results nothing hides
constexpr double kBytesShown = 1.04;
/// factor of a step: sums of 8-bit floats taken out, more than 128 columns
constexpr double kPromotedWide = 1.03;
/// least step with such sums
constexpr double kPromotedStep = 100;
/// the same, a column
constexpr double kPromotedColumn = 1.13;
/// ns, below which weights are fetched while the kernel before still runs
constexpr double kShort = 8000;
/// the same, operands swapped
constexpr double kShortSwapped = 14500;

} // namespace lathe::select::fit

#endif // LATHE_CODEGEN_SELECT_HOPPERGEMMFIT_H
