# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Queries and keys that are rotated by their positions beside values, as decoders have them, against numpy in double.
On sm_90a all of it is one product that stores each head in its place."""
import importlib.util

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

import lathe_cli

HALVES = {"bf16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16, 8e-3), "f16": (TensorProto.FLOAT16, np.float16, 2e-3)}


def tensor(name, code, values):
    return helper.make_tensor(name, code, values.shape, values.tobytes(), raw=True)


def rotation(node, form, name, y, shape):
    """What rotates y's halves together, or its neighbours: `slices` with steps (GPT-J), of `part` of each head alone,
    a dimension of `twos` (Meta's Llama), or the `op`."""
    if form == "halves":
        lower = node("Slice", [y, "low", "half", "last"], f"l{name}")
        upper = node("Neg", [node("Slice", [y, "half", "whole", "last"], f"u{name}")], f"n{name}")
        other = node("Mul", [node("Concat", [upper, lower], f"c{name}", axis=3), "sin"], f"o{name}")
        return node("Add", [node("Mul", [y, "cos"], f"d{name}"), other], name)
    if form == "op":
        return node("RotaryEmbedding", [y, "cos", "sin"], name, interleaved=1)
    stacked = lambda a, b, sizes, to: node("Reshape", [node("Concat", [
        node("Unsqueeze", [a, "end"], f"e{name}"), node("Unsqueeze", [b, "end"], f"f{name}")], f"g{name}", axis=4), sizes], to)
    if form == "twos":
        two = node("Split", [node("Reshape", [y, shape("twos")], f"z{name}")], [f"y{name}", f"u{name}"], axis=4, num_outputs=2)
        a, b = (node("Squeeze", [part, "end"], part + "s") for part in two)
        times = lambda x, c: node("Mul", [x, c], x + c)
        return stacked(node("Sub", [times(a, "cos"), times(b, "sin")], f"re{name}"),
                       node("Add", [times(a, "sin"), times(b, "cos")], f"im{name}"), shape("whole"), name)
    whole, to = y, name
    if form == "part":
        y, to = node("Slice", [whole, "low", "half", "last"], f"h{name}"), f"i{name}"
    end = "half" if form == "part" else "whole"
    first = node("Slice", [y, "low", end, "last", "two"], f"l{name}")
    second = node("Neg", [node("Slice", [y, "one", end, "last", "two"], f"u{name}")], f"n{name}")
    other = node("Mul", [stacked(second, first, shape(end), f"c{name}"), "sin"], f"o{name}")
    y = node("Add", [node("Mul", [y, "cos"], f"d{name}"), other], to)
    return y if form != "part" else node("Concat", [y, node("Slice", [whole, "half", "whole", "last"], f"j{name}")], name, axis=3)


def rotated(form, want, cos, sin):
    """The same in numpy."""
    size = want.shape[-1]
    if form == "halves":
        return want * cos + np.concatenate([-want[..., size // 2:], want[..., :size // 2]], -1) * sin
    if form == "part":
        return np.concatenate([rotated("slices", want[..., :size // 2], cos, sin), want[..., size // 2:]], -1)
    if form != "slices":
        cos, sin = (np.repeat(angle, 2, -1) for angle in (cos, sin))
    if form == "op":
        cos, sin = cos[:, None], sin[:, None]
    return want * cos + np.stack([-want[..., 1::2], want[..., ::2]], -1).reshape(want.shape) * sin


def model(code, dtype, batch, tokens, heads, size, width, biased, heads_first, form, rng):
    """The graph, and its constants by name. `heads_first`: heads go before tokens ahead of the rotation."""
    nodes, constants, known = [], [], {}
    outputs = lambda output: output if isinstance(output, list) else [output]
    node = lambda op, inputs, output, **more: nodes.append(helper.make_node(op, inputs, outputs(output), **more)) or output
    for name, values in (("low", [0]), ("one", [1]), ("two", [2]), ("half", [size // 2]), ("whole", [size]), ("last", [3]),
                         ("end", [4])):
        constants.append(numpy_helper.from_array(np.array(values, np.int64), name))
    for name, count in zip("qkv", heads):
        known[name] = (rng.integers(-6, 7, (count * size, width)) / 64).astype(dtype)
        constants.append(tensor(f"w{name}", code, known[name]))
        y = node("MatMul", ["x", node("Transpose", [f"w{name}"], f"t{name}", perm=[1, 0])], f"m{name}")
        known[name + "b"] = np.zeros(count * size, dtype)
        if biased:
            known[name + "b"] = rng.uniform(-1, 1, count * size).astype(dtype)
            constants.append(tensor(f"b{name}", code, known[name + "b"]))
            y = node("Add", [y, f"b{name}"], f"a{name}")
        shape = np.array([batch, tokens, count, size], np.int64)
        constants.append(numpy_helper.from_array(shape, f"s{name}"))
        y = node("Reshape", [y, f"s{name}"], f"r{name}")
        if heads_first:
            y = node("Transpose", [y], f"p{name}", perm=[0, 2, 1, 3])
        if name != "v":
            front = [batch, count, tokens] if heads_first else [batch, tokens, count]

            def shape(kind, front=front, name=name):
                sizes = {"twos": [size // 2, 2], "half": [size // 2], "whole": [size]}[kind]
                constants.append(numpy_helper.from_array(np.array(front + sizes, np.int64), kind + name))
                return kind + name
            rotation(node, form, name, y, shape)
        else:  # what is returned as it is would be a product by itself
            node("Neg", [y], name)
    value = helper.make_tensor_value_info
    width_of_angles = size if form in ("halves", "slices") else size // 2
    angles = [tokens, width_of_angles] if heads_first else [tokens, 1, width_of_angles]
    if form == "op":
        angles = [batch, *angles]
    shapes = {n: [batch, c, tokens, size] if heads_first else [batch, tokens, c, size] for n, c in zip("qkv", heads)}
    graph = helper.make_graph(
        nodes, "g", [value("x", code, [batch, tokens, width]), value("cos", code, angles), value("sin", code, angles)],
        [value(n, code, shapes[n]) for n in "qkv"], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23 if form == "op" else 21)], ir_version=10), known, angles


CASES = [("bf16", 1, 1, (4, 2, 2), 128, 512, False, True, "halves"), ("f16", 1, 1, (3, 2, 2), 64, 264, True, False, "halves"),
         ("bf16", 1, 40, (4, 2, 2), 128, 328, False, True, "halves"), ("bf16", 2, 1088, (6, 2, 2), 64, 256, True, True, "halves"),
         ("f16", 1, 2117, (9, 3, 3), 128, 264, False, True, "halves"), ("bf16", 3, 705, (2, 2, 2), 256, 328, False, True, "halves"),
         ("bf16", 1, 2048, (32, 8, 8), 128, 136, True, False, "halves"), ("bf16", 2, 1024, (5, 2, 2), 192, 256, False, False, "halves"),
         ("f16", 1, 24, (2, 2, 2), 64, 2048, True, True, "halves"),
         ("bf16", 1, 1, (4, 2, 2), 128, 512, False, True, "slices"), ("f16", 1, 1, (3, 2, 2), 64, 264, True, False, "twos"),
         ("bf16", 1, 40, (4, 2, 2), 128, 328, False, True, "op"), ("bf16", 1, 1, (4, 2, 2), 128, 3072, True, True, "op"),
         ("f16", 1, 1, (18, 4, 4), 128, 3072, False, True, "part"), ("bf16", 2, 1088, (6, 2, 2), 64, 256, True, True, "op"),
         ("f16", 1, 2117, (9, 3, 3), 128, 264, False, True, "slices"), ("bf16", 3, 705, (2, 2, 2), 256, 328, False, True, "twos"),
         ("bf16", 1, 2048, (32, 8, 8), 128, 136, True, False, "part"), ("bf16", 2, 1024, (5, 2, 2), 192, 256, False, False, "twos")]


@pytest.mark.parametrize("half, batch, tokens, heads, size, width, biased, heads_first, form",
                         CASES[1:3] + CASES[9:13] if lathe_cli.DEVICE == "cpu" else CASES)
def test_rotated(tmp_path, half, batch, tokens, heads, size, width, biased, heads_first, form):
    code, dtype, tolerance = HALVES[half]
    rng = np.random.default_rng(5)
    graph, known, angles = model(code, dtype, batch, tokens, heads, size, width, biased, heads_first, form, rng)
    save(graph, tmp_path / "m.onnx")
    engine = lathe_cli.compile_model(tmp_path / "m.onnx", tmp_path / "m.lathe")
    if lathe_cli.DEVICE != "cpu":
        inside = batch * tokens == 1 or batch * tokens >= 2048  # else a kernel behind the product is faster
        assert lathe_cli.launches(lathe_cli.plans(engine)[0]) == (1 if inside else 2)
    x = rng.standard_normal((batch, tokens, width)).astype(dtype)
    cos, sin = (rng.uniform(-1, 1, angles).astype(dtype) for _ in range(2))
    got = lathe_cli.run(engine, tmp_path / "o", inputs={"x": x, "cos": cos, "sin": sin})
    for name, count in zip("qkv", heads):
        w, b = known[name].astype(np.float64), known[name + "b"].astype(np.float64)
        want = (x.astype(np.float64) @ w.T + b).reshape(batch, tokens, count, size)
        if heads_first:
            want = want.transpose(0, 2, 1, 3)
        if name == "v":
            want = -want
        else:
            want = rotated(form, want, cos.astype(np.float64), sin.astype(np.float64))
        assert lathe_cli.relative_error(got[name].astype(np.float64), want) < tolerance, name


@pytest.mark.skipif(not (importlib.util.find_spec("nvidia") and importlib.util.find_spec("nvidia.cu13")),
                    reason="kernels are compiled by NVRTC")
@pytest.mark.parametrize("case, family", [(0, "gemv.row"), (5, "gemm.cooperative"), (9, "gemv.row"), (12, "gemv.row"),
                                          (14, "gemm.cooperative"), (16, "gemm.cooperative")])
def test_one_kernel(tmp_path, case, family):
    """One row, and tiles whose heads are stored one by one: one launch."""
    half, *sizes = CASES[case]
    code, dtype, _ = HALVES[half]
    save(model(code, dtype, *sizes, np.random.default_rng(5))[0], tmp_path / "m.onnx")
    engine = lathe_cli.compile_model(tmp_path / "m.onnx", tmp_path / "m.lathe", target="sm_90a")
    kernels = lathe_cli.plans(engine)[0]["kernels"]
    assert [k["launches"] for k in kernels] == [1]
    assert kernels[0]["variants"][0]["config"].startswith(family)
