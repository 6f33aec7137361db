# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Activations, products and small ops of com.microsoft against onnxruntime, over random attributes."""
import os
import re

import numpy as np
import pytest
from onnx import helper

import lathe_cli
from microsoft import ROUNDS, Case, agree, floats, maybe, pick, without


def shape(rng, rank, least=1, most=7):
    return [int(s) for s in rng.integers(least, most + 1, rank)]


def gelus(rng, op):
    for _ in range(ROUNDS):
        dims = shape(rng, rng.integers(1, 5))
        x, b = floats(rng, *dims) * 3, floats(rng, dims[-1])
        bias = {"Gelu": [], "BiasGelu": [b]}.get(op, [] if rng.integers(2) else [b])
        yield Case(op, [x, *bias], symbols={0: ["N"]} if rng.integers(2) and len(dims) > 1 else {})


def fused_matmul(rng, op):
    for i in range(ROUNDS + 10):
        rank, k = rng.integers(2, 5), int(rng.integers(1, 20))
        batch, m, n = shape(rng, rank - 2), *shape(rng, 2, 1, 20)
        attributes = without(transA=maybe(rng, 1), transB=maybe(rng, 1), alpha=maybe(rng, float(rng.uniform(-2, 2))))
        turn = {s: op == "FusedMatMul" and rank > 2 and rng.integers(2) for s in "AB"}
        operands = []
        for side, rows, columns in (("A", m, k), ("B", k, n)):
            if f"trans{side}" in attributes:
                rows, columns = columns, rows
            operands.append(floats(rng, *([rows, *batch] if turn[side] else [*batch, rows]), columns))
            if turn[side]:
                attributes[f"transBatch{side}"] = 1
        yield Case(op, operands, attributes, constants=(1,) if i % 3 == 0 else ())
    yield Case(op, [floats(rng, 5), floats(rng, 2, 5, 3)], {})
    yield Case(op, [floats(rng, 2, 5, 3), floats(rng, 3)], {"alpha": 0.5})


ACTIVATIONS = {"Relu": (), "Tanh": (), "Sigmoid": (), "LeakyRelu": (0.2,), "HardSigmoid": (0.3, 0.4)}


def fused_gemm(rng, op):
    activations = ACTIVATIONS | {"Softplus": (), "ThresholdedRelu": (0.5,), "Elu": (0.7,), "Softsign": ()}
    for i in range(ROUNDS):
        m, k, n = shape(rng, 3, 1, 20)
        a, b = rng.integers(2, size=2)
        name = [*activations][i % len(activations)]
        parameters = {f"activation_{p}": v for p, v in zip(("alpha", "beta"), activations[name])}
        c = maybe(rng, floats(rng, *pick(rng, [n], [m, n], [m, 1], [1])))
        yield Case(op, [floats(rng, *((k, m) if a else (m, k))), floats(rng, *((n, k) if b else (k, n))), c],
                   without(transA=int(a), transB=int(b), alpha=maybe(rng, 0.5), beta=maybe(rng, 2.0), activation=name,
                           **parameters))


def windows(rng, rank):
    kernel = shape(rng, rank, 1, 3)
    return without(kernel_shape=kernel, strides=maybe(rng, shape(rng, rank, 1, 2)), dilations=maybe(rng, shape(rng, rank, 1, 2)),
                   pads=maybe(rng, shape(rng, 2 * rank, 0, 2)))


def fused_conv(rng, op):
    for i in range(ROUNDS):
        group, size = pick(rng, 1, 2), shape(rng, 2, 9, 12)
        attributes = windows(rng, 2)
        x, w = floats(rng, 2, 2 * group, *size), floats(rng, 4 * group, 2, *attributes["kernel_shape"])
        name = [None, *ACTIVATIONS, "Clip"][i % 7]
        parameters = {**ACTIVATIONS, "Clip": (-0.5, 1.5), None: ()}[name]
        yield Case(op, [x, w, maybe(rng, floats(rng, 4 * group))],
                   attributes | without(group=group, activation=name, activation_params=list(parameters) or None),
                   constants=(1, 2))


def fused_conv_sum(rng, op):
    """The residual has the sizes of the result."""
    for _ in range(ROUNDS):
        size = shape(rng, 2, 5, 9)
        yield Case(op, [floats(rng, 1, 3, *size), floats(rng, 4, 3, 3, 3), floats(rng, 4), floats(rng, 1, 4, *size)],
                   without(pads=[1, 1, 1, 1], activation=maybe(rng, "Relu")), constants=(1, 2))


