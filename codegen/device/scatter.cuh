//===- scatter.cuh - updates that are combined in their order ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: ahead
//
// A block has a few neighbouring columns: elements beside what the indices name, each with a row of updates of its own
// and places of its own that these go to. It gathers pieces of its updates. The updates of a piece that may have one
// place are found by a table of lists in shared memory. The thread of the first update of a place combines all of them,
// first to last, with what lies there; most places have one of a piece, and what lies at all places is loaded together.
// A list that is too long for its threads to go through is left to a warp, which finds the updates of each place in
// their order by reading all of the piece. So the result is that of one thread that takes update after update, to the
// bit.
//
// Where columns are few, PARTS blocks share one: each has a range of its places, and passes by the updates of the others.
// A launch ahead, scatterPlaces, then leaves the places of all updates in the workspace, those of a column together, and
// copies the operand into the result.
//
// Holes:
//
//   typedef ... Value;                         what is combined
//   static constexpr bool COPIES;              whether the result's memory does not hold the operand yet
//   static constexpr bool COLUMNS_LAST;        whether neighbouring columns lie side by side; else places do
//   i64 place(i64 column, i64 update);         which place an update names, checked: less than `places`
//   Value value(i64 column, i64 update);
//   Value operand(i64 column, i64 place);
//   Value load(i64 column, i64 place);         of the result
//   Value combine(Value there, Value update);  rounded as the result is
//   void store(i64 column, i64 place, Value);
//   u32 *work() const;                         with parts: for each column its updates' places, padded to whole fours
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_SCATTER
#define LATHE_DEVICE_SCATTER

/// Pairs of numbers, of which the inner one is below `size`, that the threads of a grid go through together: neighbours
/// have neighbours of the inner one.
struct PairWalk {
  i64 size, outer, inner, outerStep, innerStep;
  LATHE_METHOD explicit PairWalk(i64 size) : size(size) {
    const i64 first = (i64)blockIdx.x * blockDim.x + threadIdx.x, step = (i64)gridDim.x * blockDim.x;
    outer = first / size, inner = first - outer * size;
    outerStep = step / size, innerStep = step - outerStep * size;
  }
  LATHE_METHOD void next() {
    outer += outerStep, inner += innerStep;
    if (inner >= size) inner -= size, ++outer;
  }
};

/// How many words of the workspace a column has.
LATHE_DEV i64 placesPitch(i64 updates) { return (updates + 3) / 4 * 4; }

/// The launch ahead of parts, with any number of blocks.
template <class H> LATHE_DEV void scatterPlaces(const H &h, i64 columns, i64 updates, i64 places) {
  typedef typename H::Value Value;
  constexpr int EACH = 4; // loads under way
  if (columns == 0) return;
  if constexpr (H::COPIES) {
    if (places > 0) {
      const i64 rows = H::COLUMNS_LAST ? places : columns;
      PairWalk walk(H::COLUMNS_LAST ? columns : places);
      while (walk.outer < rows) {
        Value value[EACH];
        i64 column[EACH], place[EACH];
#pragma unroll
        for (int e = 0; e < EACH; ++e) {
          column[e] = H::COLUMNS_LAST ? walk.inner : walk.outer;
          place[e] = walk.outer >= rows ? -1 : H::COLUMNS_LAST ? walk.outer : walk.inner;
          if (place[e] >= 0) value[e] = h.operand(column[e], place[e]);
          walk.next();
        }
#pragma unroll
        for (int e = 0; e < EACH; ++e)
          if (place[e] >= 0) h.store(column[e], place[e], value[e]);
      }
    }
  }
  if (updates == 0) return;
  const i64 pitch = placesPitch(updates), fours = pitch / 4;
  for (PairWalk walk(H::COLUMNS_LAST ? columns : fours); walk.outer < (H::COLUMNS_LAST ? fours : columns); walk.next()) {
    const i64 column = H::COLUMNS_LAST ? walk.inner : walk.outer, first = (H::COLUMNS_LAST ? walk.outer : walk.inner) * 4;
    Vec<u32, 4> named;
#pragma unroll
    for (int e = 0; e < 4; ++e) named.v[e] = first + e < updates ? (u32)h.place(column, first + e) : 0;
    *(Vec<u32, 4> *)(h.work() + column * pitch + first) = named;
  }
}

