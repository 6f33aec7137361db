//===- transpose_box.cuh - boxes of a transpose of known sizes ------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: base
//
// For transposes whose neighbours in memory are few before they are far apart, in the operand or in the result: a block
// copies a box of several dimensions into shared memory, in the order of the operand, and out of it in the order of the
// result, so that both are runs of memory. Holes, all by dimension of the result:
//
//   typedef ... Element;
//   static constexpr int RANK, SHARED;             elements of the box in shared memory
//   static constexpr i64 size(int d), extent(int d);      of the result, of the box
//   static constexpr i64 order(int i);             the dimensions as the operand has them, outermost first
//   static constexpr i64 fromStride(int d), toStride(int d), sharedStride(int d);
//   const Element *from() const;
//   Element *to() const;
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_DEVICE_TRANSPOSE_BOX
#define LATHE_DEVICE_TRANSPOSE_BOX

/// Where an element of the box lies, and whether it is one of the result.
struct BoxPlace {
  i64 memory;
  u32 shared;
  bool inside;
};
/// Of the box that begins at `first`, the element of this number in the order of the operand or of the result.
template <bool OPERAND, class H> LATHE_DEV BoxPlace boxPlace(const i64 (&first)[H::RANK], u32 number) {
  BoxPlace place{0, 0, true};
  u32 rest = number;
#pragma unroll
  for (int k = H::RANK - 1; k >= 0; --k) {
    const int d = OPERAND ? (int)H::order(k) : k;
    const u32 extent = (u32)H::extent(d), at = rest % extent;
    rest /= extent;
    place.shared += at * (u32)H::sharedStride(d);
    place.memory += (first[d] + at) * (OPERAND ? H::fromStride(d) : H::toStride(d));
    if (H::size(d) % H::extent(d) != 0) place.inside &= first[d] + at < H::size(d);
  }
  place.inside &= rest == 0; // beyond the end of the box
  return place;
}

/// A launch of a block for each box.
template <int THREADS, class H> LATHE_DEV void transposeBox(const H &h) {
  typedef typename H::Element T;
  constexpr int EACH = 4; // loads under way
  __shared__ T box[H::SHARED];
  i64 first[H::RANK];
  u32 rest = blockIdx.x, total = 1;
#pragma unroll
  for (int k = H::RANK - 1; k >= 0; --k) { // boxes that run together are neighbours in the operand
    const int d = (int)H::order(k);
    const u32 boxes = (u32)((H::size(d) + H::extent(d) - 1) / H::extent(d));
    first[d] = (i64)(rest % boxes) * H::extent(d);
    rest /= boxes;
    total *= (u32)H::extent(d);
  }
  const T *const from = h.from();
  T *const to = h.to();
#pragma unroll 1
  for (u32 i = threadIdx.x; i < total; i += EACH * THREADS) {
    BoxPlace place[EACH];
    T v[EACH];
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
      place[e] = boxPlace<true, H>(first, i + e * THREADS);
      if (place[e].inside) v[e] = from[place[e].memory];
    }
#pragma unroll
    for (int e = 0; e < EACH; ++e)
      if (place[e].inside) box[place[e].shared] = v[e];
  }
  __syncthreads();
#pragma unroll EACH
  for (u32 i = threadIdx.x; i < total; i += THREADS)
    if (const BoxPlace place = boxPlace<false, H>(first, i); place.inside) to[place.memory] = box[place.shared];
}

#endif // LATHE_DEVICE_TRANSPOSE_BOX
