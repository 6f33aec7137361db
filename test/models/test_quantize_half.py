# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`lathe quantize` of models whose weights are of 16 bits: what is not quantized keeps their type, scales have it too."""
import json

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import lathe_cli
from test_quantize import H, K, N, examples, of_onnxruntime, quantize
from test_quantize_formats import by_recipe, of_engine, weights_of

TYPES = {"f16": (TensorProto.FLOAT16, np.float16), "bf16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16)}


def write_half(path, dtype, factor=1.0):
    """Two layers of 16 bits between casts, of weights times a factor; the weights in f32."""
    number, narrow = TYPES[dtype]
    rng = np.random.default_rng(11)
    values = {"w1": rng.normal(size=(K, H)) * factor, "w2": rng.normal(size=(N, H)), "b": rng.normal(size=N)}
    nodes = [helper.make_node("Cast", ["x"], ["h"], to=number), helper.make_node("MatMul", ["h", "w1"], ["a"], name="up"),
             helper.make_node("Relu", ["a"], ["r"]), helper.make_node("Gemm", ["r", "w2", "b"], ["z"], name="down", transB=1),
             helper.make_node("Cast", ["z"], ["y"], to=TensorProto.FLOAT)]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["M", K])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["M", N])],
                              [numpy_helper.from_array(v.astype(narrow), n) for n, v in values.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    return {n: v.astype(narrow).astype(np.float32) for n, v in values.items()}


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("scheme, error", [("w8a8-int8", 0.02), ("w8a16", 0.01), ("w4a16", 0.25), ("w8a8-fp8", 0.06), ("mxfp4", 0.3)])
def test_schemes(tmp_path, scheme, error, dtype):
    """Nothing becomes f32, and the engine computes what the float model does to what the codes lose."""
    values = write_half(tmp_path / "m.onnx", dtype)
    number = TYPES[dtype][0]
    data = ["--data", examples(tmp_path)] if scheme.startswith("w8a8") else []
    text = quantize(tmp_path, scheme, *data, "--recipe-out", tmp_path / "r.json")
    assert "2 products, 2 weights" in text and "keeps" not in text
    model = onnx.load(tmp_path / "q.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert not any(t.data_type == TensorProto.FLOAT for t in model.graph.initializer)
    types = {v.name: v.type.tensor_type.elem_type for v in onnx.shape_inference.infer_shapes(model).graph.value_info}
    assert all(types[n.output[0]] == number for n in model.graph.node if n.op_type == "DequantizeLinear")
    x = np.load(examples(tmp_path))["x"]
    want = np.maximum(x @ values["w1"], 0) @ values["w2"].T + values["b"]
    got, _ = of_engine(tmp_path, x)
    rounding = {"f16": 2.0 ** -9, "bf16": 2.0 ** -6}[dtype]
    assert lathe_cli.relative_error(got, want) < error + rounding
    by_recipe(tmp_path)


def test_onnxruntime(tmp_path):
    """Unfused it computes the same of the written model, but for what f16 rounds."""
    write_half(tmp_path / "m.onnx", "f16")
    quantize(tmp_path, "w8a8-int8", "--data", examples(tmp_path))
    x = np.load(examples(tmp_path))["x"]
    got, _ = of_engine(tmp_path, x)
    assert lathe_cli.relative_error(got, of_onnxruntime(str(tmp_path / "q.onnx"), x)) < 4e-3


def test_scales(tmp_path):
    """The least number of the type that is not below what f32 has; codes are of that scale. Weights near the smallest normal
    number of f16 lose no more than a step of f16 beside what 8 bits lose."""
    for factor in (1.0, 1e-4):
        weight = write_half(tmp_path / "m.onnx", "f16", factor)["w1"]
        quantize(tmp_path, "w8a16")
        made = weights_of(tmp_path / "q.onnx")
        scale, exact = numpy_helper.to_array(made["w1_scale"]), np.abs(weight).max(0) / np.float32(127)
        assert scale.dtype == np.float16
        below = np.nextafter(scale, np.float16(0)).astype(np.float32)
        assert np.all(scale.astype(np.float32) >= exact) and np.all(below < exact)
        codes = numpy_helper.to_array(made["w1_quantized"])
        np.testing.assert_array_equal(codes, np.rint(weight / scale.astype(np.float32)).astype(np.int8))
        assert np.all(np.abs(codes * scale.astype(np.float32) - weight) <= (exact + 2.0 ** -24) / 2 * 1.001)


@pytest.mark.parametrize("method", ["gptq", "bias-correction"])
def test_methods(tmp_path, method):
    values = write_half(tmp_path / "m.onnx", "f16")
    quantize(tmp_path, "w8a8-int8", "--data", examples(tmp_path), f"--method={method}", "--recipe-out", tmp_path / "r.json")
    onnx.checker.check_model(onnx.load(tmp_path / "q.onnx"), full_check=True)
    x = np.load(examples(tmp_path))["x"]
    want = np.maximum(x @ values["w1"], 0) @ values["w2"].T + values["b"]
    assert lathe_cli.relative_error(of_engine(tmp_path, x)[0], want) < 0.02
    by_recipe(tmp_path)


@pytest.mark.parametrize("factor", [1.0, 1e-4, 3e-6])
def test_gptq_by_scales_of_half(tmp_path, factor):
    """Codes are chosen for the scales as f16 holds them: GPTQ is not behind plain rounding where those are far apart."""
    values = write_half(tmp_path / "m.onnx", "f16", factor)
    data = examples(tmp_path)
    x = np.load(data)["x"].astype(np.float16).astype(np.float64)
    lost = {}
    for method in (), ("--data", data, "--method=gptq"):
        quantize(tmp_path, "w8a16", *method)
        made = weights_of(tmp_path / "q.onnx")
        meant = numpy_helper.to_array(made["w1_quantized"]) * numpy_helper.to_array(made["w1_scale"]).astype(np.float64)
        lost[bool(method)] = ((x @ (meant - values["w1"])) ** 2).sum()
    assert lost[True] <= lost[False]


def test_report(tmp_path):
    """What codes lose is computed in f32."""
    values = write_half(tmp_path / "m.onnx", "f16")
    data = examples(tmp_path)
    quantize(tmp_path, "w8a8-int8", "--data", data, "--report", tmp_path / "report.json")
    up = next(l for l in json.loads((tmp_path / "report.json").read_text())["layers"] if l["node"] == "up")
    made = weights_of(tmp_path / "q.onnx")
    x = np.load(data)["x"].astype(np.float16).astype(np.float64)
    meant = numpy_helper.to_array(made["w1_quantized"]) * numpy_helper.to_array(made["w1_scale"]).astype(np.float64)
    lost = ((x @ (meant - values["w1"])) ** 2).sum() / ((x @ values["w1"]) ** 2).sum()
    assert up["loss"]["weight_rounding"] == pytest.approx(lost, rel=1e-2)


def test_convolutions(tmp_path):
    """Residuals read the codes that convolutions read, and of two convolutions that are added one stores codes for the
    sum alone. On sm_90a all sums are of codes, and what is added to them comes as bytes by TMA."""
    rng = np.random.default_rng(5)
    weights = {"w0": rng.normal(size=(32, 32, 3, 3)) / 17, "b": rng.normal(size=32)}
    weights.update({n: rng.normal(size=(32, 32, 1, 1)) / 6 for n in ("w1", "w2", "w3")})
    nodes = [helper.make_node("Conv", ["x", "w0", "b"], ["a"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["a"], ["r"]),
             helper.make_node("Conv", ["r", "w1"], ["c"]), helper.make_node("Conv", ["x", "w2"], ["d"]),
             helper.make_node("Add", ["c", "d"], ["s"]), helper.make_node("Relu", ["s"], ["t"]),
             helper.make_node("Conv", ["t", "w3"], ["e"]), helper.make_node("Add", ["e", "t"], ["f"]),
             helper.make_node("Relu", ["f"], ["y"])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT16, ["B", 32, 8, 8])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT16, ["B", 32, 8, 8])],
                              [numpy_helper.from_array(v.astype(np.float16), n) for n, v in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), tmp_path / "m.onnx")
    x = rng.normal(size=(2, 32, 8, 8)).astype(np.float16)
    np.savez(tmp_path / "x.npz", x=x)
    quantize(tmp_path, "w8a8-int8", "--data", tmp_path / "x.npz", "--recipe-out", tmp_path / "r.json")
    assert json.loads((tmp_path / "r.json").read_text())["shared"] == ["d", "r", "t", "x"]
    got, _ = of_engine(tmp_path, x)
    assert got.dtype == np.float16
    for model in "m", "q":
        assert lathe_cli.relative_error(got, of_onnxruntime(str(tmp_path / f"{model}.onnx"), x)) < 0.02
    lathe_cli.lathe("compile", tmp_path / "q.onnx", "-o", tmp_path / "cuda.lathe", "--target=sm_90a", "--shape=x=2x32x8x8",
                    "--remarks", tmp_path / "remarks.json", "--dump-dir", tmp_path / "dump")
    assert (tmp_path / "remarks.json").read_text().count("8-bit operands are convolved as they are") == 4
    texts = [path.read_text().rpartition("// Kernel ")[2] for path in (tmp_path / "dump" / "kernels" / "sm_90a").glob("conv*.cu")]
    assert len(texts) == 4 and sum("typedef i8 Result" in text for text in texts) == 3
    assert sum("kBeside = true" in text for text in texts) == 1 and not any("divide" in text for text in texts)