template <int THREADS, int COLUMNS, int PARTS, class H> struct OrderedScatter {
  typedef typename H::Value Value;
  static constexpr int EACH = 4, COUNT = THREADS * EACH, WARPS = THREADS / 32; // updates of a thread, of a piece
  static constexpr int LONGEST = 24; // list that threads go through
  static constexpr int VALUE_BYTES = sizeof(Value) <= 4 ? 4 : 8;
  static constexpr int SHARED_BYTES = COUNT * (4 + 4 + 2 + VALUE_BYTES);
  static constexpr u32 NONE = 0xFFFF, NO_KEY = 0xFFFFFFFF;

  const H &h;
  const i64 first; // column of the block
  Value *values;   // of a piece, update by update, as are the following
  u32 *heads;      // the first update of each list, or NONE; in no order
  u32 *keys;       // place and column
  u16 *next;       // in a list

  LATHE_METHOD OrderedScatter(const H &h, u8 *shared)
      : h(h), first((i64)(PARTS > 1 ? blockIdx.x / PARTS : blockIdx.x) * COLUMNS) {
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

  /// The first `count` updates of a piece go where they belong. All threads take part.
  LATHE_METHOD void combine(u32 count) const {
    __shared__ u32 longCount;
    __shared__ u32 longLists[COUNT / LONGEST];
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
#pragma unroll
    for (int e = 0; e < EACH; ++e) heads[e * THREADS + thread] = NONE;
    if (thread == 0) longCount = 0;
    __syncthreads();
    u32 key[EACH];
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
      const u32 id = e * THREADS + thread;
      key[e] = id < count ? keys[id] : NO_KEY;
      if (id < count) next[id] = (u16)atomicExch(heads + listOf(key[e]), id);
    }
    __syncthreads();
    u32 following[EACH];
    bool leads[EACH];
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
      leads[e] = false;
      const u32 id = e * THREADS + thread;
      if (id >= count) continue;
      const Part part = partOf(id, key[e]);
      following[e] = part.following;
      leads[e] = part.leads && part.length <= LONGEST;
      const u32 list = listOf(key[e]);
      if (part.length > LONGEST && heads[list] == id) longLists[atomicAdd(&longCount, 1u)] = list;
    }
    Value there[EACH];
#pragma unroll
    for (int e = 0; e < EACH; ++e)
      if (leads[e]) there[e] = load(key[e]);
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
      if (!leads[e]) continue;
      Value now = h.combine(there[e], values[e * THREADS + thread]);
      for (u32 u = following[e]; u != NONE; u = partOf(u, key[e]).following) now = h.combine(now, values[u]);
      store(key[e], now);
    }
    __syncthreads();
    // All updates of a long list, one after the other; those of another place in between end what is combined so far.
#pragma unroll 1
    for (u32 l = warp; l < longCount; l += WARPS) {
      u32 now = NO_KEY;
      Value sum;
#pragma unroll 1
      for (u32 from = 0; from < count; from += 32) {
        const u32 own = from + lane < count ? keys[from + lane] : NO_KEY;
        u32 bits = warpBits(own != NO_KEY && listOf(own) == longLists[l]);
        for (; lane == 0 && bits != 0; bits &= bits - 1) {
          const u32 u = from + countBits((bits & (~bits + 1)) - 1), place = keys[u];
          if (place != now) {
            if (now != NO_KEY) store(now, sum);
            now = place;
            sum = load(now);
          }
          sum = h.combine(sum, values[u]);
        }
      }
      if (lane == 0 && now != NO_KEY) store(now, sum);
    }
    __syncthreads();
  }
};

/// A launch of PARTS blocks for each COLUMNS of `columns`; COLUMNS * places is less than 2^32. PARTS 0: one block each, and
/// no launch ahead.
template <int THREADS, int COLUMNS, int PARTS, class H>
LATHE_DEV void scatterOrdered(const H &h, i64 columns, i64 updates, i64 places) {
  typedef OrderedScatter<THREADS, COLUMNS, PARTS, H> Piece;
  constexpr int EACH = Piece::EACH, COUNT = Piece::COUNT, WARPS = Piece::WARPS;
  static_assert(EACH * WARPS <= THREADS, "a thread adds up a count");
  LATHE_DYNAMIC_SHARED(shared);
  __shared__ u32 ahead[EACH * WARPS]; // updates that are kept, of the warps before
  const Piece piece(h, shared);
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  if constexpr (H::COPIES && PARTS == 0) {
    for (i64 i = thread; i < places * COLUMNS; i += THREADS)
      if (const i64 column = piece.first + i % COLUMNS; column < columns)
        h.store(column, i / COLUMNS, h.operand(column, i / COLUMNS));
    __syncthreads();
  }
  // The places of the block are [begin, end).
  const i64 part = PARTS > 1 ? blockIdx.x % PARTS : 0;
  const i64 begin = PARTS > 1 ? places * part / PARTS : 0, end = PARTS > 1 ? places * (part + 1) / PARTS : places;
  u32 filled = 0;
#pragma unroll 1
  for (i64 base = 0;; base += COUNT / COLUMNS) {
    u32 key[EACH], kept[EACH], total = 0;
    const bool more = base < updates;
    if (more) {
#pragma unroll
      for (int e = 0; e < EACH; ++e) {
        const int id = e * THREADS + thread, column = id % COLUMNS;
        const i64 update = base + id / COLUMNS;
        i64 place = -1;
        if (piece.first + column < columns && update < updates) {
          if constexpr (PARTS > 0) place = h.work()[(piece.first + column) * placesPitch(updates) + update];
          else place = h.place(piece.first + column, update);
        }
        key[e] = place >= begin && place < end ? (u32)(place * COLUMNS + column) : Piece::NO_KEY;
      }
#pragma unroll
      for (int e = 0; e < EACH; ++e) {
        kept[e] = warpBits(key[e] != Piece::NO_KEY);
        if (lane == 0) ahead[e * WARPS + warp] = (u32)countBits(kept[e]);
      }
      __syncthreads();
      const u32 own = sumAhead<THREADS>(thread < EACH * WARPS ? ahead[thread] : 0, total);
      if (thread < EACH * WARPS) ahead[thread] = own;
      __syncthreads();
    }
    if (!more || filled + total > COUNT) {
      piece.combine(filled);
      filled = 0;
    }
    if (!more) break;
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
      if (key[e] == Piece::NO_KEY) continue;
      const int id = e * THREADS + thread;
      const u32 to = filled + ahead[e * WARPS + warp] + countBits(kept[e] & ((1u << lane) - 1));
      piece.keys[to] = key[e];
      piece.values[to] = h.value(piece.first + id % COLUMNS, base + id / COLUMNS);
    }
    filled += total;
    __syncthreads();
  }
}

#endif // LATHE_DEVICE_SCATTER
