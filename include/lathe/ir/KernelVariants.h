//===- KernelVariants.h - variants of a kernel as values --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// `lathe.kernel` and `exec.kernel` hold the ways in which a kernel may run as an
// attribute, in text:
//
//   variants = [{guard = "M <= 16", spec = "config \22gemm.skinny...\22 ..."}, {guard = "", spec = ...}]
//
// This is where that text is written and read. Everyone else has a
// KernelVariant (lathe/codegen/KernelSpec.h).
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_IR_KERNELVARIANTS_H
#define LATHE_IR_KERNELVARIANTS_H

#include "lathe/codegen/KernelSpec.h"
#include "lathe/ir/Exec.h"
#include "lathe/ir/Lathe.h"

namespace lathe {

/// One element of the attribute and all of it, without sources.
mlir::DictionaryAttr attrOf(mlir::MLIRContext *context, const KernelVariant &variant);
mlir::ArrayAttr attrOf(mlir::MLIRContext *context, const std::vector<KernelVariant> &variants);

/// One element read; an error that says what is wrong with its text.
Result<KernelVariant> parseVariant(mlir::Attribute attr);
/// All of the attribute; an error at `op`.
mlir::FailureOr<std::vector<KernelVariant>> parseVariants(mlir::Operation *op,
                                                          mlir::ArrayAttr variants);
inline mlir::FailureOr<std::vector<KernelVariant>> variantsOf(KernelOp kernel) {
  return parseVariants(kernel, kernel.getVariantsAttr());
}
inline mlir::FailureOr<std::vector<KernelVariant>> variantsOf(exec::KernelOp kernel) {
  return parseVariants(kernel, kernel.getVariantsAttr());
}

/// A weight that some variant wants packed in another way than the first one does. A launch has each such
/// copy of it as one more operand, behind all others, in this order.
struct OwnPacking {
  size_t input;
  std::string packing; ///< empty: as it is stored
};
std::vector<OwnPacking> ownPackings(llvm::ArrayRef<KernelVariant> variants);
/// Which operand of the launch a variant reads for its input: the input's own, or that of one of `own`
/// behind the `operands` that all variants share.
size_t operandOf(const KernelVariant &variant, size_t input, llvm::ArrayRef<OwnPacking> own,
                 llvm::ArrayRef<KernelVariant> variants, size_t operands);

/// The code that codegen has written for a variant; null before.
mlir::StringAttr sourceOf(mlir::Attribute variant);
/// The same element with such code.
mlir::DictionaryAttr withSource(mlir::Attribute variant, llvm::StringRef source);

/// The condition of an `exec.guard`.
Result<DimCondition> parseComparison(llvm::StringRef text);

} // namespace lathe

#endif // LATHE_IR_KERNELVARIANTS_H
