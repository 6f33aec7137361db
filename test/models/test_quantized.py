# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quantized products as ONNX files say them, against numpy: integers exactly, floats in double."""
import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

import lathe_cli

FLOAT, UINT8, INT8 = TensorProto.FLOAT, TensorProto.UINT8, TensorProto.INT8
E4M3 = TensorProto.FLOAT8E4M3FN
ROWS = (1, 5, 33, 300)
SIZES = {"small": (64, 96), "large": (512, 384), "ragged": (72, 50),  # not widened to 16 bytes,
         "odd": (37, 19)}  # nor in whole pairs


def engine_of(folder, nodes, inputs, output, constants, *options, dims=("M", None)):
    tensors = [v if hasattr(v, "data_type") else numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(*i) for i in inputs],
                              [helper.make_tensor_value_info("y", output, dims)], tensors)
    model = str(folder / "m.onnx")
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), model)
    return lathe_cli.compile_model(model, folder / "m.lathe", *options)


def node(op, operands, result, **attributes):
    return helper.make_node(op, operands.split(), result.split(), **attributes)


def float8(name, values):
    return helper.make_tensor(name, E4M3, values.shape, values.view(np.uint8).tobytes(), raw=True)


def bytes_of(rng, *shape, unsigned=False):
    return rng.integers(0, 256, shape).astype(np.uint8) if unsigned else rng.integers(-128, 128, shape).astype(np.int8)


def check(engine, folder, inputs, want, tolerance):
    got = lathe_cli.run(engine, folder, inputs=inputs)["y"]
    if tolerance:
        assert lathe_cli.relative_error(got, want) <= tolerance
    else:
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("size", SIZES)
def test_dequantized_bytes(tmp_path, size):
    """u8 activations with a zero point, i8 weights with a scale a column."""
    k, n = SIZES[size]
    rng = np.random.default_rng(1)
    w, sw = bytes_of(rng, k, n), rng.uniform(0.001, 0.01, n).astype(np.float32)
    bias = rng.normal(size=n).astype(np.float32)
    engine = engine_of(tmp_path, [
        node("QuantizeLinear", "x sx zx", "q"), node("DequantizeLinear", "q sx zx", "xd"),
        node("DequantizeLinear", "w sw zw", "wd", axis=1), node("MatMul", "xd wd", "t"), node("Add", "t b", "y")],
        [("x", FLOAT, ["M", k])], FLOAT,
        {"sx": np.float32(0.02), "zx": np.uint8(117), "w": w, "sw": sw, "zw": np.zeros(n, np.int8), "b": bias})
    for m in ROWS:
        x = rng.normal(size=(m, k)).astype(np.float32)
        q = np.clip(np.rint(x / np.float32(0.02)) + 117, 0, 255)
        want = ((q - 117) * 0.02) @ (w.astype(np.float64) * sw) + bias
        check(engine, tmp_path / str(m), {"x": x}, want, 1e-6)


@pytest.mark.parametrize("size", SIZES)
def test_quantized_result(tmp_path, size):
    """Gemm of bytes with both zero points, its result quantized again."""
    k, n = SIZES[size]
    rng = np.random.default_rng(2)
    w = bytes_of(rng, n, k)
    engine = engine_of(tmp_path, [
        node("DequantizeLinear", "x sx zx", "xd"), node("DequantizeLinear", "w sw zw", "wd"),
        node("Gemm", "xd wd", "t", transB=1), node("Relu", "t", "r"), node("QuantizeLinear", "r sy zy", "y")],
        [("x", INT8, ["M", k])], INT8,
        {"sx": np.float32(0.25), "zx": np.int8(3), "w": w, "sw": np.float32(0.5), "zw": np.int8(-2),
         "sy": np.float32(128), "zy": np.int8(-100)})
    for m in ROWS:
        x = bytes_of(rng, m, k)
        product = (x.astype(np.int64) - 3) @ (w.astype(np.int64) + 2).T * 0.125  # powers of two: exact in floats
        want = np.clip(np.rint(np.maximum(product, 0) / 128) - 100, -128, 127).astype(np.int8)
        check(engine, tmp_path / str(m), {"x": x}, want, 0)


