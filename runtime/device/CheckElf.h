//===- CheckElf.h - what a kernel image may hold ----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_RUNTIME_DEVICE_CHECKELF_H
#define LATHE_RUNTIME_DEVICE_CHECKELF_H

#include "lathe/support/Status.h"

#include <string_view>

namespace lathe::runtime {

/// Whether these bytes are an ELF64 shared object for this machine that the system's loader can be
/// given: it needs no other library, and loading it runs none of its code and writes nowhere but into
/// itself. What the compiler's linker makes passes; all else is Invalid, and an image for another
/// kind of CPU Unsupported. The kernels themselves are a program, about which this says nothing.
Status checkElf(std::string_view bytes);

} // namespace lathe::runtime

#endif // LATHE_RUNTIME_DEVICE_CHECKELF_H