@pytest.mark.parametrize("dtype, keeps", [("f16", True), ("f32", False)])
def test_colours(tmp_path, dtype, keeps):
    """Filters of 16 bits that read colours keep their type; the next ones, and those of f32, do not."""
    number, narrow = {**TYPES, "f32": (TensorProto.FLOAT, np.float32)}[dtype]
    rng = np.random.default_rng(6)
    weights = {"w0": rng.normal(size=(32, 3, 3, 3)) / 5, "w1": rng.normal(size=(32, 32, 1, 1)) / 6}
    nodes = [helper.make_node("Conv", ["x", "w0"], ["a"], name="first", pads=[1, 1, 1, 1]), helper.make_node("Relu", ["a"], ["r"]),
             helper.make_node("Conv", ["r", "w1"], ["y"], name="second")]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", number, ["B", 3, 8, 8])],
                              [helper.make_tensor_value_info("y", number, ["B", 32, 8, 8])],
                              [numpy_helper.from_array(v.astype(narrow), n) for n, v in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), tmp_path / "m.onnx")
    np.savez(tmp_path / "x.npz", x=rng.normal(size=(2, 3, 8, 8)).astype(narrow))
    text = quantize(tmp_path, "w8a8-int8", "--data", tmp_path / "x.npz")
    assert ("images of so few channels" in text) == keeps
    assert ("1 products" if keeps else "2 products") in text


