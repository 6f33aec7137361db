# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Norms of com.microsoft against onnxruntime, over random attributes; those that it keeps in ai.onnx too."""
import numpy as np
import pytest
from onnx import helper

from microsoft import ROUNDS, Case, agree, floats, maybe, pick, without


def sizes(rng):
    """Batch, sequence, hidden."""
    return [int(rng.integers(1, 4)), int(rng.integers(1, 9)), int(rng.integers(2, 70))]


def epsilon(rng):
    return without(epsilon=maybe(rng, float(10 ** rng.uniform(-6, -1))))


def simplified(rng, op):
    for i in range(ROUNDS):
        dims, axis = sizes(rng), int(rng.integers(-3, 3))
        both = i % 2
        yield Case(op, [floats(rng, *dims), floats(rng, *dims[axis:])], epsilon(rng) | {"axis": axis}, outputs=1 + both,
                   domain="", symbols={0: ["B"]} if axis not in (0, -3) else {})


def old_layer_norm(rng, op):
    """As onnxruntime writes it for models before opset 17."""
    for _ in range(ROUNDS):
        dims, axis = sizes(rng), int(rng.integers(-3, 3))
        yield Case(op, [floats(rng, *dims), floats(rng, *dims[axis:]), floats(rng, *dims[axis:])], epsilon(rng) | {"axis": axis},
                   domain="")


def skip(rng, op):
    for _ in range(ROUNDS):
        b, s, h = dims = sizes(rng)
        simple = op == "SkipSimplifiedLayerNormalization"
        other = pick(rng, dims, dims if simple else [1, s, h], dims if simple else [s, h])
        inputs = [floats(rng, *dims), floats(rng, *other), floats(rng, h)]
        if not simple:
            inputs.append(maybe(rng, floats(rng, h)))
        inputs.append(maybe(rng, floats(rng, h)))
        total = rng.integers(2)
        yield Case(op, inputs, epsilon(rng), outputs=4 if total else 1, absent=(1, 2) if total else (),
                   symbols={0: ["B"], 1: ["B"]} if other == dims else {})


def embedding(rng, op):
    for _ in range(ROUNDS):
        b, s, h = sizes(rng)
        words, places, segments = (floats(rng, int(rng.integers(9, 20)), h) for _ in range(3))
        ids = rng.integers(0, 9, (b, s)).astype(np.int32)
        segment, mask, where = rng.integers(2, size=3)
        total = rng.integers(2)
        yield Case(op, [ids, rng.integers(0, 9, (b, s)).astype(np.int32) if segment else None, words, places,
                        segments if segment else None, floats(rng, h), floats(rng, h),
                        rng.integers(0, 2, (b, s)).astype(np.int32) if mask else None,
                        rng.integers(0, 9, (pick(rng, 1, b), s)).astype(np.int32) if where else None], epsilon(rng),
                   outputs=3 if total else 2, constants=(2, 3, 4, 5, 6), symbols={0: ["B"]} if not (segment or mask or where) else {})


def group(rng, op):
    """Against onnxruntime's GroupNormalization, which is NCHW, between what differs."""
    for _ in range(ROUNDS):
        groups, each = int(rng.integers(1, 5)), int(rng.integers(1, 9))
        channels, last, silu = groups * each, int(rng.integers(2)), int(rng.integers(2))
        n, h, w = (int(v) for v in rng.integers(1, 6, 3))
        dims = [n, h, w, channels] if last else [n, channels, h, w]
        attributes = without(groups=groups, activation=silu, channels_last=None if last else 0, epsilon=maybe(rng, 1e-3))
        inputs = [floats(rng, *dims), floats(rng, channels), floats(rng, channels)]
        short = rng.integers(2)
        if op == "SkipGroupNorm":
            inputs += [floats(rng, n, channels) if short else floats(rng, *dims), maybe(rng, floats(rng, channels))]

        def reference(names, results, prefix, attributes=attributes, last=last, silu=silu, channels=channels, n=n, short=short, dims=dims):
            node, k = helper.make_node, lambda t: prefix + t
            wide = [1, 1, 1, channels] if last else [1, channels, 1, 1]
            vector = lambda name, value: node("Constant", [], [k(name)], value_ints=value)
            x, nodes = names[0], []
            if len(names) > 3:
                nodes += [vector("skip_dims", [n, *wide[1:]] if short else list(dims)), node("Reshape", [names[3], k("skip_dims")], [k("skip")]),
                          node("Add", [x, k("skip")], [k("sum")])]
                x = k("sum")
                if len(names) > 4 and names[4]:
                    nodes += [vector("wide", wide), node("Reshape", [names[4], k("wide")], [k("bias")]), node("Add", [x, k("bias")], [k("all")])]
                    x = k("all")
                if len(results) > 1:
                    nodes.append(node("Identity", [x], [results[1]]))
            if last:
                nodes.append(node("Transpose", [x], [k("first")], perm=[0, 3, 1, 2]))
                x = k("first")
            nodes.append(node("GroupNormalization", [x, *names[1:3]], [k("norm")], num_groups=attributes["groups"],
                              epsilon=attributes.get("epsilon", 1e-5)))
            x = k("norm")
            if silu:
                nodes += [node("Sigmoid", [x], [k("sigmoid")]), node("Mul", [x, k("sigmoid")], [k("silu")])]
                x = k("silu")
            return nodes + [node("Transpose", [x], results[:1], perm=[0, 2, 3, 1]) if last else node("Identity", [x], results[:1])]

        yield Case(op, inputs, attributes, outputs=1 + (op == "SkipGroupNorm"), reference=reference)


OPS = {"SkipLayerNormalization": skip, "SkipSimplifiedLayerNormalization": skip, "EmbedLayerNormalization": embedding,
       "GroupNorm": group, "SkipGroupNorm": group, "SimplifiedLayerNormalization": simplified}


@pytest.mark.parametrize("op", OPS)
def test_op(tmp_path, op):
    agree(tmp_path, list(OPS[op](np.random.default_rng(len(op)), op)))


def test_layer_norm_before_opset_17(tmp_path):
    agree(tmp_path, list(old_layer_norm(np.random.default_rng(3), "LayerNormalization")), opset=13)
