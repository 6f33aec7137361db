//===- Holes.h - generated parts of a skeleton ------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A skeleton of codegen/device takes a struct of holes: the kernel's arguments
// as members, and functions that load operands and store results. Each function
// is evaluated from the kernel region into tile IR and printed as a method.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_CODEGEN_CUDA_HOLES_H
#define LATHE_CODEGEN_CUDA_HOLES_H

#include "../tile/Evaluator.h"
#include "../tile/Rules.h"
#include "Printer.h"

#include "lathe/codegen/Skeleton.h"

namespace lathe::codegen {

class Holes {
public:
  Holes(const KernelSource &kernel, const KernelConfig &config);

  using Body = llvm::function_ref<mlir::Value(Evaluator &, mlir::ValueRange params)>;
  /// Adds the method `name(i64 params..., [acc value])`. `result` null: void.
  /// `lanes` is the width of the evaluator. `before`: the type of a value ahead of the accumulator.
  void method(llvm::StringRef name, llvm::ArrayRef<std::string> params, mlir::Type result,
              int64_t lanes, Body body, mlir::Type accumulator = {}, mlir::Type before = {});
  /// A line in the struct: a typedef, a constant, a method written by hand.
  void line(const llvm::Twine &text) { members += "  " + text.str() + "\n"; }

  /// Whether the kernel starts before those ahead of it are over and waits by itself.
  bool programmatic() const;
  /// Whether every result is stored in 16 bits: fast functions suffice.
  static bool halfResults(const KernelSource &kernel);
  /// The whole kernel: prelude, struct, and the instantiation inside the kernel function. That the
  /// device code counts as much shared memory as the launch gives it is asserted in the text.
  mlir::FailureOr<std::string> text(const Instance &instance);
  /// A size as C++ over the members.
  std::string dim(const DimExpr &e) const;
  /// C++ name of a storage type.
  static std::string typeText(mlir::Type storage);

  /// Stores `value`, the anchor's result at `idx`, through the epilogue into the output.
  static void storeResult(Evaluator &e, mlir::Value anchor, const Indices &idx, mlir::Value value);
  /// The methods `epilogue(batch, row, column, sums)` and `write`, which it calls: `lanes`
  /// neighbouring sums of type `accumulator` (Acc in the text), whose place in the anchor's result
  /// `place` tells, go through the epilogue into the output.
  void storeColumns(
      mlir::Value anchor, int64_t lanes, mlir::Type accumulator,
      llvm::function_ref<Indices(Evaluator &, mlir::Value batch, mlir::Value row,
                                 const Index &column)>
          place);
  /// What the only output, which has the anchor's elements in the same order or transposed, holds in
  /// their place; `value` is the anchor's result at `idx`. As it is stored, or in its compute type.
  static mlir::Value resultValue(Evaluator &e, mlir::Value anchor, const Indices &idx,
                                 mlir::Value value, bool stored = true);
  /// What `wanted`, a value of the anchor's sizes that follows from its result point by point, is at `idx`
  /// where the anchor's result is `value`.
  static mlir::Value valueAt(Evaluator &e, mlir::Value anchor, const Indices &idx, mlir::Value value, mlir::Value wanted);
  /// Where the result at `idx` lies in the output, given that isPlainResult.
  static mlir::Value resultPlace(Evaluator &e, mlir::Value anchor, const Indices &idx);
  /// The output that follows from this result of the anchor, when one alone does: others may be what the
  /// anchor gives beside it.
  static std::optional<unsigned> outputOf(const KernelSource &kernel, mlir::Value anchor);
  /// Whether that output holds the anchor's results as they are, their last dimension last.
  static bool isPlainResult(const KernelSource &kernel, mlir::Value anchor);
  /// Whether the last dimension of the anchor's result may be asked in vectors of
  /// `lanes` when its index is a multiple of them.
  static int64_t epilogueLanes(mlir::Value anchor, const DimExpr &last, int64_t atMost);

  const KernelSource &kernel;
  const KernelConfig config;

private:
  std::string arguments(bool types, bool maps) const;
  std::string mapArguments() const;
  std::string function(const LaunchSpec &launch, const std::string &call, int64_t minBlocks) const;

  ArgumentNames args;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::string members;
  bool failed = false;
};

/// The tensor maps of results as descriptors name them. `byHead`: each output has heads of its own.
StoredByTma storedByTma(const KernelSpec &spec, bool byHead = false);

mlir::FailureOr<std::string> gemmText(const KernelSource &kernel, const KernelConfig &config);
mlir::FailureOr<std::string> convText(const KernelSource &kernel, const KernelConfig &config);
mlir::FailureOr<std::string> convHopperText(const KernelSource &kernel, const KernelConfig &config);
mlir::FailureOr<std::string> attentionText(const KernelSource &kernel, const KernelConfig &config);
mlir::FailureOr<std::string> columnsText(const KernelSource &kernel, const KernelConfig &config);
mlir::FailureOr<std::string> fourierText(const KernelSource &kernel, const KernelConfig &config);
mlir::FailureOr<std::string> interpolationText(const KernelSource &kernel, const KernelConfig &config);
mlir::FailureOr<std::string> nonzeroText(const KernelSource &kernel, const KernelConfig &config);
mlir::FailureOr<std::string> scanText(const KernelSource &kernel, const KernelConfig &config);
mlir::FailureOr<std::string> scatterText(const KernelSource &kernel, const KernelConfig &config);
mlir::FailureOr<std::string> topKText(const KernelSource &kernel, const KernelConfig &config);
mlir::FailureOr<std::string> transposeText(const KernelSource &kernel, const KernelConfig &config);

/// A dimension expression as C++; `name` gives the text of a symbol.
std::string dimText(const DimExpr &e, llvm::function_ref<std::string(const std::string &)> name);

} // namespace lathe::codegen

#endif // LATHE_CODEGEN_CUDA_HOLES_H
