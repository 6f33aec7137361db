//===- Legalize.h - onnx ops to lathe ops -----------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_PASSES_LEGALIZE_H
#define LATHE_PASSES_LEGALIZE_H

#include "lathe/support/Status.h"

#include "mlir/IR/BuiltinOps.h"

#include <string>
#include <vector>

namespace lathe {

/// One node that could not become lathe ops.
struct UnsupportedNode {
  std::string node, opType, domain;
  int64_t opset = 0;                 ///< that introduced the schema in force
  std::vector<std::string> operands; ///< types as lathe prints them, "absent", or "unknown"
  std::string cause;                 ///< op, attribute, dtype, shape, opset
  std::string message;               ///< what exactly
  std::string nearest;               ///< closest form that is supported; may be empty
  std::string remedy;                ///< what its user can do; may be empty
  /// Inputs of the model whose values, given as constants when importing
  /// (ImportOptions::constants), would let this node be legalized.
  std::vector<std::string> needs;
  bool invalid = false; ///< the model is wrong, not merely unsupported
};

struct LegalizeReport {
  std::vector<UnsupportedNode> nodes; ///< in graph order
  /// Ok, Invalid when some node is wrong, else Unsupported.
  ErrorCode code() const;
  /// A JSON array of objects with the fields above.
  std::string json() const;
};

/// Operators of torch that legalize has a handler for: "abs\nadd\n...max.dim\n", by name or
/// overload, sorted.
const std::string &atenOperators();

/// Turns every `onnx.*` and `aten.*` op of the module's functions into `lathe.*`. On failure
/// all nodes that resist are in `report`, a located diagnostic for each has
/// been emitted, and the module has the attributes `lathe.unsupported` (the
/// JSON) and `lathe.error` (LegalizeReport::code() by name).
mlir::LogicalResult legalize(mlir::ModuleOp module, LegalizeReport &report);

/// What `lathe.error` says of a module that could not be legalized; Unsupported where no pass left it.
ErrorCode legalizeError(mlir::ModuleOp module);

} // namespace lathe

#endif // LATHE_PASSES_LEGALIZE_H