@pytest.mark.parametrize("size", SIZES)
def test_integer_product(tmp_path, size):
    """MatMulInteger of run-time operands and zero points, one a column."""
    k, n = SIZES[size]
    rng = np.random.default_rng(3)
    engine = engine_of(tmp_path, [node("MatMulInteger", "x w zx zw", "y")],
                       [("x", UINT8, ["M", k]), ("w", INT8, [k, n]), ("zx", UINT8, []), ("zw", INT8, [n])],
                       TensorProto.INT32, {})
    for m in ROWS:
        x, w, zx, zw = bytes_of(rng, m, k, unsigned=True), bytes_of(rng, k, n), np.uint8(rng.integers(256)), bytes_of(rng, n)
        want = (x.astype(np.int64) - int(zx)) @ (w.astype(np.int64) - zw)
        check(engine, tmp_path / str(m), {"x": x, "w": w, "zx": zx, "zw": zw}, want.astype(np.int32), 0)


def test_dynamic_quantization(tmp_path):
    """DynamicQuantizeLinear, MatMulInteger, the product of both scales behind."""
    k, n = SIZES["large"]
    rng = np.random.default_rng(4)
    w = bytes_of(rng, k, n)
    engine = engine_of(tmp_path, [
        node("DynamicQuantizeLinear", "x", "q s z"), node("MatMulInteger", "q w z zw", "i"),
        node("Cast", "i", "f", to=FLOAT), node("Mul", "s sw", "ss"), node("Mul", "f ss", "y")],
        [("x", FLOAT, ["M", k])], FLOAT, {"w": w, "zw": np.int8(0), "sw": np.float32(0.003)})
    for m in ROWS:
        x = rng.normal(size=(m, k)).astype(np.float32)
        low, high = np.minimum(x.min(), np.float32(0)), np.maximum(x.max(), np.float32(0))
        scale = (high - low) / np.float32(255)
        zero = np.clip(np.rint(0 - low / scale), 0, 255)
        q = np.clip(np.rint(x / scale) + zero, 0, 255)
        check(engine, tmp_path / str(m), {"x": x}, (q - zero) @ w.astype(np.float64) * float(scale) * 0.003, 1e-5)


@pytest.mark.parametrize("size", SIZES)
def test_quantized_matmul(tmp_path, size):
    """QLinearMatMul."""
    k, n = SIZES[size]
    rng = np.random.default_rng(5)
    w = bytes_of(rng, k, n)
    engine = engine_of(tmp_path, [node("QLinearMatMul", "x sx zx w sw zw sy zy", "y")], [("x", UINT8, ["M", k])], UINT8,
                       {"sx": np.float32(0.25), "zx": np.uint8(120), "w": w, "sw": np.float32(0.5), "zw": np.int8(1),
                        "sy": np.float32(128), "zy": np.uint8(128)})
    for m in ROWS:
        x = bytes_of(rng, m, k, unsigned=True)
        product = (x.astype(np.int64) - 120) @ (w.astype(np.int64) - 1) * 0.125
        want = np.clip(np.rint(product / 128) + 128, 0, 255).astype(np.uint8)
        check(engine, tmp_path / str(m), {"x": x}, want, 0)


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_float8(tmp_path, size, positive):
    """e4m3 with a scale of the activations and one a column. A GPU adds 128 products in about 14 bits; where all terms
    have one sign, longer sums in so few would show."""
    k, n = SIZES[size]
    rng = np.random.default_rng(6)
    sign = np.abs if positive else lambda v: v
    w = sign(rng.normal(size=(n, k))).astype(ml_dtypes.float8_e4m3fn)
    sw = rng.uniform(0.01, 0.02, n).astype(np.float32)
    engine = engine_of(tmp_path, [
        node("QuantizeLinear", "x sx zx", "q"), node("DequantizeLinear", "q sx", "xd"),
        node("DequantizeLinear", "w sw", "wd", axis=0), node("Transpose", "wd", "wt", perm=[1, 0]),
        node("MatMul", "xd wt", "y")], [("x", FLOAT, ["M", k])], FLOAT,
        {"sx": np.float32(0.0625), "zx": float8("zx", np.zeros((), ml_dtypes.float8_e4m3fn)), "w": float8("w", w), "sw": sw})
    for m in ROWS:
        x = sign(rng.normal(size=(m, k))).astype(np.float32)
        q = (x / np.float32(0.0625)).astype(ml_dtypes.float8_e4m3fn).astype(np.float64)
        want = (q * 0.0625) @ (w.astype(np.float64) * sw[:, None]).T
        check(engine, tmp_path / str(m), {"x": x}, want, 1e-6 if lathe_cli.DEVICE == "cpu" else 1e-3)


