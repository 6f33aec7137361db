//===- LatheSelectionOps.td - which elements, by their values -*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ops that give places of elements, never the elements: gathers bring those.
//
//===----------------------------------------------------------------------===//
include "lathe/ir/LatheBase.td"

def Lathe_TopKOp : Lathe_InferredOp<"topk"> {
  let summary = "y = the places (i64) of the k greatest elements along axis, the greatest first";
  let description = [{
    `lathe.topk %x {axis = 1 : i64, k = #lathe.dim<3>} : (tensor<4x9xf32>) -> tensor<4x3xi64>`.
    With `smallest` the least elements, the least first. Of equal elements the one at the lower place
    comes first; NaN is greater than all numbers, and zeros of either sign are equal. With k the whole
    size this is a stable sort. A k of more than the size is an error of the run.
    topk_c1: axis is inside the rank; topk_c2: k is neither negative nor more than the size along axis,
    so far as these are known; topk_c3: elements are numbers.
  }];
  let arguments = (ins Lathe_Tensor:$x, I64Attr:$axis, Lathe_DimAttr:$k, UnitAttr:$smallest);
  let results = (outs Lathe_Tensor:$y);
  let extraClassDeclaration = [{
    ::lathe::OperandAccess getAccess(unsigned operand);
    void getSizeRules(::llvm::SmallVectorImpl<::lathe::SizeRule> &rules);
    /// x as rows that are ordered each by itself: how many there are.
    ::lathe::DimExpr rows();
  }];
  let extraClassDefinition = latheCompatibleTypes;
}
def Lathe_NonzeroOp : Lathe_InferredOp<"nonzero"> {
  let summary = "places = the places (i64) where flags are true, in order, then 0; count = how many (i64)";
  let description = [{
    `%p, %n = lathe.nonzero %f : (tensor<9xi1>) -> (tensor<9xi64>, tensor<i64>)`. lathe.dim_from makes a
    size of the count, and a slice takes that many places. nonzero_c1: flags are a vector of i1.
  }];
  let arguments = (ins Lathe_Tensor:$flags);
  let results = (outs Lathe_Tensor:$places, Lathe_Tensor:$count);
  let extraClassDeclaration = "::lathe::OperandAccess getAccess(unsigned operand);";
  let extraClassDefinition = latheCompatibleTypes;
}
def Lathe_MarkFlagsOp : Lathe_InferredOp<"mark_flags"> {
  let summary = "marks (i64) = flags as bits, from which lathe.marked_places gets places; count = how many are true (i64)";
  let description = [{
    `%m, %n = lathe.mark_flags %f : (tensor<9xi1>) -> (tensor<2xi64>, tensor<i64>)`. With lathe.marked_places this is a
    lathe.nonzero of which the count is known before the places are stored. Marks are, for each share of 16384 flags,
    how many are true ahead of it; then for each 64 flags a word, flag i its bit i mod 64, other bits 0.
    mark_flags_c1: flags are a vector of i1.
  }];
  let arguments = (ins Lathe_Tensor:$flags);
  let results = (outs Lathe_Tensor:$marks, Lathe_Tensor:$count);
  let extraClassDeclaration = "::lathe::OperandAccess getAccess(unsigned operand);";
  let extraClassDefinition = latheCompatibleTypes;
}
def Lathe_MarkedPlacesOp : Lathe_InferredOp<"marked_places"> {
  let summary = "places = the places (i64) of `length` flags that are true, as lathe.mark_flags has marked them, then 0";
  let description = [{
    `%p = lathe.marked_places %m {length = #lathe.dim<9>} : (tensor<2xi64>) -> tensor<9xi64>`.
    marked_places_c1: marks are those of so many flags.
  }];
  let arguments = (ins Lathe_Tensor:$marks, Lathe_DimAttr:$length);
  let results = (outs Lathe_Tensor:$places);
  let extraClassDeclaration = "::lathe::OperandAccess getAccess(unsigned operand);";
  let extraClassDefinition = latheCompatibleTypes;
}
def Lathe_NmsOp : Lathe_InferredOp<"nms"> {
  let summary = "places = the boxes that are kept for each class, in their order, none of which overlaps an earlier one";
  let description = [{
    Non-maximum suppression. boxes [B, S, 4] are two opposite corners (y, x, y, x), or with
    `center_point_box` centers and sizes (x, y, width, height); order [B, C, S] (i64) has the places of
    boxes, the best first; candidates [B, C] (i64) says how many of them count; most and overlap are an
    i64 and a float without dimensions. Box after box is kept unless its intersection with one that is
    kept is more than `overlap` of their union, until `most` are. places [B, C, S] (i64) of boxes, then 0;
    counts [B, C] (i64). nms_c1: sizes and types are these.
  }];
  let arguments = (ins Lathe_Tensor:$boxes, Lathe_Tensor:$order, Lathe_Tensor:$candidates, Lathe_Tensor:$most,
                       Lathe_Tensor:$overlap, UnitAttr:$center_point_box);
  let results = (outs Lathe_Tensor:$places, Lathe_Tensor:$counts);
  let extraClassDeclaration = "::lathe::OperandAccess getAccess(unsigned operand);";
  let extraClassDefinition = latheCompatibleTypes;
}