def max_pool(rng, op):
    for _ in range(ROUNDS):
        attributes = windows(rng, 2)
        attributes["pads"] = [0] * 4
        x = rng.integers(0, 256, (2, *shape(rng, 2, 9, 12), 5)).astype(np.uint8)
        yield Case(op, [x if rng.integers(2) else x.view(np.int8)], attributes)


def cdist(rng, op):
    for _ in range(ROUNDS):
        m, k, n = shape(rng, 3, 1, 20)
        yield Case(op, [floats(rng, m, n), floats(rng, k, n)], without(metric=pick(rng, "sqeuclidean", "euclidean", None)))


def expand_dims(rng, op):
    for _ in range(ROUNDS):
        dims = shape(rng, rng.integers(1, 4))
        yield Case(op, [floats(rng, *dims), np.array(int(rng.integers(-len(dims) - 1, len(dims) + 1)), np.int32)], constants=(1,))


def trilu(rng, op):
    for _ in range(ROUNDS):
        dims = shape(rng, rng.integers(2, 5))
        yield Case(op, [floats(rng, *dims), maybe(rng, np.array(int(rng.integers(-5, 6))))], without(upper=maybe(rng, 0)))


def ranges(rng, op):
    for _ in range(ROUNDS):
        dtype = pick(rng, np.float32, np.int32, np.int64, np.int16)
        start, step = int(rng.integers(-9, 9)), int(pick(rng, -3, -1, 1, 2, 3))
        values = [start, start + step * int(rng.integers(0, 9)), step]
        yield Case(op, [np.array(v, dtype) for v in values][:2 if step == 1 else 3], constants=(0, 1, 2))


def pads(rng, op):
    for _ in range(ROUNDS):
        dims, mode = shape(rng, rng.integers(1, 4), 4, 7), pick(rng, None, "constant", "reflect", "edge")
        amounts = rng.integers(-2 if mode in (None, "constant") else 0, 3, 2 * len(dims))
        yield Case(op, [floats(rng, *dims), amounts if rng.integers(2) else amounts[None],
                        np.array(1.5, np.float32) if mode in (None, "constant") and rng.integers(2) else None],
                   without(mode=mode), constants=(1,))


def grid_sample(rng, op):
    for _ in range(ROUNDS):
        grid = rng.uniform(-1.3, 1.3, (2, *shape(rng, 2), 2)).astype(np.float32)
        yield Case(op, [floats(rng, 2, 3, *shape(rng, 2, 3, 9)), grid],
                   without(mode=pick(rng, None, "bilinear", "nearest", "bicubic"), align_corners=maybe(rng, 1),
                           padding_mode=pick(rng, None, "border", "reflection")))


def gather_nd(rng, op):
    for _ in range(ROUNDS):
        dims = shape(rng, rng.integers(1, 4))
        depth = int(rng.integers(1, len(dims) + 1))
        indices = np.stack([rng.integers(0, d, (3, 2)) for d in dims[:depth]], -1)
        yield Case(op, [floats(rng, *dims), indices.astype(pick(rng, np.int64, np.int32))])


def quick_gelu(rng, op):
    for _ in range(ROUNDS):
        yield Case(op, [floats(rng, *shape(rng, 3))], without(alpha=maybe(rng, float(rng.uniform(0.5, 2)))))


def channels_last(rng, op):
    """The convolutions of onnxruntime's GPU: a Conv between transposes, then what follows it."""
    for case in (fused_conv if op == "NhwcConv" else fused_conv_sum)(rng, op):
        x, w, bias, *residual = case.inputs
        activation = case.attributes.pop("activation", None) if op == "NhwcFusedConv" else case.attributes.pop("activation", 0) and None
        case.attributes.pop("activation_params", None)
        attributes = dict(case.attributes)

        def reference(names, results, prefix, activation=activation, attributes=attributes):
            node = helper.make_node
            name = lambda t: prefix + t
            nodes = [node("Transpose", [names[0]], [name("x")], perm=[0, 3, 1, 2]),
                     node("Conv", [name("x"), *names[1:3]], [name("c")], **attributes),
                     node("Transpose", [name("c")], [name("t")], perm=[0, 2, 3, 1])]
            last = "t"
            if len(names) > 3:
                nodes.append(node("Add", [name(last), names[3]], [name("s")]))
                last = "s"
            return nodes + [node(activation or "Identity", [name(last)], results)]

        last = [np.ascontiguousarray(v.transpose(0, 2, 3, 1)) for v in (x, *residual)]
        yield Case(op, [last[0], w, bias, *last[1:]], attributes | without(activation=activation), constants=(1, 2),
                   reference=reference)


