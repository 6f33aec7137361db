//===- interpolate.cuh - weighted sums of neighbours along two axes ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: base
//
// Of images whose pixels are weighted sums of TAPS_Y x TAPS_X pixels of other images, with places and weights that depend
// on the row alone and on the column alone. A block has a tile of ROWS x COLUMNS results of an image. It sums the rows of
// the other image that these need along the columns, into shared memory, and then along the rows: so each is summed once.
// Where the rows that it needs are too many for shared memory it takes fewer at a time.
//
// What lies behind the columns, as channels may, counts as columns: `inner` elements for each.
//
// Holes:
//   static constexpr int TAPS_Y, TAPS_X;
//   i64 rowAt(int tap, i64 y), columnAt(int tap, i64 x);           places in the other image
//   f32 rowWeight(int tap, i64 y), columnWeight(int tap, i64 x);
//   f32 element(i64 plane, i64 y, i64 x, i64 c);                   of the other image
//   void write(i64 plane, i64 y, i64 x, i64 c, f32 sum);
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_INTERPOLATE
#define LATHE_DEVICE_INTERPOLATE

/// A launch of a block for each tile of each plane.
template <int THREADS, int ROWS, int COLUMNS, class H>
LATHE_DEV void interpolate(const H &h, i64 planes, i64 height, i64 width, i64 inner) {
  constexpr int PER = 2, ACROSS = COLUMNS / PER, GROUPS = THREADS / ACROSS; // columns of a thread, threads of a row
  constexpr int TAPS_Y = H::TAPS_Y, TAPS_X = H::TAPS_X, MOST = 2 * ROWS + 4;  // rows in shared memory
  static_assert(COLUMNS % PER == 0 && THREADS % ACROSS == 0, "whole rows of threads");
  struct Tap { i32 at; f32 weight; };
  __shared__ f32 sums[MOST][COLUMNS];
  __shared__ Tap taps[ROWS * TAPS_Y];
  const int own = threadIdx.x % ACROSS, group = threadIdx.x / ACROSS;
  const i64 columns = width * inner, across = (columns + COLUMNS - 1) / COLUMNS, down = (height + ROWS - 1) / ROWS;
  const i64 strip = blockIdx.x / across, plane = strip / down, y0 = strip % down * ROWS;
  const i64 first = (i64)(blockIdx.x % across) * COLUMNS;
  if (plane >= planes) return;
  const int rows = (int)(height - y0 < ROWS ? height - y0 : ROWS);
  for (int i = threadIdx.x; i < rows * TAPS_Y; i += THREADS)
    taps[i] = Tap{(i32)h.rowAt(i % TAPS_Y, y0 + i / TAPS_Y), h.rowWeight(i % TAPS_Y, y0 + i / TAPS_Y)};
  bool is[PER];
  i64 x[PER], c[PER], from[PER][TAPS_X];
  f32 weight[PER][TAPS_X];
#pragma unroll
  for (int p = 0; p < PER; ++p) {
    const i64 at = first + p * ACROSS + own;
    is[p] = at < columns;
    x[p] = is[p] ? at / inner : 0;
    c[p] = is[p] ? at - x[p] * inner : 0;
#pragma unroll
    for (int t = 0; t < TAPS_X; ++t) {
      from[p][t] = is[p] ? h.columnAt(t, x[p]) : 0;
      weight[p][t] = is[p] ? h.columnWeight(t, x[p]) : 0.0f;
    }
  }
  auto alongColumns = [&](int p, i64 row) {
    f32 sum = weight[p][0] * h.element(plane, row, from[p][0], c[p]);
#pragma unroll
    for (int t = 1; t < TAPS_X; ++t) sum += weight[p][t] * h.element(plane, row, from[p][t], c[p]);
    return sum;
  };
  __syncthreads();
#pragma unroll 1
  for (int done = 0; done < rows;) {
    // As many rows of results as the rows that they need have room for.
    i32 low = taps[done * TAPS_Y].at, high = low;
    int next = done;
    for (; next < rows; ++next) {
      i32 least = low, most = high;
#pragma unroll
      for (int t = 0; t < TAPS_Y; ++t) {
        const i32 at = taps[next * TAPS_Y + t].at;
        least = at < least ? at : least;
        most = at > most ? at : most;
      }
      if (most - least >= MOST) break;
      low = least;
      high = most;
    }
    if (next == done) { // what one row needs lies too far apart
      for (int p = group; p < PER; p += GROUPS) {
        if (!is[p]) continue;
        f32 sum = 0.0f;
        for (int t = 0; t < TAPS_Y; ++t)
          sum += taps[done * TAPS_Y + t].weight * alongColumns(p, taps[done * TAPS_Y + t].at);
        h.write(plane, y0 + done, x[p], c[p], sum);
      }
      ++done;
      continue;
    }
#pragma unroll 2
    for (int row = group; row <= high - low; row += GROUPS)
#pragma unroll
      for (int p = 0; p < PER; ++p)
        if (is[p]) sums[row][p * ACROSS + own] = alongColumns(p, low + row);
    __syncthreads();
#pragma unroll 2
    for (int row = done + group; row < next; row += GROUPS) {
      Tap tap[TAPS_Y];
#pragma unroll
      for (int t = 0; t < TAPS_Y; ++t) tap[t] = taps[row * TAPS_Y + t];
#pragma unroll
      for (int p = 0; p < PER; ++p) {
        if (!is[p]) continue;
        f32 sum = tap[0].weight * sums[tap[0].at - low][p * ACROSS + own];
#pragma unroll
        for (int t = 1; t < TAPS_Y; ++t) sum += tap[t].weight * sums[tap[t].at - low][p * ACROSS + own];
        h.write(plane, y0 + row, x[p], c[p], sum);
      }
    }
    __syncthreads();
    done = next;
  }
}

#endif // LATHE_DEVICE_INTERPOLATE
