//===- Mode.h - how a test's inputs are known to the compiler ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_TOOLS_LATHECONFORMANCE_MODE_H
#define LATHE_TOOLS_LATHECONFORMANCE_MODE_H

#include "lathe/compiler/Compiler.h"
#include "lathe/import/TensorFile.h"

#include <optional>
#include <string>
#include <string_view>

namespace lathe::conformance {

enum class Mode {
  AsGiven,     ///< inputs as the test states them
  AllSymbolic, ///< no size of any input is known
  AllConstant, ///< every input is a constant
};

/// "as-given", "all-symbolic", "all-constant".
const char *toString(Mode mode);
std::optional<Mode> parseMode(std::string_view name);

/// The path of value `i` of data set `set` of the test in `folder`.
std::string inputFile(const std::string &folder, int set, size_t i);

/// In mode all-symbolic any sizes of all inputs that are tensors; in mode all-constant the number and the sizes of the tensors
/// that a sequence or an optional has in the first data set.
Status giveSizes(Mode mode, const std::string &folder, const ModelPorts &ports, CompileOptions &compile);

/// Mode all-symbolic: of inputs that are vectors of integers, as vectors of axes, shapes and pads are, the length is that
/// of the first data set. Returns their names in a line; empty where there is none.
Result<std::string> keepLengths(const std::string &folder, const ModelPorts &ports, CompileOptions &compile);

/// Mode all-constant: makes all inputs constants, those of data set `set`. Tensors of sequences and optionals are
/// written to `scratch` first, a folder that is there.
Status giveConstants(const std::string &folder, int set, const ModelPorts &ports, const std::string &scratch,
                     CompileOptions &compile);

} // namespace lathe::conformance

#endif // LATHE_TOOLS_LATHECONFORMANCE_MODE_H
