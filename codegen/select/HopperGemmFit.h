//===- HopperGemmFit.h - constants of the model of tiles --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Written by test/perf/gpu/fit_select.py; what they were fitted to is listed there
// in results/README.md. Times in ns, which rank tiles and are no promise. Over the
// 727 sizes of the fit the choice takes 1.0251 times the best tile's time.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_CODEGEN_SELECT_HOPPERGEMMFIT_H
#define LATHE_CODEGEN_SELECT_HOPPERGEMMFIT_H

namespace lathe::select::fit {

/// products of a tile a ns, over 64 of k
constexpr double kMultiply = 3811;
/// bytes that a multiprocessor loads a ns
constexpr double kFeed = 107.4;
/// the same, rows that begin at multiples of 64 bytes
constexpr double kFeedLines = 111.1;
/// the same, of 32 bytes
constexpr double kFeedSectors = 103.4;
/// the same, of 16 bytes
constexpr double kFeedBetween = 80.88;
/// share of that which all multiprocessors load at a time
constexpr double kAll = 0.8912;
/// the same, rows that begin at multiples of 64 bytes
constexpr double kAllLines = 0.7721;
/// the same, of 32 bytes
constexpr double kAllSectors = 0.7047;
/// the same, of 16 bytes
constexpr double kAllBetween = 0.6926;
/// rows that one beyond a tensor counts for, where one block waits for it
constexpr double kOutside = 0.1018;
/// the same, where all blocks load
constexpr double kOutsideAll = 3.28;
/// a load, until it is there
constexpr double kLatency = 1889;
/// how sharp the longest part of a step hides the others
constexpr double kBlendStep = 32.38;
/// the same, of what multiprocessors and memory do
constexpr double kBlend = 6.977;
/// a launch
constexpr double kStart = 1303;
/// between a tile and the next
constexpr double kRound = 597.7;
/// ns a result, the last ones of ping-pong
constexpr double kEpilogue = 0.05546;
/// ns a result that nothing hides
constexpr double kShown = 0.1574;
/// factor of that, results staged by 16 columns
constexpr double kNarrow = 2.971;
/// the same, by 32
constexpr double kMiddle = 1.307;
/// bytes of memory a ns
constexpr double kMemory = 4400;
/// bytes under way that halve that
constexpr double kAhead = 21130;
/// how memory suffers from blocks that are over (exponent)
constexpr double kIdle = 0.5339;
/// adding up over a cluster
constexpr double kTogether = 745.7;
/// the same, a block
constexpr double kTogetherEach = 7.292;
/// the same, a sum and the root of the blocks
constexpr double kTogetherSums = 0.03671;
/// the same, where memory is slower
constexpr double kTogetherMoved = 198.3;
/// factor of a step: clusters with several rows of tiles
constexpr double kSplitRows = 1.272;
/// factor of a step: later rounds that do not take turns
constexpr double kCooperative = 1.003;
/// factor of a step: one round of the largest tiles that do not take turns
constexpr double kLarge = 1.239;
/// factor of a step: one round of tiles of 128 rows that take turns
constexpr double kTurnAlone = 1.002;
/// factor of a step: tiles of 64 rows, all of them loaded
constexpr double kHalfRows = 0.9416;
/// a lone group of warps starts later
constexpr double kAlone = 517.4;
/// factor of results that nothing hides, where they are more than the sums
constexpr double kActivation = 3;
/// results a ns, with others read beside them
constexpr double kBeside = 4;
/// factor of memory, the same, more than 64 sums a thread
constexpr double kBesideWide = 1.06;
/// handing over sums of tiles that blocks share
constexpr double kShare = 1048;
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
/// how much slower, in products so large that power sets the clock
constexpr double kHeat = 0;
/// how much faster all load there, from the cache instead of memory
constexpr double kReuse = 0;

} // namespace lathe::select::fit

#endif // LATHE_CODEGEN_SELECT_HOPPERGEMMFIT_H
