//===- Helpers.h - scalar functions for kernels -----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_RUNTIME_DEVICE_HELPERS_H
#define LATHE_RUNTIME_DEVICE_HELPERS_H

#include "lathe/engine/KernelAbi.h"

namespace lathe::runtime {

/// The table that CPU kernels call through; order as in KernelAbi.h.
const LatheHelpers &helperTable();

} // namespace lathe::runtime

#endif // LATHE_RUNTIME_DEVICE_HELPERS_H
