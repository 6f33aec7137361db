//===- Compilation.h - one model on its way through the phases --*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Owns a context and the module in it, and runs phases one at a time. Diagnostics
// become a Status: what kind of error it is follows from the phase and the message.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_COMPILER_COMPILATION_H
#define LATHE_COMPILER_COMPILATION_H

#include "lathe/compiler/Compiler.h"
#include "lathe/engine/EngineFile.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"

#include <map>
#include <memory>

namespace lathe {

class RemarkLog;
struct ImportOptions;

class Compilation {
public:
  /// Imports or parses the model and puts the options into the module.
  static Result<std::unique_ptr<Compilation>> open(const std::string &model,
                                                   const CompileOptions &options);
  ~Compilation();

  mlir::MLIRContext &context() { return *mlirContext; }
  mlir::ModuleOp module() { return *top; }
  /// The last phase that ran.
  Phase phase() const;

  /// Runs the phases after the present one up to `last`, Codegen at most.
  Status runTo(Phase last);
  /// The engine, after Codegen. Its weights are packed when it is written: this must live until then.
  Result<engine::EngineWriter> engine();

  /// The module as text that `open` reads back; names no path of this machine.
  std::string text();
  Status writeWeights(const std::string &path);
  /// Names of the main entry's inputs in order.
  std::vector<std::string> inputNames();
  /// After a failure in legalize: the inputs which, given as constants, might let it
  /// succeed.
  std::vector<std::string> neededConstants();
  const std::vector<std::string> &warnings() const { return warningTexts; }

private:
  explicit Compilation(const CompileOptions &options);
  Status parseText(const std::string &path);
  Result<ImportOptions> importOptions() const;
  Status setOptions();
  Status runOne(Phase phase);
  Status dump();

  CompileOptions options;
  std::unique_ptr<mlir::MLIRContext> mlirContext;
  std::shared_ptr<RemarkLog> remarks;
  mlir::OwningOpRef<mlir::ModuleOp> top;
  std::vector<std::string> warningTexts;
  bool fromText = false;
};

/// What a module of phase Codegen becomes: plans, images, weights, sources. The weights are packed
/// when it is written: the module's context must live until then. `files`: where the texts of
/// `--replace` were read, by kernel, for messages about them; a text whose file is not there is named
/// after its kernel.
Result<engine::EngineWriter> emitEngine(mlir::ModuleOp module,
                                        const std::map<std::string, std::string> &files = {});

} // namespace lathe

#endif // LATHE_COMPILER_COMPILATION_H
