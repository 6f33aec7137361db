//===- transpose.cuh - tiles transposed in shared memory ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: math
//
// For results whose neighbours are far apart in the input: `row` is the
// dimension that is contiguous in the input, `column` the one that is
// contiguous in the output, `outer` all others. Holes:
//
//   typedef ... Element;
//   static constexpr int kLanes;      1, or the elements of 16 bytes: then it divides both sizes
//   Vec<Element, kLanes> load(i64 outer, i64 row, i64 column);   rows row .. row + kLanes - 1
//   void write(i64 outer, i64 row, i64 column, Vec<Element, kLanes>);   columns column ..
//
// 256 threads; the grid is outer x tiles of rows x tiles of columns.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_TRANSPOSE
#define LATHE_DEVICE_TRANSPOSE

/// Tiles of 16 x 16 blocks of V x V: a block is transposed in registers, its pieces of
/// 16 bytes are exchanged through shared memory.
template <class H> LATHE_DEV void transposeBlocks(const H &h, i64 rows, i64 columns) {
  typedef typename H::Element T;
  constexpr int V = H::kLanes, TILE = 16 * V, SWIZZLE = V < 8 ? V : 8;
  __shared__ __align__(16) Vec<T, V> tile[TILE][16];
  const u32 tilesR = (u32)((rows + TILE - 1) / TILE), tilesC = (u32)((columns + TILE - 1) / TILE);
  // Blocks that run together walk the rows, which lie together in the input.
  const u32 r = blockIdx.x % tilesR, rest = blockIdx.x / tilesR;
  const i64 row0 = (i64)r * TILE, column0 = (i64)(rest % tilesC) * TILE, outer = rest / tilesC;
  const int br = threadIdx.x % 16, bc = threadIdx.x / 16;
  Vec<T, V> in[V];
  if (row0 + br * V < rows && column0 + bc * V < columns) {
#pragma unroll
    for (int i = 0; i < V; ++i) in[i] = h.load(outer, row0 + br * V, column0 + bc * V + i);
  }
#pragma unroll
  for (int j = 0; j < V; ++j) {
    Vec<T, V> piece;
#pragma unroll
    for (int i = 0; i < V; ++i) piece.v[i] = in[i].v[j];
    tile[br * V + j][bc ^ (br % SWIZZLE)] = piece;
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < V; ++k) {
    const int row = k * 16 + threadIdx.x / 16, column = threadIdx.x % 16;
    if (row0 + row < rows && column0 + column * V < columns)
      h.write(outer, row0 + row, column0 + column * V, tile[row][column ^ (row / V % SWIZZLE)]);
  }
}

/// Any sizes: tiles of 32 x 32, element by element.
template <class H> LATHE_DEV void transposeElements(const H &h, i64 rows, i64 columns) {
  typedef typename H::Element T;
  __shared__ T tile[32][33];
  const u32 tilesR = (u32)((rows + 31) / 32), tilesC = (u32)((columns + 31) / 32);
  const u32 r = blockIdx.x % tilesR, rest = blockIdx.x / tilesR;
  const i64 row0 = (i64)r * 32, column0 = (i64)(rest % tilesC) * 32, outer = rest / tilesC;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int c = 0; c < 32; c += 8)
    if (row0 + lane < rows && column0 + warp + c < columns)
      tile[warp + c][lane] = h.load(outer, row0 + lane, column0 + warp + c).v[0];
  __syncthreads();
#pragma unroll
  for (int c = 0; c < 32; c += 8)
    if (row0 + warp + c < rows && column0 + lane < columns)
      h.write(outer, row0 + warp + c, column0 + lane, Vec<T, 1>{{tile[lane][warp + c]}});
}

#endif // LATHE_DEVICE_TRANSPOSE
