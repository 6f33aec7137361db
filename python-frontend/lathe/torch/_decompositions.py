# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators that torch has for itself alone, as others that mean the same: what modules of torch.nn call in inference,
and torch's own table does not decompose."""
from __future__ import annotations

from typing import Any

import torch

_F: Any = torch.nn.functional


def _attention(query: Any, key: Any, value: Any, embed_dim: int, num_head: int, qkv_weight: Any, qkv_bias: Any,
               proj_weight: Any, proj_bias: Any, mask: Any = None, need_weights: bool = True,
               average_attn_weights: bool = True, mask_type: int | None = None) -> tuple[Any, Any]:
    """torch.nn.MultiheadAttention; mask_type 0 is of [L, L], 1 of the keys that are padding, 2 of both."""
    if need_weights:
        raise NotImplementedError("attention that also gives its weights")
    parts = [_F.linear(x, w, b) for x, w, b in zip((query, key, value), qkv_weight.chunk(3), qkv_bias.chunk(3))]
    heads = [p.unflatten(-1, (num_head, embed_dim // num_head)).transpose(1, 2) for p in parts]
    if mask is not None:
        if mask_type == 1:
            mask = mask[:, None, None, :]
        mask = mask.logical_not() if mask.dtype == torch.bool else mask
    y = _F.scaled_dot_product_attention(*heads, attn_mask=mask).transpose(1, 2).flatten(2)
    return _F.linear(y, proj_weight, proj_bias), query.new_empty(0)


def _encoder_layer(src: Any, embed_dim: int, num_heads: int, qkv_weight: Any, qkv_bias: Any, proj_weight: Any,
                   proj_bias: Any, use_gelu: bool, norm_first: bool, eps: float, norm_weight_1: Any, norm_bias_1: Any,
                   norm_weight_2: Any, norm_bias_2: Any, ffn_weight_1: Any, ffn_bias_1: Any, ffn_weight_2: Any,
                   ffn_bias_2: Any, mask: Any = None, mask_type: int | None = None) -> Any:
    """torch.nn.TransformerEncoderLayer."""
    def attended(x: Any) -> Any:
        return _attention(x, x, x, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask,
                          need_weights=False, mask_type=mask_type)[0]

    def fed(x: Any) -> Any:
        x = _F.linear(x, ffn_weight_1, ffn_bias_1)
        return _F.linear(_F.gelu(x) if use_gelu else _F.relu(x), ffn_weight_2, ffn_bias_2)

    def first(x: Any) -> Any:
        return _F.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def second(x: Any) -> Any:
        return _F.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    if norm_first:
        src = src + attended(first(src))
        return src + fed(second(src))
    src = first(src + attended(src))
    return second(src + fed(src))


TABLE: dict[Any, Any] = {torch.ops.aten._native_multi_head_attention.default: _attention,
                         torch.ops.aten._transformer_encoder_layer_fwd.default: _encoder_layer}
