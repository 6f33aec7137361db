//===- Tensors.h - strides, overlap, copies of tensors ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_RUNTIME_EXEC_TENSORS_H
#define LATHE_RUNTIME_EXEC_TENSORS_H

#include "../device/Device.h"
#include "lathe/runtime/lathe.h"

#include <vector>

namespace lathe::runtime {

/// Row-major strides of sizes, in elements.
std::vector<int64_t> denseStrides(const std::vector<int64_t> &sizes);
/// Whether a tensor with these strides is row-major without gaps.
bool isDense(const std::vector<int64_t> &dims, const std::vector<int64_t> &strides);
bool isRowMajor(const lathe_tensor &tensor);

/// Gathers a strided tensor on the host into dense memory of the host. Unsupported for
/// strided types narrower than a byte.
Status gatherOnHost(void *to, const void *from, DType dtype, const std::vector<int64_t> &dims,
                    const std::vector<int64_t> &strides);

/// Copies a strided tensor to dense memory, in as few pieces as its layout allows.
/// Unsupported for strided types narrower than a byte.
Status copyToDense(Device &device, void *to, const void *from, DType dtype,
                   const std::vector<int64_t> &dims, const std::vector<int64_t> &strides,
                   CopyKind kind);

} // namespace lathe::runtime

#endif // LATHE_RUNTIME_EXEC_TENSORS_H
