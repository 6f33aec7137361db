# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""LSTM and GRU of any length as one kernel, against onnxruntime; and branches that a run takes."""
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import lathe_cli

GATES = {"LSTM": 4, "GRU": 3}
# kind, steps, batch, width of inputs, of the state, direction, layout, bias, reset last, given state
CELLS = [
    ("LSTM", 5, 1, 8, 16, "forward", 0, 1, 0, 1),
    ("LSTM", 70, 3, 10, 37, "bidirectional", 0, 1, 0, 0),
    ("LSTM", 4, 9, 6, 128, "reverse", 0, 0, 0, 1),
    ("GRU", 5, 1, 8, 16, "forward", 0, 1, 0, 1),
    ("GRU", 6, 5, 8, 21, "bidirectional", 0, 1, 1, 0),
    ("GRU", 33, 4, 8, 48, "reverse", 0, 1, 0, 0),
    ("GRU", 3, 2, 8, 7, "forward", 0, 0, 1, 1),
]


def value(name, dims):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)


def cell(kind, inputs, hidden, direction, layout, bias, reset_last, given):
    rng = np.random.default_rng(1)
    ways, gates = 1 + (direction == "bidirectional"), GATES[kind]
    weights = {"w": (ways, gates * hidden, inputs), "r": (ways, gates * hidden, hidden)}
    if bias:
        weights["b"] = (ways, 2 * gates * hidden)
    initial = [numpy_helper.from_array((rng.standard_normal(s) * 0.3).astype(np.float32), n)
               for n, s in weights.items()]
    states = (["h0", "c0"] if kind == "LSTM" else ["h0"]) if given else []
    outputs = ["y", "yh"] + (["yc"] if kind == "LSTM" else [])
    attributes = {"hidden_size": hidden, "direction": direction, "layout": layout}
    if kind == "GRU":
        attributes["linear_before_reset"] = reset_last
    node = helper.make_node(kind, ["x", "w", "r", "b" if bias else "", "", *states], outputs,
                            **attributes)
    graph = helper.make_graph(
        [node], kind, [value("x", ["S", "B", inputs])] + [value(s, [ways, "B", hidden]) for s in states],
        [value(o, [None] * (4 if o == "y" else 3)) for o in outputs], initial)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("case", CELLS, ids=lambda c: f"{c[0]}-{c[1]}x{c[2]}x{c[4]}-{c[5]}")
def test_any_length(tmp_path, case):
    target = "native" if CELLS.index(case) % 2 else "x86-64-v3"
    kind, steps, batch, inputs, hidden, direction, *rest = case
    model = tmp_path / "model.onnx"
    onnx.save(cell(kind, inputs, hidden, direction, *rest), model)
    rng = np.random.default_rng(2)
    ways = 1 + (direction == "bidirectional")
    feeds = {"x": rng.standard_normal((steps, batch, inputs)).astype(np.float32)}
    for state in ("h0", "c0")[:1 + (kind == "LSTM")] if rest[-1] else ():
        feeds[state] = rng.standard_normal((ways, batch, hidden)).astype(np.float32)
    session = lathe_cli.session(str(model))
    want = dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds)))
    engine = lathe_cli.compile_model(model, tmp_path / "model.lathe", "--dim=S=1:8:100",
                                     "--dim=B=1:1:64", target=target)
    got = lathe_cli.run(engine, tmp_path / "out", inputs=feeds)
    for name, array in want.items():
        assert lathe_cli.relative_error(got[name], array) < 2e-6, name
    # One product for all steps and one kernel for the recurrence, in each direction.
    kernels = [k["name"] for k in lathe_cli.plans(engine)[0]["kernels"]]
    assert sum(k.startswith(kind.lower()) for k in kernels) in (1, ways), kernels


@pytest.mark.parametrize("kind, direction, batch", [("LSTM", "bidirectional", 1), ("GRU", "reverse", 2)])
def test_any_number_of_threads(tmp_path, kind, direction, batch):
    """Threads share the steps of few rows; how many there are changes no bit."""
    model = tmp_path / "model.onnx"
    hidden = 168
    made = cell(kind, 8, hidden, direction, 0, 1, 0, 0)
    for tensor in made.graph.initializer:
        # Weights so small that steps forget: rounding would grow from step to step otherwise.
        values = numpy_helper.to_array(tensor) / np.float32(np.sqrt(hidden))
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    onnx.save(made, model)
    x = np.random.default_rng(2).standard_normal((90, batch, 8)).astype(np.float32)
    engine = lathe_cli.compile_model(model, tmp_path / "model.lathe", "--dim=S=1:90:100",
                                     "--dim=B=1:1:64", target="x86-64-v3")
    alone, *others = (lathe_cli.run(engine, tmp_path / "out", f"--threads={n}", inputs={"x": x})
                      for n in (1, 2, 3, 4))
    session = lathe_cli.session(str(model))
    for output, want in zip(session.get_outputs(), session.run(None, {"x": x})):
        assert lathe_cli.relative_error(alone[output.name], want) < 2e-6, output.name
        for other in others:
            assert np.array_equal(other[output.name], alone[output.name]), output.name
    grids = [v["grid"] for k in lathe_cli.plans(engine)[0]["kernels"] for v in k["variants"]
             if "recurrent" in v["config"]]
    assert len(grids) == 1 + (direction == "bidirectional"), grids
    assert all(" x max(1, " in grid for grid in grids), grids


