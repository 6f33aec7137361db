//===- Tensors.cpp - strides, overlap, copies of tensors --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Tensors.h"

#include <algorithm>

namespace lathe::runtime {

std::vector<int64_t> denseStrides(const std::vector<int64_t> &sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t step = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = step;
    // Only the sizes of an empty tensor can overflow; its strides are never followed.
    if (__builtin_mul_overflow(step, sizes[i], &step))
      step = 0;
  }
  return strides;
}

bool isDense(const std::vector<int64_t> &dims, const std::vector<int64_t> &strides) {
  if (std::find(dims.begin(), dims.end(), 0) != dims.end())
    return true;
  std::vector<int64_t> dense = denseStrides(dims);
  for (size_t i = 0; i < dims.size(); ++i)
    if (dims[i] != 1 && strides[i] != dense[i])
      return false;
  return true;
}

bool isRowMajor(const lathe_tensor &tensor) {
  if (!tensor.strides)
    return true;
  return isDense({tensor.dims, tensor.dims + tensor.rank}, {tensor.strides, tensor.strides + tensor.rank});
}

Status gatherOnHost(void *to, const void *from, DType dtype, const std::vector<int64_t> &dims,
                    const std::vector<int64_t> &strides) {
  int64_t count = 1;
  for (int64_t d : dims)
    count *= d;
  if (isDense(dims, strides)) {
    std::copy_n(static_cast<const char *>(from), byteSize(dtype, count), static_cast<char *>(to));
    return okStatus();
  }
  if (bitWidth(dtype) % 8 != 0)
    return unsupportedError("strides on a type narrower than a byte");
  std::vector<int64_t> plain = denseStrides(dims);
  int64_t element = bitWidth(dtype) / 8;
  for (int64_t i = 0; i < count; ++i) {
    int64_t at = 0;
    for (size_t a = 0; a < dims.size(); ++a)
      at += i / plain[a] % dims[a] * strides[a];
    std::copy_n(static_cast<const char *>(from) + at * element, element,
                static_cast<char *>(to) + i * element);
  }
  return okStatus();
}

Status copyToDense(Device &device, void *to, const void *from, DType dtype,
                   const std::vector<int64_t> &dims, const std::vector<int64_t> &strides,
                   CopyKind kind) {
  if (std::find(dims.begin(), dims.end(), 0) != dims.end())
    return okStatus();
  int64_t count = 1;
  for (int64_t d : dims)
    count *= d;
  if (isDense(dims, strides))
    return device.copy(to, from, static_cast<size_t>(byteSize(dtype, count)), kind);
  if (bitWidth(dtype) % 8 != 0)
    return unsupportedError("strides on a type narrower than a byte");
  int64_t element = bitWidth(dtype) / 8;
  // The innermost axes that lie together are one piece.
  size_t outer = dims.size();
  int64_t piece = 1;
  while (outer > 0 && (dims[outer - 1] == 1 || strides[outer - 1] == piece))
    piece *= dims[--outer];
  std::vector<int64_t> index(outer, 0);
  auto *target = static_cast<char *>(to);
  for (int64_t i = 0; i < count / piece; ++i) {
    int64_t offset = 0;
    for (size_t a = 0; a < outer; ++a)
      offset += index[a] * strides[a];
    LATHE_RETURN_IF_ERROR(device.copy(target, static_cast<const char *>(from) + offset * element,
                                      static_cast<size_t>(piece * element), kind));
    target += piece * element;
    for (size_t a = outer; a-- > 0 && ++index[a] == dims[a];)
      index[a] = 0;
  }
  return okStatus();
}

} // namespace lathe::runtime
