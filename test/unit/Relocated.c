/*===- Relocated.c - an image that the loader has to change -----*- C -*-===*
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Pointers to own data and functions are relocations; with LATHE_IFUNC, one of the functions
 * is chosen by code that runs on loading.
 *===-------------------------------------------------------------------===*/
int table[4] = {1, 2, 3, 4};
int *inner[2] = {&table[1], &table[3]};

int first(int x) { return table[x & 3]; }

#ifdef LATHE_IFUNC
static int second_slow(int x) { return x + 1; }
static int (*choose(void))(int) { return second_slow; }
int second(int) __attribute__((ifunc("choose")));
#else
int second(int x) { return x + 1; }
#endif

int (*const functions[2])(int) = {first, second};
int call(int i, int x) { return functions[i & 1](x) + *inner[i & 1]; }
