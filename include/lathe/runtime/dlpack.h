/*===- dlpack.h - the DLPack exchange structs -------------------*- C -*-===*
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Declared from the DLPack 0.x ABI, layout-compatible with any other copy of it.
 * Left out when another dlpack.h came first.
 *===------------------------------------------------------------------===*/
#ifndef LATHE_RUNTIME_DLPACK_H
#define LATHE_RUNTIME_DLPACK_H

#include <stdint.h>

#ifndef DLPACK_DLPACK_H_
#ifdef __cplusplus
extern "C" {
#endif

typedef struct DLDevice {
  int32_t device_type; /* 1 CPU, 2 CUDA, 3 CUDA host memory */
  int32_t device_id;
} DLDevice;

typedef struct DLDataType {
  uint8_t code; /* 0 int, 1 uint, 2 float, 4 bfloat, 5 complex, 6 bool */
  uint8_t bits;
  uint16_t lanes;
} DLDataType;

typedef struct DLTensor {
  void *data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape;
  int64_t *strides; /* elements; NULL for row-major */
  uint64_t byte_offset;
} DLTensor;

typedef struct DLManagedTensor {
  DLTensor dl_tensor;
  void *manager_ctx;
  void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;

#ifdef __cplusplus
}
#endif
#endif /* DLPACK_DLPACK_H_ */
#endif /* LATHE_RUNTIME_DLPACK_H */
