# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention forms of com.microsoft against onnxruntime, over random attributes, sizes and optional operands."""
import numpy as np
import pytest
from onnx import helper

from microsoft import DOMAIN, ROUNDS, Case, agree, floats, maybe, pick, without


def sizes(rng):
    """Batch, tokens, heads, head size."""
    return int(rng.integers(1, 4)), int(rng.integers(1, 9)), int(rng.integers(1, 5)), int(pick(rng, 4, 8, 16))


def lengths(rng, batch, keys):
    return rng.integers(1, keys + 1, batch).astype(np.int32)


def masks(rng, batch, tokens, keys):
    """Each query keeps a key, for scores that are all masked say nothing."""
    kind = rng.integers(4)
    if kind == 0:
        return None
    if kind == 1:
        return lengths(rng, batch, keys)
    shape = (batch, keys) if kind == 2 else (batch, tokens, keys)
    mask = rng.integers(0, 2, shape).astype(np.int32)
    mask[..., 0] = 1
    return mask


def projection(rng, op, quantized=False):
    b, s, h, d = sizes(rng)
    width, inner = h * d, int(rng.integers(1, 20))
    past = maybe(rng, int(rng.integers(1, 6)))
    t = s + (past or 0)
    cache = None if past is None else floats(rng, 2, b, h, past, d)
    mask = masks(rng, b, s, t)
    attributes = without(num_heads=h, unidirectional=maybe(rng, 1), scale=maybe(rng, 0.3))
    outputs = 2 if past is not None or rng.integers(2) else 1
    if quantized:
        if mask is not None and mask.ndim > 2:
            mask = None
        a, w = rng.integers(0, 256, (b, s, inner)).astype(np.uint8), rng.integers(-128, 128, (inner, 3 * width)).astype(np.int8)
        inputs = [a, w, floats(rng, 3 * width), np.float32(0.02), np.float32(0.01), mask, np.uint8(117), np.int8(2), cache]
        return Case(op, inputs, attributes, outputs=outputs, constants=(1, 2, 3, 4, 6, 7), symbols={0: ["B"]} if mask is None and past is None else {})
    v = width
    if past is None and rng.integers(2):
        v = h * int(pick(rng, 4, 8))
        attributes["qkv_hidden_sizes"] = [width, width, v]
        outputs = 1
    # onnxruntime takes a bias or keys of before, not both.
    bias = maybe(rng, floats(rng, pick(rng, 1, b), pick(rng, 1, h), s, t)) if past is None else None
    inputs = [floats(rng, b, s, inner), floats(rng, inner, 2 * width + v) / 4, floats(rng, 2 * width + v), mask, cache, bias]
    return Case(op, inputs, attributes, outputs=outputs, constants=(1, 2), symbols={0: ["B"]} if mask is None and past is None and bias is None else {})


def multi_head(rng, op):
    b, s, h, d = sizes(rng)
    form = pick(rng, "separate", "separate", "packed", "packed_kv", "heads")
    past = maybe(rng, int(rng.integers(1, 6))) if form == "separate" else None
    keys = s if form == "packed" or past is not None else int(rng.integers(1, 9))
    v = d if form != "separate" or past is not None else int(pick(rng, 4, 8))
    bias = None if form in ("heads", "packed", "packed_kv") else maybe(rng, floats(rng, 2 * h * d + h * v))
    if form == "separate":
        operands = [floats(rng, b, s, h * d), floats(rng, b, keys, h * d), floats(rng, b, keys, h * v)]
    elif form == "packed":
        operands = [floats(rng, b, s, h, 3, d), None, None]
    elif form == "packed_kv":
        operands = [floats(rng, b, s, h * d), floats(rng, b, keys, h, 2, d), None]
    else:
        operands = [floats(rng, b, s, h * d), floats(rng, b, h, keys, d), floats(rng, b, h, keys, d)]
    t = keys + (past or 0)
    mask = masks(rng, b, s, t)
    added = maybe(rng, floats(rng, pick(rng, 1, b), pick(rng, 1, h), s, t))
    cache = [None, None] if past is None else [floats(rng, b, h, past, d), floats(rng, b, h, past, d)]
    attributes = without(num_heads=h, scale=maybe(rng, 0.3), unidirectional=maybe(rng, 1) if keys == s else None)

    def apart(names, results, prefix):
        """Packed operands, which onnxruntime's CPU does not take, as separate ones."""
        node, k = helper.make_node, lambda t: prefix + t
        source, parts = (names[0], "qkv") if form == "packed" else (names[1], "kv")
        nodes = [node("Split", [source], [k(p + "5") for p in parts], axis=3, num_outputs=len(parts)),
                 node("Constant", [], [k("flat")], value_ints=[0, 0, h * d])]
        nodes += [node("Reshape", [k(p + "5"), k("flat")], [k(p)]) for p in parts]
        operands = [k("q") if form == "packed" else names[0], k("k"), k("v"), *names[3:]]
        return nodes + [node(op, operands, results, domain=DOMAIN, **attributes)]

    return Case(op, [*operands, bias, mask, added, *cache], attributes, outputs=3 if past is not None else 1, constants=(3,),
                reference=apart if form.startswith("packed") else None,
                symbols={0: ["B", "S"], 1: ["B", "S"], 2: ["B", "S"]} if form == "separate" and keys == s and past is None and mask is None and added is None else {})


