//===- EmulatedKernels.h - generated CUDA text on the fake device -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kernels of a compilation's dump, compiled by the host compiler over the emulation
// header, run where the fake device is asked to launch them.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_TEST_UNIT_EMULATEDKERNELS_H
#define LATHE_TEST_UNIT_EMULATEDKERNELS_H

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace lathe::test {

class EmulatedKernels {
public:
  /// Compiles the device library alone, for several calls of build with these options; "" or why not.
  static std::string precompile(const std::filesystem::path &file, const std::string &options);
  /// Compiles what `dump` has for its one GPU target in `folder`; "" or why not. `options`: of the compiler, with
  /// LATHE_RACE_OPTIONS kernels that race go wrong; `precompiled`: what precompile made, or empty.
  std::string build(const std::filesystem::path &dump, const std::filesystem::path &folder,
                    const std::string &options = "-O1 " LATHE_RACE_OPTIONS, const std::filesystem::path &precompiled = {});
  /// Resets the fake device and gives it the kernels; "" or why not. `failed` hears of kernels that
  /// went wrong while they ran: name, message.
  std::string install(std::function<void(const std::string &, const std::string &)> failed) const;

private:
  std::filesystem::path image;
  std::vector<std::string> names;
};

} // namespace lathe::test

#endif // LATHE_TEST_UNIT_EMULATEDKERNELS_H