def test_batches(tmp_path):
    """A product of two stacks of matrices, the right ones across k."""
    rng = np.random.default_rng(7)
    engine = engine_of(tmp_path, [node("MatMulInteger", "x w", "y")],
                       [("x", INT8, ["B", "M", 64]), ("w", INT8, ["B", 64, 48])], TensorProto.INT32, {}, dims=("B", "M", 48))
    for b, m in ((1, 3), (3, 70)):
        x, w = bytes_of(rng, b, m, 64), bytes_of(rng, b, 64, 48)
        check(engine, tmp_path / f"{b}x{m}", {"x": x, "w": w}, (x.astype(np.int64) @ w.astype(np.int64)).astype(np.int32), 0)


@pytest.mark.parametrize("transposed", [0, 1])
def test_tf32(tmp_path, transposed):
    """Allowed to, a GPU cuts f32 operands to 10 bits behind the point; a CPU does not."""
    k, n = SIZES["large"]
    rng = np.random.default_rng(8)
    w, bias = rng.normal(size=(n, k) if transposed else (k, n)).astype(np.float32), rng.normal(size=n).astype(np.float32)
    engine = engine_of(tmp_path, [node("Gemm", "x w b", "y", transB=transposed)], [("x", FLOAT, ["M", k])], FLOAT,
                       {"w": w, "b": bias}, "--allow=tf32")
    for m in ROWS:
        x = rng.normal(size=(m, k)).astype(np.float32)
        want = x.astype(np.float64) @ (w.T if transposed else w).astype(np.float64) + bias
        check(engine, tmp_path / str(m), {"x": x}, want, 1e-6 if lathe_cli.DEVICE == "cpu" else 1.5e-3)


def test_reduced_sums(tmp_path):
    """e5m2 by e4m3, sums in the tensor cores alone."""
    k, n = SIZES["large"]
    rng = np.random.default_rng(9)
    w = rng.normal(size=(n, k)).astype(ml_dtypes.float8_e4m3fn)
    engine = engine_of(tmp_path, [
        node("Cast", "x", "q", to=TensorProto.FLOAT8E5M2), node("Cast", "q", "xd", to=FLOAT),
        node("DequantizeLinear", "w s", "wd"), node("Gemm", "xd wd", "y", transB=1)], [("x", FLOAT, ["M", k])], FLOAT,
        {"w": float8("w", w), "s": np.float32(0.5)}, "--allow=reduced-sums")
    for m in ROWS:
        x = rng.normal(size=(m, k)).astype(np.float32)
        want = x.astype(ml_dtypes.float8_e5m2).astype(np.float64) @ w.astype(np.float64).T * 0.5
        check(engine, tmp_path / str(m), {"x": x}, want, 1e-6 if lathe_cli.DEVICE == "cpu" else 4e-3)
