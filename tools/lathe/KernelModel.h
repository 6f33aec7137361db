//===- KernelModel.h - a model of one kernel --------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_TOOLS_LATHE_KERNELMODEL_H
#define LATHE_TOOLS_LATHE_KERNELMODEL_H

#include "lathe/support/Status.h"

#include <string>
#include <string_view>

namespace lathe::cli {

/// ONNX text of a model around one kernel, for `bench --kernel`:
///
///   gemm:m=8192,n=8192,k=8192,dtype=bf16,epilogue=bias+gelu
///   gemm:m=2048,n=4096,k=4096,dtype=e4m3      (also int8, tf32)
///   conv:n=64,c=128,k=128,h=28,r=3,dtype=f16,epilogue=bias+residual+relu
///   attention:b=1,h=32,kv=8,s=4096,d=128,dtype=f16,mask=causal
///
/// Usage error that names what is wrong and what there is.
Result<std::string> kernelModel(std::string_view what);

} // namespace lathe::cli

#endif // LATHE_TOOLS_LATHE_KERNELMODEL_H
