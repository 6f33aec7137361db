//===- Npz.h - archives of numpy arrays -------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_TOOLS_LATHE_NPZ_H
#define LATHE_TOOLS_LATHE_NPZ_H

#include "lathe/support/HostTensor.h"

#include <map>
#include <string>

namespace lathe::cli {

/// The arrays of a .npz file (a ZIP archive of .npy files, as numpy.savez writes it) by name. Usage error when it
/// cannot be read, Invalid when it is none or damaged, Unsupported for compressed ones.
Result<std::map<std::string, HostTensor>> readNpz(const std::string &path);

} // namespace lathe::cli

#endif // LATHE_TOOLS_LATHE_NPZ_H
