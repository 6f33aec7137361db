//===- LathePagedOps.td - keys and values in pages ---------*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
include "lathe/ir/LatheBase.td"

def Lathe_KvAppendOp : Lathe_InferredOp<"kv_append"> {
  let summary = "y = pool with the keys and values of new tokens in their slots of one layer";
  let description = [{
    `lathe.kv_append %pool, %slots, %k, %v {layer = 0}`. pool [N, L, 2, P, G, D]: N pages of P tokens
    for each of L layers, keys at 0 and values at 1 of the third dimension, as engine::KvLayout with
    KvOrder::TokenHeadDim describes a page; slots [T], integers; k, v [T, G, D]. With s = slots[t]:
    y[s / P, layer, 0, s mod P] = k[t], y[s / P, layer, 1, s mod P] = v[t]. All else is the pool's. No two
    tokens name one slot.

    kv_append_c1: the pool has rank 6, two parts and constant sizes but for N; kv_append_c2: layer is one
    of the pool's; kv_append_c3: k and v are [T, G, D] of the pool's type; kv_append_c4: slots are T
    integers.
  }];
  let arguments = (ins Lathe_Tensor:$pool, Lathe_Tensor:$slots, Lathe_Tensor:$k, Lathe_Tensor:$v,
                       I64Attr:$layer);
  let results = (outs Lathe_Tensor:$y);
  let extraClassDeclaration = "::lathe::OperandAccess getAccess(unsigned operand);";
  let extraClassDefinition = latheCompatibleTypes;
}

def Lathe_PagedAttentionOp : Lathe_InferredOp<"paged_attention", [AttrSizedOperandSegments]> {
  let summary = "Causal attention of tokens of several sequences whose keys and values lie in pages";
  let description = [{
    `lathe.paged_attention %q, %pool, %tables, %requests, %positions {layer = 0, scale = 0.125}`.
    q [T, H, D]: tokens of all sequences, one after another; pool as in lathe.kv_append; tables [R, M],
    integers: the page that holds tokens m P to m P + P - 1 of request r; requests [T], integers: the row
    of tables of each token; positions [T], integers: the place of each token in its sequence.
    y [T, H, D]: token t attends to the keys 0 to positions[t] of its sequence, its own among them, query
    head h to key head h / (H / G): softmax(scale * q k^T) v, scores capped by `softcap` c (c tanh(s / c)),
    with `window_left` w only keys from positions[t] - w on. `sink` [H]: a score without a key and a value
    that takes part in the softmax of its head. `slopes` [H] (ALiBi): slopes[h] * (key - positions[t]) is
    added to each capped score. Entries of tables behind a token's last page are
    not read, but name pages of the pool.

    paged_attention_c1: the pool has rank 6, two parts and constant sizes but for N; paged_attention_c2:
    layer is one of the pool's; paged_attention_c3: q is [T, H, D] of the pool's type and depth, H a
    multiple of G; paged_attention_c4: tables are [R, M], requests and positions T integers;
    paged_attention_c5: a window is not negative; paged_attention_c6: sink and slopes are
    H floats.
  }];
  let arguments = (ins Lathe_Tensor:$q, Lathe_Tensor:$pool, Lathe_Tensor:$tables, Lathe_Tensor:$requests,
                       Lathe_Tensor:$positions, Optional<Lathe_Tensor>:$sink, Optional<Lathe_Tensor>:$slopes,
                       I64Attr:$layer, F64Attr:$scale,
                       OptionalAttr<F64Attr>:$softcap, OptionalAttr<I64Attr>:$window_left);
  let results = (outs Lathe_Tensor:$y);
  let assemblyFormat = [{
    $q `,` $pool `,` $tables `,` $requests `,` $positions (`sink` $sink^)? (`slopes` $slopes^)? attr-dict `:`
    functional-type(operands, results)
  }];
  let extraClassDeclaration = "::lathe::OperandAccess getAccess(unsigned operand);";
  let extraClassDefinition = latheCompatibleTypes;
}
