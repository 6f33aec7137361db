# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Shapes, axes, pads and limits that arrive with a run, as elements of inputs."""
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

import lathe_cli

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64


def engine_of(folder, nodes, inputs, rank, constants=(), element=FLOAT):
    """(engine, session) of a graph with `inputs` as (name, element, dims)."""
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(*i) for i in inputs],
        [helper.make_tensor_value_info("y", element, [None] * rank)],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in constants])
    model = str(folder / "m.onnx")
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10),
         model)
    return lathe_cli.compile_model(model, folder / "m.lathe"), lathe_cli.session(model)


def ramp(*shape):
    return (np.arange(np.prod(shape)) + 1).astype(np.float32).reshape(shape)


X = ("x", FLOAT, ["N", 3, 4])
# name: nodes, further inputs, rank, values that fit, values that do not and what the error says
CASES = {
    "reshape": (("Reshape", ["x", "v"], {}), ("v", INT, [3]), 3,
                [[4, 3, 2], [0, -1, 2], [-1, 1, 1], [2, 0, 4], [1, 24, 1]],
                [([5, -1, 2], "reshape"), ([-1, -1, 2], "opens"), ([-2, 3, 4], "v_0")]),
    "expand": (("Expand", ["x", "v"], {}), ("v", INT, [4]), 4,
               [[1, 1, 1, 1], [3, 2, 3, 4], [5, 1, 3, 1]],
               [([1, 1, 2, 1], "shape"), ([1, 3, 3, 4], ""), ([-1, 1, 1, 1], "v_0")]),
    "tile": (("Tile", ["x", "v"], {}), ("v", INT, [3]), 3,
             [[1, 1, 1], [2, 3, 1], [0, 1, 2]], [([1, -1, 1], "v_1")]),
    "reduce": (("ReduceSum", ["x", "v"], {"keepdims": 1}), ("v", INT, [2]), 3,
               [[0, 1], [2, 0], [-1, 1], [-3, -2]], [([1, 1], "axis1"), ([3, 0], "axes")]),
    "reduce_drop": (("ReduceMean", ["x", "v"], {"keepdims": 0}), ("v", INT, [1]), 2,
                    [[0], [1], [2], [-1], [-3]], [([-4], "axes")]),
    "cumsum": (("CumSum", ["x", "v"], {"reverse": 1}), ("v", INT, []), 3,
               [0, 1, 2, -1, -2, -3], [(3, "axes")]),
    "unsqueeze": (("Unsqueeze", ["x", "v"], {}), ("v", INT, [2]), 5,
                  [[0, 1], [4, 0], [-1, 2], [1, -3]], [([0, -5], "axis0")]),
    "slice": (("Slice", ["x", "v", "ends", "axes"], {}), ("v", INT, [2]), 3,
              [[0, 0], [1, -2], [-9, 3], [7, 1]], []),
    "pad": (("Pad", ["x", "v", "", "axes"], {}), ("v", INT, [4]), 3,
            [[0, 0, 0, 0], [1, 2, 3, 4]], [([-1, 0, 0, 0], "v_0")]),
}
CONSTANTS = {"slice": [("ends", np.array([2, 1 << 60])), ("axes", np.array([1, 2]))],
             "pad": [("axes", np.array([2, 0]))]}


@pytest.mark.parametrize("name", CASES)
def test_values_of_inputs(tmp_path, name):
    (op, operands, attributes), further, rank, good, bad = CASES[name]
    engine, session = engine_of(tmp_path, [helper.make_node(op, operands, ["y"], **attributes)],
                                [X, further], rank, CONSTANTS.get(name, ()))
    for i, values in enumerate(good):
        inputs = {"x": ramp(2, 3, 4), "v": np.array(values, np.int64)}
        want, = session.run(None, inputs)
        got = lathe_cli.run(engine, tmp_path / str(i), inputs=inputs)["y"]
        assert lathe_cli.relative_error(got, want) <= 1e-6, values
    for i, (values, reason) in enumerate(bad):
        folder = tmp_path / f"bad{i}"
        folder.mkdir()
        np.save(folder / "x.npy", ramp(2, 3, 4))
        np.save(folder / "v.npy", np.array(values, np.int64))
        text = lathe_cli.lathe("run", engine, "--device", lathe_cli.DEVICE,
                               "--input", f"x={folder / 'x.npy'}",
                               "--input", f"v={folder / 'v.npy'}", code=5)
        assert reason in text, text


def test_range_and_arithmetic_on_inputs(tmp_path):
    """range(n - 1, n * 2 + 3, step) as the shape's last part: small arithmetic stays on the host."""
    nodes = [helper.make_node("Sub", ["n", "one"], ["a"]),
             helper.make_node("Mul", ["n", "two"], ["b"]),
             helper.make_node("Range", ["a", "b", "step"], ["y"])]
    engine, session = engine_of(tmp_path, nodes, [("n", INT, []), ("step", INT, [])], 1,
                                [("one", np.int64(1)), ("two", np.int64(2))], INT)
    for i, (n, step) in enumerate([(3, 1), (10, 4), (-5, -2), (4, -1)]):
        inputs = {"n": np.array(n), "step": np.array(step)}
        got = lathe_cli.run(engine, tmp_path / str(i), inputs=inputs)["y"]
        np.testing.assert_array_equal(got, session.run(None, inputs)[0])


def test_a_value_that_is_also_data(tmp_path):
    """The same input is a shape and an operand of a kernel."""
    nodes = [helper.make_node("Expand", ["v", "v"], ["e"]),
             helper.make_node("Add", ["e", "v"], ["y"])]
    engine, _ = engine_of(tmp_path, nodes, [("v", INT, [1])], 1, element=INT)
    for n in (1, 5):
        got = lathe_cli.run(engine, tmp_path / str(n), inputs={"v": np.array([n])})["y"]
        np.testing.assert_array_equal(got, np.full(n, 2 * n))


def test_continue_from_every_phase(tmp_path):
    """Derived symbols print and parse: the same engine from the text of any phase."""
    engine, _ = engine_of(tmp_path, [helper.make_node("ReduceSum", ["x", "v"], ["y"])],
                          [X, ("v", INT, [1])], 3)
    dump = tmp_path / "dump"
    lathe_cli.lathe("compile", tmp_path / "m.onnx", "-o", engine, f"--dump-dir={dump}",
                    f"--target={lathe_cli.TARGET}")
    for text in sorted(dump.glob("*.mlir")):
        lathe_cli.lathe("compile", text, "-o", tmp_path / "again.lathe")
        assert (tmp_path / "again.lathe").read_bytes() == engine.read_bytes(), text.name
