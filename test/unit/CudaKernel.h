//===- CudaKernel.h - generate and emulate CUDA kernels in a test -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels written as MLIR functions become CUDA text as they do in an engine.
// A batch of them is compiled once by a host compiler over the emulation header
// and run as blocks and threads; NVRTC compiles each where it is installed.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_TEST_UNIT_CUDAKERNEL_H
#define LATHE_TEST_UNIT_CUDAKERNEL_H

#include "CpuKernel.h"

#include "lathe/codegen/Nvrtc.h"

#include <filesystem>

namespace lathe::test {

struct CudaCase {
  std::string text;     ///< the first function is the kernel
  std::string config;   ///< "row.t128.v8"
  std::string grid[3] = {"1"}; ///< blocks; where one is empty, 1
  std::string shared = "0"; ///< bytes
  int maps = 0;             ///< tensor maps; such a kernel is not emulated
  /// A programmatic launch: in the emulation its inputs are there when it waits, not before.
  bool early = false;
  std::string workspace = "0"; ///< bytes
  /// Blocks of each launch ahead, in their order.
  std::vector<std::string> ahead = {};
  std::string packing = "";    ///< recipe of the second input (lathe/support/Packing.h); its values are given unpacked
};

/// A function of this signature, "(%x: tensor<..>) -> ..", and body as text.
std::string fn(const std::string &name, const std::string &signature, const std::string &body);

/// One kernel: its text and spec.
struct CudaKernel {
  std::string error, source;
  KernelSpec spec;
};
CudaKernel cudaKernel(mlir::MLIRContext &context, const CudaCase &c, const std::string &target);

/// Kernels by the names of their functions.
class CudaBatch {
public:
  CudaBatch();
  ~CudaBatch();
  CudaBatch(const CudaBatch &) = delete;
  /// Without adding it.
  CudaKernel generate(const CudaCase &c, const std::string &target = "sm_90a") {
    return cudaKernel(context, c, target);
  }
  /// "" or why there is none.
  std::string add(const CudaCase &c, const std::string &target = "sm_90a");
  /// A kernel that a test has generated and changed.
  void addKernel(CudaKernel kernel);
  /// Compiles everything that was added; "" or the compiler's message.
  std::string build();
  const CudaKernel *find(const std::string &name) const;
  /// Runs a kernel; outputs as bytes, or `error`.
  std::vector<Bytes> run(const std::string &name, std::vector<Bytes> inputs,
                         const std::map<std::string, int64_t> &symbols = {});
  std::string error;
  unsigned long long status[2] = {0, 0};

private:
  mlir::MLIRContext context;
  std::map<std::string, CudaKernel> kernels;
  void *image = nullptr;
  std::filesystem::path dir; ///< of the image and its text
};

/// A finding of ptxas fails a job that does not tolerate it; a few bytes of spills are none.
void expectCompiles(nvrtc::Compiler &compiler, const std::vector<nvrtc::CompileJob> &jobs,
                    bool harmlessSpills = true);

/// The same of kernels of a batch, for sm_80 and sm_90a; skips the test where there is no NVRTC.
void expectCompiles(CudaBatch &batch, const std::vector<std::string> &names);

/// Elements for a buffer of these sizes: floats between -1.5 and 1.5, codes of any bits, small indices.
Bytes randomBytes(const BufferArg &arg, const std::map<std::string, int64_t> &symbols, unsigned seed);

} // namespace lathe::test

#endif // LATHE_TEST_UNIT_CUDAKERNEL_H
