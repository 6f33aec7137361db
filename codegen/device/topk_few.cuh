//===- topk_few.cuh - the few greatest elements of rows, in one pass --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: ahead
//
// Elements are ordered by their keys and, of equal ones, the lower place first: no two are equal, so that
// results are the same in every run, whatever the order in which elements are seen. Short rows are held by
// a warp each, which takes the greatest of what is left as often as one is wanted. Of longer ones a block
// reads each element once: it keeps a list of those that are ahead of the least one that may still be
// wanted, and whenever the list is full, keeps the greatest of it, found a byte at a time by counting
// (radix select), of which the least is the new limit. Few elements reach the list; where rows ascend, all
// do, and the list is cleared for each few hundred of them. Long rows of which there are few are shared by several
// blocks, whose lists a second launch goes through in the same way. Holes:
//
//   typedef i32 or i64 Key;              signed, ordered as the elements are
//   Key key(i64 row, i64 place);
//   void store(i64 row, i64 rank, i64 place);
//   u8 *work() const;                    the lists of several blocks, 16-byte aligned
//
// Rows of less than 2^32 elements.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_TOPK_FEW
#define LATHE_DEVICE_TOPK_FEW

template <class K> struct KeyWord { typedef u32 Type; };
template <> struct KeyWord<i64> { typedef u64 Type; };

/// An element: what is ordered, the place so that the lower one is the greater.
template <class U> struct alignas(2 * sizeof(U)) Ranked {
  U key;
  u32 upside; ///< ~place; 0 of none
  LATHE_METHOD i64 place() const { return (i64)(u32)~upside; }
  LATHE_METHOD bool aheadOf(const Ranked &o) const { return key > o.key || (key == o.key && upside > o.upside); }
  /// The byte of this number, from the highest on.
  static constexpr int DIGITS = sizeof(U) + 4;
  LATHE_METHOD u32 digit(int d) const {
    return (d < (int)sizeof(U) ? (u32)(key >> (8 * ((int)sizeof(U) - 1 - d))) : upside >> (8 * (DIGITS - 1 - d))) & 255;
  }
  LATHE_METHOD void setDigit(int d, u32 value) {
    if (d < (int)sizeof(U)) key |= (U)value << (8 * ((int)sizeof(U) - 1 - d));
    else upside |= value << (8 * (DIGITS - 1 - d));
  }
  /// Whether the first `n` digits are the same.
  LATHE_METHOD bool startsLike(const Ranked &o, int n) const {
    if (n <= 0) return true;
    if (n < (int)sizeof(U)) return ((key ^ o.key) >> (8 * ((int)sizeof(U) - n))) == 0;
    return key == o.key && (n == (int)sizeof(U) || ((upside ^ o.upside) >> (8 * (DIGITS - n))) == 0);
  }
};
template <class H> using RankedOf = Ranked<typename KeyWord<typename H::Key>::Type>;

/// Elements of a row of the operand.
template <class H> struct RowElements {
  const H &h;
  i64 row;
  LATHE_METHOD RankedOf<H> at(i64 i) const {
    typedef typename KeyWord<typename H::Key>::Type U;
    return {(U)h.key(row, i) ^ (U)1 << (8 * sizeof(U) - 1), ~(u32)i};
  }
};

