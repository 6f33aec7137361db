//===- split.cuh - reductions of few results and many terms ------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: reduce, hopper
//
// A result that has so many terms that one block would take long is shared by several: the blocks of a
// unit, which has one result or those of neighbouring columns, reduce equal shares of the terms one behind
// another. All but the last block of a unit leave what they have in the workspace, with a word that says
// that it is there; the last one adds them to its own and stores. So the order of combination depends on
// the sizes and the grid alone. A block waits only for blocks of lower numbers, which have started before
// it and wait for none but theirs: there is no deadlock, however few blocks run at a time. Holes:
//
//   typedef ... Acc; typedef SumOp Op;  what is combined, and how
//   typedef ... Element;                what is loaded: what lies in memory, or Acc
//   static constexpr int kLanes;        divides what lies together
//   Vec<Element, kLanes> load(i64 outer, i64 row, i64 column);
//   Acc neutral();
//   void store(i64 outer, i64 column, Acc value);
//   u8 *work() const;                   16-byte aligned: 8 bytes a block, then the sums of a unit a block
//
// The grid has the same number of blocks for each unit, those of a unit one behind the other.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_SPLIT
#define LATHE_DEVICE_SPLIT

/// Says that a share is there. Whatever the word was before, it was not this one: who has seen it clears it.
constexpr u64 SHARE_IS_THERE = 0x5ec2a7d19b64f38dull;

LATHE_DEV void publishShare(u64 *there) { storeRelease(there, SHARE_IS_THERE); }
LATHE_DEV void awaitShare(u64 *there) {
#ifdef LATHE_EMULATE // blocks run one after another: a share that is not there never comes
  if (loadAcquire(there) != SHARE_IS_THERE) __builtin_trap();
#else
  while (loadAcquire(there) != SHARE_IS_THERE) {}
#endif
  *there = 0;
}

/// The terms [begin, end) of a block.
struct TermShare {
  u32 blocks, unit, number; ///< of a unit; which unit; which of its blocks
  i64 begin, end;
  LATHE_METHOD TermShare(u32 units, i64 terms)
      : blocks(gridDim.x / units), unit(blockIdx.x / blocks), number(blockIdx.x % blocks) {
    const i64 each = (terms + blocks - 1) / blocks;
    begin = number * each;
    end = begin + each < terms ? begin + each : terms;
  }
  LATHE_METHOD bool last() const { return number + 1 == blocks; }
};

/// y[outer] = the combination of x[outer, row] over rows that are contiguous in memory, or nearly so;
/// kLanes divides their number.
template <int THREADS, class H> LATHE_DEV void splitRows(const H &h, i64 outers, i64 rows) {
  typedef typename H::Acc Acc;
  typedef typename H::Element Element;
  typedef typename H::Op Op;
  constexpr int L = H::kLanes;
  constexpr int AHEAD = sizeof(Element) * L >= 16 ? 4 : 8; // loads under way
  const TermShare share((u32)outers, rows / L);
  Vec<Acc, L> acc = splat<L>(h.neutral());
  auto combine = [&](const Vec<Element, L> &v) {
    const Vec<Acc, L> x = convert<Acc>(v);
#pragma unroll
    for (int j = 0; j < L; ++j) acc.v[j] = Op::apply(acc.v[j], x.v[j]);
  };
  i64 i = share.begin + threadIdx.x;
#pragma unroll 1
  for (; i + (AHEAD - 1) * THREADS < share.end; i += AHEAD * THREADS) {
    Vec<Element, L> v[AHEAD];
#pragma unroll
    for (int a = 0; a < AHEAD; ++a) v[a] = h.load(share.unit, (i + a * THREADS) * L, 0);
    pinLoads();
#pragma unroll
    for (int a = 0; a < AHEAD; ++a) combine(v[a]);
  }
#pragma unroll 1
  for (; i < share.end; i += THREADS) combine(h.load(share.unit, i * L, 0));
  Acc sum = blockReduce<Op, THREADS>(vecReduce<Op>(acc));
  u64 *const there = (u64 *)h.work();
  Acc *const sums = (Acc *)(h.work() + (8 * gridDim.x + 15) / 16 * 16);
  if (!share.last()) {
    if (threadIdx.x == 0) {
      sums[blockIdx.x] = sum;
      publishShare(there + blockIdx.x);
    }
    return;
  }
  if (share.blocks > 1) {
    const u32 first = blockIdx.x - share.number;
    Acc others = h.neutral();
    for (u32 n = threadIdx.x; n < share.number; n += THREADS) {
      awaitShare(there + first + n);
      others = Op::apply(others, sums[first + n]);
    }
    sum = Op::apply(blockReduce<Op, THREADS>(others), sum);
  }
  if (threadIdx.x == 0) h.store(share.unit, 0, sum);
}