def grouped(rng, op):
    b, s, g, d = sizes(rng)
    d = int(pick(rng, 16, 32))
    h = g * int(rng.integers(1, 4))
    kind = pick(rng, "prompt", "decode", "shared")
    if kind == "prompt":
        past, ends = 0, np.full(b, s)
    else:
        b, s = (b, 1) if rng.integers(2) else (1, s + 1)
        held = int(rng.integers(1, 9))
        past = held + s if kind == "shared" else held  # a shared buffer has room for what comes
        ends = np.full(b, held + s)
    total = int(ends.max())
    packed, rotary = rng.integers(2), rng.integers(2)
    operands = [floats(rng, b, s, (h + 2 * g) * d), None, None] if packed else [floats(rng, b, s, n * d) for n in (h, g, g)]
    # onnxruntime's CPU wants keys of before, maybe none.
    cache = [floats(rng, b, g, past, d), floats(rng, b, g, past, d)] if past else [None, None]
    tables = [floats(rng, 32, d // 2), floats(rng, 32, d // 2)] if rotary else [None, None]
    bias = maybe(rng, floats(rng, pick(rng, 1, b), pick(rng, 1, h), s, total)) if kind != "shared" else None
    sink = maybe(rng, floats(rng, h))
    attributes = without(num_heads=h, kv_num_heads=g, scale=maybe(rng, 0.3), do_rotary=int(rotary), rotary_interleaved=maybe(rng, 1),
                         softcap=maybe(rng, 5.0), local_window_size=maybe(rng, int(rng.integers(2, 6))))
    return Case(op, [*operands, *cache, (ends - 1).astype(np.int32), np.array(total, np.int32), *tables, None, bias, sink], attributes,
                outputs=3, constants=(6, 7, 8))


def rotary(rng, op):
    b, s, h, d = sizes(rng)
    flat = rng.integers(2)
    part = flat and h > 1 and rng.integers(2)
    half = d // 4 if part else d // 2
    x = floats(rng, b, s, h * d) if flat else floats(rng, b, h, s, d)
    positions = rng.integers(0, 20, pick(rng, (b, s), (1,)))
    attributes = without(interleaved=maybe(rng, 1), num_heads=h if part else None, rotary_embedding_dim=2 * half if part else None)
    return Case(op, [x, positions, floats(rng, 32, half), floats(rng, 32, half)], attributes, constants=(2, 3))


OPS = {"Attention": projection, "QAttention": lambda rng, op: projection(rng, op, True), "MultiHeadAttention": multi_head,
       "GroupQueryAttention": grouped, "RotaryEmbedding": rotary}


@pytest.mark.parametrize("op", OPS)
def test_op(tmp_path, op):
    rng = np.random.default_rng(len(op))
    agree(tmp_path, [OPS[op](rng, op) for _ in range(ROUNDS + 10)], 1e-5)
