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


def model(code, dtype, batch, tokens, heads, size, width, biased, turned, rng):
    """The graph, and its constants by name. `turned`: heads go before tokens ahead of the rotation."""
    nodes, constants, known = [], [], {}
    node = lambda op, inputs, output, **more: nodes.append(helper.make_node(op, inputs, [output], **more)) or output
    for name, values in (("low", [0]), ("half", [size // 2]), ("whole", [size]), ("last", [3])):
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
        if turned:
            y = node("Transpose", [y], f"p{name}", perm=[0, 2, 1, 3])
        if name != "v":
            lower = node("Slice", [y, "low", "half", "last"], f"l{name}")
            upper = node("Neg", [node("Slice", [y, "half", "whole", "last"], f"u{name}")], f"n{name}")
            other = node("Mul", [node("Concat", [upper, lower], f"c{name}", axis=3), "sin"], f"o{name}")
            node("Add", [node("Mul", [y, "cos"], f"d{name}"), other], name)
        else:  # what is returned as it is would be a product by itself
            node("Neg", [y], name)
    value = helper.make_tensor_value_info
    angles = [tokens, size] if turned else [tokens, 1, size]
    shapes = {n: [batch, c, tokens, size] if turned else [batch, tokens, c, size] for n, c in zip("qkv", heads)}
    graph = helper.make_graph(
        nodes, "g", [value("x", code, [batch, tokens, width]), value("cos", code, angles), value("sin", code, angles)],
        [value(n, code, shapes[n]) for n in "qkv"], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), known, angles


CASES = [("bf16", 1, 1, (4, 2, 2), 128, 512, False, True), ("f16", 1, 1, (3, 2, 2), 64, 264, True, False),
         ("bf16", 1, 40, (4, 2, 2), 128, 328, False, True), ("bf16", 2, 1088, (6, 2, 2), 64, 256, True, True),
         ("f16", 1, 2117, (9, 3, 3), 128, 264, False, True), ("bf16", 3, 705, (2, 2, 2), 256, 328, False, True),
         ("bf16", 1, 2048, (32, 8, 8), 128, 136, True, False), ("bf16", 2, 1024, (5, 2, 2), 192, 256, False, False),
         ("f16", 1, 24, (2, 2, 2), 64, 2048, True, True)]


@pytest.mark.parametrize("half, batch, tokens, heads, size, width, biased, turned",
                         CASES[1:3] if lathe_cli.DEVICE == "cpu" else CASES)
def test_rotated(tmp_path, half, batch, tokens, heads, size, width, biased, turned):
    code, dtype, tolerance = HALVES[half]
    rng = np.random.default_rng(5)
    graph, known, angles = model(code, dtype, batch, tokens, heads, size, width, biased, turned, rng)
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
        if turned:
            want = want.transpose(0, 2, 1, 3)
        if name == "v":
            want = -want
        else:
            other = np.concatenate([-want[..., size // 2:], want[..., :size // 2]], -1)
            want = want * cos.astype(np.float64) + other * sin.astype(np.float64)
        assert lathe_cli.relative_error(got[name].astype(np.float64), want) < tolerance, name


@pytest.mark.skipif(not (importlib.util.find_spec("nvidia") and importlib.util.find_spec("nvidia.cu13")),
                    reason="kernels are compiled by NVRTC")
@pytest.mark.parametrize("case, family", [(0, "gemv.row"), (5, "gemm.cooperative")])
def test_one_kernel(tmp_path, case, family):
    """One row, and tiles whose heads are stored one by one: one launch."""
    half, *sizes = CASES[case]
    code, dtype, _ = HALVES[half]
    save(model(code, dtype, *sizes, np.random.default_rng(5))[0], tmp_path / "m.onnx")
    engine = lathe_cli.compile_model(tmp_path / "m.onnx", tmp_path / "m.lathe", target="sm_90a")
    kernels = lathe_cli.plans(engine)[0]["kernels"]
    assert [k["launches"] for k in kernels] == [1]
    assert kernels[0]["variants"][0]["config"].startswith(family)
