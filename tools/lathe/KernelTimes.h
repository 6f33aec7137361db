//===- KernelTimes.h - times of kernels that engines share ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Engines of a model and of its quantized forms have most kernels in common. Each kernel is measured once, and an engine
// takes as long as its kernels together: so two engines differ by what they do differently, not by the noise of all else.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_TOOLS_LATHE_KERNELTIMES_H
#define LATHE_TOOLS_LATHE_KERNELTIMES_H

#include "Profile.h"

#include <map>
#include <string>

namespace lathe::cli {

class KernelTimes {
public:
  /// Those of a lockfile, if there is one; empty: none. Errors of Lock::parse; Usage where it is of another model, target or
  /// device (`device`: as it is to be called there).
  static Result<KernelTimes> read(const std::string &file, const std::string &key, const std::string &target,
                                  const std::string &device);
  /// Adds them to the lockfile, which keeps what else it says.
  Status write(const std::string &file, const std::string &key, const std::string &target, const std::string &device) const;

  /// Measures the kernels of the engine that quantized forms are compared with, and what a launch takes beside its kernel.
  Status measureBase(const OpenEngine &base, const std::vector<HostTensor> &inputs);
  /// Seconds of a run. Kernels that are not known yet are measured, in turn with the base, by whose kernels the
  /// present speed of the machine is judged.
  Result<double> secondsOf(const OpenEngine &engine, const std::vector<HostTensor> &inputs);

private:
  const OpenEngine *base = nullptr;
  std::map<std::string, double> times; ///< seconds
  double launch = 0;                   ///< seconds
};

} // namespace lathe::cli

#endif // LATHE_TOOLS_LATHE_KERNELTIMES_H
