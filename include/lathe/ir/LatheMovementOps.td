//===- LatheMovementOps.td - values moved, not computed ----*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ops whose result elements are operand elements at other indices. `affine`
// below means that the index follows from the result's index alone.
//
//===----------------------------------------------------------------------===//
include "lathe/ir/LatheBase.td"

def Lathe_ConstantOp : Lathe_Op<"constant", [Pure, ConstantLike,
    AllTypesMatch<["value", "y"]>]> {
  let summary = "y = the attribute: inline elements when small, #lathe.weight otherwise";
  let arguments = (ins TypedAttrInterface:$value);
  let results = (outs Lathe_Tensor:$y);
  let assemblyFormat = "$value attr-dict";
  let hasFolder = 1;
  let hasVerifier = 1;
}

def Lathe_IotaOp : Lathe_StructuredOp<"iota"> {
  let summary = "y[i...] = i[axis], in the result's element type";
  let description = "Example: lathe.iota {axis = 0 : i64} : () -> tensor<4xi64>. iota_c1: axis < rank.";
  let arguments = (ins I64Attr:$axis);
  let results = (outs Lathe_Tensor:$y);
  let hasVerifier = 1;
}

def Lathe_DimValueOp : Lathe_StructuredOp<"dim_value"> {
  let summary = "y = dimension expressions as integer data (host-resident): a vector, or a scalar";
  let description = [{
    `lathe.dim_value {dims = [#lathe.dim<B>, #lathe.dim<S + 1>]} : () -> tensor<2xi64>`.
    dim_value_c1: as many expressions as elements; the element type is an integer or float.
  }];
  let arguments = (ins Lathe_DimArrayAttr:$dims);
  let results = (outs Lathe_Tensor:$y);
  let hasVerifier = 1;
}

def Lathe_DimFromOp : Lathe_Op<"dim_from", [HostOperandsInterface]> {
  let summary = "Names elements of a host-resident integer tensor as symbols";
  let description = [{
    `%r = lathe.dim_from %shape {symbols = ["d0", "d1"]}`: each element becomes the value of a
    symbol whose origin is this op; checked against the symbol's bounds when the step runs. The
    result is the operand. Not pure: it is there for its symbols.
  }];
  let arguments = (ins Lathe_Tensor:$x, StrArrayAttr:$symbols);
  let results = (outs Lathe_Tensor:$y);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
  let extraClassDeclaration = "bool isHostOperand(unsigned) { return true; }";
  let hasVerifier = 1;
}

