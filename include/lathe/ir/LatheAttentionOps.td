//===- LatheAttentionOps.td - attention and its positions --*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
include "lathe/ir/LatheBase.td"

def Lathe_RopeOp : Lathe_InferredOp<"rope"> {
  let summary = "y = x with pairs of the first `rotary` columns rotated by angles (rotary position embedding)";
  let description = [{
    `lathe.rope %x, %cos, %sin {rotary = 64}`. Two columns (a, b) of the last dimension make a pair:
    y[a] = x[a] cos - x[b] sin, y[b] = x[b] cos + x[a] sin; a, b = p, p + rotary / 2 (halves), or with
    `interleaved` a, b = 2 p, 2 p + 1 (neighbours). Columns from `rotary` on stay as they are.

    The last dimension of cos and sin is rotary / 2, an element for each pair, or rotary, an element for
    each column; the others broadcast to those of x. Without sin, `cos` holds angles in radians. Tables by
    position are gathered ahead (`lathe.gather`): all heads and layers share that.

    rope_c1: rotary is even, at least 2 and no more than the columns; rope_c2: the last dimension of cos
    is rotary / 2 or rotary; rope_c3: cos and sin have the same sizes, which broadcast to x;
    rope_c4: all operands are floats of one type.
  }];
  let arguments = (ins Lathe_Tensor:$x, Lathe_Tensor:$cos, Optional<Lathe_Tensor>:$sin, I64Attr:$rotary,
                       UnitAttr:$interleaved);
  let results = (outs Lathe_Tensor:$y);
  let extraClassDeclaration = latheWork<3>.text # [{
    ::lathe::OperandAccess getAccess(unsigned operand);
  }];
  let extraClassDefinition = latheCompatibleTypes;
  let hasFolder = 1;
}
def Lathe_AttentionOp : Lathe_InferredOp<"attention", [AttrSizedOperandSegments]> {
  let summary = "y = softmax(scores) v for each batch and head, scores = scale * q k^T over the keys that count";
  let description = [{
    q [B, H, S, D], k [B, G, T, D], v [B, G, T, E], y [B, H, S, E]; query head h reads key head
    h / (H / G). Scores are scaled, capped (`softcap` c: c tanh(s / c)), then `bias` is added, which
    broadcasts to [B, H, S, T]. A query sees key t where all of these hold:

    - `starts`[b] <= t < `lengths`[b]: integers, 0 and T where absent;
    - `causal`: t <= p; `window_left` w: t >= p - w; `window_right` w: t <= p + w. The place p of query i
      among the keys is i + `offset`[b], without that operand i + lengths[b] - S: the last query
      stands at the last key;
    - `documents`: the numbers of query, [B, S], and key, [B, T], are equal;
    - `mask`, i1, broadcasts to [B, H, S, T]: true.

    starts, lengths and offset broadcast to [B], documents to [B, S] and [B, T]. `sink` broadcasts to
    [B, H, S, 1]: a score without a key and a value that takes part in the softmax. A row with
    nothing to see gives zeros (ONNX) when `zero_masked_rows`, else what the softmax gives.

    `log_sum_exp`: a second result lse [B, H, S] of f32 (f64 of f64), the natural logarithm of the sum
    of e^score over what a row sees, its sink among them; -inf for a row with nothing to see, whatever y
    has there. Parts of the keys combine by it, as sequences that are split among devices or a prefix
    that is cached need: with l = log(e^l1 + e^l2), y = y1 e^(l1 - l) + y2 e^(l2 - l), where a part with
    l = -inf counts nothing.

    attention_c1: ranks 4; attention_c2: heads divisible; attention_c3: depth of q and k equal;
    attention_c4: k and v lengths equal; attention_c5: bias, mask and sink broadcast to the scores;
    attention_c6: a bias or sink is of floats, a mask of i1; attention_c7: starts, lengths and offset
    are integers that broadcast to [B]; attention_c8: documents are integers of one type for both queries and keys;
    attention_c9: windows are not negative.
  }];
  let arguments = (ins Lathe_Tensor:$q, Lathe_Tensor:$k, Lathe_Tensor:$v, Optional<Lathe_Tensor>:$bias,
                       Optional<Lathe_Tensor>:$mask, Optional<Lathe_Tensor>:$starts,
                       Optional<Lathe_Tensor>:$lengths, Optional<Lathe_Tensor>:$offset,
                       Optional<Lathe_Tensor>:$query_documents, Optional<Lathe_Tensor>:$key_documents,
                       Optional<Lathe_Tensor>:$sink, F64Attr:$scale, OptionalAttr<F64Attr>:$softcap,
                       UnitAttr:$causal, OptionalAttr<I64Attr>:$window_left,
                       OptionalAttr<I64Attr>:$window_right, UnitAttr:$zero_masked_rows,
                       UnitAttr:$log_sum_exp);
  let results = (outs Lathe_Tensor:$y, Optional<Lathe_Tensor>:$lse);
  let assemblyFormat = [{
    $q `,` $k `,` $v (`bias` $bias^)? (`mask` $mask^)? (`starts` $starts^)? (`lengths` $lengths^)?
    (`offset` $offset^)? (`documents` $query_documents^ `,` $key_documents)? (`sink` $sink^)?
    attr-dict `:` functional-type(operands, results)
  }];
  let builders = [OpBuilder<(ins "::mlir::Value":$q, "::mlir::Value":$k, "::mlir::Value":$v, "double":$scale)>];
  let extraClassDeclaration = [{
    /// Whether something beyond a range of keys decides what a query sees, or is added to its scores.
    bool hasScoreOperands() { return getBias() || hidesKeysInside(); }
    /// Whether keys between the first and the last that a query sees may be hidden, or ahead of the first.
    bool hidesKeysInside() {
      return getMask() || getStarts() || getQueryDocuments() || getWindowLeft();
    }
    /// Whether the last key that is seen differs from query to query.
    bool endsPerQuery() { return getCausal() || getWindowRight(); }
    /// Whether the first key that is seen, or what a score is, differs from query to query.
    bool scoresPerQuery();
    /// Sizes [B, H, S, T], each maybe 1, over which what comes to the scores differs, key ends aside.
    std::vector<::lathe::DimExpr> scoreDims();
  }];
  let extraClassDefinition = latheCompatibleTypes;
}
