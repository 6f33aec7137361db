//===- CollectiveAbi.h - what collective kernels read and write -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// GPUs of one host that reach each other's memory exchange by kernels of codegen/device/collective.cuh. An engine for a
// mesh has their images for each CUDA target, named by collectiveImage(). All ranks launch the same functions with the
// same sizes in the same order, on one stream; programmatic launches are allowed, and so are captured graphs: what
// changes from call to call is counted in device memory.
//
// The arenas. Every rank has one of the same size; `arenas` is where that of rank 0 is mapped, that of rank r follows
// r * arenaBytes behind it (one reserved range of addresses, mapped for every device). It begins with ArenaHeader, then
// come the slots, [kCollectiveBlocks][2][ranks][kSlotBytes], then the operands. Before the first launch the header is
// zero and every byte of the slots is 0xFF (prepared on all ranks before any rank launches); both are the kernels' from
// then on. After an error they are prepared again, on all ranks.
//
// Parameters, each a 64-bit word: buffers, then numbers, then LatheStatusWord * (may be null). `count`: elements.
// `timeout`: nanoseconds that a kernel waits for a peer, more than 0. `step`: told with an error.
//
//   allReduceOneShot(in, out, arenas, arenaBytes, rank, count, timeout, step, status)
//   allReduceTwoShot(in, out, arenas, arenaBytes, rank, count, timeout, step, status)
//   allReduceDirect(in, out, arenas, arenaBytes, rank, count, timeout, step, status)
//   allGather(in, out, arenas, arenaBytes, rank, rows, run, timeout, step, status)
//   reduceScatter(in, out, arenas, arenaBytes, rank, rows, run, timeout, step, status)
//   allReduceNorm(in, residual, weight, sum, normed, arenas, arenaBytes, rank, rows, columns, epsilon, timeout, step,
//                 status)
//
// One-shot and two-shot go through the slots: their operands are anywhere on the rank's device, and `out` may be `in`.
// Direct reads `in` of all peers and writes `out` of all: both are among the operands of the arena, at the same place on
// every rank, and may be the same. `out` of allGather and `in` of reduceScatter are, too. A part of these two is
// [rows][run], the whole [rows][ranks][run], `run` in elements for reduceScatter and in bytes for allGather. Every
// pointer is a multiple of 16, and so are the bytes of `run`.
//
// allReduceNorm: `sum` [rows, columns] is the all-reduce of `in` plus `residual` (null: none); `normed` is
// sum * rsqrt(mean(sum^2) + epsilon) * weight [columns], computed in f32 from the sum before it is rounded; `epsilon` is the
// bits of an f32. `sum` may be `in` or `residual`. columns * size is a multiple of 16.
//
// Reductions are in the order of ranks: all get the same bits. Sums of 16-bit floats are in f32 and rounded once.
// A kernel that waits in vain reports kStatusPeerLost with the rank that it waited for, sets the abort word of all
// arenas, and ends; those that wait on other ranks see the word and do the same, at once. Results are then undefined.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_ENGINE_COLLECTIVEABI_H
#define LATHE_ENGINE_COLLECTIVEABI_H

#include "lathe/engine/Plan.h"
#include "lathe/support/DType.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lathe::engine {

inline constexpr int64_t kMostCollectiveRanks = 8;
inline constexpr int64_t kCollectiveBlocks = 128;  ///< of a launch, at most
inline constexpr int64_t kCollectiveThreads = 512; ///< of a block, at most
inline constexpr int64_t kSlotBytes = 16384;       ///< what a block of one rank sends a block of another
/// Code of a status word; its detail has the step in its low half, the rank that did not come in its high half.
inline constexpr uint64_t kStatusPeerLost = 3;