def branches():
    """y = cond ? (x w) w : x - 1, and z = cond ? x : w-free constant."""
    w = numpy_helper.from_array(np.full((4, 4), 0.5, np.float32), "w")
    one = numpy_helper.from_array(np.ones((2, 4), np.float32), "one")
    node = helper.make_node

    def side(name, nodes, outputs):
        return helper.make_graph(nodes, name, [], [value(o, [2, 4]) for o in outputs])

    then = side("then", [node("MatMul", ["x", "w"], ["a"]), node("MatMul", ["a", "w"], ["b"]),
                         node("Identity", ["x"], ["c"])], ["b", "c"])
    other = side("else", [node("Sub", ["x", "one"], ["d"]), node("Identity", ["one"], ["f"])],
                 ["d", "f"])
    graph = helper.make_graph(
        [node("If", ["cond"], ["p", "z"], then_branch=then, else_branch=other),
         node("Relu", ["p"], ["y"])], "branches",
        [value("x", [2, 4]), helper.make_tensor_value_info("cond", TensorProto.BOOL, [])],
        [value("y", [2, 4]), value("z", [2, 4])], [w, one])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_branch_of_a_run(tmp_path):
    onnx.save(branches(), tmp_path / "if.onnx")
    engine = lathe_cli.compile_model(tmp_path / "if.onnx", tmp_path / "if.lathe", target="x86-64-v3")
    session = lathe_cli.session(str(tmp_path / "if.onnx"))
    x = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)
    for cond in (True, False, True):
        feeds = {"x": x, "cond": np.array(cond)}
        got = lathe_cli.run(engine, tmp_path / "out", inputs=feeds)
        for name, want in zip(("y", "z"), session.run(None, feeds)):
            assert lathe_cli.relative_error(got[name], want) < 1e-6, (name, cond)


def test_only_one_side_runs(tmp_path):
    """A profile counts the kernels of a run: the products belong to the side that is not taken."""
    onnx.save(branches(), tmp_path / "if.onnx")
    engine = lathe_cli.compile_model(tmp_path / "if.onnx", tmp_path / "if.lathe", target="x86-64-v3")
    np.save(tmp_path / "x.npy", np.ones((2, 4), np.float32))
    launches = {}
    for cond in (True, False):
        np.save(tmp_path / "cond.npy", np.array(cond))
        lathe_cli.lathe("bench", engine, "--seconds=0.01", f"--json={tmp_path}/bench.json",
                        f"--input=x={tmp_path}/x.npy", f"--input=cond={tmp_path}/cond.npy")
        with open(tmp_path / "bench.json") as f:
            launches[cond] = lathe_cli.json.load(f)["counters_per_run"]["launches"]
    assert launches[True] == launches[False] + 1


def other_side(constant):
    """The model whose else branch gives `constant` in place of its first result."""
    model = branches()
    for attribute in model.graph.node[0].attribute:
        if attribute.name == "else_branch":
            del attribute.g.node[0].input[:]
            attribute.g.node[0].op_type = "Identity"
            attribute.g.node[0].input.append(constant)
            attribute.g.output[0].type.tensor_type.ClearField("shape")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


def test_branches_of_other_sizes(tmp_path):
    onnx.save(other_side("w"), tmp_path / "if.onnx")
    engine = lathe_cli.compile_model(tmp_path / "if.onnx", tmp_path / "if.lathe", target="x86-64-v3")
    session = lathe_cli.session(str(tmp_path / "if.onnx"))
    x = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)
    for cond in (True, False, True):
        feeds = {"x": x, "cond": np.array(cond)}
        got = lathe_cli.run(engine, tmp_path / "out", inputs=feeds)
        want = session.run(None, feeds)[0]
        assert want.shape == ((2, 4) if cond else (4, 4)) == got["y"].shape
        assert lathe_cli.relative_error(got["y"], want) < 1e-6


def test_branches_of_other_ranks_are_refused(tmp_path):
    model = other_side("flat")
    model.graph.initializer.append(numpy_helper.from_array(np.ones(4, np.float32), "flat"))
    onnx.save(model, tmp_path / "if.onnx")
    text = lathe_cli.lathe("compile", tmp_path / "if.onnx", "-o", tmp_path / "if.lathe", code=4)
    assert "branches" in text and "--const" in text
