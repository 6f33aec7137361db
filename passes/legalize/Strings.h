//===- Strings.h - tensors of strings ---------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef LATHE_PASSES_LEGALIZE_STRINGS_H
#define LATHE_PASSES_LEGALIZE_STRINGS_H

#include "Node.h"

namespace lathe::legal {

/// What an op does with operands that are strings.
enum class StringUse {
  None,    ///< it takes none
  Moves,   ///< its results are strings, found by place or by equality
  Reads,   ///< it looks into them, compares them or asks for sizes alone; a handler marks its results
};
StringUse stringUseOf(const Node &node);

/// The numbers of constant strings; none after a report, where one of them is no UTF-8.
std::optional<Ints> numbersOfStrings(Node &n, llvm::ArrayRef<std::string> texts);
/// The numbers of the strings of an attribute, a list or a tensor; none where it is absent or something else.
std::optional<Ints> stringsAttr(Node &n, llvm::StringRef name);

/// Cast from strings or to them; `element` null: to strings.
mlir::LogicalResult castStrings(Node &n, mlir::Type element);

/// Results of an op of liblathe_host.so; none after a report, as for a GPU.
std::optional<llvm::SmallVector<mlir::Value>> hostCall(Node &n, llvm::StringRef name,
                                                       llvm::ArrayRef<mlir::Type> types,
                                                       llvm::ArrayRef<mlir::Value> operands,
                                                       llvm::ArrayRef<mlir::NamedAttribute> config = {});
/// Results of any op of the host; none where an operand is null.
std::optional<llvm::SmallVector<mlir::Value>> callHost(Emitter &e, llvm::StringRef name,
                                                       llvm::ArrayRef<mlir::Type> types,
                                                       llvm::ArrayRef<mlir::Value> operands,
                                                       llvm::ArrayRef<mlir::NamedAttribute> config = {});

} // namespace lathe::legal

#endif // LATHE_PASSES_LEGALIZE_STRINGS_H
