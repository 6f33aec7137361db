//===- Lathe.h - the lathe dialect ------------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Dialect, attributes and ops, and the helpers that everyone who reads or
// makes tensor types uses. Types are made by `tensorType` alone, so that a
// size that is constant is static and an encoding is there exactly when a
// dimension is dynamic or the layout is not the dense one.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_IR_LATHE_H
#define LATHE_IR_LATHE_H

#include "lathe/ir/KernelRoles.h"
#include "lathe/ir/OperandAccess.h"
#include "lathe/support/DType.h"
#include "lathe/support/DimExpr.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/Dialect/Utils/StructuredOpsUtils.h"
#include "mlir/IR/AffineMap.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace lathe {

/// What an op is to fusion; see StructuredOpInterface.
enum class OpClass {
  Pointwise,   ///< one result element from one element of each operand
  Movement,    ///< a result element is one operand element, index by formula
  Gather,      ///< a result element is one operand element, index from data
  Pairwise,    ///< a result element from a few elements of an operand's row, indices by formula
  Reduction,   ///< associative reduction over whole dimensions
  Window,      ///< reduction over small windows (pooling)
  Gemm,
  Conv,
  Attention,
  Scan,
  Scatter,     ///< writes where data says; order matters
  Source,      ///< constants, iota, sizes
  Composite,   ///< is expanded into others before fusion (softmax, norms)
};

/// Defaults behind StructuredOpInterface: one operation per result element;
/// every operand and result once.
DimExpr defaultFlops(mlir::Operation *op);
DimExpr defaultBytes(mlir::Operation *op);

/// StructuredOpInterface of pointwise ops: the result's dimensions in order,
/// and maps that send dimensions of size 1 to index 0.
llvm::SmallVector<mlir::utils::IteratorType> parallelIterators(mlir::Operation *op);
llvm::SmallVector<mlir::AffineMap> broadcastMaps(mlir::Operation *op);

/// Type inference shared by ops: broadcast of all operands with the element
/// type of the first.
mlir::LogicalResult inferBroadcast(std::optional<mlir::Location> loc, mlir::ValueRange operands,
                                   bool sameElement, llvm::SmallVectorImpl<mlir::Type> &types);
/// Equal element types and sizes; layouts may differ, and sizes of text
/// without expressions are not compared.
bool compatibleTypes(mlir::TypeRange a, mlir::TypeRange b);

} // namespace lathe

#include "lathe/ir/LatheDialect.h.inc"
#include "lathe/ir/LatheEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "lathe/ir/LatheAttributes.h.inc"

#include "lathe/ir/StructuredOpInterface.h.inc"

namespace lathe {
class YieldOp;
}

#define GET_OP_CLASSES
#include "lathe/ir/LatheElementwiseOps.h.inc"
#define GET_OP_CLASSES
#include "lathe/ir/LatheMovementOps.h.inc"
#define GET_OP_CLASSES
#include "lathe/ir/LatheContractionOps.h.inc"
#define GET_OP_CLASSES
#include "lathe/ir/LatheQuantizeOps.h.inc"
#define GET_OP_CLASSES
#include "lathe/ir/LatheAttentionOps.h.inc"
#define GET_OP_CLASSES
#include "lathe/ir/LatheStructureOps.h.inc"

namespace lathe {

using TensorType = mlir::RankedTensorType;

/// The type with these sizes: static where constant, encoded where needed.
TensorType tensorType(mlir::Type element, llvm::ArrayRef<DimExpr> dims,
                      mlir::Attribute layout = {});
TensorType tensorType(mlir::Type element, llvm::ArrayRef<int64_t> dims);
/// Sizes of a graph-level tensor. A dynamic dimension without an encoding (in
/// text that someone wrote by hand) gives the symbol "_".
std::vector<DimExpr> dimsOf(mlir::Type type);
inline std::vector<DimExpr> dimsOf(mlir::Value value) { return dimsOf(value.getType()); }
DimExpr dimOf(mlir::Value value, int64_t dim);
/// Sizes of the memory behind the tensor (equal to dimsOf without a layout).
std::vector<DimExpr> physicalDimsOf(mlir::Type type);
mlir::Type elementTypeOf(mlir::Value value);
DimExpr numElements(mlir::Type type);
/// The same sizes and layout with another element type.
TensorType withElementType(mlir::Type type, mlir::Type element);

/// Broadcast of two or more shapes as numpy does; none when sizes are known
/// to disagree. Unrelated symbolic sizes become bcast(a, b).
std::optional<std::vector<DimExpr>> broadcastDims(llvm::ArrayRef<std::vector<DimExpr>> shapes);

/// Element type <-> DType. Types that lathe cannot store give none / null.
std::optional<DType> dtypeOf(mlir::Type element);
mlir::Type typeOf(mlir::MLIRContext *context, DType dtype);

/// Replaces symbols in every type and attribute below `root` (entries made by
/// binding dimensions), including the static sizes that follow.
void substituteSymbols(mlir::Operation *root, const std::map<std::string, DimExpr> &by);

/// Names of ONNX nodes in a location, outermost first (fused locations).
llvm::SmallVector<llvm::StringRef> nodeNames(mlir::Location loc);

} // namespace lathe

#endif // LATHE_IR_LATHE_H