@pytest.mark.parametrize("scheme, options, code, message", [
    ("w8a8-int8", ["--dynamic"], 4, "is no matrix of f32"), ("w4a16", ["--format=microsoft"], 4, "is no matrix of f32"),
    ("nf4", [], 4, "is no matrix of f32"), ("f16", [], 4, "is no matrix of f32"),
    ("w8a8-int8", ["--method=smoothquant", "--data=data.npz"], 4, "no layer reads any: 'w1' is of f16")])
def test_what_wants_f32(tmp_path, monkeypatch, scheme, options, code, message):
    write_half(tmp_path / "m.onnx", "f16")
    examples(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert message in quantize(tmp_path, scheme, *options, code=code)
    assert not (tmp_path / "q.onnx").exists()


def test_one_constant_of_16_bits(tmp_path):
    """A table of f16, or a layer, makes no other layer's numbers f16: factors divide those of f32, and of others it is said why not."""
    rng = np.random.default_rng(4)
    weights = {"table": rng.normal(size=(40, K)).astype(np.float16), "w1": rng.normal(size=(K, H)).astype(np.float32),
               "w2": rng.normal(size=(H, N)).astype(np.float16)}
    cast = {"f32": TensorProto.FLOAT, "f16": TensorProto.FLOAT16}
    nodes = [helper.make_node("Gather", ["table", "ids"], ["e"]), helper.make_node("Cast", ["e"], ["x"], to=cast["f32"]),
             helper.make_node("MatMul", ["x", "w1"], ["a"], name="up"), helper.make_node("Cast", ["a"], ["h"], to=cast["f16"]),
             helper.make_node("MatMul", ["h", "w2"], ["z"], name="down"), helper.make_node("Cast", ["z"], ["y"], to=cast["f32"])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("ids", TensorProto.INT64, ["M"])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["M", N])],
                              [numpy_helper.from_array(v, n) for n, v in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=10), tmp_path / "m.onnx")
    ids = rng.integers(40, size=64)
    np.savez(tmp_path / "d.npz", ids=ids)
    text = quantize(tmp_path, "w8a8-int8", "--method=smoothquant", "--range=mse", "--data", tmp_path / "d.npz", "--recipe-out", tmp_path / "r.json",
                    "--report", tmp_path / "report.json")
    assert "no factors for 'h': 'w2' is of f16" in text
    assert [name for name in np.load(tmp_path / "r.npz") if name.startswith("factors/")] == ["factors/x"]
    got = lathe_cli.run(lathe_cli.compile_model(tmp_path / "q.onnx", tmp_path / "q.lathe"), tmp_path / "run", inputs={"ids": ids})["y"]
    x = weights["table"].astype(np.float32)[ids]
    assert lathe_cli.relative_error(got, (x @ weights["w1"]).astype(np.float16).astype(np.float32) @ weights["w2"].astype(np.float32)) < 0.03
    # The scale of h is f16's, in the model as in the report's engine.
    scale = numpy_helper.to_array(weights_of(tmp_path / "q.onnx")["h_scale"])
    assert scale.dtype == np.float16
