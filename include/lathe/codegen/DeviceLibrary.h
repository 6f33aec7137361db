//===- DeviceLibrary.h - the text every CUDA kernel starts with -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The device library (codegen/device/*.cuh), embedded in the compiler. A kernel
// is a prelude of the modules it needs and then its own text; nothing is
// included from files, so a dumped kernel compiles by itself.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_CODEGEN_DEVICELIBRARY_H
#define LATHE_CODEGEN_DEVICELIBRARY_H

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace lathe {

/// The text of one module ("base", "gemm", ...), or "" when there is none.
std::string_view deviceModule(std::string_view name);
/// All module names in the order in which they depend on each other.
std::vector<std::string_view> deviceModules();
/// The modules and everything that they need, each once, in order.
std::string devicePrelude(const std::vector<std::string_view> &modules);

} // namespace lathe

#endif // LATHE_CODEGEN_DEVICELIBRARY_H