/// y[outer, column] = the combination of x[outer, row, column] over rows, where columns are contiguous in
/// memory: a unit has LANES * kLanes of them, some lanes of a warp, a power of two, a row.
template <int THREADS, int LANES, class H> LATHE_DEV void splitColumns(const H &h, i64 outers, i64 rows, i64 columns) {
  typedef typename H::Acc Acc;
  typedef typename H::Element Element;
  typedef typename H::Op Op;
  constexpr int L = H::kLanes, WIDTH = LANES * L, GROUPS = THREADS / LANES, WARPS = THREADS / 32;
  constexpr int AHEAD = L >= 8 ? 4 : L >= 4 ? 8 : 16; // loads under way
  __shared__ __align__(16) Vec<Acc, L> parts[WARPS][LANES];
  const int lane = threadIdx.x % LANES, group = threadIdx.x / LANES;
  const u32 strips = (u32)((columns + WIDTH - 1) / WIDTH);
  const TermShare share((u32)outers * strips, rows);
  const i64 outer = share.unit / strips, first = (i64)(share.unit % strips) * WIDTH, column = first + lane * L;
  Vec<Acc, L> acc = splat<L>(h.neutral());
  auto combine = [&](const auto &v) {
    const Vec<Acc, L> x = convert<Acc>(v);
#pragma unroll
    for (int j = 0; j < L; ++j) acc.v[j] = Op::apply(acc.v[j], x.v[j]);
  };
  if (column < columns) {
    i64 r = share.begin + group;
#pragma unroll 1
    for (; r + (AHEAD - 1) * GROUPS < share.end; r += AHEAD * GROUPS) {
      Vec<Element, L> v[AHEAD];
#pragma unroll
      for (int a = 0; a < AHEAD; ++a) v[a] = h.load(outer, r + a * GROUPS, column);
      pinLoads();
#pragma unroll
      for (int a = 0; a < AHEAD; ++a) combine(v[a]);
    }
#pragma unroll 1
    for (; r < share.end; r += GROUPS) combine(h.load(outer, r, column));
  }
  u64 *const there = (u64 *)h.work();
  Vec<Acc, L> *const sums = (Vec<Acc, L> *)(h.work() + (8 * gridDim.x + 15) / 16 * 16);
  if (share.last() && share.blocks > 1) {
    const u32 from = blockIdx.x - share.number;
    for (u32 n = threadIdx.x; n < share.number; n += THREADS) awaitShare(there + from + n);
    __syncthreads();
    u32 n = group;
#pragma unroll 1
    for (; n + 3 * GROUPS < share.number; n += 4 * GROUPS) {
      Vec<Acc, L> v[4];
#pragma unroll
      for (int a = 0; a < 4; ++a) v[a] = sums[(from + n + a * GROUPS) * LANES + lane];
#pragma unroll
      for (int a = 0; a < 4; ++a) combine(v[a]);
    }
    for (; n < share.number; n += GROUPS) combine(sums[(from + n) * LANES + lane]);
  }
  // Rows of a warp, then warps.
#pragma unroll
  for (int mask = LANES; mask < 32; mask *= 2)
#pragma unroll
    for (int j = 0; j < L; ++j) acc.v[j] = Op::apply(acc.v[j], shuffleXor(acc.v[j], mask));
  if (threadIdx.x % 32 < LANES) parts[threadIdx.x / 32][lane] = acc;
  __syncthreads();
  for (int c = threadIdx.x; c < WIDTH; c += THREADS) {
    Acc sum = parts[0][c / L].v[c % L];
#pragma unroll
    for (int w = 1; w < WARPS; ++w) sum = Op::apply(sum, parts[w][c / L].v[c % L]);
    if (!share.last()) sums[blockIdx.x * LANES + c / L].v[c % L] = sum;
    else if (first + c < columns) h.store(outer, first + c, sum);
  }
  if (!share.last()) {
    __syncthreads();
    if (threadIdx.x == 0) publishShare(there + blockIdx.x);
  }
}

#endif // LATHE_DEVICE_SPLIT
