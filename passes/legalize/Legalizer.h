//===- Legalizer.h - the walk over a function -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_PASSES_LEGALIZE_LEGALIZER_H
#define LATHE_PASSES_LEGALIZE_LEGALIZER_H

#include "Node.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace lathe::legal {

/// Legalizes one function: lathe ops are made beside the onnx ops, which are
/// erased in the end. Nothing is erased when a node failed.
class Legalizer {
public:
  Legalizer(mlir::ModuleOp module, mlir::func::FuncOp func, LegalizeReport &report);
  mlir::LogicalResult run();

  Tracked &track(mlir::Value value);
  /// The value as data; materialises host values once.
  mlir::Value data(mlir::Value value);
  std::optional<HostValue> host(mlir::Value value);

  // RunTimeValues.cpp
  /// host(), or symbols that the elements of integer inputs are bound to when a run begins: a
  /// least element, if it is demanded, is checked then. None for what is computed on a device.
  std::optional<HostValue> bindHost(mlir::Value value, std::optional<int64_t> least);
  /// A name for a formula; its bounds are checked when a run begins. A constant, and a size
  /// within the bounds that has a name, stay as they are.
  DimExpr derive(llvm::StringRef hint, const DimExpr &formula, DimRange bounds);
  /// Whether elements are in it, so that it may be negative and mean something else then.
  bool isRunTimeValue(const DimExpr &dim);

  bool unify(const DimExpr &a, const DimExpr &b);
  int64_t opsetOf(mlir::Operation *op) const;
  UnsupportedNode &report(Node &node, llvm::StringRef cause, std::string message,
                          std::string nearest, std::string remedy, bool invalid);
  /// Adds the names of the entry's inputs that the value is computed from.
  void inputsBehind(mlir::Value value, std::vector<std::string> &names);

  Emitter e;

private:
  void process(mlir::Operation *op);
  bool expand(Node &node);
  // ControlFlow.cpp
  std::optional<std::vector<Tracked>> inlineBody(Node &node, mlir::Region &body,
                                                 llvm::ArrayRef<Tracked> arguments);
  std::optional<HostValue> bindInput(mlir::BlockArgument input);
  SymbolOp declare(llvm::StringRef hint, int64_t min, int64_t max, int64_t opt,
                   llvm::StringRef origin, DimAttr value);
  bool inlineIf(Node &node);
  std::optional<DimExpr> conditionAsSize(Node &node);
  bool chooseBranch(Node &node, mlir::ArrayAttr names);
  bool unrollLoop(Node &node);
  // Loops.cpp
  bool runLoop(Node &node);
  mlir::Value dataOf(Tracked &tracked);
  bool unrollScan(Node &node);
  bool finishScans(Node &node, unsigned first, std::vector<std::vector<mlir::Value>> &scans);
  void applyStated(mlir::Operation *op);
  void keepBounds(SymbolOp symbol, const DimExpr &by);
  bool substitute(const std::string &symbol, const DimExpr &by);
  void finish();

  mlir::ModuleOp module;
  mlir::func::FuncOp func;
  LegalizeReport &found;
  llvm::DenseMap<mlir::Value, Tracked> values;
  int64_t moduleOpset;
  std::map<std::string, DimExpr> derived; ///< by formula and bounds
  int chain = 0;     ///< ops that bindHost is inside of
  int depth = 0;     ///< of function bodies inside each other
  std::string outer; ///< op whose body is being processed, for reports
};

} // namespace lathe::legal

#endif // LATHE_PASSES_LEGALIZE_LEGALIZER_H
