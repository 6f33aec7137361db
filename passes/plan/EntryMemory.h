//===- EntryMemory.h - where the values of an entry lie ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_PASSES_PLAN_ENTRYMEMORY_H
#define LATHE_PASSES_PLAN_ENTRYMEMORY_H

#include "ProgramBuilder.h"

#include "llvm/ADT/StringMap.h"

namespace lathe::plan {

/// The `exec.buffer` of each value: inputs and outputs in the caller's memory, states where they live,
/// views in that of their operand, results that an operand, an output or a state has room for there,
/// and all others in the arena.
class EntryMemory {
public:
  /// `builder` stands where buffers are declared, ahead of all steps.
  EntryMemory(mlir::func::FuncOp func, mlir::OpBuilder &builder, bool cuda)
      : func(func), builder(builder), cuda(cuda) {}

  /// Inputs, states and outputs, and what `updates` says of them.
  void declare();
  /// A buffer of this kind; a view is `offset` bytes behind the beginning of `base`.
  mlir::Value buffer(mlir::Location loc, mlir::Type type, llvm::StringRef name, exec::BufferKind kind,
                     int64_t index, mlir::Value base = {}, DimExpr offset = 0);
  /// Lines of the host's own memory, for a condition, a number of trips or sizes.
  mlir::Value hostLine(mlir::Value value);
  /// Memory of a kernel's result: the state it is appended to, an output, an operand's that dies, or
  /// the arena.
  mlir::Value resultBuffer(mlir::OpResult result);
  /// Memory of a parameter as it lies; null where every kernel reads it packed.
  mlir::Value parameter(ConstantOp constant);
  /// Makes `memory` of a kernel's input what its variants read: the weight, or a packed copy of it.
  mlir::LogicalResult pack(KernelOp kernel, size_t i, const std::string &packing, mlir::Value &memory);
  StateOp stateOf(llvm::StringRef name);

  /// The name of the ONNX node that makes a value; empty where there is none.
  static std::string nameOf(mlir::Value value);
  /// Bytes before a view in the memory of its operand.
  static DimExpr startOf(mlir::Operation *view);
  /// The buffer that a view from its beginning is of.
  static mlir::Value placeOf(mlir::Value memory);

  llvm::SmallVector<StateOp> states; ///< that the entry uses
  Updates updates;
  llvm::DenseMap<mlir::Value, mlir::Value> inPlace;    ///< result: the value whose memory it takes
  llvm::DenseMap<mlir::Value, mlir::Value> buffers;    ///< of each value that has memory
  llvm::DenseMap<mlir::Value, mlir::Value> hostInputs; ///< inputs on the host that kernels read a copy of
  llvm::StringMap<mlir::Value> stateBuffers;
  /// Outputs that no kernel writes itself, and what is copied into them at the end.
  llvm::SmallVector<std::pair<mlir::Value, mlir::Value>> copies;
  /// States that no kernel may overwrite itself, and what is copied into them behind all that.
  llvm::SmallVector<std::pair<mlir::Value, mlir::Value>> overwrites;

private:
  void declareInputs();
  void declareOutputs();
  void placeOnHost(mlir::BlockArgument argument);
  mlir::Value sliceOf(KernelOp whole, mlir::OpResult input);

  mlir::func::FuncOp func;
  mlir::OpBuilder &builder;
  bool cuda;
  int64_t hostLines = 0;
  std::map<std::pair<mlir::Operation *, std::string>, mlir::Value> packedWeights;
  /// Inputs that are parameters: of a packed one, its constant and the recipe; else its name and null.
  llvm::DenseMap<std::pair<mlir::Attribute, mlir::Attribute>, mlir::Value> parameters;
};

} // namespace lathe::plan

#endif // LATHE_PASSES_PLAN_ENTRYMEMORY_H
