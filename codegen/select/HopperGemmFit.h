//===- HopperGemmFit.h - constants of the model of tiles --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Written by test/perf/gpu/fit_select.py; what they were fitted to is listed there
// in results/README.md. Units of their own, no rates of the machine. Over the
// 265 sizes of the fit the choice takes 1.0242 times the best tile's time.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_CODEGEN_SELECT_HOPPERGEMMFIT_H
#define LATHE_CODEGEN_SELECT_HOPPERGEMMFIT_H

namespace lathe::select::fit {

/// products of a tile a unit of time, over 64 of k
constexpr double kMultiply = 3242;
/// bytes that a multiprocessor loads a unit of time
constexpr double kFeed = 110.7;
/// the same, rows that begin at multiples of 32 bytes
constexpr double kFeedSectors = 73;
/// the same, of 16 bytes
constexpr double kFeedBetween = 78.12;
/// a load, until it is there
constexpr double kLatency = 1525;
/// a launch
constexpr double kStart = 2661;
/// between a tile and the next
constexpr double kRound = 421.5;
/// results a unit of time, the last ones of ping-pong
constexpr double kEpilogue = 124;
/// results a unit of time that nothing hides
constexpr double kShown = 62.56;
/// bytes of memory a unit of time
constexpr double kMemory = 5228;
/// bytes under way a multiprocessor that memory wants
constexpr double kAhead = 6973;
/// adding up over a cluster
constexpr double kTogether = 500;
/// the same, a block
constexpr double kTogetherEach = 154.1;
/// factor of a step: clusters with several rows of tiles
constexpr double kSplitRows = 1.305;
/// factor of a step: columns staged by sixteens
constexpr double kNarrow = 1.192;
/// factor of a step: later rounds that do not take turns
constexpr double kCooperative = 1.01;
/// factor of a step: one round of the largest tiles that do not take turns
constexpr double kLarge = 1.12;
/// factor of a step: one round of tiles of 128 rows that take turns
constexpr double kTurnAlone = 1.02;
/// factor of that time where results are more than the sums
constexpr double kActivation = 3;
/// results a unit of time, with others read beside them
constexpr double kBeside = 4;
/// factor of memory, the same, more than 64 sums a thread
constexpr double kBesideWide = 1.06;
/// handing over sums of tiles that blocks share
constexpr double kShare = 6500;
/// share of a step more, a round: columns beyond the tensor
constexpr double kOverhang = 0.35;
/// factor of a step: tiles of 64 rows, all of them loaded
constexpr double kHalfRows = 0.93;
/// a lone group of warps starts later
constexpr double kAlone = 250;
/// share of the busy time that breaks ties
constexpr double kBusy = 0.03;
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

} // namespace lathe::select::fit

#endif // LATHE_CODEGEN_SELECT_HOPPERGEMMFIT_H
