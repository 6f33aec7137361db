//===- Diagnostics.h - MLIR's messages as a Status --------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_COMPILER_DIAGNOSTICS_H
#define LATHE_COMPILER_DIAGNOSTICS_H

#include "lathe/support/Status.h"

#include "mlir/IR/Diagnostics.h"

#include <mutex>
#include <string>
#include <vector>

namespace lathe {

/// A location for people: the ONNX nodes in it, else file and line, else "".
std::string describe(mlir::Location loc);

/// Collects the errors and warnings of a context while it lives.
class DiagnosticLog {
public:
  explicit DiagnosticLog(mlir::MLIRContext *context);

  /// All errors so far as one Status. A message may name its kind ("usage: ",
  /// "invalid: ", "unsupported: "), otherwise it is `code`; without any error it is
  /// an internal one, since a failure must say why.
  Status status(ErrorCode code, const std::string &what) const;
  /// "node Conv_3: text", in order.
  const std::vector<std::string> &warnings() const { return warningTexts; }

private:
  struct Entry {
    std::string text, place;
  };
  mutable std::mutex mutex;
  std::vector<Entry> errors;
  std::vector<std::string> warningTexts;
  mlir::ScopedDiagnosticHandler handler;
};

} // namespace lathe

#endif // LATHE_COMPILER_DIAGNOSTICS_H