struct ArenaHeader {
  uint32_t abort; ///< not 0: 1 + the rank that was waited for in vain, or kAbortByHost
  uint32_t pad[63];
  uint32_t epochs[kCollectiveBlocks]; ///< calls in which a block of this rank took part
  uint32_t begun[kCollectiveBlocks][kMostCollectiveRanks]; ///< epoch of a peer's block, told by it
  uint32_t ended[kCollectiveBlocks][kMostCollectiveRanks];
};
/// Written into the abort word by a host that knows of a lost peer before the kernels do.
inline constexpr uint32_t kAbortByHost = 0x80000000u;
inline constexpr int64_t kArenaHeaderBytes = 16384;
static_assert(sizeof(ArenaHeader) <= kArenaHeaderBytes && offsetof(ArenaHeader, epochs) == 256 &&
              offsetof(ArenaHeader, begun) == 768 && offsetof(ArenaHeader, ended) == 4864);

constexpr int64_t arenaSlotBytes(int64_t ranks) { return kCollectiveBlocks * 2 * ranks * kSlotBytes; }
/// Where the operands begin.
constexpr int64_t arenaOperandOffset(int64_t ranks) { return kArenaHeaderBytes + arenaSlotBytes(ranks); }

/// The image with all functions for a type of elements and a reduction but allReduceNorm, which no plan launches so far;
/// `allGather` is in every one. "lathe.collective.sum.bf16"
inline std::string collectiveImage(Reduction reduction, DType dtype) {
  const char *const names[] = {"sum", "prod", "max", "min"};
  return std::string("lathe.collective.") + names[int(reduction)] + "." + std::string(name(dtype));
}

/// Of a step whose operands have elements of `dtype`. An all_gather moves bytes, whatever they are.
inline std::string collectiveImage(const CollectiveStep &step, DType dtype) {
  return step.name == "all_gather" ? collectiveImage(Reduction::Sum, DType::F32) : collectiveImage(step.reduction, dtype);
}

/// How an all-reduce runs.
enum class AllReduceForm : uint8_t {
  OneShot, ///< everything to everyone: one way, ranks - 1 times the bytes
  TwoShot, ///< parts are reduced, then sent to everyone: two ways
  Direct,  ///< the same on the operands themselves, between two meetings
};

/// Up to so many bytes ranks that are processes, and meet over sockets, send all of an all-reduce to everyone: one way
/// instead of two.
inline constexpr int64_t kMostOneShotBytesOverSockets = 16384;

/// Types that slots carry: an element of 0xFF bytes says that a slot is empty, which of these is a NaN.
constexpr bool goesThroughSlots(DType dtype) {
  return dtype == DType::F32 || dtype == DType::F16 || dtype == DType::BF16;
}
/// The functions of its image that a step may launch: of an all_reduce by AllReduceForm, empty where the type has none;
/// else one.
inline std::vector<std::string_view> collectiveFunctions(const CollectiveStep &step, DType dtype) {
  if (step.name == "all_reduce")
    return {goesThroughSlots(dtype) ? "allReduceOneShot" : "", goesThroughSlots(dtype) ? "allReduceTwoShot" : "",
            "allReduceDirect"};
  return {step.name == "all_gather" ? "allGather" : "reduceScatter"};
}
/// Most bytes of an operand that a form takes, and of the rows of allReduceNorm that a block takes.
constexpr int64_t mostOneShotBytes() { return kCollectiveBlocks * kSlotBytes; }
constexpr int64_t mostTwoShotBytes(int64_t ranks) { return kCollectiveBlocks * ranks * (kSlotBytes / 2); }

/// The fastest form of those that are possible; `inArena`: both operands are among those of the arena. Without a
/// possible one Direct, for operands that are copied there.
constexpr AllReduceForm allReduceForm(int64_t bytes, int64_t ranks, DType dtype, bool inArena) {
  const int64_t oneShot = ranks == 2 ? mostOneShotBytes() : ranks <= 4 ? 128 << 10 : 32 << 10;
  if (!goesThroughSlots(dtype) || bytes > mostTwoShotBytes(ranks))
    return AllReduceForm::Direct;
  if (bytes <= oneShot)
    return AllReduceForm::OneShot;
  const int64_t twoShot = int64_t(ranks == 2 ? 2 : 4) << 20;
  return inArena && bytes > twoShot ? AllReduceForm::Direct : AllReduceForm::TwoShot;
}

