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

    With `scales` [N, L, 2, G, P] (f32; KvScales::HeadToken) a pool holds codes c of c * scale, one scale for a
    head of a token: scale = max |x| / M over its D numbers x, c = round(x / scale), to even; 0 where all are 0. The
    second result is `scales` with those of the new tokens. A pool of i8 has D codes, M = 127; one of ui8 has
    codes of four bits, M = 7: byte j of a head's D / 2 is (c[j] + 8) + 16 (c[j + D / 2] + 8).

    kv_append_c1: the pool has rank 6, two parts and constant sizes but for N; kv_append_c2: layer is one
    of the pool's; kv_append_c3: k and v are [T, G, D] of the pool's type, or floats where there are scales;
    kv_append_c4: slots are T integers; kv_append_c5: scales are f32 [N, L, 2, G, P] of the pool, which is of i8 or ui8.
  }];
  let arguments = (ins Lathe_Tensor:$pool, Lathe_Tensor:$slots, Lathe_Tensor:$k, Lathe_Tensor:$v,
                       Optional<Lathe_Tensor>:$scales, I64Attr:$layer);
  let results = (outs Lathe_Tensor:$y, Optional<Lathe_Tensor>:$next_scales);
  let extraClassDeclaration = "::lathe::OperandAccess getAccess(unsigned operand);";
  let extraClassDefinition = latheCompatibleTypes;
}

def Lathe_PagedAttentionOp : Lathe_InferredOp<"paged_attention", [AttrSizedOperandSegments]> {
  let summary = "Causal attention of tokens of several sequences whose keys and values lie in pages";
  let description = [{
    `lathe.paged_attention %q, %pool, %tables, %requests, %positions {layer = 0, scale = 0.125}`.
    q [T, H, D]: tokens of all sequences, one after another; pool as in lathe.kv_append; tables [R, M],
    integers: the page that holds tokens m P to m P + P - 1 of request r; requests [T], integers: the row
    of tables of each token; positions [T], integers: the place of each token among those that its row names,
    which is that in its sequence where it names all of it.
    y [T, H, D]: token t attends to the keys 0 to positions[t] of its row, its own among them, query
    head h to key head h / (H / G): softmax(scale * q k^T) v, scores capped by `softcap` c (c tanh(s / c)),
    with `window_left` w only keys from positions[t] - w on, and beside it with `first_keys` n also the keys below n. `sink` [H]: a score without a key and a value
    that takes part in the softmax of its head. `slopes` [H] (ALiBi): slopes[h] * (key - positions[t]) is
    added to each capped score. Entries of tables behind a token's last page are
    not read, but name pages of the pool. With `scales` keys and values are the codes of lathe.kv_append times
    them, rounded to the type of q.

    paged_attention_c1: the pool has rank 6, two parts and constant sizes but for N; paged_attention_c2:
    layer is one of the pool's; paged_attention_c3: q is [T, H, D] of the pool's type and depth, H a
    multiple of G, of floats where there are scales; paged_attention_c4: tables are [R, M], requests and positions T integers;
    paged_attention_c5: a window is not negative, and first keys, one at least, go with one; paged_attention_c6: sink and slopes are
    H floats; paged_attention_c7: scales are f32 [N, L, 2, G, P] of the pool, which is of i8 or ui8.
  }];
  let arguments = (ins Lathe_Tensor:$q, Lathe_Tensor:$pool, Lathe_Tensor:$tables, Lathe_Tensor:$requests,
                       Lathe_Tensor:$positions, Optional<Lathe_Tensor>:$sink, Optional<Lathe_Tensor>:$slopes,
                       Optional<Lathe_Tensor>:$scales, I64Attr:$layer, F64Attr:$scale,
                       OptionalAttr<F64Attr>:$softcap, OptionalAttr<I64Attr>:$window_left,
                       OptionalAttr<I64Attr>:$first_keys);
  let results = (outs Lathe_Tensor:$y);
  let assemblyFormat = [{
    $q `,` $pool `,` $tables `,` $requests `,` $positions (`sink` $sink^)? (`slopes` $slopes^)? (`scales` $scales^)? attr-dict `:`
    functional-type(operands, results)
  }];
  let extraClassDeclaration = "::lathe::OperandAccess getAccess(unsigned operand);";
  let extraClassDefinition = latheCompatibleTypes;
}
