//===- Import.h - from an ONNX file to the onnx dialect ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads .onnx (protobuf) and ONNX text, checks, converts to opset 28, inlines
// local functions, and gives a module with one entry `func.func @main`. Errors
// of the file are a Status of code Invalid that names the place.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_IMPORT_IMPORT_H
#define LATHE_IMPORT_IMPORT_H

#include "lathe/import/Graph.h"
#include "lathe/support/HostTensor.h"
#include "lathe/support/Status.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lathe {

/// The opset that models are converted to.
constexpr int64_t kImportOpset = 28;

/// Bounds of a symbol: least, usual and greatest size; a `max` of -1 is none.
struct DimBound {
  int64_t min = 0;
  int64_t opt = 1;
  int64_t max = -1;
};

struct ImportOptions {
  /// By symbol ("B") or by place ("x[0]").
  std::map<std::string, DimBound> dims;
  /// Sizes of an input, all of its dimensions; -1 is any size, also where the model states one.
  std::map<std::string, std::vector<int64_t>> shapes;
  /// How many tensors an input has that is a sequence; none: an optional without a value. The input
  /// x of three tensors becomes the inputs x[0], x[1] and x[2], an optional with a value (which
  /// `shapes` gives sizes) that value, one without it no input. What is not in here has any number of tensors, which a run
  /// gives: the inputs x[] and x[].shapes (lathe/support/TensorList.h).
  std::map<std::string, std::optional<int64_t>> lengths;
  /// Inputs that become constants, by name: sizes, axes or pads that a model takes
  /// as operands although lathe needs them when it compiles. They are no inputs
  /// of the entry any more.
  std::map<std::string, HostTensor> constants;
  /// Files above this size are refused.
  uint64_t maxFileBytes = uint64_t(1) << 40;
  /// Makes external weights whose file is not there from this seed (support/RandomWeights.h), with
  /// a warning; without it they are an error.
  std::optional<uint64_t> randomWeights;
  /// Whether to convert to kImportOpset first.
  bool convert = true;
};

/// Parses "NAME=LO:OPT:HI" (or NAME=N, NAME=LO:HI; HI may be empty or * for none)
/// into `options.dims`.
Status parseDimOption(llvm::StringRef text, ImportOptions &options);
/// Parses "INPUT=1x3x224x224" (or "?x3x?x?") into `options.shapes`, "INPUT=[3]" (a sequence of three tensors) and
/// "INPUT=none" (an optional without a value) into `options.lengths`.
Status parseShapeOption(llvm::StringRef text, ImportOptions &options);

/// The model as a module: `lathe.symbol` ops and `func.func @main` (attribute
/// `lathe.entry`; arguments and results carry `lathe.name`) of `onnx.*` ops.
/// Weights stay in the mapped file, held by the context's WeightStore. Loads
/// the dialects that it needs.
Result<mlir::OwningOpRef<mlir::ModuleOp>>
importOnnx(mlir::MLIRContext &context, llvm::StringRef path, const ImportOptions &options);

/// A graph of torch's operators as a module of the same form: `aten.*` ops, and the weights as
/// constants, which are not copied. Text that does not parse and weights that do not fit are
/// Invalid errors.
Result<mlir::OwningOpRef<mlir::ModuleOp>>
importGraph(mlir::MLIRContext &context, const GraphText &graph, const ImportOptions &options);

/// Applies bounds and shapes to the symbols of an imported module, for input
/// that is MLIR text already. Names that fit no symbol or input are Usage errors.
Status bindDims(mlir::ModuleOp module, const ImportOptions &options);

/// Inserts the nodes of the ONNX function body of `op` (an `onnx.*` op whose
/// operands have the ranked `operandTypes`, null where absent) at the builder's
/// place and gives, for each result of `op`, the value that replaces it. None
/// when the schema has no body for these types. Legalize expands by this what it
/// does not lower itself.
Result<std::optional<std::vector<mlir::Value>>>
expandFunctionBody(mlir::Operation *op, llvm::ArrayRef<mlir::Type> operandTypes,
                   mlir::OpBuilder &builder);

/// The opset that a module imports of a domain ("" is ai.onnx): attributes `onnx.opset` and
/// `onnx.domain_opsets`. kImportOpset where it does not say, as text written by hand may not.
int64_t onnxOpset(mlir::ModuleOp module, llvm::StringRef domain);
/// The opset that a node means: its own (`onnx_opset`), or the module's of its domain.
int64_t onnxOpset(mlir::Operation *op, mlir::ModuleOp module);

/// The version that introduced the schema in force at `opset`; none for ops that
/// ONNX does not know.
std::optional<int64_t> onnxSchemaVersion(llvm::StringRef opType, llvm::StringRef domain,
                                         int64_t opset);

/// Registers `lathe-translate --import-onnx [--dim=…] [--shape=…]`.
void registerImportTranslation();

} // namespace lathe

#endif // LATHE_IMPORT_IMPORT_H
