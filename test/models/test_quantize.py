# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`lathe quantize`: the model that it writes against numpy's definition, onnxruntime without optimisations, and our
engine; recipes; data that cannot be used."""
import json
import os

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import lathe_cli

K, H, N = 64, 96, 50


def write_model(path, opset=21, external=False, bad=None):
    """Two layers, the first a MatMul, the second a Gemm of the transposed weight; a third product that is no weight's."""
    rng = np.random.default_rng(11)
    w1, w2 = rng.normal(size=(K, H)).astype(np.float32), rng.normal(size=(N, H)).astype(np.float32)
    if bad is not None:
        w1[3, 5] = bad
    nodes = [helper.make_node("MatMul", ["x", "w1"], ["a"], name="up"), helper.make_node("Relu", ["a"], ["r"]),
             helper.make_node("Gemm", ["r", "w2", "b"], ["y"], name="down", transB=1)]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["M", K])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["M", N])],
                              [numpy_helper.from_array(v, n) for n, v in
                               (("w1", w1), ("w2", w2), ("b", rng.normal(size=N).astype(np.float32)))], doc_string="kept")
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10, producer_name="someone")
    helper.set_model_props(model, {"author": "nobody"})
    onnx.save(model, path, save_as_external_data=external, location="w.bin", size_threshold=0)
    return w1, w2


def examples(folder, rows=50, seed=5):
    path = str(folder / "data.npz")
    np.savez(path, x=np.random.default_rng(seed).normal(size=(rows, K)).astype(np.float32))
    return path


def quantize(folder, scheme, *options, code=0, model="m.onnx"):
    return lathe_cli.lathe("quantize", folder / model, "-o", folder / "q.onnx", f"--scheme={scheme}", *options, code=code)


def of_onnxruntime(path, x):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


@pytest.mark.parametrize("scheme, error", [("w8a8-int8", 0.02), ("w8a16", 0.01), ("w4a16", 0.25)])
def test_schemes(tmp_path, scheme, error):
    """onnxruntime, unfused, and our engine compute the same of the written model, which is near the float one (4 bits
    of Gaussian weights: a tenth of the result's deviation in each layer)."""
    write_model(tmp_path / "m.onnx")
    data = ["--data", examples(tmp_path)] if scheme == "w8a8-int8" else []
    quantize(tmp_path, scheme, *data, "--recipe-out", tmp_path / "r.json")
    path = str(tmp_path / "q.onnx")
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert (model.producer_name, model.graph.doc_string, model.metadata_props[0].value) == ("someone", "kept", "nobody")
    assert {"up", "down"} <= {n.name for n in model.graph.node}
    assert {"w1", "w2"}.isdisjoint(t.name for t in model.graph.initializer)
    x = np.load(examples(tmp_path))["x"]
    want, float_ = of_onnxruntime(path, x), of_onnxruntime(str(tmp_path / "m.onnx"), x)
    assert 0 < lathe_cli.relative_error(want, float_) < error
    if scheme == "w8a8-int8":
        kernels = lathe_cli.lathe("inspect", path, "--kernels", "--target=x86-64-v3")
        assert kernels.count("gemm.pairs.v8.r48.m6.n16") == 2
    engine = lathe_cli.compile_model(path, tmp_path / "q.lathe")
    got = lathe_cli.run(engine, tmp_path / "run", inputs={"x": x})["y"]
    if scheme == "w8a8-int8":  # sums in another order may give an activation the next code
        step = json.loads((tmp_path / "r.json").read_text())["activations"]["r"]["max"] / 255
        assert np.abs(got - want).max() <= step * 4
        assert np.mean(np.abs(got - want) > 1e-4 * np.abs(want).max()) < 0.1
    else:
        assert lathe_cli.relative_error(got, want) < 1e-5
    # The same again by the recipe, byte for byte.
    first = open(path, "rb").read()
    lathe_cli.lathe("quantize", tmp_path / "m.onnx", "-o", tmp_path / "q2.onnx", "--recipe", tmp_path / "r.json",
                    "--recipe-out", tmp_path / "r2.json")
    assert (tmp_path / "q2.onnx").read_bytes() == first
    assert (tmp_path / "r2.json").read_bytes() == (tmp_path / "r.json").read_bytes()
    # ... and in one step: the same engine, whatever the model is called.
    lathe_cli.lathe("compile", tmp_path / "m.onnx", "-o", tmp_path / "r.lathe", "--recipe", tmp_path / "r.json", "--no-cache")
    os.makedirs(tmp_path / "named")
    os.rename(tmp_path / "q2.onnx", tmp_path / "named" / "m.onnx")
    lathe_cli.lathe("compile", tmp_path / "named" / "m.onnx", "-o", tmp_path / "n.lathe", "--no-cache")
    assert (tmp_path / "r.lathe").read_bytes() == (tmp_path / "n.lathe").read_bytes()


