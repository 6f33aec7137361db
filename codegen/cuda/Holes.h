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

#include "lathe/codegen/Config.h"

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
  /// The whole kernel: prelude, struct, `call` inside the kernel function. `minBlocks` of it shall
  /// fit into a multiprocessor at once; 0: whatever its registers give. `before`: what the launch
  /// ahead of it calls, where there are two.
  mlir::FailureOr<std::string> text(std::initializer_list<std::string_view> modules,
                                    const std::string &call, int64_t minBlocks = 0,
                                    const std::string &before = "");
  /// A size as C++ over the members.
  std::string dim(const DimExpr &e) const;
  /// C++ name of a storage type.
  static std::string typeText(mlir::Type storage);

  /// Stores `value`, the heart's result at `idx`, through the epilogue into the output.
  static void storeResult(Evaluator &e, mlir::Value heart, const Indices &idx, mlir::Value value);
  /// The methods `epilogue(batch, row, column, sums)` and `write`, which it calls: `lanes`
  /// neighbouring sums of type `accumulator` (Acc in the text), whose place in the heart's result
  /// `place` tells, go through the epilogue into the output.
  void storeColumns(
      mlir::Value heart, int64_t lanes, mlir::Type accumulator,
      llvm::function_ref<Indices(Evaluator &, mlir::Value batch, mlir::Value row,
                                 const Index &column)>
          place);
  /// What the only output, which has the heart's elements in the same order or turned, holds in
  /// their place; `value` is the heart's result at `idx`. As it is stored, or in its compute type.
  static mlir::Value resultValue(Evaluator &e, mlir::Value heart, const Indices &idx,
                                 mlir::Value value, bool stored = true);
  /// What `wanted`, a value of the heart's sizes that follows from its result point by point, is at `idx`
  /// where the heart's result is `value`.
  static mlir::Value valueAt(Evaluator &e, mlir::Value heart, const Indices &idx, mlir::Value value, mlir::Value wanted);
  /// Where the result at `idx` lies in the output, given that isPlainResult.
  static mlir::Value resultPlace(Evaluator &e, mlir::Value heart, const Indices &idx);
  /// The output that follows from this result of the heart, when one alone does: others may be what the
  /// heart gives beside it.
  static std::optional<unsigned> outputOf(const KernelSource &kernel, mlir::Value heart);
  /// Whether that output holds the heart's results as they are, their last dimension last.
  static bool isPlainResult(const KernelSource &kernel, mlir::Value heart);
  /// Whether the last dimension of the heart's result may be asked in vectors of
  /// `lanes` when its index is a multiple of them.
  static int64_t epilogueLanes(mlir::Value heart, const DimExpr &last, int64_t atMost);

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

/// The op of the region that the skeleton is built around; null with an error when there is none.
template <typename OpTy> OpTy heartOf(const KernelSource &kernel) {
  for (OpTy op : kernel.body->getOps<OpTy>())
    return op;
  mlir::emitError(kernel.body->getTerminator()->getLoc())
      << "CUDA text: configuration '" << kernel.spec->config << "' needs a '"
      << OpTy::getOperationName() << "' in kernel '" << kernel.name << "'";
  return {};
}

mlir::FailureOr<std::string> gemmText(const KernelSource &kernel, const KernelConfig &config);
mlir::FailureOr<std::string> convText(const KernelSource &kernel, const KernelConfig &config);
mlir::FailureOr<std::string> convHopperText(const KernelSource &kernel, const KernelConfig &config);
mlir::FailureOr<std::string> attentionText(const KernelSource &kernel, const KernelConfig &config);
mlir::FailureOr<std::string> columnsText(const KernelSource &kernel, const KernelConfig &config);
mlir::FailureOr<std::string> transposeText(const KernelSource &kernel, const KernelConfig &config);
/// "MmaTile<64, 64, 32, 2, 2, 4>" or "SimtTile<...>".
std::string tileText(const KernelConfig &config, bool mma);

/// A dimension expression as C++; `name` gives the text of a symbol.
std::string dimText(const DimExpr &e, llvm::function_ref<std::string(const std::string &)> name);

} // namespace lathe::codegen

#endif // LATHE_CODEGEN_CUDA_HOLES_H
