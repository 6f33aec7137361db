//===- LatheContractionOps.td - reductions and contractions -*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
include "lathe/ir/LatheBase.td"

def Lathe_ReduceOp : Lathe_InferredOp<"reduce"> {
  let summary = "y = sum, product, maximum or minimum of x over axes";
  let description = [{
    `lathe.reduce %x {kind = #lathe.reduce_kind<sum>, axes = array<i64: 1>, keepdims = true}`.
    Sums of 16- and 8-bit floats accumulate in f32. An empty reduction gives the neutral element.
    reduce_c1: axes are unique, sorted and inside the rank.
  }];
  let arguments = (ins Lathe_Tensor:$x, Lathe_ReduceKindAttr:$kind, DenseI64ArrayAttr:$axes,
                       BoolAttr:$keepdims);
  let results = (outs Lathe_Tensor:$y);
  let extraClassDeclaration = "std::optional<::lathe::ReduceKind> getCombiner() { return getKind(); }";
  let extraClassDefinition = latheCompatibleTypes;
  let hasFolder = 1;
}
def Lathe_ArgReduceOp : Lathe_InferredOp<"arg_reduce"> {
  let summary = "y = index (i64) of the maximum or minimum along axis, which is NaN where one is; the first, or the last of equals";
  let arguments = (ins Lathe_Tensor:$x, Lathe_ReduceKindAttr:$kind, I64Attr:$axis, BoolAttr:$keepdims,
                       UnitAttr:$last);
  let results = (outs Lathe_Tensor:$y);
  let extraClassDefinition = latheCompatibleTypes;
}
def Lathe_ScanOp : Lathe_InferredOp<"scan"> {
  let summary = "y[i] = reduction of x[0..i] along axis; exclusive leaves x[i] out; reverse runs from the end";
  let arguments = (ins Lathe_Tensor:$x, Lathe_ReduceKindAttr:$kind, I64Attr:$axis, UnitAttr:$exclusive,
                       UnitAttr:$reverse);
  let results = (outs Lathe_Tensor:$y);
  let extraClassDeclaration = "::lathe::OperandAccess getAccess(unsigned operand);";
  let extraClassDefinition = latheCompatibleTypes;
}
def Lathe_SoftmaxOp : Lathe_InferredOp<"softmax"> {
  let summary = "y = e^(x - max) / sum(e^(x - max)) along axis; with `log` its logarithm";
  let arguments = (ins Lathe_Tensor:$x, I64Attr:$axis, UnitAttr:$log);
  let results = (outs Lathe_Tensor:$y);
  let extraClassDeclaration = "::lathe::OperandAccess getAccess(unsigned operand);";
  let extraClassDefinition = latheCompatibleTypes;
}
def Lathe_LayerNormOp : Lathe_InferredOp<"layer_norm"> {
  let summary = "y = (x - mean) / sqrt(variance + epsilon) * scale + bias over dimensions from axis on";
  let arguments = (ins Lathe_Tensor:$x, Lathe_Tensor:$scale, Optional<Lathe_Tensor>:$bias,
                       I64Attr:$axis, F64Attr:$epsilon);
  let results = (outs Lathe_Tensor:$y);
  let extraClassDeclaration = "::lathe::OperandAccess getAccess(unsigned operand);";
  let extraClassDefinition = latheCompatibleTypes;
}
def Lathe_RmsNormOp : Lathe_InferredOp<"rms_norm"> {
  let summary = "y = x / sqrt(mean(x^2) + epsilon) * scale over dimensions from axis on";
  let arguments = (ins Lathe_Tensor:$x, Lathe_Tensor:$scale, I64Attr:$axis, F64Attr:$epsilon);
  let results = (outs Lathe_Tensor:$y);
  let extraClassDeclaration = "::lathe::OperandAccess getAccess(unsigned operand);";
  let extraClassDefinition = latheCompatibleTypes;
}
def Lathe_MatmulOp : Lathe_InferredOp<"matmul"> {
  let summary = "y[b.., m, n] = sum over k of a[b.., m, k] * b[b.., k, n]; batch dimensions broadcast";
  let description = [{
    Ranks >= 2. `transpose_a`, `transpose_b` say that the last two dimensions are stored swapped.
    16-bit floats accumulate in f32. Integers of at most 8 bits give i32, floats of at most 8 bits f32.
    matmul_c1: ranks >= 2; matmul_c2: equal depth k; matmul_c3: batch dimensions broadcast.
  }];
  let arguments = (ins Lathe_Tensor:$a, Lathe_Tensor:$b, UnitAttr:$transpose_a, UnitAttr:$transpose_b);
  let results = (outs Lathe_Tensor:$y);
  let extraClassDeclaration = "std::optional<::lathe::ReduceKind> getCombiner() { return ::lathe::ReduceKind::Sum; }";
  let extraClassDefinition = latheCompatibleTypes;
}
def Lathe_ConvOp : Lathe_InferredOp<"conv"> {
  let summary = "y = x convolved with w: y[n, o, p..] = sum of x[n, c, p*stride - pad + r*dilation..] * w[o, c, r..]";
  let description = [{
    w is [outputs, channels / group, window...] whatever the layout of x and y. `pads` has the low
    amounts, then the high ones. conv_c1: ranks agree; conv_c2: channels = w channels * group;
    conv_c3: attribute lengths match the spatial rank; conv_c4: outputs divisible by group.
  }];
  let arguments = (ins Lathe_Tensor:$x, Lathe_Tensor:$w, DenseI64ArrayAttr:$strides,
                       DenseI64ArrayAttr:$pads, DenseI64ArrayAttr:$dilations, I64Attr:$group,
                       Lathe_ConvLayoutAttr:$layout);
  let results = (outs Lathe_Tensor:$y);
  let extraClassDeclaration = [{
    std::optional<::lathe::ReduceKind> getCombiner() { return ::lathe::ReduceKind::Sum; }
    void getSizeRules(::llvm::SmallVectorImpl<::lathe::SizeRule> &rules);
  }];
  let extraClassDefinition = latheCompatibleTypes;
}
def Lathe_PoolOp : Lathe_InferredOp<"pool"> {
  let summary = "y = maximum or average of x over windows";
  let description = [{
    `ceil_mode` rounds the number of windows up; `count_include_pad` divides an average by the
    whole window. pool_c1: attribute lengths match the spatial rank.
  }];
  let arguments = (ins Lathe_Tensor:$x, Lathe_PoolKindAttr:$kind, DenseI64ArrayAttr:$kernel,
                       DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$pads,
                       DenseI64ArrayAttr:$dilations, BoolAttr:$ceil_mode, BoolAttr:$count_include_pad,
                       DefaultValuedAttr<I64Attr, "2">:$p, Lathe_ConvLayoutAttr:$layout);
  let results = (outs Lathe_Tensor:$y);
  let extraClassDeclaration = [{
    std::optional<::lathe::ReduceKind> getCombiner();
    void getSizeRules(::llvm::SmallVectorImpl<::lathe::SizeRule> &rules);
  }];
  let extraClassDefinition = latheCompatibleTypes;
}
def Lathe_OverlapAddOp : Lathe_InferredOp<"overlap_add"> {
  let summary = "y = windows of x laid over an image where they were cut from it, and added";
  let description = [{
    x [N, C * window, L]: a column for each place of the window, in row-major order, as im2col cuts them;
    y [N, C, image...] is the sum of what each column has for a pixel. Pads are cut off.
    overlap_add_c1: x has rank 3; overlap_add_c2: attribute lengths match the image;
    overlap_add_c3: window, strides and dilations are positive, pads not negative;
    overlap_add_c4: rows are a multiple of the window; overlap_add_c5: as many columns as places.
  }];
  let arguments = (ins Lathe_Tensor:$x, Lathe_DimArrayAttr:$image, DenseI64ArrayAttr:$window,
                       DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$pads,
                       DenseI64ArrayAttr:$dilations);
  let results = (outs Lathe_Tensor:$y);
  let extraClassDeclaration = [{
    std::optional<::lathe::ReduceKind> getCombiner() { return ::lathe::ReduceKind::Sum; }
    /// How many places the window has along each dimension of the image.
    static std::vector<::lathe::DimExpr> places(::llvm::ArrayRef<::lathe::DimExpr> image,
        ::llvm::ArrayRef<int64_t> window, ::llvm::ArrayRef<int64_t> strides,
        ::llvm::ArrayRef<int64_t> pads, ::llvm::ArrayRef<int64_t> dilations);
  }];
  let extraClassDefinition = latheCompatibleTypes;
}
def Lathe_WindowSquaresOp : Lathe_InferredOp<"window_squares"> {
  let summary = "y[.., i, ..] = sum of x[.., j, ..]^2 for j from i - before, `size` of them, along axis; 0 outside x";
  let description = [{
    window_squares_c1: axis is inside the rank; window_squares_c2: size is positive, before from 0 to size - 1.
  }];
  let arguments = (ins Lathe_Tensor:$x, I64Attr:$axis, I64Attr:$size, I64Attr:$before);
  let results = (outs Lathe_Tensor:$y);
  let extraClassDeclaration = "std::optional<::lathe::ReduceKind> getCombiner() { return ::lathe::ReduceKind::Sum; }";
  let extraClassDefinition = latheCompatibleTypes;
}
def Lathe_RecurrentOp : Lathe_StructuredOp<"recurrent", [AttrSizedOperandSegments]> {
  let summary = "One direction of an LSTM or GRU: all steps, from inputs that are multiplied already";
  let description = [{
    x [S, B, G * H] is the input times its weights plus biases, r [G * H, H] what the hidden state
    is multiplied by; gates stand as in ONNX: i, o, f, c of an LSTM (which has a cell c [B, H]), or
    z, r, h of a GRU. ys [S, B, H], and the last cell [B, H] of an LSTM. Gates are sigmoids, values
    hyperbolic tangents. `reset_last`: a GRU resets the product r h + bias, not h.
    recurrent_c1: sizes agree; recurrent_c2: a bias [H] goes with reset_last alone.
  }];
  let arguments = (ins Lathe_Tensor:$x, Lathe_Tensor:$r, Lathe_Tensor:$h, Optional<Lathe_Tensor>:$c,
                       Optional<Lathe_Tensor>:$bias, UnitAttr:$reverse, UnitAttr:$reset_last);
  let results = (outs Variadic<Lathe_Tensor>:$outputs);
  let extraClassDeclaration = "::lathe::DimExpr getFlops();";
  let hasVerifier = 1;
}