def test_ranges_and_codes(tmp_path):
    """Ranges are the data's, and codes those of round to nearest even."""
    w1, _ = write_model(tmp_path / "m.onnx")
    quantize(tmp_path, "w8a8-int8", "--data", examples(tmp_path), "--recipe-out", tmp_path / "r.json")
    x = np.load(examples(tmp_path))["x"]
    seen = json.loads((tmp_path / "r.json").read_text())["activations"]
    assert seen["x"] == {"min": float(x.min()), "max": float(x.max())}
    np.testing.assert_allclose(seen["r"]["max"], np.maximum(x @ w1, 0).max(), rtol=1e-5)
    made = {t.name: numpy_helper.to_array(t) for t in onnx.load(tmp_path / "q.onnx").graph.initializer}
    scale = np.abs(w1).max(0) / np.float32(127)
    np.testing.assert_array_equal(made["w1_scale"], scale)
    np.testing.assert_array_equal(made["w1_quantized"], np.rint(w1 / scale).astype(np.int8))
    low, high = float(x.min()), float(x.max())
    assert made["x_scale"] == np.float32((high - low) / 255)
    assert made["x_zero_point"] == round(-low / float(made["x_scale"]))


def test_blocks_of_codes(tmp_path):
    """4 bits: a scale for 32 elements of the depth, which is the first dimension of w1 and the second of w2."""
    w1, w2 = write_model(tmp_path / "m.onnx")
    quantize(tmp_path, "w4a16", "--group", "32")
    made = {t.name: numpy_helper.to_array(t) for t in onnx.load(tmp_path / "q.onnx").graph.initializer}
    for name, weight, axis in (("w1", w1, 0), ("w2", w2, 1)):
        parts = np.split(weight, weight.shape[axis] // 32, axis)
        scale = np.concatenate([np.abs(p).max(axis, keepdims=True) / np.float32(7) for p in parts], axis)
        np.testing.assert_array_equal(made[name + "_scale"], scale)
        codes = np.rint(weight / np.repeat(scale, 32, axis))
        np.testing.assert_array_equal(made[name + "_quantized"].astype(np.float32), codes)
    assert "no multiple of the block of 48" in quantize(tmp_path, "w4a16", "--group", "48")  # of 64; it divides 96


def test_small_products(tmp_path):
    """Products that would be slower keep f32, and say so; with weights alone there is nothing to lose."""
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"], name="small")], "g",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["M", 64])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["M", 64])],
                              [numpy_helper.from_array(np.eye(64, dtype=np.float32), "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), tmp_path / "m.onnx")
    text = quantize(tmp_path, "w8a8-int8", "--data", examples(tmp_path), code=4)
    assert "'small': its right operand has 4096 elements" in text and not (tmp_path / "q.onnx").exists()
    quantize(tmp_path, "w8a16")


def test_convolutions(tmp_path):
    """A block of a network: convolutions, one of them depthwise, a residual, filters of a Constant node. Every kernel
    between the input and the last Relu stores codes; onnxruntime, unfused, computes the same of the written model."""
    rng = np.random.default_rng(21)

    def filters(*shape):
        return (rng.normal(size=shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    weights = {"w0": filters(24, 3, 3, 3), "w1": filters(48, 24, 1, 1), "w2": filters(48, 1, 3, 3)}
    nodes = [helper.make_node("Conv", ["x", "w0"], ["a"], name="first", pads=[1, 1, 1, 1], strides=[2, 2]),
             helper.make_node("Relu", ["a"], ["r"]),
             helper.make_node("Conv", ["r", "w1"], ["b"], name="up"), helper.make_node("Relu", ["b"], ["s"]),
             helper.make_node("Conv", ["s", "w2"], ["c"], name="depthwise", pads=[1, 1, 1, 1], group=48),
             helper.make_node("Relu", ["c"], ["t"]),
             helper.make_node("Constant", [], ["w3"], value=numpy_helper.from_array(filters(24, 48, 1, 1))),
             helper.make_node("Conv", ["t", "w3"], ["d"], name="down"), helper.make_node("Add", ["d", "r"], ["e"]),
             helper.make_node("Relu", ["e"], ["y"])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["M", 3, 20, 22])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["M", 24, 10, 11])],
                              [numpy_helper.from_array(v, n) for n, v in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), tmp_path / "m.onnx")
    x = rng.normal(size=(4, 3, 20, 22)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=x)
    text = quantize(tmp_path, "w8a8-int8", "--data", tmp_path / "data.npz", "--recipe-out", tmp_path / "r.json")
    assert "4 products, 4 weights, 4 activations" in text and "keeps" not in text
    recipe = json.loads((tmp_path / "r.json").read_text())
    assert recipe["shared"] == ["r", "s", "t", "x"]
    model = onnx.load(tmp_path / "q.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert not [n for n in model.graph.node if n.op_type == "Constant"]
    add = next(n for n in model.graph.node if n.op_type == "Add")
    assert "r_dequantized" in add.input
    want, float_ = of_onnxruntime(str(tmp_path / "q.onnx"), x), of_onnxruntime(str(tmp_path / "m.onnx"), x)
    assert 0 < lathe_cli.relative_error(want, float_) < 0.05
    engine = lathe_cli.compile_model(tmp_path / "q.onnx", tmp_path / "q.lathe", target="x86-64-v3")
    kernels = lathe_cli.lathe("inspect", engine, "--kernels")
    assert kernels.count("conv.pairs") == 3
    got = lathe_cli.run(engine, tmp_path / "run", inputs={"x": x})["y"]
    step = max(v["max"] - v["min"] for v in recipe["activations"].values()) / 255
    assert np.abs(got - want).max() <= 4 * step
    assert np.mean(np.abs(got - want) > 1e-4 * np.abs(want).max()) < 0.05
    lathe_cli.lathe("quantize", tmp_path / "m.onnx", "-o", tmp_path / "q2.onnx", "--recipe", tmp_path / "r.json")
    assert (tmp_path / "q2.onnx").read_bytes() == (tmp_path / "q.onnx").read_bytes()
    # Weights alone: images stay f32, and so do filters.
    assert "read filters of f32" in quantize(tmp_path, "w8a16", code=4)


def test_recipes_that_do_not_compile(tmp_path):
    """A recipe of another model, none at all, weights outside, and text of a phase: located errors, and no engine."""
    write_model(tmp_path / "m.onnx")
    quantize(tmp_path, "w8a16", "--recipe-out", tmp_path / "r.json")
    recipe = json.loads((tmp_path / "r.json").read_text())
    recipe["products"] = ["nothing"]
    (tmp_path / "other.json").write_text(json.dumps(recipe))

    def refused(recipe, code, *words, model="m.onnx"):
        text = lathe_cli.lathe("compile", tmp_path / model, "-o", tmp_path / "e.lathe", "--recipe", tmp_path / recipe, code=code)
        assert all(word in text for word in words) and not (tmp_path / "e.lathe").exists(), text

    refused("other.json", 3, "other.json", "of another model", "'nothing'")
    refused("m.onnx", 3, "is no JSON")
    refused("missing.json", 2, "missing.json")
    (tmp_path / "phase.mlir").write_text("module {}")
    refused("r.json", 2, "--recipe", model="phase.mlir")
    os.makedirs(tmp_path / "outside")
    write_model(tmp_path / "outside" / "m.onnx", external=True)
    refused("r.json", 4, "in other files", model="outside/m.onnx")


def test_older_opset(tmp_path):
    """A model is converted where its opset lacks the ops, which is said; what describes it is kept."""
    write_model(tmp_path / "m.onnx", opset=13)
    assert "converted from opset 13 to 21" in quantize(tmp_path, "w4a16", "--recipe-out", tmp_path / "r.json")
    model = onnx.load(tmp_path / "q.onnx")
    assert (model.producer_name, model.graph.doc_string, model.metadata_props[0].value) == ("someone", "kept", "nobody")
    assert (model.opset_import[0].version, {"up", "down"} <= {n.name for n in model.graph.node}) == (21, True)
    x = np.load(examples(tmp_path))["x"]
    want = of_onnxruntime(str(tmp_path / "q.onnx"), x)
    engine = lathe_cli.compile_model(tmp_path / "q.onnx", tmp_path / "q.lathe")
    assert lathe_cli.relative_error(lathe_cli.run(engine, tmp_path / "run", inputs={"x": x})["y"], want) < 1e-5
    lathe_cli.lathe("quantize", tmp_path / "m.onnx", "-o", tmp_path / "q2.onnx", "--recipe", tmp_path / "r.json")
    assert (tmp_path / "q2.onnx").read_bytes() == (tmp_path / "q.onnx").read_bytes()


def test_folders_and_keep(tmp_path):
    write_model(tmp_path / "m.onnx")
    for i in range(2):
        folder = tmp_path / "data" / f"test_data_set_{i}"
        os.makedirs(folder)
        array = np.random.default_rng(i).normal(size=(4, K)).astype(np.float32)
        (folder / "input_0.pb").write_bytes(numpy_helper.from_array(array, "x").SerializeToString())
    text = quantize(tmp_path, "w8a8-int8", "--data", tmp_path / "data", "--keep", "do*")
    assert "'down': asked for by --keep" in text and "1 products, 1 weights, 1 activations" in text
    assert "w2" in {t.name for t in onnx.load(tmp_path / "q.onnx").graph.initializer}


def test_folder_of_archives(tmp_path):
    """Each archive is one run, whatever its number of rows is."""
    write_model(tmp_path / "m.onnx")
    os.makedirs(tmp_path / "data")
    arrays = [np.random.default_rng(i).normal(size=(3 + 20 * i, K)).astype(np.float32) for i in range(3)]
    for i, array in enumerate(arrays):
        np.savez(tmp_path / "data" / f"{i}.npz", x=array)
    text = quantize(tmp_path, "w8a8-int8", "--data", tmp_path / "data", "--recipe-out", tmp_path / "r.json")
    assert "over 3 batches" in text
    seen = json.loads((tmp_path / "r.json").read_text())["activations"]["x"]
    assert seen == {"min": float(min(a.min() for a in arrays)), "max": float(max(a.max() for a in arrays))}
    np.savez(tmp_path / "data" / "9.npz", x=np.zeros((3, K + 1), np.float32))
    assert "9.npz: 'x'" in quantize(tmp_path, "w8a8-int8", "--data", tmp_path / "data", code=2)


def test_external_weights(tmp_path):
    """Weights outside of the file are read there; those that stay stay there."""
    write_model(tmp_path / "m.onnx", external=True)
    quantize(tmp_path, "w8a8-int8", "--data", examples(tmp_path), "--keep", "down")
    x = np.load(examples(tmp_path))["x"]
    of_onnxruntime(str(tmp_path / "q.onnx"), x)
    outside = [t.name for t in onnx.load(tmp_path / "q.onnx", load_external_data=False).graph.initializer if t.external_data]
    assert outside == ["w2", "b"]
    os.makedirs(tmp_path / "else")
    text = lathe_cli.lathe("quantize", tmp_path / "m.onnx", "-o", tmp_path / "else" / "q.onnx", "--scheme=w8a16", code=2)
    assert "the same folder" in text and not os.listdir(tmp_path / "else")


BAD = {
    "empty": ({"x": np.zeros((0, K), np.float32)}, 2, "no whole batch"),
    "nan": ({"x": np.full((3, K), np.nan, np.float32)}, 3, "NaN at element 0"),
    "infinity": ({"x": np.full((3, K), np.inf, np.float32)}, 3, "infinity at element 0"),
    "name": ({"z": np.zeros((3, K), np.float32)}, 2, "no such input"),
    "shape": ({"x": np.zeros((3, K + 1), np.float32)}, 2, "dimension 1 is 65, the input's 64"),
    "rank": ({"x": np.zeros(3, np.float32)}, 2, "1 dimensions"),
    "dtype": ({"x": np.zeros((3, K), np.int64)}, 2, "the input is f32"),
    "constant": ({"x": np.ones((3, K), np.float32)}, 3, "same number everywhere"),
}


def old_model(path, op, opset, scales, **attributes):
    """A product behind an op that meant something else before the opset that quantizing needs."""
    operands = ["p", "s"] if scales else ["p"]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"], name="product"), helper.make_node(op, operands, ["y"], name="old", **attributes)]
    weights = {"w": np.random.default_rng(2).normal(size=(16, 16)).astype(np.float32), "s": np.array(scales, np.float32)}
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 5, 16])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * 4)],
                              [numpy_helper.from_array(v, n) for n, v in weights.items() if n in ["w", *operands]])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=7), path)


