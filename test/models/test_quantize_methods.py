# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`lathe quantize --range, --method`: what lib/quantize computes of values seen in the engine against numpy
(quantize_reference.py), and what it is good for: less error than rounding to the nearest."""
import json
import os

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import lathe_cli
import quantize_reference as reference

K, H, N, ROWS = 128, 160, 96, 300


def inputs(seed=3, rows=ROWS):
    """Correlated columns, three of them much larger, as language models have them."""
    mix = np.random.default_rng(77).normal(size=(K // 2, K)) / np.sqrt(K // 2)
    mix[:, [7, 40, 99]] *= 30
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(rows, K // 2)) @ mix + 0.2 * rng.normal(size=(rows, K))).astype(np.float32)


def write_model(path, norm=False, opset=21, fan_out=False):
    """x -> [LayerNormalization] -> two products (one transposed) -> Relu -> product."""
    rng = np.random.default_rng(11)
    weights = {"w1": rng.normal(size=(K, H)), "w2": rng.normal(size=(H, K)),
               "w3": rng.normal(size=(H, N)), "g": rng.uniform(0.5, 2, K), "h": rng.normal(size=K)}
    x = "n" if norm else "x"
    nodes = [helper.make_node("LayerNormalization", ["x", "g", "h"], ["n"], axis=-1, name="norm")] if norm else []
    nodes += [helper.make_node("MatMul", [x, "w1"], ["a"], name="up"), helper.make_node("Gemm", [x, "w2"], ["b"], name="gate", transB=1),
              helper.make_node("Relu", ["b"], ["r"]), helper.make_node("Add", ["a", "r"], ["m"]),
              helper.make_node("MatMul", ["m", "w3"], ["y"], name="down")]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["M", N])]
    if fan_out:
        outputs.append(helper.make_tensor_value_info(x, TensorProto.FLOAT, ["M", K]))
    used = {i for node in nodes for i in node.input}
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["M", K])], outputs,
                              [numpy_helper.from_array(v.astype(np.float32), n) for n, v in weights.items() if n in used])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10), path)
    return {name: v.astype(np.float32) for name, v in weights.items()}


def of_onnxruntime(path, x):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(["y"], {"x": x})[0]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "d.npz"
    np.savez(path, x=inputs())
    return path


def quantize(folder, scheme, *options, code=0, model="m.onnx"):
    return lathe_cli.lathe("quantize", folder / model, "-o", folder / "q.onnx", f"--scheme={scheme}", "--recipe-out",
                           folder / "r.json", *options, code=code)


def error_of(folder, x):
    want = of_onnxruntime(folder / "m.onnx", x)
    return float(np.linalg.norm(of_onnxruntime(folder / "q.onnx", x) - want) / np.linalg.norm(want))


def of_engine(folder, x):
    engine = lathe_cli.compile_model(folder / "m.onnx", folder / "e.lathe", "--recipe", folder / "r.json")
    return lathe_cli.run(engine, folder / "run", inputs={"x": x})["y"]


RANGES = {
    "percentile:99.5": lambda x: reference.percentile(x, 99.5),
    "mse": lambda x: reference.best_range(x, reference.squared_error),
    "kl": lambda x: reference.best_range(x, reference.divergence),
}


@pytest.mark.parametrize("method", RANGES)
def test_ranges(tmp_path, data, method):
    """Of the input, whose elements numpy has to the bit: the same range. What is clipped, is clipped at it."""
    write_model(tmp_path / "m.onnx")
    quantize(tmp_path, "w8a8-int8", "--data", data, "--range", method)
    recipe = json.loads((tmp_path / "r.json").read_text())
    x = inputs()
    low, high = RANGES[method](x)
    got = recipe["activations"]["x"]
    assert recipe["range"] == method and (got["min"], got["max"]) == pytest.approx((low, high), rel=1e-12)
    assert x.min() < low and high < x.max()  # it clips
    # `m` is the sum of two others: the engine's elements differ by an ULP, bins by a count.
    w = write_model(tmp_path / "m.onnx")
    m = (x @ w["w1"]) + np.maximum(x @ w["w2"].T, 0)
    low, high = RANGES[method](m)
    assert abs(recipe["activations"]["m"]["max"] - high) <= 2 / 128 * m.max()
    assert abs(recipe["activations"]["m"]["min"] - low) <= 2 / 128 * -m.min()


def test_moving_range(tmp_path, data):
    """A running mean over batches of 16."""
    write_model(tmp_path / "m.onnx")
    quantize(tmp_path, "w8a8-int8", "--data", data, "--range", "moving:0.25")
    got = json.loads((tmp_path / "r.json").read_text())["activations"]["x"]
    batches = np.split(inputs().astype(np.float64), range(16, ROWS, 16))
    low, high = batches[0].min(), batches[0].max()
    for batch in batches[1:]:
        low, high = low + 0.25 * (batch.min() - low), high + 0.25 * (batch.max() - high)
    assert (got["min"], got["max"]) == pytest.approx((low, high), rel=1e-12)


def test_clipping_helps(tmp_path, data):
    """The range of least squared error has less of it than the extremes, on rows that were not seen."""
    write_model(tmp_path / "m.onnx")
    errors = {}
    for method in ("minmax", "mse"):
        quantize(tmp_path, "w8a8-int8", "--data", data, "--range", method)
        errors[method] = error_of(tmp_path, inputs(seed=4))
    assert errors["mse"] < errors["minmax"]


def saved(folder):
    return dict(np.load(folder / "r.npz"))


def equal_share(got, want):
    assert got.shape == want.shape
    return np.mean(got == want)


@pytest.mark.parametrize("scheme, bits, block", [("w4a16", 4, 32), ("w8a8-int8", 8, 0)])
def test_gptq(tmp_path, data, scheme, bits, block):
    """Codes of both layouts as numpy has them, to 1 in 10,000; less error than the nearest codes."""
    w = write_model(tmp_path / "m.onnx")
    options = ["--data", data] + (["--group", "32"] if block else [])
    quantize(tmp_path, scheme, *options)
    before = error_of(tmp_path, inputs(seed=4))
    text = quantize(tmp_path, scheme, *options, "--method", "gptq")
    assert "3 weights get codes by gptq, damping 0.01" in text
    made, x = saved(tmp_path), inputs()
    for name, rows in (("w1", w["w1"].T), ("w2", w["w2"])):
        codes, scales = reference.gptq(rows, x, block or K, bits)
        got_codes, got_scales = made["codes/" + name], made["scales/" + name]
        if name == "w1":
            got_codes, got_scales = got_codes.T, got_scales.T
        assert equal_share(got_codes, codes) >= 0.9999
        np.testing.assert_allclose(got_scales, scales if block else scales[:, 0], rtol=1e-4)
    assert error_of(tmp_path, inputs(seed=4)) < (0.8 if scheme == "w4a16" else 1.0) * before
    # The recipe alone gives the same model, and the engine computes what onnxruntime does of it.
    lathe_cli.lathe("quantize", tmp_path / "m.onnx", "-o", tmp_path / "q2.onnx", "--recipe", tmp_path / "r.json",
                    "--recipe-out", tmp_path / "r2.json")
    assert (tmp_path / "q2.onnx").read_bytes() == (tmp_path / "q.onnx").read_bytes()
    assert (tmp_path / "r2.npz").read_bytes() == (tmp_path / "r.npz").read_bytes()
    if scheme == "w4a16":
        assert lathe_cli.relative_error(of_engine(tmp_path, x[:20]), of_onnxruntime(tmp_path / "q.onnx", x[:20])) < 1e-5


def test_gptq_of_singular_inputs(tmp_path):
    """Fewer rows than columns, and columns of zeros: the damping that it took is said; without one there is none."""
    write_model(tmp_path / "m.onnx")
    x = inputs(rows=16)
    x[:, 5:9] = 0
    np.savez(tmp_path / "d.npz", x=x)
    text = quantize(tmp_path, "w4a16", "--group", "32", "--method", "gptq", "--data", tmp_path / "d.npz", "--damping", "0")
    assert "'up': its inputs' products are singular: damping" in text
    assert "'up': 4 of its 128 inputs were always zero" in text
    nearest, _, _ = reference.nearest(onnx_weight(tmp_path, "w2"), 32, 4)
    quantize(tmp_path, "w4a16", "--group", "32", "--method", "gptq", "--data", tmp_path / "d.npz", "--damping", "100")
    assert equal_share(saved(tmp_path)["codes/w2"], nearest) > 0.95  # all damping: inputs have nothing in common


def onnx_weight(folder, name):
    return next(numpy_helper.to_array(t) for t in onnx.load(folder / "m.onnx").graph.initializer if t.name == name)


@pytest.mark.parametrize("norm, fan_out", [(False, False), (True, False), (True, True)])
def test_smoothquant(tmp_path, data, norm, fan_out):
    """Factors as numpy has them; they go into the norm ahead where the products alone read it, else a product by them
    stands ahead. Ranges are of what is divided."""
    w = write_model(tmp_path / "m.onnx", norm, fan_out=fan_out)
    options = ["--data", data]
    quantize(tmp_path, "w8a8-int8", *options)
    x, test = inputs(), inputs(seed=4)
    before = error_of(tmp_path, test)
    quantize(tmp_path, "w8a8-int8", *options, "--method", "smoothquant")
    value = "n" if norm else "x"
    if norm:
        wide = x.astype(np.float64)
        wide = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
        x = (wide * w["g"] + w["h"]).astype(np.float32)
    factors = reference.smooth(x, [w["w1"].T, w["w2"]])
    np.testing.assert_allclose(saved(tmp_path)["factors/" + value], factors, rtol=1e-5 if norm else 1e-6)
    seen = json.loads((tmp_path / "r.json").read_text())["activations"][value]
    assert (seen["min"], seen["max"]) == pytest.approx(((x / factors).min(), (x / factors).max()), rel=1e-5)
    types = [n.op_type for n in onnx.load(tmp_path / "q.onnx").graph.node]
    assert types.count("Mul") == {(False, False): 2, (True, False): 1, (True, True): 2}[norm, fan_out]  # of m always
    assert error_of(tmp_path, test) < before
    got, want = of_engine(tmp_path, test), of_onnxruntime(tmp_path / "q.onnx", test)
    assert np.linalg.norm(got - want) < 0.01 * np.linalg.norm(want)


def test_awq(tmp_path, data):
    w = write_model(tmp_path / "m.onnx", norm=True)
    options = ["--data", data, "--group", "32"]
    quantize(tmp_path, "w4a16", *options)
    test = inputs(seed=4)
    before = error_of(tmp_path, test)
    quantize(tmp_path, "w4a16", *options, "--method", "awq")
    x = inputs().astype(np.float64)
    x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * w["g"] + w["h"]
    factors = reference.awq(x.astype(np.float32), [w["w1"].T, w["w2"]], 32, 4)
    np.testing.assert_allclose(saved(tmp_path)["factors/n"], factors, rtol=1e-5)
    made = {t.name: numpy_helper.to_array(t) for t in onnx.load(tmp_path / "q.onnx").graph.initializer}
    codes, _, _ = reference.nearest(w["w2"] * factors, 32, 4)
    assert equal_share(made["w2_quantized"].astype(np.float32), codes) >= 0.9999
    assert error_of(tmp_path, test) < before
    got, want = of_engine(tmp_path, test), of_onnxruntime(tmp_path / "q.onnx", test)
    assert lathe_cli.relative_error(got, want) < 1e-5
