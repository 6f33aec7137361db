# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What compile() takes, what it says of errors, and what it remarks."""
import json

import numpy as np
import onnx
import pytest
from conftest import affine_model
from onnx import TensorProto, helper

import lathe


def test_path_bytes_and_model(tmp_path):
    model, weight, bias = affine_model()
    onnx.save(model, tmp_path / "m.onnx")
    data = model.SerializeToString()
    x = np.ones((2, 8), np.float32)
    for given in (tmp_path / "m.onnx", str(tmp_path / "m.onnx"), data, bytearray(data), memoryview(data), model):
        engine = lathe.compile(given, dims={"N": (1, 2, 8)})
        np.testing.assert_allclose(engine.run([x])["y"].numpy(), np.maximum(x @ weight + bias, 0), rtol=1e-5)
    lathe.compile(data, tmp_path / "m.lathe")
    assert lathe.load(tmp_path / "m.lathe").entries == ["main"]


def test_what_is_no_model():
    for given in (3, None, ["m.onnx"], np.zeros(3)):
        with pytest.raises(lathe.Error, match="ModelProto") as raised:
            lathe.compile(given)
        assert raised.value.code == lathe.Code.USAGE
    with pytest.raises(lathe.Error) as raised:
        lathe.compile(b"no model")
    assert raised.value.code == lathe.Code.INVALID and "/proc" not in str(raised.value)


def test_error_names_the_node():
    node = helper.make_node("Strange", ["x"], ["y"], name="where_it_is", domain="example.org")
    graph = helper.make_graph([node], "g",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("example.org", 1)]
    with pytest.raises(lathe.Error) as raised:
        lathe.compile(helper.make_model(graph, opset_imports=opsets, ir_version=10))
    assert raised.value.node == "where_it_is"


def test_remarks():
    model, _, _ = affine_model()
    assert lathe.compile(model).remarks is None
    remarks = lathe.compile(model, remarks=True).remarks
    assert remarks and all(r.kind in ("passed", "missed", "failure", "analysis") for r in remarks)
    node = next(name for r in remarks for name in r.nodes)
    assert remarks.of(node) and all(node in r.nodes for r in remarks.of(node))
    shown = remarks._repr_html_()
    assert f"{len(remarks)} remarks" in shown and node in shown


def test_profile_and_memory(affine, tmp_path):
    context = affine[0].context()
    x = np.ones((2, 8), np.float32)
    context.run([x])
    with context.profile() as profile:
        for _ in range(3):
            context.run([x])
    assert [r.calls for r in profile.rows] == [3] * len(profile.rows) and profile.seconds > 0
    assert any(r.flops >= 2 * 2 * 8 * 4 for r in profile.rows)
    assert all(r.kernel in profile._repr_html_() for r in profile.rows)
    context.run([x])
    assert [e.row for e in profile.events] == list(range(len(profile.rows))) * 3
    profile.write_trace(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [e["name"] for e in trace] == [profile.rows[e.row].kernel for e in profile.events]
    assert profile.rows[0].calls == 3  # the profile is not the context's any more
    memory = context.memory
    assert memory.total == memory.weights + memory.states + memory.arena + memory.graphs
    assert memory.weights > 0 and "arena" in memory._repr_html_()


def test_plan(affine, tmp_path):
    model, _, _ = affine_model()
    lathe.compile(model, tmp_path / "a.lathe", target="x86-64-v3,sm_90a")
    plans = lathe.plan(tmp_path / "a.lathe")
    assert [p.target for p in plans] == ["x86-64-v3", "sm_90a"] and {p.entry for p in plans} == {"main"}
    assert lathe.plan((tmp_path / "a.lathe").read_bytes(), target="sm_90a") == plans[1:]
    assert lathe.plan(model, target="sm_90a") == plans[1:]
    step = next(s for s in plans[0].steps if s.nodes)
    assert step.step.startswith("launch ") and step in plans[0].of(step.nodes[0])
    shown = plans[0]._repr_html_()
    assert "entry main for x86-64-v3" in shown and step.nodes[0] in shown
    with pytest.raises(lathe.Error) as raised:
        lathe.plan(tmp_path / "a.lathe", target="sm_80")
    assert raised.value.code == lathe.Code.USAGE and "sm_80" in str(raised.value)
    with pytest.raises(lathe.Error) as raised:
        lathe.plan(b"no model")
    assert raised.value.code == lathe.Code.INVALID


def test_pictures_need_nothing(affine, tmp_path):
    """Names are escaped, and nothing is fetched."""
    shown = affine[0]._repr_html_()
    for word in ("main", "f32", "N", "64"):
        assert word in shown
    graph = helper.make_graph([helper.make_node("Neg", ["<img src=x>"], ["y"])], "g",
                              [helper.make_tensor_value_info("<img src=x>", TensorProto.FLOAT, ["B"])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["B"])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    shown = lathe.compile(model)._repr_html_()
    assert "&lt;img" in shown
    for tag in ("<img", "<script", "<link", "http"):
        assert tag not in shown