def bias_split_gelu(rng, op):
    for _ in range(ROUNDS):
        half = int(rng.integers(1, 20))

        def reference(names, results, prefix):
            return [helper.make_node("Add", names, [prefix + "s"]), helper.make_node("Split", [prefix + "s"], [prefix + "a", prefix + "b"], axis=2, num_outputs=2),
                    helper.make_node("Gelu", [prefix + "b"], [prefix + "g"]), helper.make_node("Mul", [prefix + "a", prefix + "g"], results)]

        yield Case(op, [floats(rng, *shape(rng, 2), 2 * half), floats(rng, 2 * half)], reference=reference)


def bias_add(rng, op):
    for _ in range(ROUNDS):
        dims = shape(rng, 3)
        yield Case(op, [floats(rng, *dims), floats(rng, dims[-1]), floats(rng, *dims)],
                   reference=lambda names, results, prefix: [helper.make_node("Sum", names, results)])


OPS = {"Gelu": gelus, "BiasGelu": gelus, "FastGelu": gelus, "QuickGelu": quick_gelu, "FusedMatMul": fused_matmul,
       "TransposeMatMul": fused_matmul, "FusedGemm": fused_gemm, "FusedConv": fused_conv, "NhwcMaxPool": max_pool,
       "CDist": cdist, "ExpandDims": expand_dims, "Trilu": trilu, "Range": ranges, "Pad": pads, "GridSample": grid_sample,
       "GatherND": gather_nd, "NhwcConv": channels_last, "NhwcFusedConv": channels_last, "BiasSplitGelu": bias_split_gelu,
       "BiasAdd": bias_add}


@pytest.mark.parametrize("op", OPS)
def test_op(tmp_path, op):
    agree(tmp_path, list(OPS[op](np.random.default_rng(len(op)), op)))


def test_residual_of_a_conv(tmp_path):
    agree(tmp_path, list(fused_conv_sum(np.random.default_rng(1), "FusedConv")))


LEGALIZE = os.path.join(lathe_cli.ROOT, "passes", "legalize")


def handlers():
    """Names behind `com.microsoft.` in the sources, by file."""
    found = {}
    for folder, _, files in os.walk(LEGALIZE):
        for file in files:
            if file.endswith(".cpp"):
                with open(os.path.join(folder, file)) as f:
                    for name, handler in re.findall(r'h\["com\.microsoft\.(\w+)"\] = (\w+)', f.read()):
                        found[name] = "refused" if handler.startswith("refuse") else file
    return found


def test_table():
    """The README's table has the handlers, no more and no less, at their files."""
    table = {}
    with open(os.path.join(LEGALIZE, "microsoft", "README.md")) as f:
        for left, right in re.findall(r"^\| (`.*?|refused.*?) \| (.*) \|$", f.read(), re.M):
            file = re.search(r"(\w+\.cpp)", left)
            table |= {name: file[1] if file else "refused" for name in right.split(", ")}
    assert table == handlers()


def test_all_are_tested():
    """Each handler that does not refuse has a generator of cases in a file of this family."""
    text = ""
    for file in os.listdir(os.path.dirname(__file__)):
        if file.startswith("test_microsoft"):
            with open(os.path.join(os.path.dirname(__file__), file)) as f:
                text += f.read()
    missing = [name for name, file in handlers().items() if file != "refused" and f'"{name}"' not in text]
    assert not missing


def test_first_ops_of_onnx(tmp_path):
    """Ops of ai.onnx that only onnxruntime still has."""
    rng = np.random.default_rng(5)
    cases = [Case(op, [floats(rng, 4, 5)], {"alpha": float(rng.uniform(0.3, 2)), "beta": float(rng.uniform(0.3, 2))}, domain="")
             for op in ("Affine", "ScaledTanh", "ParametricSoftplus") for _ in range(ROUNDS)]
    agree(tmp_path, cases + [Case("ThresholdedRelu", [floats(rng, 4, 5)], {"alpha": 0.3}, domain="")], opset=8)
