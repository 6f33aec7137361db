# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`lathe quantize --method cle,bias-correction`: cross-layer equalization and corrected means against numpy, of products and
of convolutions, depthwise ones among them."""
import hashlib
import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import lathe_cli
import quantize_reference as reference
from test_quantize import of_onnxruntime


def write_products(path):
    """Two layers and a third behind a value that two read; outputs of the first are of very different sizes."""
    rng = np.random.default_rng(9)
    w = {"w1": rng.normal(size=(96, 128)) * np.exp2(rng.uniform(-6, 2, size=128)), "b1": rng.normal(size=128),
         "w2": rng.normal(size=(80, 128)) / 8, "b2": rng.normal(size=80), "w3": rng.normal(size=(80, 96)), "w4": rng.normal(size=(80, 72))}
    nodes = [helper.make_node("MatMul", ["x", "w1"], ["p"], name="one"), helper.make_node("Add", ["p", "b1"], ["a"]),
             helper.make_node("Relu", ["a"], ["r"]), helper.make_node("Gemm", ["r", "w2", "b2"], ["b"], name="two", transB=1),
             helper.make_node("Relu", ["b"], ["s"]), helper.make_node("MatMul", ["s", "w3"], ["y"], name="three"),
             helper.make_node("MatMul", ["s", "w4"], ["z"], name="four")]
    return save(path, nodes, w, ["N", 96], {"y": ["N", 96], "z": ["N", 72]}), (300, 96)


def write_convs(path):
    """Inverted residual: pointwise, depthwise, pooled, pointwise; channels of very different sizes."""
    rng = np.random.default_rng(19)
    w = {"w1": rng.normal(size=(32, 8, 1, 1)) * np.exp2(rng.uniform(-5, 2, size=(32, 1, 1, 1))), "b1": rng.normal(size=32),
         "w2": rng.normal(size=(32, 1, 3, 3)) * np.exp2(rng.uniform(-5, 2, size=(32, 1, 1, 1))), "w3": rng.normal(size=(16, 32, 1, 1))}
    nodes = [helper.make_node("Conv", ["x", "w1", "b1"], ["a"], name="one"), helper.make_node("Relu", ["a"], ["r"]),
             helper.make_node("Conv", ["r", "w2"], ["b"], name="two", pads=[1, 1, 1, 1], group=32), helper.make_node("Relu", ["b"], ["s"]),
             helper.make_node("MaxPool", ["s"], ["t"], kernel_shape=[2, 2], strides=[2, 2]),
             helper.make_node("Conv", ["t", "w3"], ["y"], name="three")]
    return save(path, nodes, w, ["N", 8, 12, 12], {"y": ["N", 16, 6, 6]}), (24, 8, 12, 12)


def save(path, nodes, weights, size, outputs):
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, size)],
                              [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in outputs.items()],
                              [numpy_helper.from_array(v.astype(np.float32), n) for n, v in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return {name: v.astype(np.float32) for name, v in weights.items()}


def quantize(folder, *options, scheme="w8a8-int8", code=0):
    return lathe_cli.lathe("quantize", folder / "m.onnx", "-o", folder / "q.onnx", f"--scheme={scheme}", "--data", folder / "d.npz",
                           "--recipe-out", folder / "r.json", *options, code=code)


def setup(folder, write):
    weights, shape = write(folder / "m.onnx")
    rng = np.random.default_rng(2)
    np.savez(folder / "d.npz", x=rng.normal(size=shape).astype(np.float32))
    return weights, rng.normal(size=shape).astype(np.float32)


def made_of(folder):
    return {t.name: numpy_helper.to_array(t) for t in onnx.load(folder / "q.onnx").graph.initializer}


def error_of(folder, x):
    want, got = (of_onnxruntime(str(folder / m), x) for m in ("m.onnx", "q.onnx"))
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


@pytest.mark.parametrize("write", [write_products, write_convs])
def test_equalization(tmp_path, write):
    """Factors as numpy has them; the model means the same, and rounds activations less."""
    w, test = setup(tmp_path, write)
    quantize(tmp_path)
    before = error_of(tmp_path, test)
    text = quantize(tmp_path, "--method=cle")
    convs = write is write_convs
    # [outputs, inputs] of each layer, and the pairs that have factors: s of the products has two readers.
    layers = [np.abs(w["w1"]).max((2, 3)), np.abs(w["w2"]).max((2, 3)), np.abs(w["w3"]).max((2, 3))] if convs else \
        [np.abs(w["w1"]).T, np.abs(w["w2"])]
    pairs = [("r", 0, 1), ("t", 1, 2)] if convs else [("r", 0, 1)]
    assert f"{len(pairs)} activations get factors by cle" in text
    factors = reference.equalize(layers, [(a, b) for _, a, b in pairs], depthwise={1} if convs else set())
    made = dict(np.load(tmp_path / "r.npz"))
    assert set(made) == {"factors/" + value for value, _, _ in pairs}
    for (value, _, _), want in zip(pairs, factors):
        np.testing.assert_allclose(made["factors/" + value], want, rtol=1e-4)
    # The layer ahead has the division in its weights and its bias: no node is added, and none but the quantized values change.
    assert "Mul" not in {n.op_type for n in onnx.load(tmp_path / "q.onnx").graph.node}
    bias = made_of(tmp_path)["b1"]
    np.testing.assert_allclose(bias, w["b1"] / made["factors/r"], rtol=1e-6)
    assert error_of(tmp_path, test) < 0.9 * before
    # Equal magnitudes on both sides of each pair.
    codes = made_of(tmp_path)
    if convs:
        ahead = np.abs(codes["w1_quantized"].astype(np.float32) * codes["w1_scale"][:, None, None, None]).max((1, 2, 3))
        behind = np.abs(codes["w2_quantized"].astype(np.float32) * codes["w2_scale"][:, None, None, None]).max((1, 2, 3))
        np.testing.assert_allclose(ahead, behind, rtol=0.02)
    lathe_cli.lathe("quantize", tmp_path / "m.onnx", "-o", tmp_path / "again.onnx", "--recipe", tmp_path / "r.json")
    assert (tmp_path / "again.onnx").read_bytes() == (tmp_path / "q.onnx").read_bytes()
    engine = lathe_cli.compile_model(tmp_path / "q.onnx", tmp_path / "q.lathe")
    got = lathe_cli.run(engine, tmp_path / "run", inputs={"x": test})["y"]
    assert lathe_cli.relative_error(got, of_onnxruntime(str(tmp_path / "q.onnx"), test)) < 0.02


@pytest.mark.parametrize("scheme, write", [("w8a8-int8", write_products), ("w8a8-int8", write_convs), ("w4a16", write_products),
                                           ("w8a8-fp8", write_convs)])
def test_bias_correction(tmp_path, scheme, write):
    """On the examples the mean error of each layer, of inputs as the float model has them, is gone; biases are numpy's."""
    w, test = setup(tmp_path, write)
    options = ["--group=16"] if scheme == "w4a16" else []
    quantize(tmp_path, *options, scheme=scheme)
    x, plain = np.load(tmp_path / "d.npz")["x"], made_of(tmp_path)
    text = quantize(tmp_path, "--method=bias-correction", *options, scheme=scheme)
    layers = 3 if write is write_convs else 4
    assert f"{layers} results get biases by bias-correction" in text
    biases = dict(np.load(tmp_path / "r.npz"))
    # The first layer reads x, which is known.
    recipe = json.loads((tmp_path / "r.json").read_text())
    codes = plain["w1_quantized"].astype(np.float64)
    rounded = x.astype(np.float64)
    if scheme == "w8a8-int8":
        step, zero = float(plain["x_scale"]), float(plain["x_zero_point"])
        rounded = (np.clip(np.rint(x / np.float32(step)) + zero, 0, 255) - zero) * step
    elif scheme == "w8a8-fp8":
        step = plain["x_scale"]
        rounded = (x / step).astype(plain["x_zero_point"].dtype).astype(np.float64) * float(step)
    if write is write_convs:
        meant = codes * plain["w1_scale"][:, None, None, None]
        change = np.einsum("nihw,oi->nohw", rounded, meant[:, :, 0, 0]) - np.einsum("nihw,oi->nohw", x, w["w1"][:, :, 0, 0])
        shift, result = change.mean((0, 2, 3)), "a"
    else:
        meant = codes * (np.repeat(plain["w1_scale"], 16, 0) if scheme == "w4a16" else plain["w1_scale"])
        shift, result = (rounded @ meant - x.astype(np.float64) @ w["w1"]).mean(0), "p"
    np.testing.assert_allclose(biases["biases/" + result], -shift, rtol=2e-3, atol=1e-5 * np.abs(shift).max() + 1e-6)
    assert recipe["method"] == "bias-correction" and set(biases) == {"biases/" + p for p in recipe["products"]}
    # Into the bias that was there; behind a product that had none by a node.
    made = made_of(tmp_path)
    if write is write_convs:
        np.testing.assert_allclose(made["b1"], w["b1"] - shift, rtol=1e-4, atol=1e-4)
    onnx.checker.check_model(onnx.load(tmp_path / "q.onnx"), full_check=True)
    # The whole model's outputs have a smaller mean error, on other inputs too.
    want, got = (of_onnxruntime(str(tmp_path / m), test) for m in ("m.onnx", "q.onnx"))
    axes = (0, 2, 3) if got.ndim == 4 else (0,)
    corrected = np.linalg.norm((got - want).mean(axes))
    quantize(tmp_path, *options, scheme=scheme)
    plain_error = np.linalg.norm((of_onnxruntime(str(tmp_path / "q.onnx"), test) - want).mean(axes))
    assert corrected < plain_error
    quantize(tmp_path, "--method=bias-correction", *options, scheme=scheme)
    first = (tmp_path / "q.onnx").read_bytes()
    lathe_cli.lathe("quantize", tmp_path / "m.onnx", "-o", tmp_path / "again.onnx", "--recipe", tmp_path / "r.json")
    assert (tmp_path / "again.onnx").read_bytes() == first
    # Biases of another size are of another model; numbers that are none are damage.
    for value, message in ((np.zeros(3, np.float32), "its bias has another size"), (np.full(3, np.nan, np.float32), "is not finite")):
        np.savez(tmp_path / "bad.npz", **{**biases, "biases/" + result: value})
        recipe["arrays"] = hashlib.sha256((tmp_path / "bad.npz").read_bytes()).hexdigest()
        (tmp_path / "bad.json").write_text(json.dumps(recipe))
        text = lathe_cli.lathe("quantize", tmp_path / "m.onnx", "-o", tmp_path / "no.onnx", "--recipe", tmp_path / "bad.json", code=3)
        assert message in text and f"{result}'" in text and not (tmp_path / "no.onnx").exists()


def test_lists_of_methods(tmp_path):
    setup(tmp_path, write_products)
    text = quantize(tmp_path, "--method=cle,gptq,bias-correction")
    assert "factors by cle" in text and "codes by gptq" in text and "by bias-correction" in text
    assert json.loads((tmp_path / "r.json").read_text())["method"] == "cle,gptq,bias-correction"
    for methods, message in (("gptq,awq", "wants one of"), ("cle,smoothquant", "scale the same values"), ("bias", "bias-correction, not 'bias'")):
        assert message in quantize(tmp_path, f"--method={methods}", code=2)
