//===- scatter.cuh - updates that are combined in their order ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: reduce
//
// A block has a few neighbouring columns: elements beside what the indices name, each with a row of updates of its own
// and places of its own that these go to. It goes through them in pieces. The updates of a piece that may have one
// place are found by a table of lists in shared memory; each list is put in order, and one thread combines its updates,
// first to last, with what lies at the place. Lists of one update, which most are, need no more than that. A list longer
// than a thread puts in order is gone through by a warp, which finds its updates in their order by reading all of the
// piece. So the result is that of one thread that takes update after update, to the bit.
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
  static constexpr int LONGEST = 24; // list that a thread puts in order
  static constexpr int VALUE_BYTES = sizeof(Value) <= 4 ? 4 : 8;
  static constexpr int SHARED_BYTES = COUNT * (4 + 4 + 2 + VALUE_BYTES);
  static constexpr u32 NONE = 0xFFFF, NO_KEY = 0xFFFFFFFF;

  const H &h;
  const i64 first; // column of the block
  Value *values;   // of a piece, update by update, as are the following
  u32 *heads;      // the last update of each list, or NONE
  u32 *keys;       // place and column, or NO_KEY
  u16 *next;       // in a list

  LATHE_METHOD OrderedScatter(const H &h, u8 *shared) : h(h), first((i64)blockIdx.x * COLUMNS) {
    values = (Value *)shared;
    heads = (u32 *)(shared + COUNT * VALUE_BYTES);
    keys = heads + COUNT;
    next = (u16 *)(keys + COUNT);
  }

  static LATHE_METHOD u32 listOf(u32 key) { return (key * 0x9E3779B1u >> 8) % COUNT; }
  LATHE_METHOD i64 columnOf(u32 key) const { return first + key % COLUMNS; }
  static LATHE_METHOD i64 placeOf(u32 key) { return key / COLUMNS; }

  /// What lies at a place while updates are combined with it.
  struct Running {
    u32 key = NO_KEY;
    Value value;
  };
  LATHE_METHOD void add(Running &now, u32 update) const {
    const u32 key = keys[update];
    if (key != now.key) {
      finish(now);
      now.key = key;
      now.value = h.load(columnOf(key), placeOf(key));
    }
    now.value = h.combine(now.value, values[update]);
  }
  LATHE_METHOD void finish(const Running &now) const {
    if (now.key != NO_KEY) h.store(columnOf(now.key), placeOf(now.key), now.value);
  }

  LATHE_METHOD bool isLong(u32 head) const {
    int length = 0;
    for (u32 u = head; u != NONE && length <= LONGEST; u = next[u]) ++length;
    return length > LONGEST;
  }
  /// The first update of a list that is in order now.
  LATHE_METHOD u32 inOrder(u32 head) const {
    u32 least = NONE;
    for (u32 u = head; u != NONE;) {
      const u32 following = next[u];
      if (least == NONE || u < least) {
        next[u] = (u16)least;
        least = u;
      } else {
        u32 before = least;
        while (next[before] != NONE && next[before] < u) before = next[before];
        next[u] = next[before];
        next[before] = (u16)u;
      }
      u = following;
    }
    return least;
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
  __shared__ u16 longLists[COUNT / Piece::LONGEST];
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
    // Each list belongs to its last update's thread. Loads for those of one update are under way together.
    bool alone[EACH];
    Value there[EACH];
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
      const u32 id = e * THREADS + thread;
      alone[e] = key[e] != Piece::NO_KEY && piece.heads[Piece::listOf(key[e])] == id && piece.next[id] == Piece::NONE;
      if (alone[e]) there[e] = h.load(piece.columnOf(key[e]), Piece::placeOf(key[e]));
    }
#pragma unroll
    for (int e = 0; e < EACH; ++e)
      if (alone[e]) h.store(piece.columnOf(key[e]), Piece::placeOf(key[e]), h.combine(there[e], value[e]));
#pragma unroll 1
    for (int e = 0; e < EACH; ++e) {
      const u32 id = e * THREADS + thread, mine = piece.keys[id];
      if (mine == Piece::NO_KEY || piece.heads[Piece::listOf(mine)] != id || piece.next[id] == Piece::NONE) continue;
      if (piece.isLong(id)) {
        longLists[atomicAdd(&longCount, 1u)] = (u16)id;
        continue;
      }
      typename Piece::Running now;
      for (u32 u = piece.inOrder(id); u != Piece::NONE; u = piece.next[u]) piece.add(now, u);
      piece.finish(now);
    }
    __syncthreads();
#pragma unroll 1
    for (u32 l = warp; l < longCount; l += Piece::WARPS) {
      const u32 list = Piece::listOf(piece.keys[longLists[l]]);
      typename Piece::Running now;
#pragma unroll 1
      for (u32 from = 0; from < COUNT; from += 32) {
        const u32 key = piece.keys[from + lane];
        u32 bits = warpBits(key != Piece::NO_KEY && Piece::listOf(key) == list);
        if (lane == 0)
          for (; bits != 0; bits &= bits - 1) piece.add(now, from + countBits((bits & (~bits + 1)) - 1));
      }
      if (lane == 0) piece.finish(now);
    }
  }
}

#endif // LATHE_DEVICE_SCATTER
