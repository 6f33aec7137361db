/*===- KernelAbi.h - how the runtime calls CPU kernels ----------*- C -*-===*
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * The C structs that compiled CPU kernels read. The compiler generates loads
 * at exactly these offsets; everything is 8 bytes wide on purpose.
 *===--------------------------------------------------------------------===*/
#ifndef LATHE_ENGINE_KERNELABI_H
#define LATHE_ENGINE_KERNELABI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Scalar functions that kernels call through a table, so that an image has no
 * undefined symbol. Append only: the index is part of the engine format.
 * Name, in order: sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh
 * exp expm1 log log1p log2 erf sqrt cbrt floor ceil roundeven trunc (f64), then
 * pow atan2 fmod (two f64). f32 kernels compute through f64 here. */
#define LATHE_HELPERS_UNARY 24
#define LATHE_HELPERS_BINARY 3
typedef struct LatheHelpers {
  double (*unary[LATHE_HELPERS_UNARY])(double);
  double (*binary[LATHE_HELPERS_BINARY])(double, double);
} LatheHelpers;

/* A kernel that meets bad data (an index out of range) stores a code and a
 * detail; the first writer wins (compare-and-swap from 0 on `code`). */
typedef struct LatheStatusWord {
  uint64_t code;   /* 0 fine; 1 index out of range; 2 division by zero; else kernel-defined */
  uint64_t detail; /* low 32 bits: id of the plan step; high: the offending value, truncated */
} LatheStatusWord;

/* The threads that take a block together. A launch whose cluster has more than one along the grid's
 * second axis has grid[0] blocks; up to min(grid[1], cluster[1]) threads run a block at the same
 * time, fewer when there are no more. A kernel splits its work by these numbers; with one member
 * meeting costs nothing. */
typedef struct LatheCpuTeam {
  int64_t member, members; /* 0 <= member < members */
  /* Waits for the others; what all of them wrote before is seen after. */
  void (*meet)(const struct LatheCpuTeam *team);
} LatheCpuTeam;

typedef struct LatheCpuArgs {
  void *const *buffers;    /* KernelSpec buffer arguments in order */
  const int64_t *symbols;  /* KernelSpec symbol arguments in order */
  const LatheHelpers *helpers;
  LatheStatusWord *status;
  void *scratch;           /* KernelSpec.scratchBytes of this worker or team, 64-byte aligned */
  const LatheCpuTeam *team;
} LatheCpuArgs;

/* Runs block ids [begin, end) of the launch grid. */
typedef void (*LatheCpuKernel)(const LatheCpuArgs *args, int64_t begin, int64_t end);

#ifdef __cplusplus
}
#endif
#endif /* LATHE_ENGINE_KERNELABI_H */
