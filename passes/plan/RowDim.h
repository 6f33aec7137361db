//===- RowDim.h - steps that treat rows alike -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A size that is the number of rows of many tensors of a program, as the tokens of a prompt are. A kernel in which each
// row of the results follows from the same row of what it reads may be launched for a part of the rows: it is the same
// kernel, with another value of its size, on a part of its buffers.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_PASSES_PLAN_ROWDIM_H
#define LATHE_PASSES_PLAN_ROWDIM_H

#include "ProgramBuilder.h"

namespace lathe::plan {

class RowDim {
public:
  /// `symbol`: the name of the size.
  explicit RowDim(std::string symbol) : name(std::move(symbol)) {}
  const std::string &symbol() const { return name; }

  /// Which dimension of a type the size is; -1: none, and no other has to do with it; none: it is in a type in another
  /// way.
  std::optional<int64_t> in(mlir::Type type) const;
  /// The same for memory: rows lie one after another, whole bytes each, and nothing is between them.
  std::optional<int64_t> inMemory(mlir::Type type) const;
  /// Whether each row of what a kernel's region yields follows from that row of what it reads alone.
  bool treatsRowsAlike(mlir::Block &region) const;

private:
  bool treatsRowsAlike(mlir::Operation &op) const;
  std::string name;
};

} // namespace lathe::plan

#endif // LATHE_PASSES_PLAN_ROWDIM_H
