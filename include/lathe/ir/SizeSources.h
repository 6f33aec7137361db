//===- SizeSources.h - ops that wait for a size, not a value ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A lathe.dim_from of a value that is computed gives symbols theirs in the middle of
// a run, and so does a lathe.choose between sides of different sizes. Whatever has such a
// symbol in its sizes or attributes runs behind it, though no operand says so. Who orders
// ops, or asks which of them depend on each other, asks here as well.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_IR_SIZESOURCES_H
#define LATHE_IR_SIZESOURCES_H

#include "lathe/ir/Lathe.h"

#include "llvm/ADT/DenseMap.h"

#include <map>
#include <set>

namespace lathe {

/// All symbols in the attributes and result types of an op and the ops inside it.
std::set<std::string> symbolsInside(mlir::Operation *op);

class SizeSources {
public:
  /// Of the ops that are in the block now.
  explicit SizeSources(mlir::Block &block);

  /// The ops in the block that give values to what this op has for sizes, themselves or
  /// through derived symbols.
  llvm::ArrayRef<mlir::Operation *> of(mlir::Operation *op) const {
    auto found = sources.find(op);
    return found == sources.end() ? llvm::ArrayRef<mlir::Operation *>() : found->second;
  }
  /// Ops that wait for a size from this one.
  llvm::ArrayRef<mlir::Operation *> readersOf(mlir::Operation *from) const {
    auto found = readers.find(from);
    return found == readers.end() ? llvm::ArrayRef<mlir::Operation *>() : found->second;
  }
  /// Symbols that get values in the middle of a run: what each follows from.
  const std::map<std::string, llvm::SmallVector<mlir::Operation *>> &symbols() const { return bound; }
  bool empty() const { return bound.empty(); }

private:
  std::map<std::string, llvm::SmallVector<mlir::Operation *>> bound;
  llvm::DenseMap<mlir::Operation *, llvm::SmallVector<mlir::Operation *>> sources, readers;
};

/// Brings the ops of a block into an order in which each stands behind what it reads and behind the
/// sizes it needs, and leaves them as they are otherwise.
void sortBlock(mlir::Block &block);

} // namespace lathe

#endif // LATHE_IR_SIZESOURCES_H
