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
  let extraClassDefinition = latheCompatibleTypes;
  let hasFolder = 1;
}
def Lathe_ArgReduceOp : Lathe_InferredOp<"arg_reduce"> {
  let summary = "y = index (i64) of the maximum or minimum along axis; the first, or the last of equals";
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
  let extraClassDefinition = latheCompatibleTypes;
}
def Lathe_SoftmaxOp : Lathe_InferredOp<"softmax"> {
  let summary = "y = e^(x - max) / sum(e^(x - max)) along axis; with `log` its logarithm";
  let arguments = (ins Lathe_Tensor:$x, I64Attr:$axis, UnitAttr:$log);
  let results = (outs Lathe_Tensor:$y);
  let extraClassDefinition = latheCompatibleTypes;
}
def Lathe_LayerNormOp : Lathe_InferredOp<"layer_norm"> {
  let summary = "y = (x - mean) / sqrt(variance + epsilon) * scale + bias over dimensions from axis on";
  let arguments = (ins Lathe_Tensor:$x, Lathe_Tensor:$scale, Optional<Lathe_Tensor>:$bias,
                       I64Attr:$axis, F64Attr:$epsilon);
  let results = (outs Lathe_Tensor:$y);
  let extraClassDefinition = latheCompatibleTypes;
}
def Lathe_RmsNormOp : Lathe_InferredOp<"rms_norm"> {
  let summary = "y = x / sqrt(mean(x^2) + epsilon) * scale over dimensions from axis on";
  let arguments = (ins Lathe_Tensor:$x, Lathe_Tensor:$scale, I64Attr:$axis, F64Attr:$epsilon);
  let results = (outs Lathe_Tensor:$y);
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
  let extraClassDefinition = latheCompatibleTypes;
}
def Lathe_RecurrentOp : Lathe_Op<"recurrent", [Pure, AttrSizedOperandSegments]> {
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
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}
def Lathe_AttentionOp : Lathe_InferredOp<"attention"> {
  let summary = "y = softmax(scale * q k^T + mask) v for each batch and head";
  let description = [{
    q [B, H, S, D], k [B, G, T, D], v [B, G, T, E], y [B, H, S, E]; query head h reads key head
    h / (H / G). mask broadcasts to [B, H, S, T]: i1 (true = attend) or added; to [B, H, S, T + 1]: the
    last column is a sink, a score without a key that takes part in the softmax. `causal` lets query
    i see keys up to i + T - S. A row with nothing to see gives zeros (ONNX) when
    `zero_masked_rows`, else what the softmax gives.

    `log_sum_exp`: a second result lse [B, H, S] of f32 (f64 of f64), the natural logarithm of the sum
    of e^score over what a row sees, its scores scaled, capped and masked, its sink among them; -inf for
    a row with nothing to see, whatever y has there. Parts of the keys combine by it, as sequences that
    are split among devices or a prefix that is cached need: with l = log(e^l1 + e^l2),
    y = y1 e^(l1 - l) + y2 e^(l2 - l), where a part with l = -inf counts nothing.

    attention_c1: ranks 4; attention_c2: heads divisible; attention_c3: depth of q and k equal;
    attention_c4: k and v lengths equal.
  }];
  let arguments = (ins Lathe_Tensor:$q, Lathe_Tensor:$k, Lathe_Tensor:$v, Optional<Lathe_Tensor>:$mask,
                       F64Attr:$scale, UnitAttr:$causal, UnitAttr:$zero_masked_rows,
                       OptionalAttr<F64Attr>:$softcap, UnitAttr:$log_sum_exp);
  let results = (outs Lathe_Tensor:$y, Optional<Lathe_Tensor>:$lse);
  let extraClassDefinition = latheCompatibleTypes;
}
