//===- Selection.h - which elements, by their values ------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The ops that compare elements with each other and give places: lathe.topk, lathe.nonzero, lathe.mark_flags with
// lathe.marked_places, lathe.nms.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_IR_SELECTION_H
#define LATHE_IR_SELECTION_H

#include "lathe/ir/Lathe.h"

#define GET_OP_CLASSES
#include "lathe/ir/LatheSelectionOps.h.inc"

namespace lathe {

/// What an op of this family compares, and what it gives.
struct SelectionSizes {
  enum class Kind { TopK, Nonzero, Nms, Mark, MarkedPlaces } kind;
  DimExpr rows, length; ///< each row by itself
  DimExpr count;        ///< places of a row that are wanted
  int64_t keyBits;      ///< of an integer that orders as the elements do: 32 or 64
};
/// Of the op that a kernel's body is built around; none where it is of another family.
std::optional<SelectionSizes> selectionOf(mlir::Block &body);

} // namespace lathe

#endif // LATHE_IR_SELECTION_H