@pytest.mark.parametrize("op, opset, scales, attributes", [("Upsample", 9, [1, 1, 1.5, 2.5], {"mode": "linear"}),
                                                           ("Upsample", 9, [1, 1, 1.5, 2.5], {}),
                                                           ("Resize", 10, [1, 1, 1.5, 0.7], {"mode": "linear"}),
                                                           ("Resize", 10, [1, 1, 1.5, 2.5], {})])
def test_old_opsets(tmp_path, op, opset, scales, attributes):
    """The model is converted, and interpolates where it did."""
    old_model(tmp_path / "m.onnx", op, opset, scales, **attributes)
    quantize(tmp_path, "w8a16")
    x = np.random.default_rng(3).normal(size=(1, 2, 5, 16)).astype(np.float32)
    want, got = (of_onnxruntime(str(tmp_path / name), x) for name in ("m.onnx", "q.onnx"))
    assert got.shape == want.shape and lathe_cli.relative_error(got, want) < 0.02


@pytest.mark.parametrize("op, opset, scales", [("Resize", 10, [1, 1, 0.6, 2]), ("Hardmax", 11, [])])
def test_old_opsets_that_nothing_newer_says(tmp_path, op, opset, scales):
    old_model(tmp_path / "m.onnx", op, opset, scales)
    text = quantize(tmp_path, "w8a16", code=4)
    assert f"needs opset 13, the model has {opset}, and {op} of it, 'old'" in text and not (tmp_path / "q.onnx").exists()


