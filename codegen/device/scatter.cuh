//===- scatter.cuh - updates that are combined in their order ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: reduce
//
// A block has a few neighbouring columns: elements beside what the indices name, each with a row of updates of its own
// and places of its own that these go to. It goes through them in pieces. The updates of a piece that may have one
// place are found by a table of lists in shared memory. The thread of the first update of a place combines all of them,
// first to last, with what lies there; most places have one of a piece, and what lies at all places is loaded together.
// A list that is too long for its threads to go through is left to a warp, which finds the updates of each place in
// their order by reading all of the piece. So the result is that of one thread that takes update after update, to the
// bit.
//
// Holes:
//
//   typedef ... Value;                         what is combined
//   static constexpr bool COPIES;              whether the result's memory does not hold the operand yet
//   i64 place(i64 column, i64 update);         which place an update names, checked: less than `places`
//   Value value(i64 column, i64 update);
//   Value load(i64 column, i64 place);         of the result
//   Value combine(Value there, Value update);  rounded as the result is
//   void store(i64 column, i64 place, Value);
//   void copy(i64 column, i64 place);          from the operand into the result
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_SCATTER
#define LATHE_DEVICE_SCATTER

template <int THREADS, int COLUMNS, class H> struct OrderedScatter {
  typedef typename H::Value Value;
  static constexpr int EACH = 8, COUNT = THREADS * EACH, WARPS = THREADS / 32; // updates of a thread, of a piece
  static constexpr int LONGEST = 24; // list that threads go through
  static constexpr int VALUE_BYTES = sizeof(Value) <= 4 ? 4 : 8;
  static constexpr int SHARED_BYTES = COUNT * (4 + 4 + 2 + VALUE_BYTES);
  static constexpr u32 NONE = 0xFFFF, NO_KEY = 0xFFFFFFFF;

  const H &h;
  const i64 first; // column of the block
  Value *values;   // of a piece, update by update, as are the following
  u32 *heads;      // the first update of each list, or NONE; in no order
  u32 *keys;       // place and column, or NO_KEY
  u16 *next;       // in a list

  LATHE_METHOD OrderedScatter(const H &h, u8 *shared) : h(h), first((i64)blockIdx.x * COLUMNS) {
    values = (Value *)shared;
    heads = (u32 *)(shared + COUNT * VALUE_BYTES);
    keys = heads + COUNT;
    next = (u16 *)(keys + COUNT);
  }

  static LATHE_METHOD u32 listOf(u32 key) { return (key * 0x9E3779B1u >> 8) % COUNT; }
  LATHE_METHOD Value load(u32 key) const { return h.load(first + key % COLUMNS, key / COLUMNS); }
  LATHE_METHOD void store(u32 key, Value v) const { h.store(first + key % COLUMNS, key / COLUMNS, v); }

  /// What an update is in its list.
  struct Part {
    bool leads = true;       // no update before it has its place
    u32 following = NONE;    // the next one that has
    int length = 0;          // of the list, or more than LONGEST
  };
  LATHE_METHOD Part partOf(u32 update, u32 key) const {
    Part part;
    for (u32 u = heads[listOf(key)]; u != NONE && part.length <= LONGEST; u = next[u], ++part.length) {
      if (u == update || keys[u] != key) continue;
      part.leads &= u > update;
      if (u > update && u < part.following) part.following = u;
    }
    return part;
  }
};

/// A launch of a block for each COLUMNS of `columns`; COLUMNS * places is less than 2^32.
template <int THREADS, int COLUMNS, class H>
LATHE_DEV void scatterOrdered(const H &h, i64 columns, i64 updates, i64 places) {
  typedef OrderedScatter<THREADS, COLUMNS, H> Piece;
  typedef typename H::Value Value;
  constexpr int EACH = Piece::EACH, COUNT = Piece::COUNT;
  LATHE_DYNAMIC_SHARED(shared);
  __shared__ u32 longCount;
  __shared__ u32 longLists[COUNT / Piece::LONGEST];
  const Piece piece(h, shared);
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  if constexpr (H::COPIES) {
    for (i64 i = thread; i < places * COLUMNS; i += THREADS)
      if (const i64 column = piece.first + i % COLUMNS; column < columns) h.copy(column, i / COLUMNS);
  }
#pragma unroll 1
  for (i64 base = 0; base < updates; base += COUNT / COLUMNS) {
    u32 key[EACH];
    Value value[EACH];
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
      const int id = e * THREADS + thread, column = id % COLUMNS;
      const i64 update = base + id / COLUMNS;
      key[e] = Piece::NO_KEY;
      if (piece.first + column < columns && update < updates) {
        key[e] = (u32)(h.place(piece.first + column, update) * COLUMNS + column);
        value[e] = h.value(piece.first + column, update);
      }
    }
    __syncthreads(); // with the piece before
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
      const int id = e * THREADS + thread;
      piece.heads[id] = Piece::NONE;
      piece.keys[id] = key[e];
      if (key[e] != Piece::NO_KEY) piece.values[id] = value[e];
    }
    if (thread == 0) longCount = 0;
    __syncthreads();
#pragma unroll
    for (int e = 0; e < EACH; ++e)
      if (const u32 id = e * THREADS + thread; key[e] != Piece::NO_KEY)
        piece.next[id] = (u16)atomicExch(piece.heads + Piece::listOf(key[e]), id);
    __syncthreads();
    u32 following[EACH];
    bool leads[EACH];
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
      leads[e] = false;
      if (key[e] == Piece::NO_KEY) continue;
      const u32 id = e * THREADS + thread;
      const auto part = piece.partOf(id, key[e]);
      following[e] = part.following;
      leads[e] = part.leads && part.length <= Piece::LONGEST;
      const u32 list = Piece::listOf(key[e]);
      if (part.length > Piece::LONGEST && piece.heads[list] == id) longLists[atomicAdd(&longCount, 1u)] = list;
    }
    Value there[EACH];
#pragma unroll
    for (int e = 0; e < EACH; ++e)
      if (leads[e]) there[e] = piece.load(key[e]);
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
      if (!leads[e]) continue;
      Value now = h.combine(there[e], value[e]);
      for (u32 u = following[e]; u != Piece::NONE; u = piece.partOf(u, key[e]).following) now = h.combine(now, piece.values[u]);
      piece.store(key[e], now);
    }
    __syncthreads();
    // All updates of a long list, one after the other; those of another place in between end what is combined so far.
#pragma unroll 1
    for (u32 l = warp; l < longCount; l += Piece::WARPS) {
      u32 now = Piece::NO_KEY;
      Value sum;
#pragma unroll 1
      for (u32 from = 0; from < COUNT; from += 32) {
        const u32 own = piece.keys[from + lane];
        u32 bits = warpBits(own != Piece::NO_KEY && Piece::listOf(own) == longLists[l]);
        for (; lane == 0 && bits != 0; bits &= bits - 1) {
          const u32 u = from + countBits((bits & (~bits + 1)) - 1), place = piece.keys[u];
          if (place != now) {
            if (now != Piece::NO_KEY) piece.store(now, sum);
            now = place;
            sum = piece.load(now);
          }
          sum = h.combine(sum, piece.values[u]);
        }
      }
      if (lane == 0 && now != Piece::NO_KEY) piece.store(now, sum);
    }
  }
}

#endif // LATHE_DEVICE_SCATTER
