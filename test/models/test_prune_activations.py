# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`lathe prune --scheme=activations`: thresholds against numpy, what the model then computes, and what is refused."""
import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import lathe_cli
from test_quantize import of_onnxruntime

K, H, N = 512, 768, 256


def write_model(path, opset=21, rows=1, bad=None):
    """Two products behind each other, and one more of the first one's input."""
    rng = np.random.default_rng(11)
    weights = {"w1": rng.normal(size=(K, H)) / 20, "w2": rng.normal(size=(N, H)) / 20, "w3": rng.normal(size=(K, N)) / 20}
    if bad is not None:
        weights["w1"][3, 5] = bad
    nodes = [helper.make_node("MatMul", ["x", "w1"], ["a"], name="up"), helper.make_node("Tanh", ["a"], ["t"]),
             helper.make_node("Gemm", ["t", "w2"], ["d"], name="down", transB=1),
             helper.make_node("MatMul", ["x", "w3"], ["e"], name="beside"), helper.make_node("Add", ["d", "e"], ["y"])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, K])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, N])],
                              [numpy_helper.from_array(v.astype(np.float32), n) for n, v in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10), path)
    return {n: v.astype(np.float32) for n, v in weights.items()}


def prune(folder, *options, code=0):
    data = np.random.default_rng(5).normal(size=(48, K)).astype(np.float32)
    np.savez(folder / "data.npz", x=data)
    said = lathe_cli.lathe("prune", folder / "m.onnx", "-o", folder / "p.onnx", "--scheme=activations", "--seconds=0.1",
                           *options, code=code)
    return data, said


def test_thresholds(tmp_path):
    """Half of each input over all examples is below its threshold; the model is a plain one that onnxruntime runs alike."""
    weights = write_model(tmp_path / "m.onnx")
    data, _ = prune(tmp_path, "--ratio=0.5", "--apply=all", "--data", tmp_path / "data.npz", "--json", tmp_path / "r.json",
                    "--report", tmp_path / "r.html")
    model = onnx.load(tmp_path / "p.onnx")
    onnx.checker.check_model(model, full_check=True)
    values = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    assert all((values[name] == w).all() for name, w in weights.items())
    for name, of in (("x", data), ("t", np.tanh(data @ weights["w1"]))):
        assert abs(np.mean(np.abs(of) < values[f"{name}_threshold"]) - 0.5) < 0.01
    nodes = {n.name: n for n in model.graph.node}
    assert nodes["up"].input[0] == nodes["beside"].input[0] == "x_active" and nodes["down"].input[0] == "t_active"
    report = json.load(open(tmp_path / "r.json"))
    assert [w["weight"] for w in report["weights"]] == ["w1", "w2", "w3"] and "<table>" in (tmp_path / "r.html").read_text()
    assert all(w["zeros"] == 0.5 and w["applied"] for w in report["weights"])
    small = np.abs(data) < values["x_threshold"]
    assert abs(report["weights"][2]["expected_change"] - np.linalg.norm(data[small]) / np.linalg.norm(data)) < 0.01
    engine = lathe_cli.compile_model(tmp_path / "p.onnx", tmp_path / "p.lathe")
    for x in (data[:1], np.full((1, K), 1e-9, np.float32)):
        y = lathe_cli.run(engine, tmp_path / "out", inputs={"x": x})["y"]
        np.testing.assert_allclose(y, of_onnxruntime(str(tmp_path / "p.onnx"), x), rtol=1e-4, atol=1e-4)
    x = data[:1].copy()
    x[0, 7] = np.nan  # is no small input
    assert np.isnan(lathe_cli.run(engine, tmp_path / "out", inputs={"x": x})["y"]).all()


def test_kernels(tmp_path):
    """One row reads the weights of active inputs alone; several rows, an infinity among the weights, and --sparse-weights=never read all."""
    for changes, options, expected in (({}, [], 3), ({"rows": 2}, [], 0), ({"bad": np.inf}, [], 2), ({}, ["--sparse-weights=never"], 0)):
        write_model(tmp_path / "m.onnx", **changes)
        data = tmp_path / "rows.npz"
        np.savez(data, x=np.random.default_rng(5).normal(size=(8, K)).astype(np.float32))
        if "bad" in changes:  # its results are no numbers to find thresholds of
            model = onnx.load(tmp_path / "m.onnx")
            model.graph.node[1].op_type = "Sigmoid"
            onnx.save(model, tmp_path / "m.onnx")
        _, said = prune(tmp_path, "--ratio=0.5", "--apply=all", "--data", data)
        kernels = lathe_cli.lathe("inspect", tmp_path / "p.onnx", "--kernels", *options)
        assert kernels.count("gemm.active") == expected
        if changes.get("rows"):
            assert "that takes products that always have one row" in said


@pytest.mark.parametrize("options, code, text", [
    (["--ratio=0.5"], 2, "wants examples, which come from --data"),
    (["--ratio=1", "--data", "data.npz"], 2, "1 would leave no weight"),
    (["--ratio=0.5", "--data", "data.npz", "--score=wanda"], 2, "has one: magnitudes of inputs"),
    (["--ratio=0.5", "--data", "data.npz", "--over-all"], 2, "takes no --check"),
    (["--ratio=0.5", "--data", "data.npz", "--keep=nothing"], 2, "fits no product"),
    (["--ratio=0.5", "--data", "missing.npz"], 2, "missing.npz")])
def test_refusals(tmp_path, options, code, text):
    write_model(tmp_path / "m.onnx")
    options = [tmp_path / o if o.endswith(".npz") else o for o in options]
    assert text in prune(tmp_path, *options, code=code)[1]
    assert not (tmp_path / "p.onnx").exists()


def test_old_models(tmp_path):
    write_model(tmp_path / "m.onnx", opset=8)
    _, said = prune(tmp_path, "--ratio=0.5", "--data", tmp_path / "data.npz", code=4)
    assert "thresholds want 9 or later" in said and not (tmp_path / "p.onnx").exists()
