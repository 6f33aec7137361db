//===- Lock.h - choices that were measured ----------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The file that `lathe tune` writes and `lathe compile --lock` reads: which
// configuration was the fastest for each kernel of one model on one device, a GPU or a CPU.
// The same file gives the same engine everywhere. `lathe quantize --budget` keeps times of kernels there, of the model
// and of its quantized forms, by which it chooses; an engine does not depend on them.
//
//   lathe-lock 1
//   target sm_90a
//   device NVIDIA H200
//   model 9f86d0...
//   kernel matmul_0 gemm.split.t160.r16.m64.n64.k64.s12.c2 10.96 us, instead of gemm.pingpong... 11.56 us
//   time matmul_add:gemm.v8.m1.n16.k1:4096:20480:1 3.141 us
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_COMPILER_LOCK_H
#define LATHE_COMPILER_LOCK_H

#include "lathe/compiler/Compiler.h"

#include <map>

namespace lathe {

struct LockedKernel {
  std::string name, config;   ///< config: what it shall run as
  double microseconds = 0;
  std::string otherwise;      ///< what select chooses by itself
  double otherwiseMicroseconds = 0;
};

struct Lock {
  std::string target, device;
  std::string model; ///< lockKey of what was tuned
  std::vector<LockedKernel> kernels;
  /// Microseconds that a kernel's calls take in a run, by what the kernel is: a word.
  std::map<std::string, double> times;

  std::string str() const;
  /// Format errors name the line. `where` is the file.
  static Result<Lock> parse(std::string_view text, const std::string &where);
};

/// Changes with the model's file, with the symbols, sizes and entries that it is compiled for, and with
/// what may be less exact.
Result<std::string> lockKey(const std::string &model, const CompileOptions &options);

/// Adds the configurations of `options.lock`, if there is one, to `options.configs`; those given
/// by hand come first. Usage error when the file was made for another model or target.
Status applyLock(const std::string &model, CompileOptions &options);

} // namespace lathe

#endif // LATHE_COMPILER_LOCK_H
