//===- topk.cuh - the greatest elements of rows, in order ----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: ahead
//
// A block takes a row at a time. Keys are signed integers that order as the elements do; of equal
// keys the lower place comes first. Where the row is longer than what is kept, the least key that is
// wanted is found a byte at a time, from the highest, by counting; the elements above it are collected
// in any order, of those equal to it the first ones. What is collected is sorted by Batcher's
// odd-even merge, whose order is total, so that results are the same in every run. Up to CAPACITY
// elements are sorted in shared memory, more in the workspace. Holes:
//
//   typedef i32 or i64 Key;
//   Key key(i64 row, i64 place);
//   void store(i64 row, i64 rank, i64 place);
//   i64 *spareOf(i64 block);    memory for count places and as many keys, unless CAPACITY suffices
//
// THREADS threads, 256 or more; any number of blocks.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_TOPK
#define LATHE_DEVICE_TOPK

template <class K> struct UnsignedKey { typedef u32 Type; };
template <> struct UnsignedKey<i64> { typedef u64 Type; };
/// The same order without a sign.
template <class K> LATHE_DEV typename UnsignedKey<K>::Type unsignedKey(K key) {
  typedef typename UnsignedKey<K>::Type U;
  return (U)key ^ (U)1 << (8 * sizeof(U) - 1);
}

/// The count-th greatest key of the row, without sign; `ties`: how many equal to it are wanted,
/// `equal`: how many there are. 0 < count <= length.
template <int THREADS, class H>
LATHE_DEV typename UnsignedKey<typename H::Key>::Type leastWanted(const H &h, i64 row, i64 length, i64 count, i64 &ties, i64 &equal) {
  typedef typename UnsignedKey<typename H::Key>::Type U;
  static_assert(THREADS >= 256, "a thread a digit");
  __shared__ u32 atLeast[257]; // keys with this byte or a greater one
  __shared__ u32 digit;
  U prefix = 0, mask = 0;
  i64 left = count;
  u32 same = 0;
  for (int shift = 8 * (int)sizeof(U) - 8; shift >= 0; shift -= 8) {
    for (int d = threadIdx.x; d < 257; d += THREADS) atLeast[d] = 0;
    __syncthreads();
    for (i64 i = threadIdx.x; i < length; i += THREADS) {
      const U key = unsignedKey(h.key(row, i));
      if ((key & mask) == prefix) atomicAdd(&atLeast[(u32)(key >> shift) & 255], 1u);
    }
    __syncthreads();
    for (int d = 1; d < 256; d *= 2) {
      const u32 more = threadIdx.x + d < 256 ? atLeast[threadIdx.x + d] : 0;
      __syncthreads();
      if (threadIdx.x < 256) atLeast[threadIdx.x] += more;
      __syncthreads();
    }
    if (threadIdx.x < 256 && (i64)atLeast[threadIdx.x] >= left && (i64)atLeast[threadIdx.x + 1] < left)
      digit = threadIdx.x;
    __syncthreads();
    left -= atLeast[digit + 1];
    same = atLeast[digit] - atLeast[digit + 1];
    prefix |= (U)digit << shift;
    mask |= (U)255 << shift;
    __syncthreads(); // counts and digit are free for the next byte
  }
  ties = left;
  equal = same;
  return prefix;
}

/// Collects the places and keys of the `count` greatest elements, in any order.
template <int THREADS, class H>
LATHE_DEV void collectGreatest(const H &h, i64 row, i64 length, i64 count, i64 *places, typename H::Key *keys) {
  typedef typename H::Key Key;
  __shared__ u32 found;
  if (threadIdx.x == 0) found = 0;
  i64 ties, equal;
  const auto least = leastWanted<THREADS>(h, row, length, count, ties, equal);
  const bool all = ties == equal; // of those equal to the least one
  for (i64 i = threadIdx.x; i < length; i += THREADS) {
    const Key key = h.key(row, i);
    if (unsignedKey(key) > least || (all && unsignedKey(key) == least)) {
      const u32 slot = atomicAdd(&found, 1u);
      places[slot] = i;
      keys[slot] = key;
    }
  }
  // The first of equal ones, in their order.
  i64 taken = 0;
  for (i64 base = 0; !all && base < length && taken < ties; base += THREADS) {
    const i64 i = base + threadIdx.x;
    const bool is = i < length && unsignedKey(h.key(row, i)) == least;
    u32 total;
    const i64 rank = taken + countAhead<THREADS>(is, total);
    if (is && rank < ties) {
      places[count - ties + rank] = i;
      keys[count - ties + rank] = h.key(row, i);
    }
    taken += total;
  }
  __syncthreads();
}

/// Brings the greater key first, of equals the lower place. All threads take part.
template <int THREADS, class Key> LATHE_DEV void sortPairs(i64 *places, Key *keys, i64 n) {
  for (i64 p = 1; p < n; p *= 2)
    for (i64 q = p; q >= 1; q /= 2) {
      const i64 first = q == p ? 0 : q;
      for (i64 t = threadIdx.x;; t += THREADS) {
        const i64 low = first + t / q * 2 * q + t % q, high = low + q;
        if (high >= n) break;
        if (low / (2 * p) != high / (2 * p)) continue;
        const Key a = keys[low], b = keys[high];
        const i64 i = places[low], j = places[high];
        if (b > a || (b == a && j < i)) {
          keys[low] = b, keys[high] = a;
          places[low] = j, places[high] = i;
        }
      }
      __syncthreads();
    }
}

template <int THREADS, int CAPACITY, class H> LATHE_DEV void selectTop(const H &h, i64 rows, i64 length, i64 count) {
  typedef typename H::Key Key;
  __shared__ i64 nearPlaces[CAPACITY];
  __shared__ Key nearKeys[CAPACITY];
  if (count <= 0) return;
  for (i64 row = blockIdx.x; row < rows; row += gridDim.x) {
    const bool whole = length <= CAPACITY || count == length;
    const i64 kept = whole ? length : count;
    i64 *places = nearPlaces;
    Key *keys = nearKeys;
    if (kept > CAPACITY) {
      places = h.spareOf(blockIdx.x);
      keys = (Key *)(places + count);
    }
    if (whole) {
      for (i64 i = threadIdx.x; i < length; i += THREADS) {
        places[i] = i;
        keys[i] = h.key(row, i);
      }
      __syncthreads();
    } else {
      collectGreatest<THREADS>(h, row, length, count, places, keys);
    }
    sortPairs<THREADS>(places, keys, kept);
    for (i64 i = threadIdx.x; i < count; i += THREADS) h.store(row, i, places[i]);
    __syncthreads(); // the next row takes this memory
  }
}

#endif // LATHE_DEVICE_TOPK
