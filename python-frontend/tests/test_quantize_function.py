# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""lathe.quantize: examples of a generator give the model that the command writes; reports; what goes wrong."""
import json
import os
import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import lathe
from lathe import _abi

K = 80


@pytest.fixture(scope="module")
def model():
    """y = relu(x @ u + s) @ v of two inputs, one of them a number."""
    rng = np.random.default_rng(2)
    nodes = [helper.make_node("MatMul", ["x", "u"], ["a"], name="up"), helper.make_node("Add", ["a", "s"], ["b"]),
             helper.make_node("Relu", ["b"], ["r"]), helper.make_node("MatMul", ["r", "v"], ["y"], name="down")]
    weights = [numpy_helper.from_array(rng.normal(size=(K, K)).astype(np.float32), name) for name in "uv"]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes)
            for name, sizes in (("x", ["M", K]), ("s", []), ("y", ["M", K]))]
    return helper.make_model(helper.make_graph(nodes, "g", ends[:2], ends[2:], weights),
                             opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def examples(count=3):
    rng = np.random.default_rng(6)
    for i in range(count):
        yield {"x": rng.normal(size=(4 + i, K)).astype(np.float32), "s": np.float32(i)}


def test_generator(model, tmp_path):
    """The bytes of the command on the same examples, and an engine near the float one."""
    made = lathe.quantize(model, examples(), scheme="w8a8-int8", range="percentile:99.9",
                          recipe_output=tmp_path / "r.json")
    assert made.recipe["products"] == ["a", "y"] and made.report is None
    assert made.recipe == json.loads((tmp_path / "r.json").read_text())
    os.mkdir(tmp_path / "data")
    for i, example in enumerate(examples()):
        np.savez(tmp_path / "data" / f"{i}.npz", **example)
    onnx.save(model, tmp_path / "m.onnx")
    command = os.path.join(_abi.folders()[-1], "..", "bin", "lathe")
    subprocess.run([command, "quantize", tmp_path / "m.onnx", "-o", tmp_path / "q.onnx", "--scheme=w8a8-int8",
                    "--data", tmp_path / "data", "--range=percentile:99.9"], check=True, capture_output=True)
    assert made.model == (tmp_path / "q.onnx").read_bytes()
    example = next(examples())
    want = lathe.compile(model).run(example)["y"].numpy()
    got = lathe.compile(made.model).run(example)["y"].numpy()
    assert 0 < np.abs(got - want).max() < 0.05 * np.abs(want).max()


def test_report_and_files(model, tmp_path):
    onnx.save(model, tmp_path / "m.onnx")
    made = lathe.quantize(tmp_path / "m.onnx", examples(1), tmp_path / "q.onnx", scheme="w8a8-int8", keep=["up"],
                          report_output=tmp_path / "page.html")
    assert made.model == str(tmp_path / "q.onnx") and any("asked for by --keep" in note for note in made.notes)
    layer, = made.report["layers"]
    assert layer["node"] == "down" and layer["sqnr_db"] > 20 and layer["us_after"] > 0
    assert made.report == json.loads((tmp_path / "page.json").read_text())
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")


def test_weights_alone(model):
    made = lathe.quantize(model.SerializeToString(), scheme="w4a16", options=[("group", 16)])
    assert made.recipe["weights"]["u"] == {"axis": 0, "bits": 4, "block": 16}


def test_errors(model, tmp_path):
    def failed(code, *words, data=None, scheme="w8a8-int8"):
        with pytest.raises(lathe.Error) as caught:
            lathe.quantize(model, data, tmp_path / "q.onnx", scheme=scheme)
        assert caught.value.code == code and all(word in str(caught.value) for word in words), caught.value
        assert not os.listdir(tmp_path)

    usage, x = lathe.Code.USAGE, np.zeros((2, K), np.float32)
    failed(usage, "--data")
    failed(usage, "no such input", "'z'", data=[{"z": x}])
    failed(usage, "no array for this input", "'s'", data=[{"x": x}])
    failed(usage, "dimension 1 is 3", data=[{"x": x[:, :3], "s": np.float32(0)}])
    failed(usage, "there is no example", data=iter(()))
    failed(usage, "example 1", "not a mapping", data=[next(examples()), 3])
    failed(lathe.Code.INVALID, "NaN", "batch 0", data=[{"x": x * np.nan, "s": np.float32(0)}])
    failed(usage, "unknown scheme", scheme="w3")

    def breaks():
        yield next(examples())
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        lathe.quantize(model, breaks(), scheme="w8a8-int8")
    with pytest.raises(lathe.Error, match="^the model"):
        lathe.quantize(b"nonsense", scheme="w8a16")
