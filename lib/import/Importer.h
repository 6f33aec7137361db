//===- Importer.h - plain structs to onnx ops -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_IMPORT_IMPORTER_H
#define LATHE_IMPORT_IMPORTER_H

#include "OnnxModel.h"

#include "lathe/ir/WeightStore.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/StringMap.h"

namespace lathe {

/// Values by ONNX name; names of an outer graph are visible inside.
struct ImportScope {
  const ImportScope *parent = nullptr;
  llvm::StringMap<mlir::Value> values;
  llvm::StringMap<mlir::Type> types; ///< inferred types
  mlir::Value lookup(llvm::StringRef name) const;
};

/// Builds ops at `builder`'s place. Errors name the node.
class Importer {
public:
  Importer(mlir::OpBuilder &builder, WeightStore &weights) : b(builder), weights(weights) {}

  Status nodes(const std::vector<onnxmodel::Node> &nodes, ImportScope &scope);
  /// `lathe.constant`, or `onnx.Constant` for elements lathe cannot store.
  mlir::Value constant(const onnxmodel::Tensor &tensor, mlir::Location loc);
  /// Fills scope.types from a graph's value infos.
  void declareTypes(const onnxmodel::Graph &graph, ImportScope &scope);
  mlir::Location nameLoc(llvm::StringRef name);
  /// When set, all ops get this location (bodies of functions).
  std::optional<mlir::Location> fixedLoc;
  /// The opset of the module; nodes of another one carry `onnx_opset`.
  int64_t opset = 0;

private:
  Status node(const onnxmodel::Node &node, size_t index, ImportScope &scope);
  Status region(const onnxmodel::Graph &graph, mlir::Region &region, const ImportScope &outer);
  mlir::Attribute attribute(const onnxmodel::NodeAttr &attr);
  mlir::Attribute tensorAttribute(const onnxmodel::Tensor &tensor);
  mlir::Value noValue();

  mlir::OpBuilder &b;
  WeightStore &weights;
};

/// The element type of a tensor; null for what is none.
mlir::Type elementType(mlir::MLIRContext *context, const onnxmodel::ValueInfo &info);
/// The type that is used where nothing is known.
mlir::Type unknownTensor(mlir::MLIRContext *context);

} // namespace lathe

#endif // LATHE_IMPORT_IMPORTER_H
