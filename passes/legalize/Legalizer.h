//===- Legalizer.h - the walk over a function -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_PASSES_LEGALIZE_LEGALIZER_H
#define LATHE_PASSES_LEGALIZE_LEGALIZER_H

#include "Node.h"

#include "lathe/ir/Loops.h"

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
  /// The value as data, which is null for what is no tensor.
  mlir::Value dataOf(Tracked &tracked);

  // RunTimeValues.cpp
  /// host(), or symbols that the elements of integer inputs are bound to when a run begins: a
  /// least element, if it is demanded, is checked then. None for what is computed on a device.
  /// `computed`: in the middle of the run too.
  std::optional<HostValue> bindHost(mlir::Value value, std::optional<int64_t> least,
                                    bool computed = false);
  std::optional<HostValue> bindComputed(mlir::Value value);
  /// A name for a formula; its bounds are checked when a run begins. A constant, and a size
  /// within the bounds that has a name, stay as they are.
  DimExpr derive(llvm::StringRef hint, const DimExpr &formula, DimRange bounds);
  /// A symbol that gets the value of a computed i64 without dimensions, which is at most `most`, in
  /// the middle of the run.
  DimExpr sizeOf(mlir::Value count, llvm::StringRef hint, const std::optional<DimExpr> &most);
  /// Symbols that get the values of computed sizes, an i64 [rank], in the middle of the run.
  Dims sizesOf(mlir::Value sizes, llvm::StringRef hint);
  /// Whether what is being processed is in a branch that only some runs take.
  bool isConditional() const { return !branches.empty(); }
  /// Whether elements are in it, so that it may be negative and mean something else then.
  bool isRunTimeValue(const DimExpr &dim);

  bool unify(const DimExpr &a, const DimExpr &b);
  int64_t opsetOf(mlir::Operation *op);
  UnsupportedNode &report(Node &node, llvm::StringRef cause, std::string message,
                          std::string nearest, std::string remedy, bool invalid);
  /// What an input of the entry is that is no tensor of numbers: "sequence", "optional" and so on.
  llvm::StringRef inputKind(mlir::Value value);
  /// Adds the names of the entry's inputs that the value is computed from.
  void inputsBehind(mlir::Value value, std::vector<std::string> &names);

  /// An onnx op of these operands (null: absent), legalized at once in place of `node`; null for
  /// results that failed, which is then reported as the node's failure.
  std::vector<mlir::Value> compose(Node &node, llvm::StringRef type,
                                   llvm::ArrayRef<mlir::Value> operands,
                                   llvm::ArrayRef<mlir::NamedAttribute> attributes,
                                   unsigned results);

  Emitter e;

  // Random.cpp
  /// The context's seed and the number of the run, ui64 without dimensions: an input of the entry that its
  /// callers do not see, made where it is first asked for.
  struct Draws {
    mlir::Value seed, run;
  };
  Draws draws();
  /// A number for a node that draws.
  uint64_t newStream() { return nextStream++; }

  // ControlFlow.cpp
  /// `yields`, if given, becomes the values whose results these are.
  std::optional<std::vector<Tracked>> inlineBody(Node &node, mlir::Region &body, llvm::ArrayRef<Tracked> arguments,
                                                 llvm::SmallVectorImpl<mlir::Value> *yields = nullptr);

  // Loops.cpp
  /// The end of a loop of `trips` iterations, of which each gives a row for each of `rows`, `count` rows in all; null
  /// where one is no tensor. `condition` of the first iteration and `again` of the next may be null.
  LoopEndOp endLoop(LoopBeginOp begin, mlir::Value trips, mlir::Value condition, mlir::Value again,
                    llvm::ArrayRef<mlir::Value> nexts, llvm::MutableArrayRef<Tracked> rows,
                    const std::optional<DimExpr> &count);

  // Strings.cpp
  /// The number of a constant string.
  int64_t stringNumber(llvm::StringRef text);
  /// Whether it is a tensor of strings, or a sequence of such.
  bool isString(mlir::Value value);
  llvm::DenseSet<mlir::Value> stringValues; ///< numbers that stand for strings
  /// Whether a target is a GPU, for which there are no ops of the host.
  bool forGpu() const;

