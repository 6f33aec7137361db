//===- random.cuh - absent weights, made where they are used --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Needs: base
//
// The same elements as lib/support/RandomWeights.cpp. `kind` is the DType's number; `spread` holds
// the bits of center (low) and reach (high). Numbers of elements begin at `from`, those of rows are
// `fromPitch` apart.
//
//===----------------------------------------------------------------------===//
LATHE_DEV f32 randomElement(u64 stream, f32 center, f32 reach, u64 index) {
  u64 z = stream + (index + 1) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  z ^= z >> 31;
  double u = (double)((i64)(z >> 40) - (1 << 23)) * (1.0 / (1 << 23));
  return (f32)((double)center + (double)reach * u);
}

extern "C" __global__ void fillRandom(void *out, i64 kind, i64 stream, i64 spread, i64 rows,
                                      i64 columns, i64 first, i64 pitch, i64 from, i64 fromPitch,
                                      StatusWord *) {
  f32 center = bitsToF32((u32)spread), reach = bitsToF32((u32)((u64)spread >> 32));
  i64 step = (i64)gridDim.x * blockDim.x;
  for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < rows * columns; i += step) {
    i64 row = i / columns, column = i % columns;
    f32 value = randomElement((u64)stream, center, reach, (u64)(from + row * fromPitch + column));
    i64 at = first + row * pitch + column;
    if (kind == 9)
      static_cast<f16 *>(out)[at] = Converter<f16>::from(value);
    else if (kind == 10)
      static_cast<bf16 *>(out)[at] = Converter<bf16>::from(value);
    else if (kind == 11)
      static_cast<f32 *>(out)[at] = value;
    else
      static_cast<double *>(out)[at] = value;
  }
}
