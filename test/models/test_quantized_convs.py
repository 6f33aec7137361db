# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Convolutions of 8-bit codes as ONNX files say them, against numpy in double: sums exactly, codes within one and
hardly any other. For pairs of 16-bit integers, and bytes where this processor multiplies these."""
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

import lathe_cli

FLOAT, UINT8, INT8, INT32 = TensorProto.FLOAT, TensorProto.UINT8, TensorProto.INT8, TensorProto.INT32


def flags():
    try:
        with open("/proc/cpuinfo") as f:
            return next((line.split() for line in f if line.startswith("flags")), [])
    except OSError:
        return []


TARGETS = ["x86-64-v3"] + [t for t, flag in (("x86-64-v4", "avx512vl"), ("x86-64-v3-vnni", "avx_vnni"),
                                             ("x86-64-v4-vnni", "avx512_vnni")) if flag in flags()]
# channels, filters, window, strides, pads, dilations, sizes of images
FORMS = {
    "pixels": (64, 48, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1), (9, 7)),
    "pixels of odd channels": (37, 19, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1), (5, 11)),
    "every other pixel": (32, 40, (1, 1), (2, 2), (0, 0, 0, 0), (1, 1), (9, 8)),
    "3 x 3": (16, 32, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), (14, 13)),
    "3 x 3 unpadded": (20, 33, (3, 3), (1, 1), (0, 0, 0, 0), (1, 1), (8, 9)),
    "3 x 3 apart": (24, 16, (3, 3), (2, 2), (0, 1, 1, 0), (1, 1), (15, 12)),
    "first layer": (3, 32, (7, 7), (2, 2), (3, 3, 3, 3), (1, 1), (30, 31)),
    "rows apart": (6, 10, (3, 1), (1, 1), (2, 0, 2, 0), (2, 1), (12, 5)),
    "line": (10, 24, (5,), (1,), (2, 2), (1,), (40,)),
    "volume": (4, 16, (2, 3, 3), (1, 1, 1), (0, 1, 1, 1, 1, 1), (1, 1, 1), (4, 6, 5)),
}


def convolve(x, w, strides, pads, dilations):
    """Integer convolution; what pads x is 0."""
    rank = w.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0)] + [(pads[d], pads[rank + d]) for d in range(rank)])
    out = [(x.shape[2 + d] - (w.shape[2 + d] - 1) * dilations[d] - 1) // strides[d] + 1 for d in range(rank)]
    y = np.zeros((x.shape[0], w.shape[0], *out), np.int64)
    for tap in np.ndindex(*w.shape[2:]):
        part = x[(slice(None), slice(None)) + tuple(
            slice(t * dilations[d], t * dilations[d] + (out[d] - 1) * strides[d] + 1, strides[d]) for d, t in enumerate(tap))]
        y += np.einsum("nc...,fc->nf...", part, w[(slice(None), slice(None)) + tap])
    return y


def engine_of(folder, nodes, inputs, outputs, constants, target):
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(*i) for i in inputs],
                              [helper.make_tensor_value_info(*o) for o in outputs],
                              [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()])
    model = str(folder / "m.onnx")
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), model)
    return lathe_cli.compile_model(model, folder / "m.lathe", target=target)


def node(op, operands, result, **attributes):
    return helper.make_node(op, operands.split(), result.split(), **attributes)


def codes(rng, shape, dtype):
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max + 1, shape).astype(dtype)


def assert_codes(got, exact, dtype):
    """`exact`: the code before it is rounded, in double."""
    info = np.iinfo(dtype)
    want = np.clip(np.rint(exact), info.min, info.max)
    assert np.abs(got.astype(int) - want).max() <= 1
    assert np.mean(got != want) <= 1e-5 or np.abs(np.abs(exact - np.floor(exact)) - 0.5)[got != want].max() < 1e-4


def per_output(values, rank):
    return values.reshape((1, -1) + (1,) * rank)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype, zero", [(np.uint8, 117), (np.uint8, 0), (np.int8, -5)])
def test_between_codes(tmp_path, target, form, dtype, zero):
    """Codes in, codes out: scales of outputs, a bias, a residual of codes and Relu in one kernel."""
    channels, filters, window, strides, pads, dilations, size = FORMS[form]
    rank = len(window)
    rng = np.random.default_rng(len(form) + abs(zero))
    w, sw = codes(rng, (filters, channels, *window), np.int8), rng.uniform(0.001, 0.01, filters).astype(np.float32)
    bias = rng.normal(size=filters).astype(np.float32)
    onnx_type = UINT8 if dtype == np.uint8 else INT8
    x = codes(rng, (2, channels, *size), dtype)
    sums = convolve(x.astype(np.int64) - zero, w.astype(np.int64), strides, pads, dilations)
    sx, sr = np.float32(0.02), np.float32(0.7)
    sy = np.float32(sums.std() * 0.02 * 0.005 / 40)
    residual = codes(rng, sums.shape, np.uint8)
    attributes = dict(strides=strides, pads=pads, dilations=dilations)
    engine = engine_of(tmp_path, [
        node("DequantizeLinear", "x sx zx", "xd"), node("DequantizeLinear", "w sw", "wd", axis=0),
        node("DequantizeLinear", "r sr zr", "rd"), node("Conv", "xd wd b", "t", **attributes), node("Add", "t rd", "a"),
        node("Relu", "a", "p"), node("QuantizeLinear", "p sy zy", "y")],
        [("x", onnx_type, ["N", channels, *size]), ("r", UINT8, ["N", *sums.shape[1:]])], [("y", UINT8, ["N", *sums.shape[1:]])],
        {"sx": sx, "zx": dtype(zero), "w": w, "sw": sw, "b": bias, "sr": sr, "zr": np.uint8(128), "sy": sy, "zy": np.uint8(3)},
        target)
    real = (sums * (np.float64(sx) * per_output(sw.astype(np.float64), rank)) + per_output(bias.astype(np.float64), rank)
            + (residual.astype(np.float64) - 128) * np.float64(sr))
    got = lathe_cli.run(engine, tmp_path / "run", inputs={"x": x, "r": residual})["y"]
    assert_codes(got, np.maximum(real, 0) / np.float64(sy) + 3, np.uint8)
    kernels = [k["name"] for k in lathe_cli.plans(engine)[0]["kernels"]]
    assert len(kernels) <= 3, kernels  # the convolution, and what turns images channels last and back
    text = lathe_cli.lathe("inspect", engine, "--kernels")
    assert ("conv.bytes" if target.endswith("vnni") else "conv.pairs") in text


@pytest.mark.parametrize("target", TARGETS)
def test_integers(tmp_path, target):
    """QLinearConv with unsigned filters around a zero point, and ConvInteger, whose zero point a run brings."""
    rng = np.random.default_rng(3)
    w, sw = codes(rng, (24, 12, 3, 3), np.uint8), rng.uniform(0.001, 0.01, 24).astype(np.float32)
    x, zero = codes(rng, (1, 12, 10, 9), np.uint8), np.uint8(99)
    b = rng.integers(-1000, 1000, 24).astype(np.int32)
    engine = engine_of(tmp_path, [
        node("QLinearConv", "x sx zx w sw zw sy zy b", "y", pads=[1, 1, 1, 1]),
        node("ConvInteger", "x w z zw", "i", pads=[1, 1, 1, 1])],
        [("x", UINT8, [1, 12, 10, 9]), ("z", UINT8, [])], [("y", UINT8, [1, 24, 10, 9]), ("i", INT32, [1, 24, 10, 9])],
        {"sx": np.float32(0.01), "zx": np.uint8(131), "w": w, "sw": sw, "zw": np.uint8(128), "sy": np.float32(0.05),
         "zy": np.uint8(120), "b": b}, target)
    got = lathe_cli.run(engine, tmp_path / "run", inputs={"x": x, "z": zero})
    weights = w.astype(np.int64) - 128
    ones = (1, 1)
    np.testing.assert_array_equal(got["i"], convolve(x.astype(np.int64) - 99, weights, ones, (1,) * 4, ones))
    sums = convolve(x.astype(np.int64) - 131, weights, ones, (1,) * 4, ones) + per_output(b.astype(np.int64), 2)
    scale = np.float64(np.float32(0.01)) * per_output(sw.astype(np.float64), 2) / np.float64(np.float32(0.05))
    assert_codes(got["y"], sums * scale + 120, np.uint8)
    assert lathe_cli.lathe("inspect", engine, "--kernels").count("conv.") == 2


def test_largest_sums(tmp_path):
    """The largest codes everywhere: nothing saturates on the way."""
    for target in TARGETS:
        for value, weight in ((255, 127), (255, -128), (0, -128)):
            folder = tmp_path / f"{target}{value}{weight}"
            folder.mkdir()
            engine = engine_of(folder, [node("ConvInteger", "x w zx", "y")], [("x", UINT8, [1, 64, 3, 3])],
                               [("y", INT32, [1, 16, 1, 1])],
                               {"w": np.full((16, 64, 3, 3), weight, np.int8), "zx": np.uint8(255 - value)}, target)
            got = lathe_cli.run(engine, folder / "run", inputs={"x": np.full((1, 64, 3, 3), value, np.uint8)})["y"]
            assert np.all(got == 9 * 64 * weight * (2 * value - 255))


def test_what_stays(tmp_path):
    """Groups, and zero points of filters that a signed byte cannot take away, keep f32 and say so."""
    rng = np.random.default_rng(4)
    nodes = [node("DequantizeLinear", "x sx zx", "xd"), node("DequantizeLinear", "w sw", "wd"),
             node("DequantizeLinear", "v sw", "vd"), node("Conv", "xd wd", "g", group=2), node("Conv", "xd vd", "h"),
             node("Add", "g h", "y")]
    w, v = codes(rng, (16, 16, 1, 1), np.int8), codes(rng, (16, 32, 1, 1), np.uint8)
    engine = engine_of(tmp_path, nodes, [("x", UINT8, [1, 32, 5, 5])], [("y", FLOAT, [1, 16, 5, 5])],
                       {"sx": np.float32(0.5), "zx": np.uint8(7), "w": w, "sw": np.float32(0.25), "v": v}, "x86-64-v3")
    lathe_cli.lathe("compile", tmp_path / "m.onnx", "-o", tmp_path / "m2.lathe", "--target=x86-64-v3",
                    f"--remarks={tmp_path / 'remarks.json'}")
    remarks = (tmp_path / "remarks.json").read_text()
    assert "channels are in groups" in remarks and "do not fit into signed bytes" in remarks
    x = codes(rng, (1, 32, 5, 5), np.uint8)
    q = x[0].astype(np.int64).reshape(32, 25) - 7
    groups = np.concatenate([w.astype(np.int64)[8 * i:8 * i + 8, :, 0, 0] @ q[16 * i:16 * i + 16] for i in range(2)])
    want = (groups + v.astype(np.int64)[:, :, 0, 0] @ q) * 0.125
    got = lathe_cli.run(engine, tmp_path / "run", inputs={"x": x})["y"]
    np.testing.assert_allclose(got.reshape(16, 25), want, rtol=1e-6)
