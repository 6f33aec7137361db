/*===- HostAbi.h - the runtime and liblathe_host.so -------------*- C -*-===*
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * What the library of strings and images gives the runtime that opened it. Plain C:
 * each side has a standard library of its own. Both are built together, and either
 * refuses another number of this interface.
 *
 * A tensor of strings is packed outside of a program, as in lathe.h: count + 1
 * offsets (int64_t, rising from 0), then the bytes that they divide. Inside it is
 * an int64_t a string: its number in a LatheStrings.
 *===--------------------------------------------------------------------===*/
#ifndef LATHE_RUNTIME_HOST_HOSTABI_H
#define LATHE_RUNTIME_HOST_HOSTABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LATHE_HOST_ABI 1

/* The numbers of lathe::ErrorCode; a message is cut where it is longer. */
typedef struct LatheHostError {
  int32_t code; /* 0: none */
  char message[508];
} LatheHostError;

/* The strings of one context's runs of an entry, each once; not for several threads at a time. */
typedef struct LatheStrings LatheStrings;

typedef struct LatheHostTensor {
  void *data; /* row-major */
  int32_t dtype, rank; /* of lathe::DType */
  const int64_t *dims;
} LatheHostTensor;

typedef struct LatheHostAttribute {
  const char *name;
  const int64_t *ints;
  size_t intCount;
  const char *text;
  size_t textSize;
} LatheHostAttribute;

typedef struct LatheHostCall {
  const LatheHostTensor *inputs;
  size_t inputCount;
  const LatheHostTensor *outputs; /* data is written */
  size_t outputCount;
  const LatheHostAttribute *attributes;
  size_t attributeCount;
  LatheStrings *strings;
  LatheHostError *error;
} LatheHostCall;

typedef void (*LatheHostOp)(const LatheHostCall *call);

/* Functions that may fail set `error` then, and leave it alone otherwise. */
typedef struct LatheHostLibrary {
  uint32_t abi; /* LATHE_HOST_ABI */
  /* NULL: there is no such op. */
  LatheHostOp (*find)(const char *name);
  /* `texts` are the constants, which get the numbers 0, 1, ... NULL on errors. */
  LatheStrings *(*makeStrings)(const char *const *texts, const size_t *sizes, size_t count,
                               LatheHostError *error);
  void (*freeStrings)(LatheStrings *strings);
  /* Forgets all strings but the constants. */
  void (*beginRun)(LatheStrings *strings);
  /* Numbers of `count` packed strings of `bytes` bytes in all, which are checked. */
  void (*numberAll)(LatheStrings *strings, const void *packed, uint64_t bytes, int64_t count,
                    int64_t *numbers, LatheHostError *error);
  /* What `count` strings take when packed. */
  uint64_t (*packedBytes)(const LatheStrings *strings, const int64_t *numbers, int64_t count,
                          LatheHostError *error);
  /* Packs strings for which packedBytes() gave no error. */
  void (*pack)(const LatheStrings *strings, const int64_t *numbers, int64_t count, void *packed);
} LatheHostLibrary;

/* The one function that the library shows. */
const LatheHostLibrary *lathe_host_library(void);

#ifdef __cplusplus
}
#endif
#endif /* LATHE_RUNTIME_HOST_HOSTABI_H */