/// Brings the `count` greatest of n elements, of which no two are equal, to the front, in any order. Gives
/// what is ahead of no element of these, and of all others behind it. All threads take part; 0 < count < n <= CAPACITY.
template <int THREADS, int CAPACITY, class R> LATHE_DEV R keepGreatest(R *list, u32 n, u32 count) {
  static_assert(THREADS >= 256 && CAPACITY % THREADS == 0, "a thread a digit");
  constexpr int EACH = CAPACITY / THREADS;
  __shared__ u32 counts[256];
  // Aligned, so that no load of it begins in front of it.
  struct alignas(16) Digit { u32 found, above, same; };
  __shared__ Digit digit;
  __shared__ u32 kept;
  R mine[EACH];
#pragma unroll
  for (int e = 0; e < EACH; ++e) {
    const u32 i = e * THREADS + threadIdx.x;
    mine[e] = i < n ? list[i] : R{0, 0};
  }
  R least{0, 0};
  u32 left = count;
#pragma unroll 1
  for (int d = 0; d < R::DIGITS; ++d) {
    if (threadIdx.x < 256) counts[threadIdx.x] = 0;
    __syncthreads();
#pragma unroll
    for (int e = 0; e < EACH; ++e)
      if (e * THREADS + threadIdx.x < n && mine[e].startsLike(least, d)) atomicAdd(&counts[mine[e].digit(d)], 1u);
    __syncthreads();
    const u32 own = 255 - threadIdx.x, have = threadIdx.x < 256 ? counts[own] : 0;
    u32 total;
    const u32 before = sumAhead<THREADS>(have, total);
    if (have > 0 && before < left && before + have >= left) {
      digit.found = own;
      digit.above = before;
      digit.same = have;
    }
    if (threadIdx.x == 0) kept = 0;
    __syncthreads();
    left -= digit.above;
    least.setDigit(d, digit.found);
    if (digit.same == left) break;
  }
#pragma unroll
  for (int e = 0; e < EACH; ++e)
    if (e * THREADS + threadIdx.x < n && !least.aheadOf(mine[e])) list[atomicAdd(&kept, 1u)] = mine[e];
  __syncthreads();
  return least;
}

/// Leaves the `count` greatest of the elements [begin, end), or all of them, at the front of the list, in any
/// order; gives how many these are. All threads take part. `filled` is shared.
template <int THREADS, int CAPACITY, class R, class From>
LATHE_DEV u32 listGreatest(const From &from, i64 begin, i64 end, u32 count, R *list, u32 &filled) {
  constexpr int EACH = 8; // loads under way
  R limit{0, 0};
  if (threadIdx.x == 0) filled = 0;
  __syncthreads();
#pragma unroll 1
  for (i64 base = begin; base < end; base += THREADS * EACH) {
    R mine[EACH];
    if (base + THREADS * EACH <= end) {
#pragma unroll
      for (int e = 0; e < EACH; ++e) mine[e] = from.at(base + e * THREADS + threadIdx.x);
      pinLoads();
    } else {
#pragma unroll
      for (int e = 0; e < EACH; ++e) {
        const i64 i = base + e * THREADS + threadIdx.x;
        mine[e] = i < end ? from.at(i) : R{0, 0};
      }
    }
    u32 wanted = 0;
    for (;;) {
#pragma unroll
      for (int e = 0; e < EACH; ++e) {
        const u32 bit = 1u << e;
        wanted = mine[e].upside != 0 && mine[e].aheadOf(limit) ? wanted | bit : wanted & ~bit;
      }
      if (wanted != 0) {
        u32 slot = atomicAdd(&filled, (u32)countBits(wanted));
#pragma unroll
        for (int e = 0; e < EACH; ++e)
          if ((wanted >> e & 1) != 0) {
            if (slot < CAPACITY) {
              list[slot] = mine[e];
              mine[e].upside = 0; // it is no longer this thread's
            }
            ++slot;
          }
      }
      bool over = false;
#pragma unroll
      for (int e = 0; e < EACH; ++e) over |= (wanted >> e & 1) != 0 && mine[e].upside != 0;
      if (!blockAny(over)) break;
      __syncthreads(); // a plain barrier too between what fills the list and what reads it
      limit = keepGreatest<THREADS, CAPACITY>(list, CAPACITY, count);
      if (threadIdx.x == 0) filled = count;
      __syncthreads();
    }
  }
  __syncthreads();
  u32 n = filled;
  if (n > count) {
    keepGreatest<THREADS, CAPACITY>(list, n, count);
    n = count;
  }
  __syncthreads();
  return n;
}

/// Sorts n elements, the greatest first, by Batcher's odd-even merge. All threads take part.
template <int THREADS, class R> LATHE_DEV void sortList(R *list, u32 n) {
  for (u32 p = 1; p < n; p *= 2)
    for (u32 q = p; q >= 1; q /= 2) {
      const u32 first = q == p ? 0 : q;
      for (u32 t = threadIdx.x;; t += THREADS) {
        const u32 low = first + t / q * 2 * q + t % q, high = low + q;
        if (high >= n) break;
        if (low / (2 * p) != high / (2 * p)) continue;
        const R a = list[low], b = list[high];
        if (b.aheadOf(a)) {
          list[low] = b;
          list[high] = a;
        }
      }
      __syncthreads();
    }
}

