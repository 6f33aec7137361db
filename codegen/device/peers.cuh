//===- peers.cuh - memory that GPUs of a host share ------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: base
//
// What a block has in common with the block of the same number on each other rank: counters and flags in the arenas
// (include/lathe/engine/CollectiveAbi.h), and waits that end, by a deadline or because another rank gave up.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_PEERS
#define LATHE_DEVICE_PEERS

// ---- PTX ---------------------------------------------------------------------
#ifndef LATHE_EMULATE

/// Between GPUs, words by themselves: each arrives whole, in no order with others.
LATHE_DEV Bits16 loadSystem16(const void *p) {
  Bits16 v;
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3]) : "l"(p) : "memory");
  return v;
}
LATHE_DEV void storeSystem16(void *p, const Bits16 &v) {
  asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1,%2,%3,%4};"
               ::"l"(p), "r"(v.w[0]), "r"(v.w[1]), "r"(v.w[2]), "r"(v.w[3]) : "memory");
}
LATHE_DEV u32 loadSystem(const u32 *p) {
  u32 v;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
LATHE_DEV void storeSystem(u32 *p, u32 v) { asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory"); }
/// What the block wrote ahead of a barrier is there for whoever sees the word with the second.
LATHE_DEV void storeReleaseSystem(u32 *p, u32 v) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
LATHE_DEV u32 loadAcquireSystem(const u32 *p) {
  u32 v;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
LATHE_DEV u64 nanoseconds() {
  u64 t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}
#endif // LATHE_EMULATE

// ---- Arenas ------------------------------------------------------------------

constexpr int kMostRanks = 8, kArenaBlocks = 128, kSlotBytes = 16384, kArenaHeaderBytes = 16384;
constexpr u64 kStatusPeerLost = 3;
constexpr u32 kAbortByHost = 0x80000000u;

struct ArenaHeader {
  u32 abort; // 1 + the rank that was waited for in vain, or kAbortByHost
  u32 pad[63];
  u32 epochs[kArenaBlocks];            // calls in which a block of this rank took part
  u32 begun[kArenaBlocks][kMostRanks]; // epoch of a peer's block, told by it
  u32 ended[kArenaBlocks][kMostRanks];
};

/// How long a thread has waited.
struct Waited {
  u32 looks = 0;
  u64 since = 0;
};

/// The arenas of N ranks as a block of one sees them.
template <int N> struct Peers {
  u8 *arenas;
  i64 arenaBytes;
  int rank;
  u64 timeout; // nanoseconds
  u32 step;
  StatusWord *status; // may be null

  /// The same place in the arena of another rank; `here` is in that of this one.
  template <class P> LATHE_METHOD P *at(P *here, int other) const {
    return (P *)((u8 *)here + (other - rank) * arenaBytes);
  }
  LATHE_METHOD u8 *arena(int of) const { return arenas + of * arenaBytes; }
  LATHE_METHOD ArenaHeader &header(int of) const { return *(ArenaHeader *)arena(of); }
  /// Where this block of rank `of` gets what that of `from` sends in an epoch. Two take turns: a block that sends
  /// in epoch e + 2 has got what the other sent in e + 1, which it did after it had read what came in e.
  LATHE_METHOD u8 *slot(int of, int from, u32 epoch) const {
    return arena(of) + kArenaHeaderBytes + (i64)((blockIdx.x * 2 + epoch % 2) * N + from) * kSlotBytes;
  }

  /// The epoch of this block; all of its threads ask ahead of the last barrier, then it ends.
  LATHE_METHOD u32 epoch() const { return loadSystem(&header(rank).epochs[blockIdx.x]); }
  LATHE_METHOD void endEpoch(u32 epoch) const {
    __syncthreads();
    if (threadIdx.x == 0) storeSystem(&header(rank).epochs[blockIdx.x], epoch + 1);
  }

  /// Whether a thread goes on looking for what `other` sends. Most waits are over before the first look at the clock.
  LATHE_METHOD bool waits(Waited &waited, int other) const {
    if (++waited.looks % 64 != 0) return true;
    const u64 now = nanoseconds();
    if (waited.since == 0) waited.since = now;
    const u32 abort = loadSystem(&header(rank).abort);
    if (abort == 0 && now - waited.since <= timeout) return true;
    const u32 lost = abort & ~kAbortByHost;
    giveUp(lost != 0 ? (int)lost - 1 : other);
    return false;
  }
  /// Tells all ranks.
  LATHE_METHOD void giveUp(int lost) const {
    if (status) latheFail(status, kStatusPeerLost, step, lost);
    for (int i = 0; i < N; ++i) storeSystem(&header(i).abort, 1 + lost);
  }

  /// Waits until this block of every rank has come here; what they wrote before is seen after.
  template <bool END> LATHE_METHOD void meet(u32 epoch) const {
    __syncthreads();
    const int other = threadIdx.x;
    const bool meets = other < N && other != rank;
    ArenaHeader &here = header(rank);
    if (meets) {
      ArenaHeader &there = header(other);
      storeReleaseSystem(END ? &there.ended[blockIdx.x][rank] : &there.begun[blockIdx.x][rank], epoch + 1);
    }
    __syncwarp(); // all are told before any is waited for
    if (meets) {
      const u32 *flag = END ? &here.ended[blockIdx.x][other] : &here.begun[blockIdx.x][other];
      Waited waited;
      while ((i32)(loadAcquireSystem(flag) - (epoch + 1)) < 0 && waits(waited, other)) {}
    }
    __syncthreads();
  }
};

// ---- Data that says itself when it has come ------------------------------------
// An empty slot has 0xFF in every byte, which no word that is sent has: it would be a NaN, and another NaN is sent.
// Who has read a vector empties its place again.

LATHE_DEV bool isEmpty(const Bits16 &v) {
  return v.w[0] == ~0u || v.w[1] == ~0u || v.w[2] == ~0u || v.w[3] == ~0u;
}
LATHE_DEV Bits16 neverEmpty(Bits16 v) {
#pragma unroll
  for (int i = 0; i < 4; ++i) v.w[i] = v.w[i] == ~0u ? ~1u : v.w[i];
  return v;
}

/// Looks at the place of each rank of `from` that is still empty until none is, or a peer is lost. Bit r of `from`: r.
template <int N> LATHE_DEV void waitForSlots(const Peers<N> &peers, const u8 *here, u32 from, Bits16 (&all)[N]) {
  Waited waited;
  for (;;) {
    int missing = -1;
#pragma unroll
    for (int r = 0; r < N; ++r)
      if ((from >> r & 1) && isEmpty(all[r])) missing = r;
    if (missing < 0 || !peers.waits(waited, missing)) return;
#pragma unroll
    for (int r = 0; r < N; ++r)
      if ((from >> r & 1) && isEmpty(all[r])) all[r] = loadSystem16(here + r * kSlotBytes);
  }
}
LATHE_DEV void emptySlot(u8 *place) { storeSystem16(place, Bits16{{~0u, ~0u, ~0u, ~0u}}); }

/// What this rank and the others have of a vector, in the order of ranks; the others' is taken from `place` of their
/// slots. Without some of it when a peer is lost.
template <int N>
LATHE_DEV void takeFromSlots(const Peers<N> &peers, u32 epoch, int place, const Bits16 &own, Bits16 (&all)[N]) {
  u8 *here = peers.slot(peers.rank, 0, epoch) + place;
#pragma unroll
  for (int r = 0; r < N; ++r) {
    if (r == peers.rank) all[r] = own;
    else all[r] = loadSystem16(here + r * kSlotBytes);
  }
  waitForSlots(peers, here, (1u << N) - 1, all); // its own is never empty
#pragma unroll
  for (int r = 0; r < N; ++r)
    if (r != peers.rank) emptySlot(here + r * kSlotBytes);
}
/// To every other rank; in turns of ranks, so that not all send to one at a time.
template <int N> LATHE_DEV void putIntoSlots(const Peers<N> &peers, u32 epoch, int place, const Bits16 &v) {
#pragma unroll
  for (int i = 1; i < N; ++i) {
    const int to = peers.rank + i < N ? peers.rank + i : peers.rank + i - N;
    storeSystem16(peers.slot(to, peers.rank, epoch) + place, v);
  }
}

#endif // LATHE_DEVICE_PEERS
