//===- Nvtx.h - ranges on the timeline of a profiler ------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// NVTX, as Nsight and others listen to it: they name a library in NVTX_INJECTION64_PATH, which puts its
// functions into a table that we offer. The interface is that of NVTX 3 (nvtxDetail/nvtxTypes.h), of which
// two functions are enough here.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_RUNTIME_EXEC_NVTX_H
#define LATHE_RUNTIME_EXEC_NVTX_H

#include <string>

namespace lathe::runtime {

/// A range of this thread while it lives; none without a name or a tool.
class NvtxRange {
public:
  explicit NvtxRange(const std::string &name);
  ~NvtxRange() {
    if (pop)
      pop();
  }
  NvtxRange(const NvtxRange &) = delete;
  NvtxRange &operator=(const NvtxRange &) = delete;

private:
  int (*pop)();
};

} // namespace lathe::runtime

#endif // LATHE_RUNTIME_EXEC_NVTX_H