@pytest.mark.parametrize("what", BAD)
def test_bad_data(tmp_path, what):
    arrays, code, message = BAD[what]
    write_model(tmp_path / "m.onnx")
    np.savez(tmp_path / "d.npz", **arrays)
    text = quantize(tmp_path, "w8a8-int8", "--data", tmp_path / "d.npz", "--recipe-out", tmp_path / "r.json", code=code)
    assert message in text and "d.npz" in text
    assert sorted(os.listdir(tmp_path)) == ["d.npz", "m.onnx"]


def test_bad_input(tmp_path):
    """Each is an error with its place, and leaves no file."""
    write_model(tmp_path / "m.onnx")
    data = examples(tmp_path)
    assert "ranges come from --data" in quantize(tmp_path, "w8a8-int8", code=2)
    assert "w8a8-int8, w8a16, w4a16" in quantize(tmp_path, "w3", code=2)
    assert "--keep 'nothing*'" in quantize(tmp_path, "w8a16", "--keep", "nothing*", code=2)
    assert "multiple of 16" in quantize(tmp_path, "w4a16", "--group", "7", code=2)
    whole = open(data, "rb").read()
    (tmp_path / "cut.npz").write_bytes(whole[:len(whole) // 2])
    assert "its end is missing" in quantize(tmp_path, "w8a8-int8", "--data", tmp_path / "cut.npz", code=3)
    np.savez_compressed(tmp_path / "small.npz", x=np.zeros((3, K), np.float32))
    assert "numpy.savez" in quantize(tmp_path, "w8a8-int8", "--data", tmp_path / "small.npz", code=4)
    write_model(tmp_path / "old.onnx", opset=13, external=True)
    assert "needs opset 21, the model has 13" in quantize(tmp_path, "w4a16", code=4, model="old.onnx")
    write_model(tmp_path / "nan.onnx", bad=np.nan)
    assert "weight 'w1': holds NaN at [3, 5]" in quantize(tmp_path, "w8a16", code=3, model="nan.onnx")
    assert not (tmp_path / "q.onnx").exists()
    quantize(tmp_path, "w8a16", "--recipe-out", tmp_path / "r.json")
    os.rename(tmp_path / "q.onnx", tmp_path / "done.onnx")
    assert "quantized already" in quantize(tmp_path, "w8a16", code=3, model="done.onnx")
    recipe = json.loads((tmp_path / "r.json").read_text())
    for change, message in (({"weights": {"w9": {"bits": 8, "axis": 1, "block": 0}}}, "another model"),
                            ({"weights": {"w1": {"bits": 3, "axis": 1, "block": 0}}}, "bits of 8 or 4"),
                            ({"activations": {"x": {"min": 1, "max": -1}}}, "in order"),
                            ({"activations": {"x": {"min": 0, "max": 1e-41}}}, "normal scale"),
                            ({"products": ["elsewhere"]}, "another model"), ({"version": 9}, "version")):
        (tmp_path / "bad.json").write_text(json.dumps({**recipe, **change}))
        text = lathe_cli.lathe("quantize", tmp_path / "m.onnx", "-o", tmp_path / "q.onnx", "--recipe", tmp_path / "bad.json", code=3)
        assert message in text and "bad.json" in text
    assert not (tmp_path / "q.onnx").exists()
