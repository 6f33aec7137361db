//===- Python.h - what other programs in Python say -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_TOOLS_LATHE_PYTHON_H
#define LATHE_TOOLS_LATHE_PYTHON_H

#include "lathe/support/Status.h"

#include <string>
#include <vector>

namespace lathe::cli {

/// A folder that is removed with everything in it. Its path is empty where none can be made.
struct TemporaryFolder {
  std::string path;
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder &) = delete;
};

struct PythonRun {
  int code;         ///< how it ended
  std::string said; ///< on both channels
};

/// Runs a script with arguments by the Python of $VIRTUAL_ENV, of the `.venv` beside the build, or of the system.
/// Unsupported, located at `where`, without one; `needs`: a package that the message names.
Result<PythonRun> runPython(const char *script, const std::vector<std::string> &arguments, const TemporaryFolder &folder,
                            const std::string &where, const std::string &needs);

} // namespace lathe::cli

#endif // LATHE_TOOLS_LATHE_PYTHON_H
