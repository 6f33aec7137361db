//===- nonzero.cuh - places of flags that are set, in order ----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: ahead
//
// One block goes through all flags, THREADS at a time: the place of each that is set goes behind those
// of all before it. Behind the last one come zeros, and the number of places is stored at the end. Holes:
//
//   bool flag(i64 place);
//   void store(i64 rank, i64 place);
//   void finish(i64 unused, i64 count);
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_NONZERO
#define LATHE_DEVICE_NONZERO

template <int THREADS, class H> LATHE_DEV void collectPlaces(const H &h, i64 length) {
  i64 found = 0;
  for (i64 base = 0; base < length; base += THREADS) {
    const i64 i = base + threadIdx.x;
    const bool is = i < length && h.flag(i);
    u32 total;
    const u32 rank = countAhead<THREADS>(is, total);
    if (is) h.store(found + rank, i);
    found += total;
  }
  for (i64 i = found + threadIdx.x; i < length; i += THREADS) h.store(i, 0);
  if (threadIdx.x == 0) h.finish(0, found);
}

#endif // LATHE_DEVICE_NONZERO
