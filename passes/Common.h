//===- Common.h - what passes share -----------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_PASSES_COMMON_H
#define LATHE_PASSES_COMMON_H

#include "lathe/codegen/Target.h"
#include "lathe/ir/Lathe.h"
#include "lathe/passes/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Pass/Pass.h"

#include <map>
#include <optional>
#include <set>
#include <string>

namespace lathe {

/// The module of each target, in order; the module itself when it is one.
llvm::SmallVector<mlir::ModuleOp> targetModules(mlir::ModuleOp top);
/// The target of a target module; a diagnostic and failure otherwise.
mlir::FailureOr<Target> targetOf(mlir::ModuleOp module);

/// An entry of `lathe.options` as strings; empty when it is not there.
llvm::SmallVector<std::string> optionStrings(mlir::ModuleOp module, llvm::StringRef key);

/// --sparse-weights: "auto", "never" or "always".
std::string sparseWeights(mlir::ModuleOp top);

/// Bounds and best sizes of the lathe.symbol ops of a module.
std::map<std::string, DimRange> symbolRanges(mlir::ModuleOp module);
std::map<std::string, int64_t> symbolOptima(mlir::ModuleOp module);

/// Names of all symbols in sizes and attributes of a region and of these types.
std::set<std::string> symbolsOf(mlir::Block &body, mlir::TypeRange types);

/// What an op is to fusion; none for ops that no kernel may hold.
std::optional<OpClass> classOf(mlir::Operation *op);
inline bool isClass(mlir::Operation *op, OpClass wanted) { return classOf(op) == wanted; }

/// A constant with one element, or the same element everywhere: a number to kernels.
bool isNumber(mlir::Operation *op);
/// The element of such a constant as a double; none for types without that meaning.
std::optional<double> numberOf(mlir::Value value);

/// On a slice that is no kernel: its result lies in its operand's memory.
inline constexpr const char *kViewAttr = "lathe.view";
/// Row-major reinterpretation, or a slice with kViewAttr: the same bytes under other sizes.
bool isView(mlir::Operation *op);

/// On a kernel that need not run: its inputs are written where its result lies, one after
/// another along this axis.
inline constexpr const char *kPlacedAttr = "lathe.placed";

/// On an argument of an entry: the name of the output that is to lie in its memory.
inline constexpr const char *kDonatedToAttr = "lathe.donated_to";

/// Names of inputs that change seldom, in `lathe.options`.
inline constexpr const char *kParametersOption = "parameters";
/// On the entry of this name (a unit): it makes of parameters what the other entries read, and is run again when one
/// of them has changed.
inline constexpr const char *kPrepareAttr = "lathe.prepare", *kPrepareEntry = "prepare";
/// That entry of a module; null where there are no parameters.
mlir::func::FuncOp prepareEntry(mlir::ModuleOp module);
/// On an argument of an entry, the parameter that it is (lathe/ir/WeightStore.h), and the recipe that has packed it.
inline constexpr const char *kParameterAttr = "lathe.parameter", *kPackingAttr = "lathe.packing";

/// Name of an input or output as in the ONNX graph.
std::string inputName(mlir::func::FuncOp func, unsigned index);
std::string outputName(mlir::func::FuncOp func, unsigned index);

/// Remarks in the category "lathe": something was done, or was not and why.
inline auto passedRemark(mlir::Location loc, llvm::StringRef name) {
  return mlir::remark::passed(loc, mlir::remark::RemarkOpts::name(name).category("lathe"));
}
inline auto missedRemark(mlir::Location loc, llvm::StringRef name) {
  return mlir::remark::missed(loc, mlir::remark::RemarkOpts::name(name).category("lathe"));
}

} // namespace lathe

#endif // LATHE_PASSES_COMMON_H
