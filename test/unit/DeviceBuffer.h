//===- DeviceBuffer.h - memory of emulated kernels --------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// To be included behind codegen/device/base.cuh.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_TEST_UNIT_DEVICEBUFFER_H
#define LATHE_TEST_UNIT_DEVICEBUFFER_H

#include <random>

/// Memory as a GPU gives it: aligned to 256 bytes.
template <class T> struct Buffer {
  explicit Buffer(i64 n) : size(n), data(static_cast<T *>(aligned_alloc(256, (n * sizeof(T) + 511) / 256 * 256))) {}
  ~Buffer() { free(data); }
  Buffer(const Buffer &) = delete;
  T &operator[](i64 i) { return data[i]; }
  const T &operator[](i64 i) const { return data[i]; }
  Buffer &random(unsigned seed) {
    std::mt19937 gen(seed);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (i64 i = 0; i < size; ++i)
      data[i] = convert<T>(uniform(gen));
    return *this;
  }
  i64 size;
  T *data;
};

#endif // LATHE_TEST_UNIT_DEVICEBUFFER_H
