# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What `lathe quantize` cannot use, beyond test_quantize.py: damaged archives, models that have codes in some other form, recipes
with scales that are none; and what looks bad but is not: columns of zeros, subnormal weights, scales that a model states."""
import hashlib
import json
import os

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import lathe_cli
from test_quantize import K, examples, of_onnxruntime, quantize, write_model


def test_damaged_archives(tmp_path):
    """An array whose data end early, a lone .npy, text, a folder of nothing: each names the file, and leaves none."""
    write_model(tmp_path / "m.onnx")
    whole = open(examples(tmp_path), "rb").read()
    os.remove(tmp_path / "data.npz")
    npy = whole.index(b"\x93NUMPY")
    claimed = whole.replace(b"(50, 64)", b"(99, 64)", 1)  # more rows than there are
    os.mkdir(tmp_path / "folder")
    os.mkdir(tmp_path / "cut")
    (tmp_path / "cut" / "input_0.pb").write_bytes(numpy_helper.from_array(np.zeros((4, K), np.float32), "x").SerializeToString()[:100])
    before = sorted(os.listdir(tmp_path))
    for name, data, code, message in (("rows.npz", claimed, 3, "'x.npy'"), ("lone.npy", whole[npy:npy + 200], 3, "is no .npz archive"),
                                      ("text.npz", b"nothing at all", 3, "is no .npz archive"),
                                      ("head.npz", whole.replace(b"\x93NUMPY", b"\x93NUMPX", 1), 3, "'x.npy'")):
        (tmp_path / name).write_bytes(data)
        text = quantize(tmp_path, "w8a8-int8", "--data", tmp_path / name, code=code)
        assert name in text and message in text, text
        os.remove(tmp_path / name)
        assert sorted(os.listdir(tmp_path)) == before
    assert "has no input_0.pb" in quantize(tmp_path, "w8a8-int8", "--data", tmp_path / "folder", code=2)
    assert "input_0.pb" in quantize(tmp_path, "w8a8-int8", "--data", tmp_path / "cut", code=3)
    assert "nowhere" in quantize(tmp_path, "w8a8-int8", "--data", tmp_path / "nowhere", code=2)
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize("options", [["nf4"], ["w4a16", "--format=microsoft"], ["w8a8-int8", "--dynamic"], ["mxfp4"], ["w8a8-fp8"]], ids=" ".join)
def test_models_that_are_quantized(tmp_path, options):
    write_model(tmp_path / "m.onnx")
    data = ["--data", examples(tmp_path)] if options[0] == "w8a8-fp8" else []
    quantize(tmp_path, *options, *data)
    os.rename(tmp_path / "q.onnx", tmp_path / "done.onnx")
    text = quantize(tmp_path, "w8a16", code=3, model="done.onnx")
    assert "the model is quantized already, by this" in text and "node '" in text and not (tmp_path / "q.onnx").exists()


def test_scales_of_recipes(tmp_path):
    """Zero, negative, subnormal and non-finite scales and factors; codes that no format has: each with its array and element."""
    write_model(tmp_path / "m.onnx")
    quantize(tmp_path, "w4a16", "--method=gptq", "--group=32", "--data", examples(tmp_path), "--recipe-out", tmp_path / "r.json")
    os.remove(tmp_path / "q.onnx")
    recipe, arrays = json.loads((tmp_path / "r.json").read_text()), dict(np.load(tmp_path / "r.npz"))

    def refused(changed, message, name="bad"):
        np.savez(tmp_path / f"{name}.npz", **changed)
        said = {**recipe, "arrays": hashlib.sha256((tmp_path / f"{name}.npz").read_bytes()).hexdigest()}
        (tmp_path / f"{name}.json").write_text(json.dumps(said))
        text = lathe_cli.lathe("quantize", tmp_path / "m.onnx", "-o", tmp_path / "q.onnx", "--recipe", tmp_path / f"{name}.json", code=3)
        assert message in text and f"{name}." in text and not (tmp_path / "q.onnx").exists(), text

    for value in (0, -0.25, 1e-41, np.nan, np.inf):
        scales = arrays["scales/w1"].copy()
        scales[1, 7] = value
        refused({**arrays, "scales/w1": scales}, "is no positive normal number at element 103")
    codes = arrays["codes/w1"].copy()
    codes[2, 1] = -8
    refused({**arrays, "codes/w1": codes}, "has a code out of range at element 193")
    refused({**arrays, "scales/w1": arrays["scales/w1"][:1]}, "no codes and scales that fit each other")
    refused({**arrays, "codes/other": codes}, "belongs to no weight of the recipe")
    # An archive that is cut, another one, none.
    whole = (tmp_path / "r.npz").read_bytes()
    for data, code, message in ((whole[:-40], 3, "names other arrays"), (None, 3, "names arrays that should lie beside it")):
        os.remove(tmp_path / "r.npz")
        if data:
            (tmp_path / "r.npz").write_bytes(data)
        text = lathe_cli.lathe("quantize", tmp_path / "m.onnx", "-o", tmp_path / "q.onnx", "--recipe", tmp_path / "r.json", code=code)
        assert message in text and "r.json" in text and not (tmp_path / "q.onnx").exists()


@pytest.mark.parametrize("scheme", ["w8a8-int8", "w8a16", "w4a16", "mxfp4", "nf4", "w8a8-fp8", "f16", "bf16"])
def test_columns_of_nothing(tmp_path, scheme):
    """Columns of zeros, and of numbers whose scale would be subnormal: the results are finite, and zero where they were."""
    write_model(tmp_path / "m.onnx")
    model = onnx.load(tmp_path / "m.onnx")
    w1 = next(t for t in model.graph.initializer if t.name == "w1")
    array = numpy_helper.to_array(w1).copy()
    array[:, 3] = 0
    array[:, 8] = 1e-41
    w1.CopyFrom(numpy_helper.from_array(array, "w1"))
    model.graph.output.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, ["M", array.shape[1]]))
    onnx.save(model, tmp_path / "m.onnx")
    data = examples(tmp_path)
    quantize(tmp_path, scheme, *(["--data", data] if scheme.startswith("w8a8") else []))
    x = np.load(data)["x"]
    got = lathe_cli.run(lathe_cli.compile_model(tmp_path / "q.onnx", tmp_path / "q.lathe"), tmp_path / "run", inputs={"x": x})
    assert np.isfinite(got["y"]).all() and (got["a"][:, 3] == 0).all() and (np.abs(got["a"][:, 8]) < 1e-37).all()


@pytest.mark.parametrize("operand", ["activation", "weight"])
@pytest.mark.parametrize("scale", [0.0, -0.1, 1e-41])
def test_scales_of_models(tmp_path, operand, scale):
    """A model may state any scale: what ONNX says of it is computed, as onnxruntime does unfused; the engine rounds sums of subnormal
    numbers once instead of each of them."""
    rng = np.random.default_rng(0)
    weights = {"sx": np.float32(scale if operand == "activation" else 0.1), "zx": np.uint8(3),
               "sw": np.float32(scale if operand == "weight" else 0.1), "w": rng.integers(-127, 128, size=(128, 128)).astype(np.int8)}
    nodes = [helper.make_node("QuantizeLinear", ["x", "sx", "zx"], ["q"]), helper.make_node("DequantizeLinear", ["q", "sx", "zx"], ["d"]),
             helper.make_node("DequantizeLinear", ["w", "sw"], ["v"]), helper.make_node("MatMul", ["d", "v"], ["y"])]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 128]) for name in "xy"]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:], [numpy_helper.from_array(np.array(v), n) for n, v in weights.items()]),
                                opset_imports=[helper.make_opsetid("", 21)], ir_version=10), tmp_path / "m.onnx")
    x = rng.normal(size=(4, 128)).astype(np.float32)
    want = of_onnxruntime(str(tmp_path / "m.onnx"), x)
    got = lathe_cli.run(lathe_cli.compile_model(tmp_path / "m.onnx", tmp_path / "e.lathe"), tmp_path / "run", inputs={"x": x})["y"]
    assert np.isfinite(want).all()
    np.testing.assert_allclose(got, want, rtol=0, atol=(2e-3 if 0 < scale < 1e-38 else 1e-5) * np.abs(want).max())
