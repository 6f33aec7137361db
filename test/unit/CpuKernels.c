/*===- CpuKernels.c - kernels by hand for the runtime's tests ---*- C -*-===*
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Compiled to a freestanding shared object, as the compiler makes them.
 *===-------------------------------------------------------------------===*/
#include "lathe/engine/KernelAbi.h"

#define KERNEL __attribute__((visibility("default"))) void

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* out = x * w + x, w of 4 elements; 16 elements a block */
KERNEL scale_add(const LatheCpuArgs *args, int64_t begin, int64_t end) {
  const float *x = args->buffers[0], *w = args->buffers[1];
  float *out = args->buffers[2];
  int64_t n = args->symbols[0];
  for (int64_t i = begin * 16; i < least(end * 16, n); ++i)
    out[i] = x[i] * w[i % 4] + x[i];
}

KERNEL relu(const LatheCpuArgs *args, int64_t begin, int64_t end) {
  const float *x = args->buffers[0];
  float *out = args->buffers[1];
  int64_t n = args->symbols[0];
  for (int64_t i = begin * 16; i < least(end * 16, n); ++i)
    out[i] = x[i] > 0 ? x[i] : 0;
}

/* out[0] = 1, the small variant, so that tests see which one ran */
KERNEL relu_small(const LatheCpuArgs *args, int64_t begin, int64_t end) {
  relu(args, begin, end);
  ((float *)args->buffers[1])[0] = -1;
}

/* out = exp(x) through the helper table and the worker's scratch */
KERNEL exponential(const LatheCpuArgs *args, int64_t begin, int64_t end) {
  const float *x = args->buffers[0];
  float *out = args->buffers[1];
  int64_t n = args->symbols[0];
  double *scratch = args->scratch;
  for (int64_t i = begin * 16; i < least(end * 16, n); ++i) {
    scratch[0] = args->helpers->unary[12](x[i]);
    out[i] = (float)scratch[0];
  }
}

/* out[i] = table[index[i]]; 100 rows */
KERNEL look_up(const LatheCpuArgs *args, int64_t begin, int64_t end) {
  const float *table = args->buffers[0];
  const int64_t *index = args->buffers[1];
  float *out = args->buffers[2];
  int64_t n = args->symbols[0], rows = args->symbols[1];
  for (int64_t i = begin * 16; i < least(end * 16, n); ++i) {
    int64_t at = index[i];
    if (at < 0 || at >= rows) {
      uint64_t none = 0;
      if (__atomic_compare_exchange_n(&args->status->code, &none, 1, 0, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED))
        args->status->detail = (uint64_t)at << 32;
      at = 0;
    }
    out[i] = table[at];
  }
}

/* cache[b][P + s][:] = fresh[b][s][:], rows of 4; symbols B, P, S, capacity */
KERNEL append(const LatheCpuArgs *args, int64_t begin, int64_t end) {
  const float *fresh = args->buffers[0];
  float *cache = args->buffers[1];
  int64_t p = args->symbols[1], s = args->symbols[2], capacity = args->symbols[3];
  for (int64_t b = begin; b < end; ++b)
    for (int64_t i = 0; i < s; ++i)
      for (int64_t d = 0; d < 4; ++d)
        cache[(b * capacity + p + i) * 4 + d] = fresh[(b * s + i) * 4 + d];
}

/* count[0] = how many of x are positive; packed[...] = those. One block. */
KERNEL count_positive(const LatheCpuArgs *args, int64_t begin, int64_t end) {
  const float *x = args->buffers[0];
  int64_t *count = args->buffers[1];
  int64_t n = args->symbols[0], found = 0;
  for (int64_t i = 0; i < n; ++i)
    found += x[i] > 0;
  *count = found;
}
KERNEL pack_positive(const LatheCpuArgs *args, int64_t begin, int64_t end) {
  const float *x = args->buffers[0];
  float *out = args->buffers[1];
  int64_t n = args->symbols[0], at = 0;
  for (int64_t i = 0; i < n; ++i)
    if (x[i] > 0)
      out[at++] = x[i];
}

/* x[i] += 1 in place */
KERNEL increment(const LatheCpuArgs *args, int64_t begin, int64_t end) {
  float *x = args->buffers[0];
  int64_t n = args->symbols[0];
  for (int64_t i = begin * 16; i < least(end * 16, n); ++i)
    x[i] += 1;
}
