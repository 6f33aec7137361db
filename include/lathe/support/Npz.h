//===- Npz.h - archives of numpy arrays -------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_SUPPORT_NPZ_H
#define LATHE_SUPPORT_NPZ_H

#include "lathe/support/HostTensor.h"

#include <map>
#include <string>
#include <string_view>

namespace lathe {

/// The arrays of a .npz file (a ZIP archive of .npy files, as numpy.savez writes it) by name. Usage error when it
/// cannot be read, Invalid when it is none or damaged, Unsupported for compressed ones.
Result<std::map<std::string, HostTensor>> readNpz(const std::string &path);
/// The same of a file's bytes; `path` is for errors.
Result<std::map<std::string, HostTensor>> parseNpz(std::string_view bytes, const std::string &path);

/// Such an archive, the same bytes for the same arrays. Unsupported for types that .npy has no names for, and beyond
/// 4 GB.
Result<std::string> formatNpz(const std::map<std::string, HostTensor> &arrays);

} // namespace lathe

#endif // LATHE_SUPPORT_NPZ_H
