//===- Npy.h - .npy files ---------------------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads and writes NumPy's array files, versions 1 to 3. NumPy has no names for
// the narrow types; lathe follows what numpy.save does with ml_dtypes:
//   bf16 is '<V2', the 8-bit floats and all 4- and 2-bit types are '<V1', one byte
//   an element. (For f8E5M2 ml_dtypes writes '<f1', which numpy.load refuses; it is
//   read, but written as '<V1'.)
// Reading '<V1' therefore needs to be told the type. Strings are '<U8', 4 bytes a character and as many
// characters as the longest has; 'S8', bytes that must be UTF-8, is read too. Either ends at its last
// character that is not 0.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_SUPPORT_NPY_H
#define LATHE_SUPPORT_NPY_H

#include "lathe/support/HostTensor.h"

#include <optional>
#include <string>
#include <string_view>

namespace lathe {

/// Parses a whole .npy file. `as`: the expected type; decides what '<V1' and
/// '<V2' mean, and any other type in the file is an error. Big-endian and
/// Fortran-order files are converted. Errors are Invalid at `name`.
Result<HostTensor> parseNpy(std::string_view file, std::optional<DType> as = std::nullopt,
                            const std::string &name = "npy");
Result<HostTensor> readNpy(const std::string &path, std::optional<DType> as = std::nullopt);

/// The file, version 1 (2 when the header needs it), data aligned to 64 bytes.
Result<std::string> formatNpy(const HostTensor &tensor);
Status writeNpy(const std::string &path, const HostTensor &tensor);

} // namespace lathe

#endif // LATHE_SUPPORT_NPY_H
