# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Schemes of `lathe quantize` beyond integers by column: MXFP4, NF4, ops of com.microsoft, ranges that each run finds."""
import json

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import lathe_cli
from test_dequantized_weights import E2M1, NF4
from test_quantize import H, K, N, examples, of_onnxruntime, quantize, write_model


def weights_of(path):
    return {t.name: t for t in onnx.load(path).graph.initializer}


def of_engine(folder, x, model="q.onnx"):
    engine = lathe_cli.compile_model(folder / model, folder / "q.lathe")
    return lathe_cli.run(engine, folder / "run", inputs={"x": x})["y"], lathe_cli.plans(engine)[0]


def layers(x, w1, w2, b):
    return np.maximum(x.astype(np.float64) @ w1, 0) @ w2.T + b


def by_recipe(folder):
    """The recipe alone gives the model again."""
    lathe_cli.lathe("quantize", folder / "m.onnx", "-o", folder / "again.onnx", "--recipe", folder / "r.json")
    assert (folder / "again.onnx").read_bytes() == (folder / "q.onnx").read_bytes()


def test_mxfp4(tmp_path):
    """Opset 25: codes e2m1 and a power of two for each 32 along the depth, in both layouts; one kernel reads them."""
    w1, w2 = write_model(tmp_path / "m.onnx")
    assert "converted from opset 21 to 25" in quantize(tmp_path, "mxfp4", "--recipe-out", tmp_path / "r.json")
    model = onnx.load(tmp_path / "q.onnx")
    onnx.checker.check_model(model, full_check=True)
    made, wide = weights_of(tmp_path / "q.onnx"), {}
    for name, weight, axis in (("w1", w1, 0), ("w2", w2, 1)):
        parts = np.stack(np.split(weight, weight.shape[axis] // 32, axis), axis)  # [.., blocks, 32, ..]
        scale = np.exp2(np.floor(np.log2(np.abs(parts).max(axis + 1))) - 2)
        raw = np.frombuffer(made[name + "_scale"].raw_data, ml_dtypes.float8_e8m0fnu).reshape(scale.shape)
        np.testing.assert_array_equal(raw.astype(np.float32), scale)
        wide[name] = np.repeat(scale, 32, axis)
        codes = (weight / wide[name]).astype(ml_dtypes.float4_e2m1fn).astype(np.float32)
        packed = np.frombuffer(made[name + "_quantized"].raw_data, np.uint8)
        got = E2M1[np.stack([packed & 15, packed >> 4], 1).reshape(weight.shape)]
        np.testing.assert_array_equal(got, codes)
        wide[name] *= codes
    x = np.load(examples(tmp_path))["x"]
    got, plan = of_engine(tmp_path, x)
    assert lathe_cli.launches(plan) == 2
    want = layers(x, wide["w1"], wide["w2"], numpy_helper.to_array(made["b"]))
    assert lathe_cli.relative_error(got, want) < 1e-5
    by_recipe(tmp_path)


def test_nf4(tmp_path):
    """MatMulBnb4, whose codes are the nearest of the table; a Gemm's last operand is added behind it."""
    w1, w2 = write_model(tmp_path / "m.onnx")
    quantize(tmp_path, "nf4", "--group", "32", "--recipe-out", tmp_path / "r.json")
    model = onnx.load(tmp_path / "q.onnx")
    assert [n.op_type for n in model.graph.node] == ["MatMulBnb4", "Relu", "MatMulBnb4", "Add"]
    made = weights_of(tmp_path / "q.onnx")
    for name, weight in (("w1", w1.T), ("w2", w2)):  # [n, k]
        blocks = weight.reshape(-1, 32)
        scale = np.abs(blocks).max(1)
        np.testing.assert_array_equal(numpy_helper.to_array(made[name + "_scale"]), scale)
        packed = numpy_helper.to_array(made[name + "_quantized"]).ravel()
        codes = np.stack([packed >> 4, packed & 15], 1).reshape(blocks.shape)
        away = np.abs(NF4[codes] - blocks / scale[:, None])
        assert (away <= np.abs(NF4[:, None, None] - blocks / scale[:, None]).min(0) + 1e-6).all()
    x = np.load(examples(tmp_path))["x"]
    want = of_onnxruntime(str(tmp_path / "q.onnx"), x)
    got, plan = of_engine(tmp_path, x)
    assert lathe_cli.relative_error(got, want) < 1e-5 and lathe_cli.launches(plan) == 2
    by_recipe(tmp_path)


def test_microsoft(tmp_path):
    """MatMulNBits of the codes that DequantizeLinear would have: the same results, by onnxruntime and our engine."""
    write_model(tmp_path / "m.onnx")
    x = np.load(examples(tmp_path))["x"]
    quantize(tmp_path, "w4a16", "--group", "32")
    qdq = of_onnxruntime(str(tmp_path / "q.onnx"), x)
    quantize(tmp_path, "w4a16", "--group", "32", "--format", "microsoft", "--recipe-out", tmp_path / "r.json")
    model = onnx.load(tmp_path / "q.onnx")
    assert [n.op_type for n in model.graph.node] == ["MatMulNBits", "Relu", "MatMulNBits", "Add"]
    assert {"up", "down"} <= {n.name for n in model.graph.node} and {i.domain for i in model.opset_import} == {"", "com.microsoft"}
    want = of_onnxruntime(str(tmp_path / "q.onnx"), x)
    got, plan = of_engine(tmp_path, x)
    assert lathe_cli.launches(plan) == 2
    assert lathe_cli.relative_error(want, qdq) < 1e-5 and lathe_cli.relative_error(got, want) < 1e-5
    by_recipe(tmp_path)


def test_dynamic(tmp_path):
    """Ranges that each run finds, without data: products of integers, as onnxruntime has them to an activation's step."""
    write_model(tmp_path / "m.onnx")
    quantize(tmp_path, "w8a8-int8", "--dynamic", "--recipe-out", tmp_path / "r.json")
    recipe = json.loads((tmp_path / "r.json").read_text())
    assert recipe["dynamic"] and recipe["activations"] == {}
    onnx.checker.check_model(onnx.load(tmp_path / "q.onnx"), full_check=True)
    x = np.load(examples(tmp_path))["x"]
    want, float_ = of_onnxruntime(str(tmp_path / "q.onnx"), x), of_onnxruntime(str(tmp_path / "m.onnx"), x)
    assert 0 < lathe_cli.relative_error(want, float_) < 0.02
    got, _ = of_engine(tmp_path, x)
    assert np.linalg.norm(got - want) < 2e-3 * np.linalg.norm(want)
    engine = lathe_cli.compile_model(tmp_path / "q.onnx", tmp_path / "v3.lathe", target="x86-64-v3")
    assert lathe_cli.lathe("inspect", engine, "--kernels").count("gemm.pairs.v8.r48.m6.n16") == 2
    by_recipe(tmp_path)


@pytest.mark.parametrize("scheme, options, message", [
    ("w8a16", ["--dynamic"], "w8a16 leaves activations as they are"),
    ("w8a16", ["--format", "microsoft"], "has no op of com.microsoft"),
    ("w4a16", ["--format", "onnx"], "wants qdq or microsoft"),
    ("w4a16", ["--method", "nearest"], "wants rtn, gptq, awq or smoothquant"),
    ("w4a16", ["--method", "gptq"], "come from --data"),
    ("w4a16", ["--method", "smoothquant", "--data", "d"], "divides activations"),
    ("nf4", ["--method", "gptq", "--data", "d"], "chooses integers"),
    ("w4a16", ["--method", "gptq", "--data", "d", "--damping", "101"], "wants a number of 0 to 100"),
    ("w8a8-int8", ["--range", "entropy", "--data", "d"], "wants minmax, moving[:m], percentile[:p], mse or kl"),
    ("w8a8-int8", ["--range", "percentile:12", "--data", "d"], "wants a number in (99, 100]"),
    ("w8a8-int8", ["--range", "mse:2", "--data", "d"], "takes no number"),
])
def test_options_that_do_not_fit(tmp_path, scheme, options, message):
    write_model(tmp_path / "m.onnx")
    assert message in quantize(tmp_path, scheme, *options, code=2)
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


def test_recipes_with_other_arrays(tmp_path):
    """The archive beside a recipe is checked by its digest, and its arrays by the recipe."""
    write_model(tmp_path / "m.onnx")
    quantize(tmp_path, "w4a16", "--group", "32", "--method", "gptq", "--data", examples(tmp_path), "--recipe-out", tmp_path / "r.json")
    archive = (tmp_path / "r.npz").read_bytes()
    recipe = json.loads((tmp_path / "r.json").read_text())
    (tmp_path / "q.onnx").unlink()

    def refused(message, code=3):
        text = lathe_cli.lathe("quantize", tmp_path / "m.onnx", "-o", tmp_path / "q.onnx", "--recipe", tmp_path / "r.json", code=code)
        assert message in text and "r." in text and not (tmp_path / "q.onnx").exists(), text

    (tmp_path / "r.npz").write_bytes(archive[:-1] + b"\1")
    refused("names other arrays")
    (tmp_path / "r.npz").unlink()
    refused("that should lie beside it")

    def with_arrays(message, **arrays):
        np.savez(tmp_path / "r.npz", **{k.replace("__", "/"): v for k, v in arrays.items()})
        import hashlib
        changed = {**recipe, "arrays": hashlib.sha256((tmp_path / "r.npz").read_bytes()).hexdigest()}
        (tmp_path / "r.json").write_text(json.dumps(changed))
        refused(message)

    codes, scales = np.zeros((K, H), np.int8), np.ones((K // 32, H), np.float32)
    with_arrays("belongs to no weight", codes__w9=codes, scales__w9=scales)
    with_arrays("codes and scales that fit each other", codes__w1=codes)
    with_arrays("codes and scales that fit each other", codes__w1=codes, scales__w1=scales[:1])
    with_arrays("out of range at element 5", codes__w1=np.where(np.arange(K * H) == 5, 8, 0).astype(np.int8).reshape(K, H), scales__w1=scales)
    with_arrays("no positive normal number at element 0", codes__w1=codes, scales__w1=-scales)
    with_arrays("no positive normal number at element 0", codes__w1=codes, scales__w1=0 * scales)
    with_arrays("no positive normal number at element 0", codes__w1=codes, scales__w1=scales * np.float32(1e-41))
    with_arrays("of other sizes than the weight", codes__w1=codes.reshape(K * 2, H // 2), scales__w1=np.ones((K // 16, H // 2), np.float32))
    with_arrays("type or kind", thing__w1=scales)
    with_arrays("its factors do not fit 'w1'", factors__x=np.ones(3, np.float32))
    with_arrays("no product of the recipe reads this value", factors__z=np.ones(K, np.float32))


@pytest.mark.parametrize("scheme", ["f16", "bf16"])
def test_16_bits(tmp_path, scheme):
    """Casts around products; the engine computes what numpy does with operands and results of 16 bits, whatever it sums in."""
    w1, w2 = write_model(tmp_path / "m.onnx")
    quantize(tmp_path, scheme, "--recipe-out", tmp_path / "r.json")
    model = onnx.load(tmp_path / "q.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert [n.op_type for n in model.graph.node] == ["Cast", "MatMul", "Cast", "Relu", "Cast", "Cast", "Gemm", "Cast"]
    made = weights_of(tmp_path / "q.onnx")
    narrow = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}[scheme]
    for name, weight in (("w1", w1), ("w2", w2)):
        assert made[f"{name}_{scheme}"].raw_data == weight.astype(narrow).tobytes()

    def rounded(v):
        return v.astype(np.float32).astype(narrow).astype(np.float64)

    x = np.load(examples(tmp_path))["x"]
    b = numpy_helper.to_array(made["b"])
    r = rounded(np.maximum(rounded(rounded(x) @ rounded(w1)), 0))
    want = rounded(r @ rounded(w2).T + rounded(b))
    got, _ = of_engine(tmp_path, x)
    step = {"f16": 2.0 ** -10, "bf16": 2.0 ** -7}[scheme]
    assert lathe_cli.relative_error(got, want) < step and np.abs(got - want).max() < 2 * step * np.abs(want).max()
    by_recipe(tmp_path)


def test_16_bits_of_convolutions(tmp_path):
    """Grouped ones too: they have kernels of 16 bits. A weight that f16 cannot hold is an error in its place."""
    rng = np.random.default_rng(5)
    weights = {"w0": rng.normal(size=(24, 12, 3, 3)) / 10, "w1": rng.normal(size=(24, 12, 1, 1)) / 4, "b": rng.normal(size=24)}
    nodes = [onnx.helper.make_node("Conv", ["x", "w0", "b"], ["a"], pads=[1, 1, 1, 1]), onnx.helper.make_node("Relu", ["a"], ["r"]),
             onnx.helper.make_node("Conv", ["r", "w1"], ["y"], group=2)]

    def write():
        graph = onnx.helper.make_graph(nodes, "g", [onnx.helper.make_tensor_value_info("x", 1, ["N", 12, 8, 8])],
                                       [onnx.helper.make_tensor_value_info("y", 1, ["N", 24, 8, 8])],
                                       [numpy_helper.from_array(v.astype(np.float32), n) for n, v in weights.items()])
        onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=10), tmp_path / "m.onnx")

    write()
    quantize(tmp_path, "f16")
    x = rng.normal(size=(2, 12, 8, 8)).astype(np.float32)
    got, _ = of_engine(tmp_path, x)
    assert 0 < lathe_cli.relative_error(got, of_onnxruntime(str(tmp_path / "m.onnx"), x)) < 2e-3
    assert lathe_cli.relative_error(got, of_onnxruntime(str(tmp_path / "q.onnx"), x)) < 2e-3
    weights["w1"][3, 2] = 1e6
    write()
    (tmp_path / "q.onnx").unlink()
    assert "'w1': holds a number too large for the format at [3, 2]" in quantize(tmp_path, "f16", code=3)
    assert not (tmp_path / "q.onnx").exists()
    quantize(tmp_path, "bf16")


def test_fp8(tmp_path):
    """Opset 19: codes e4m3 of weights by column and of activations by their range; onnxruntime agrees."""
    w1, w2 = write_model(tmp_path / "m.onnx")
    assert "converted" not in quantize(tmp_path, "w8a8-fp8", "--data", examples(tmp_path), "--recipe-out", tmp_path / "r.json")
    model = onnx.load(tmp_path / "q.onnx")
    onnx.checker.check_model(model, full_check=True)
    made, meant = weights_of(tmp_path / "q.onnx"), {}
    for name, weight, axis in (("w1", w1, 0), ("w2", w2, 1)):
        scale = (np.abs(weight).max(axis) / 448).astype(np.float32)
        np.testing.assert_array_equal(numpy_helper.to_array(made[name + "_scale"]), scale)
        scale = np.expand_dims(scale, axis)
        codes = (weight / scale).astype(ml_dtypes.float8_e4m3fn)
        assert made[name + "_quantized"].raw_data == codes.tobytes()
        meant[name] = codes.astype(np.float32) * scale
    x = np.load(examples(tmp_path))["x"]
    scale = np.float32(np.abs(x).max() / 448)
    assert numpy_helper.to_array(made["x_scale"]) == scale
    want = of_onnxruntime(str(tmp_path / "q.onnx"), x)
    got, _ = of_engine(tmp_path, x)
    # A sum in another order may give an activation the next code, of which a sixteenth of it is between.
    assert lathe_cli.relative_error(got, want) < 2e-3
    assert 0.005 < lathe_cli.relative_error(got, of_onnxruntime(str(tmp_path / "m.onnx"), x)) < 0.06
    by_recipe(tmp_path)
    recipe = json.loads((tmp_path / "r.json").read_text())
    for change, message in (({"weights": {"w1": {"bits": 4, "axis": 1, "block": 0, "format": "f8e4m3"}}}, "f8e4m3 (8 bits)"),
                            ({"weights": {"w1": {"bits": 8, "axis": 1, "block": 0, "format": "f16"}}}, "f16 or bf16"),
                            ({"weights": {"w1": {"bits": 8, "axis": 1, "block": 0, "format": "f9"}}}, "wants a format")):
        (tmp_path / "bad.json").write_text(json.dumps({**recipe, **change}))
        text = lathe_cli.lathe("quantize", tmp_path / "m.onnx", "-o", tmp_path / "no.onnx", "--recipe", tmp_path / "bad.json", code=3)
        assert message in text and "bad.json: 'w1'" in text and not (tmp_path / "no.onnx").exists()


@pytest.mark.parametrize("scheme", ["f16", "bf16", "w8a8-fp8"])
def test_reports_of_formats(tmp_path, scheme):
    """What rounding to the format loses, of weights and of activations, as numpy has it."""
    w1, _ = write_model(tmp_path / "m.onnx")
    data = examples(tmp_path)
    quantize(tmp_path, scheme, "--data", data, "--report", tmp_path / "report.json")
    up = next(l for l in json.loads((tmp_path / "report.json").read_text())["layers"] if l["node"] == "up")
    x = np.load(data)["x"]
    if scheme == "w8a8-fp8":
        def rounded(v, axis=None):
            scale = (np.abs(v).max(axis, keepdims=axis is not None) / 448).astype(np.float32)
            return (v / scale).astype(ml_dtypes.float8_e4m3fn).astype(np.float32) * scale
        rw, rx = rounded(w1, 0), rounded(x)
    else:
        narrow = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}[scheme]
        rw, rx = (v.astype(narrow).astype(np.float32) for v in (w1, x))
    signal = ((x @ w1).astype(np.float64) ** 2).sum()
    for part, change in (("weight_rounding", x @ (rw - w1)), ("activation_rounding", (rx - x) @ w1),
                         ("all", rx.astype(np.float64) @ rw - x.astype(np.float64) @ w1)):
        assert up["loss"][part] == pytest.approx((change.astype(np.float64) ** 2).sum() / signal, rel=1e-2), part
    assert up["loss"]["clipping"] == 0