def Lathe_BindDimsOp : Lathe_Op<"bind_dims", [Pure]> {
  let summary = "Claims that x has the result's sizes; checked at run time";
  let arguments = (ins Lathe_Tensor:$x);
  let results = (outs Lathe_Tensor:$y);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def Lathe_TransposeOp : Lathe_InferredOp<"transpose"> {
  let summary = "y[i[0]...] = x[...] with dimension d of y being dimension perm[d] of x (affine)";
  let description = "transpose_c1: perm is a permutation of the dimensions of x.";
  let arguments = (ins Lathe_Tensor:$x, DenseI64ArrayAttr:$perm);
  let results = (outs Lathe_Tensor:$y);
  let extraClassDefinition = latheCompatibleTypes;
  let hasFolder = 1;
}
def Lathe_ReshapeOp : Lathe_StructuredOp<"reshape"> {
  let summary = "y = the elements of x in row-major order under the result's sizes (affine)";
  let description = "reshape_c1: the products of the sizes are equal expressions.";
  let arguments = (ins Lathe_Tensor:$x);
  let results = (outs Lathe_Tensor:$y);
  let extraClassDeclaration = [{
    ::lathe::OperandAccess getAccess(unsigned operand);
    void getSizeRules(::llvm::SmallVectorImpl<::lathe::SizeRule> &rules);
  }];
  let hasVerifier = 1;
  let hasFolder = 1;
}
def Lathe_BroadcastToOp : Lathe_StructuredOp<"broadcast_to"> {
  let summary = "y = x repeated along dimensions of size 1, aligned at the last dimension (affine)";
  let description = "broadcast_to_c1: each size of x equals the result's or may be 1.";
  let arguments = (ins Lathe_Tensor:$x);
  let results = (outs Lathe_Tensor:$y);
  let hasVerifier = 1;
  let hasFolder = 1;
}
def Lathe_SliceOp : Lathe_StructuredOp<"slice"> {
  let summary = "y[i] = x[starts + steps * i]; the sizes are the result's (affine)";
  let description = [{
    slice_c1: one start and one step a dimension. slice_c2: steps are not 0. Starts are already
    normalised: not negative and inside x.
  }];
  let arguments = (ins Lathe_Tensor:$x, Lathe_DimArrayAttr:$starts, DenseI64ArrayAttr:$steps);
  let results = (outs Lathe_Tensor:$y);
  let extraClassDeclaration = "bool coversOperands() { return false; }";
  let hasVerifier = 1;
  let hasFolder = 1;
}
def Lathe_ConcatOp : Lathe_InferredOp<"concat"> {
  let summary = "y = the inputs one after another along axis";
  let description = "concat_c1: equal ranks and element types; concat_c2: sizes equal but along axis.";
  let arguments = (ins Variadic<Lathe_Tensor>:$inputs, I64Attr:$axis);
  let results = (outs Lathe_Tensor:$y);
  let extraClassDeclaration = [{
    ::lathe::OperandAccess getAccess(unsigned operand);
    void getSizeRules(::llvm::SmallVectorImpl<::lathe::SizeRule> &rules);
  }];
  let extraClassDefinition = latheCompatibleTypes;
  let hasFolder = 1;
}
def Lathe_PadOp : Lathe_StructuredOp<"pad"> {
  let summary = "y = x with low elements before and high after each dimension, filled by mode";
  let description = [{
    Negative amounts crop. `value` is a scalar tensor (constant mode). pad_c1: one amount a
    dimension; pad_c2: result size = low + size + high.
  }];
  let arguments = (ins Lathe_Tensor:$x, Optional<Lathe_Tensor>:$value, Lathe_DimArrayAttr:$low,
                       Lathe_DimArrayAttr:$high, Lathe_PadModeAttr:$mode);
  let results = (outs Lathe_Tensor:$y);
  let extraClassDeclaration = "::lathe::OperandAccess getAccess(unsigned operand);";
  let hasVerifier = 1;
}
def Lathe_GatherOp : Lathe_InferredOp<"gather"> {
  let summary = "y[a.., i.., b..] = x[a.., indices[i..], b..] along axis; negative indices count from the end";
  let description = "An index out of range is a run-time error that names the node.";
  let arguments = (ins Lathe_Tensor:$x, Lathe_Tensor:$indices, I64Attr:$axis);
  let results = (outs Lathe_Tensor:$y);
  let extraClassDefinition = latheCompatibleTypes;
}
def Lathe_GatherElementsOp : Lathe_InferredOp<"gather_elements"> {
  let summary = "y[i..] = x[i.. with i[axis] = indices[i..]]";
  let arguments = (ins Lathe_Tensor:$x, Lathe_Tensor:$indices, I64Attr:$axis);
  let results = (outs Lathe_Tensor:$y);
  let extraClassDefinition = latheCompatibleTypes;
}
def Lathe_GatherNdOp : Lathe_InferredOp<"gather_nd"> {
  let summary = "y[b.., i.., r..] = x[b.., indices[b.., i.., :], r..]";
  let arguments = (ins Lathe_Tensor:$x, Lathe_Tensor:$indices, I64Attr:$batch_dims);
  let results = (outs Lathe_Tensor:$y);
  let extraClassDefinition = latheCompatibleTypes;
}
def Lathe_ScatterElementsOp : Lathe_InferredOp<"scatter_elements"> {
  let summary = "y = x with y[.. indices[i..] ..] = (reduction of) updates[i..] along axis, in index order";
  let description = "Without a reduction no two indices may name one place: a GPU writes all at once.";
  let arguments = (ins Lathe_Tensor:$x, Lathe_Tensor:$indices, Lathe_Tensor:$updates, I64Attr:$axis,
                       OptionalAttr<Lathe_ReduceKindAttr>:$reduction);
  let results = (outs Lathe_Tensor:$y);
  let extraClassDefinition = latheCompatibleTypes;
}
def Lathe_ScatterNdOp : Lathe_InferredOp<"scatter_nd"> {
  let summary = "y = x with slices y[indices[i.., :]] = (reduction of) updates[i..], in index order";
  let description = "Without a reduction no two indices may name one place: a GPU writes all at once.";
  let arguments = (ins Lathe_Tensor:$x, Lathe_Tensor:$indices, Lathe_Tensor:$updates,
                       OptionalAttr<Lathe_ReduceKindAttr>:$reduction);
  let results = (outs Lathe_Tensor:$y);
  let extraClassDefinition = latheCompatibleTypes;
}
