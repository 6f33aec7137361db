//===- Remarks.h - what was done, and what was not and why ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Passes report with mlir::remark in the category "lathe". `--remarks=FILE` makes
// of them a JSON list, in the order in which they were made:
//   {"kind": "missed", "name": "fuse", "phase": "fuse", "nodes": ["Add_3"],
//    "location": "...", "message": "...", "values": {"bytes": "4096"}}
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_COMPILER_REMARKS_H
#define LATHE_COMPILER_REMARKS_H

#include "lathe/compiler/Phase.h"

#include "mlir/IR/MLIRContext.h"
#include "llvm/Support/JSON.h"

#include <memory>
#include <mutex>
#include <string>

namespace lathe {

/// The remarks of one compilation. Thread-safe.
class RemarkLog {
public:
  /// Makes the context report to a new log.
  static std::shared_ptr<RemarkLog> attach(mlir::MLIRContext &context);

  void setPhase(Phase phase);
  void add(llvm::json::Object remark);
  /// The whole list as JSON text.
  std::string json() const;

private:
  mutable std::mutex mutex;
  Phase phase = Phase::Import;
  llvm::json::Array list;
};

} // namespace lathe

#endif // LATHE_COMPILER_REMARKS_H