/// Stores the places of n elements by their rank; few are counted, more sorted.
template <int THREADS, class H> LATHE_DEV void storeList(const H &h, i64 row, RankedOf<H> *list, u32 n) {
  if (n <= THREADS) {
    if (threadIdx.x < n) {
      const RankedOf<H> mine = list[threadIdx.x];
      u32 rank = 0;
      for (u32 i = 0; i < n; ++i) rank += list[i].aheadOf(mine);
      h.store(row, rank, mine.place());
    }
  } else {
    sortList<THREADS>(list, n);
    for (u32 i = threadIdx.x; i < n; i += THREADS) h.store(row, i, list[i].place());
  }
  __syncthreads(); // the next row takes this memory
}

/// A block a row. CAPACITY is twice `count` or more.
template <int THREADS, int CAPACITY, class H> LATHE_DEV void topOfRows(const H &h, i64 rows, i64 length, i64 count) {
  __shared__ RankedOf<H> list[CAPACITY];
  __shared__ u32 filled;
  if (count <= 0) return;
  for (i64 row = blockIdx.x; row < rows; row += gridDim.x) {
    const u32 n = listGreatest<THREADS, CAPACITY>(RowElements<H>{h, row}, 0, length, (u32)count, list, filled);
    storeList<THREADS>(h, row, list, n);
  }
}

/// The first launch: the greatest of each of `parts` equal parts of a row, which have `count` elements or
/// more, go to the workspace. A block a part.
template <int THREADS, int CAPACITY, class H>
LATHE_DEV void topOfParts(const H &h, i64 rows, i64 length, i64 count, i64 parts) {
  __shared__ RankedOf<H> list[CAPACITY];
  __shared__ u32 filled;
  if (count <= 0) return;
  const i64 row = blockIdx.x / parts, part = blockIdx.x % parts;
  listGreatest<THREADS, CAPACITY>(RowElements<H>{h, row}, part * length / parts, (part + 1) * length / parts, (u32)count,
                                  list, filled);
  RankedOf<H> *const to = (RankedOf<H> *)h.work() + (i64)blockIdx.x * count;
  for (u32 i = threadIdx.x; i < (u32)count; i += THREADS) to[i] = list[i];
}

/// What the parts of a row left.
template <class R> struct ListedElements {
  const R *list;
  LATHE_METHOD R at(i64 i) const { return list[i]; }
};
/// The second launch: a block a row.
template <int THREADS, int CAPACITY, class H> LATHE_DEV void topOfLists(const H &h, i64 rows, i64 count, i64 parts) {
  __shared__ RankedOf<H> list[CAPACITY];
  __shared__ u32 filled;
  if (count <= 0) return;
  const i64 row = blockIdx.x;
  const ListedElements<RankedOf<H>> from{(const RankedOf<H> *)h.work() + row * parts * count};
  const u32 n = listGreatest<THREADS, CAPACITY>(from, 0, parts * count, (u32)count, list, filled);
  storeList<THREADS>(h, row, list, n);
}

/// A warp a row of up to 32 EACH elements; count <= 32.
template <int THREADS, int EACH, class H> LATHE_DEV void topOfShortRows(const H &h, i64 rows, i64 length, i64 count) {
  typedef RankedOf<H> R;
  const int lane = threadIdx.x % 32;
  const i64 row = (i64)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
  if (row >= rows) return; // whole warps
  const RowElements<H> from{h, row};
  R mine[EACH];
#pragma unroll
  for (int e = 0; e < EACH; ++e) {
    const i64 i = e * 32 + lane;
    mine[e] = i < length ? from.at(i) : R{0, 0};
  }
  u32 place = 0;
#pragma unroll 1
  for (int rank = 0; rank < (int)count; ++rank) {
    R best = mine[0];
#pragma unroll
    for (int e = 1; e < EACH; ++e)
      if (mine[e].aheadOf(best)) best = mine[e];
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) {
      const R other{shuffleXor(best.key, mask), shuffleXor(best.upside, mask)};
      if (other.aheadOf(best)) best = other;
    }
    if (lane == rank) place = ~best.upside;
#pragma unroll
    for (int e = 0; e < EACH; ++e)
      if (mine[e].upside == best.upside) mine[e] = R{0, 0};
  }
  if (lane < count) h.store(row, lane, (i64)place);
}

#endif // LATHE_DEVICE_TOPK_FEW