/// Grid and block of a launch, both along x.
struct CollectiveShape {
  int64_t blocks, threads;
};
/// For `bytes` that a rank sends to each peer, 16 bytes a thread and turn; a block takes at most `most`.
constexpr CollectiveShape collectiveShape(int64_t bytes, int64_t most) {
  const int64_t vectors = std::max<int64_t>((bytes + 15) / 16, 1);
  int64_t threads = vectors <= 8192 ? 128 : vectors <= 32768 ? 256 : kCollectiveThreads;
  int64_t blocks = std::clamp<int64_t>((vectors + threads - 1) / threads, 1, kCollectiveBlocks);
  if (blocks * most < vectors * 16) // never with bytes <= kCollectiveBlocks * most
    blocks = kCollectiveBlocks;
  return {blocks, threads};
}
/// `beside`: other kernels run at the same time, and are left most multiprocessors.
constexpr CollectiveShape allReduceShape(AllReduceForm form, int64_t bytes, int64_t ranks, bool beside = false) {
  switch (form) {
  case AllReduceForm::OneShot:
    return collectiveShape(bytes, kSlotBytes);
  case AllReduceForm::TwoShot: {
    const int64_t part = (bytes + ranks - 1) / ranks, vectors = (part + 15) / 16;
    // A vector a thread. Among more than two ranks large blocks are faster from 256 KB on.
    if (ranks > 2 && vectors >= 16384)
      return {std::min((vectors + kCollectiveThreads - 1) / kCollectiveThreads, kCollectiveBlocks), kCollectiveThreads};
    return collectiveShape(part, kSlotBytes / 2);
  }
  case AllReduceForm::Direct:
    break;
  }
  // So few blocks take at most 5 % longer than the best number.
  if (beside || ranks > 2)
    return {32, kCollectiveThreads};
  return {bytes / ranks <= (1 << 20) ? 32 : bytes / ranks <= (2 << 20) ? 64 : 128, kCollectiveThreads};
}
/// For `bytes` of a part.
constexpr CollectiveShape gatherShape(int64_t bytes) {
  const int64_t vectors = std::max<int64_t>((bytes + 15) / 16, 1);
  return {std::clamp<int64_t>((vectors + kCollectiveThreads - 1) / kCollectiveThreads, 1, 64), kCollectiveThreads};
}
constexpr CollectiveShape scatterShape(int64_t bytes) { return gatherShape(bytes); }
/// allReduceNorm: a block a row, in turns. Whether the slots and the registers of a block hold so much, and it is faster
/// than an all-reduce and a norm apart: it is a one-shot, so among more ranks it is for fewer bytes.
constexpr bool hasAllReduceNorm(int64_t ranks, int64_t rows, int64_t columns, int64_t elementBytes) {
  const int64_t row = columns * elementBytes, turns = (rows + kCollectiveBlocks - 1) / kCollectiveBlocks;
  const int64_t most = ranks == 2 ? mostOneShotBytes() : ranks <= 4 ? 384 << 10 : 96 << 10;
  return row % 16 == 0 && row > 0 && row <= kSlotBytes && turns * row <= kSlotBytes && rows * row <= most;
}
/// Of 8 to 32 rows threads that take two vectors each are 2 to 6 % faster.
constexpr CollectiveShape allReduceNormShape(int64_t rows, int64_t columns, int64_t elementBytes) {
  const int64_t vectors = columns * elementBytes / 16;
  const bool isPaired = rows >= 8 && rows <= 32 && vectors <= 512;
  return {std::min(rows, kCollectiveBlocks), vectors <= 128 ? 128 : vectors <= 256 || isPaired ? 256 : kCollectiveThreads};
}

} // namespace lathe::engine

#endif // LATHE_ENGINE_COLLECTIVEABI_H
