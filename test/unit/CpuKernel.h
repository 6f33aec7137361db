//===- CpuKernel.h - compile and call one kernel in a test ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A kernel written as MLIR text goes through emitTile, LLVM, the linker and dlopen
// as it does in an engine, and is called through the kernel ABI.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_TEST_UNIT_CPUKERNEL_H
#define LATHE_TEST_UNIT_CPUKERNEL_H

#include "lathe/codegen/FunctionKernel.h"
#include "lathe/engine/KernelAbi.h"

#include "mlir/IR/MLIRContext.h"

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace lathe::test {

using Bytes = std::vector<std::byte>;

template <typename T> Bytes bytesOf(const std::vector<T> &values) {
  const auto *p = reinterpret_cast<const std::byte *>(values.data());
  return Bytes(p, p + values.size() * sizeof(T));
}
template <typename T> std::vector<T> valuesOf(const Bytes &bytes) {
  std::vector<T> out(bytes.size() / sizeof(T));
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<std::byte *>(out.data()));
  return out;
}

/// One compiled kernel; `error` says why there is none.
class CpuKernel {
public:
  /// The first function of `text`; `adjust` may change the spec (packing, scratch).
  CpuKernel(const std::string &text, const std::string &config, const std::string &target,
            const std::string &grid = "1",
            const std::function<void(KernelSpec &)> &adjust = {});
  ~CpuKernel();
  CpuKernel(const CpuKernel &) = delete;

  std::string error;
  KernelSpec spec;
  LatheStatusWord status = {0, 0};
  double seconds = 0; ///< of the fastest of `repeat` runs
  int repeat = 1;
  int members = 1; ///< threads that take each block together, where the launch lets them

  /// Outputs of the sizes that the symbols give; runs every block.
  std::vector<Bytes> run(const std::vector<Bytes> &inputs,
                         const std::map<std::string, int64_t> &symbols = {});

private:
  mlir::MLIRContext context;
  void *image = nullptr;
  LatheCpuKernel kernel = nullptr;
};

} // namespace lathe::test

#endif // LATHE_TEST_UNIT_CPUKERNEL_H
