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


def _batch_norm(x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float,
                eps: float) -> tuple[Any, ...]:
    """A batch norm that trains: the result, two values for its gradient, and the next running statistics."""
    if not training:
        raise NotImplementedError("batch norm by running statistics that could change")
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    axes = [0, *range(2, x.dim())]
    average, spread = wide.mean(axes), wide.var(axes, correction=0)
    by_channel = [1, -1] + [1] * (x.dim() - 2)
    y = (wide - average.view(by_channel)) * torch.rsqrt(spread + eps).view(by_channel)
    y = y if weight is None else y * weight.view(by_channel)
    y = y if bias is None else y + bias.view(by_channel)
    none = x.new_empty(0)
    if mean is None:
        return y.to(x.dtype), none, none
    # The running variance is that of a sample.
    nexts = (mean + momentum * (average - mean), var + momentum * (wide.var(axes, correction=1) - var))
    return y.to(x.dtype), none, none, *(n.to(mean.dtype) for n in nexts)


def _batch_norm_alone(x: Any, weight: Any, bias: Any, training: bool, momentum: float, eps: float) -> tuple[Any, ...]:
    return _batch_norm(x, weight, bias, None, None, training, momentum, eps)


TABLE: dict[Any, Any] = {torch.ops.aten._native_multi_head_attention.default: _attention,
                         torch.ops.aten._native_batch_norm_legit_functional.default: _batch_norm,
                         torch.ops.aten._native_batch_norm_legit.no_stats: _batch_norm_alone,
                         torch.ops.aten._transformer_encoder_layer_fwd.default: _encoder_layer}
