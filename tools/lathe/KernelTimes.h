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

  /// Measures the kernels of the engine that quantized forms are compared with, and what a run takes beside kernels.
  Status measureBase(const OpenEngine &base, const std::vector<HostTensor> &inputs);
  /// Measures an engine whose kernels many others have: what is not known yet, and how what is beside kernels grows with
  /// their number. Ahead of all secondsOf(), so that these agree.
  Status learn(const OpenEngine &engine, const std::vector<HostTensor> &inputs);
  /// Seconds of a run. Kernels that are not known yet are measured, in turn with the base, by whose kernels the
  /// present speed of the machine is judged.
  Result<double> secondsOf(const OpenEngine &engine, const std::vector<HostTensor> &inputs);

private:
  /// Runs engine and base in turn; kernels that are not known become so. `left`: seconds beside kernels.
  Status measure(const OpenEngine &engine, const std::vector<HostTensor> &inputs, std::vector<KernelTime> &kernels, double &left);

  const OpenEngine *base = nullptr;
  std::map<std::string, double> times; ///< seconds
  double launches = 0, beside = 0;     ///< of the base: kernels of a run, seconds beside them
  double perLaunch = 0;                ///< seconds beside kernels, of each launch that an engine has more
  double products = 0, squares = 0;    ///< of differences from the base, whose quotient is perLaunch
};

} // namespace lathe::cli

#endif // LATHE_TOOLS_LATHE_KERNELTIMES_H