private:
  void process(mlir::Operation *op);
  /// What every op gets that has been legalized.
  void settle(const Node &node);
  /// Gives a name to sizes whose formulas would double from node to node, as those of a row of pools do.
  void nameLongSizes(const Node &node); // RunTimeValues.cpp
  // Strings.cpp
  void takeStringInputs();
  bool checkStrings(Node &node);
  void markStrings(Tracked &tracked);
  void markStringResults(const Node &node);
  void keepStrings();
  mlir::LogicalResult agrees(Node &node);
  bool expand(Node &node);
  std::optional<HostValue> bindInput(mlir::BlockArgument input);
  /// A symbol for each integer of `type`, whose names are added to `names`.
  HostValue symbolsOf(mlir::RankedTensorType type, const std::string &name,
                      llvm::SmallVectorImpl<mlir::Attribute> &names);
  SymbolOp declare(llvm::StringRef hint, int64_t min, int64_t max, int64_t opt,
                   llvm::StringRef origin, DimAttr value);
  bool inlineIf(Node &node);
  std::optional<DimExpr> conditionAsSize(Node &node);
  std::optional<DimExpr> runsAsSize();
  DimExpr chosenSize(Node &node, const DimExpr &a, const DimExpr &b);
  bool hidesRank(mlir::OpResult value, int64_t rank);
  void raiseRanks(Node &node, llvm::MutableArrayRef<Tracked> a, llvm::MutableArrayRef<Tracked> b);
  bool chooseBranch(Node &node, mlir::ArrayAttr names);
  bool unrollLoop(Node &node);
  // Loops.cpp
  bool runLoop(Node &node);
  /// Axes in [0, rank) of inputs, outputs as they are stated, and which of both go backwards.
  struct ScanAxes {
    Ints inputs, inputsBack, outputs, outputsBack;
  };
  bool runScan(Node &node, llvm::ArrayRef<mlir::Value> sources, const ScanAxes &axes);
  bool refuseLoop(Node &node, const std::string &message, const std::string &nearest);
  std::optional<std::vector<Tracked>> runBody(Node &node, mlir::Value counter, llvm::ArrayRef<Tracked> arguments);
  std::optional<llvm::SmallVector<mlir::Value>> nextStates(Node &node, LoopBeginOp begin,
                                                           llvm::MutableArrayRef<Tracked> states);
  bool isOfIteration(const DimExpr &size);
  std::optional<DimExpr> windowOf(const DimExpr &size);
  bool settleRows(Node &node, llvm::MutableArrayRef<Tracked> rows);
  bool unrollScan(Node &node);
  bool unrollBatchedScan(Node &node);
  // Sequences.cpp
  bool mapSequence(Node &node);
  // Lists.cpp
  bool mapList(Node &node);
  bool finishScans(Node &node, unsigned first, std::vector<std::vector<mlir::Value>> &scans);
  void applyStated(mlir::Operation *op);
  void keepBounds(SymbolOp symbol, const DimExpr &by);
  bool substitute(const std::string &symbol, const DimExpr &by);
  bool addOutputs(Tracked &output, mlir::DictionaryAttr attrs, const std::string &name,
                  llvm::SmallVectorImpl<mlir::Value> &results,
                  llvm::SmallVectorImpl<mlir::Attribute> &resultAttrs);
  bool finish();

  mlir::ModuleOp module;
  mlir::func::FuncOp func;
  LegalizeReport &found;
  llvm::DenseMap<mlir::Value, Tracked> values;
  llvm::DenseMap<mlir::Operation *, mlir::Operation *> originals; ///< of ops that bodies put in place: the body's
  llvm::DenseMap<mlir::Value, mlir::Value> branchValues; ///< results of an If whose branch is known: what that yields
  std::map<std::string, DimExpr> derived; ///< by formula and bounds
  std::vector<std::string> stringTexts; ///< of the constants, by number
  llvm::StringMap<int64_t> stringNumbers;
  Draws drawn; ///< outside of loops
  struct LoopDraws {
    mlir::Value counter, run; ///< its iterations as they are counted, and as runs: null until asked for
  };
  struct Branch {
    Node *node;
    bool isThen;
  };
  std::vector<Branch> branches; ///< around what is being processed, under conditions that only a run knows
  std::vector<LoopDraws> loops; ///< that lathe.loop_begin makes, around what is being processed
  uint64_t nextStream = 0;
  int chain = 0;     ///< ops that bindHost is inside of
  int depth = 0;     ///< of function bodies inside each other
  std::string outer; ///< op whose body is being processed, for reports
};

/// Whether the op is one of those that legalize replaces: of the dialect onnx or aten.
bool isSource(mlir::Operation *op);

/// Gives symbols without bounds usual sizes that all sizes of the graph have a value at
/// (Optima.cpp); fails with a report that names the node where there are none.
mlir::LogicalResult settleOptima(mlir::ModuleOp module, LegalizeReport &report);

} // namespace lathe::legal

#endif // LATHE_PASSES_LEGALIZE_LEGALIZER_H
