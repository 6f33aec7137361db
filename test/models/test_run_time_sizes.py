# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Shapes, axes, pads and limits that arrive with a run, as elements of inputs."""
import numpy as np
import onnx
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


@pytest.mark.parametrize("columns", [4, 40])
def test_product_of_turned_stack(tmp_path, columns):
    """Matrices of a stack, each transposed, by one whose number of columns only the run knows."""
    nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=[0, 1, 3, 2]), helper.make_node("MatMul", ["t", "w"], ["y"])]
    engine, session = engine_of(tmp_path, nodes, [("x", FLOAT, ["N", 2, "H", "W"]), ("w", FLOAT, ["H", "M"])], 4)
    rng = np.random.default_rng(1)
    inputs = {"x": rng.normal(size=(3, 2, 24, 5)).astype(np.float32), "w": rng.normal(size=(24, columns)).astype(np.float32)}
    got = lathe_cli.run(engine, tmp_path / "run", inputs=inputs)["y"]
    assert lathe_cli.relative_error(got, session.run(None, inputs)[0]) <= 1e-6


def test_usual_size_that_fits(tmp_path):
    """A table of 64 positions: the usual length 128 of an unbounded axis does not fit; 64 is taken, and longer inputs are refused."""
    nodes = [helper.make_node("Shape", ["x"], ["s"], start=1, end=2), helper.make_node("Slice", ["t", "zero", "s", "zero"], ["p"]),
             helper.make_node("Add", ["x", "p"], ["a"], "positions"), helper.make_node("Exp", ["a"], ["e"]),
             helper.make_node("ReduceSum", ["e", "one"], ["c"]), helper.make_node("MatMul", ["e", "w"], ["d"]),
             helper.make_node("Add", ["c", "d"], ["y"])]
    constants = [("t", ramp(64, 8) / 512), ("zero", np.array([0])), ("one", np.array([1])), ("w", ramp(8, 8) / 64)]
    engine, session = engine_of(tmp_path, nodes, [("x", FLOAT, ["B", "S", 8])], 3, constants)
    for i, s in enumerate((1, 40, 64)):
        inputs = {"x": ramp(2, s, 8) / 1024}
        got = lathe_cli.run(engine, tmp_path / str(i), inputs=inputs)["y"]
        assert lathe_cli.relative_error(got, session.run(None, inputs)[0]) <= 1e-6
    np.save(tmp_path / "long.npy", ramp(1, 65, 8))
    lathe_cli.lathe("run", engine, "--device", lathe_cli.DEVICE, "--input", f"x={tmp_path / 'long.npy'}", code=5)
    for bounds in ("S=1:64:100", "S=1:100:100"):
        text = lathe_cli.lathe("compile", tmp_path / "m.onnx", "-o", tmp_path / "no.lathe", "--dim", bounds, code=4)
        assert "positions" in text and "--dim" in text, text


def test_input_without_rank(tmp_path):
    """It is read, and refused by the first op that needs its rank, unless --shape gives it."""
    value = lambda name: onnx.ValueInfoProto(name=name, type=helper.make_tensor_type_proto(FLOAT, None))
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [value("x")], [value("y")])
    model = str(tmp_path / "m.onnx")
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10), model)
    assert "--shape" in lathe_cli.lathe("compile", model, "-o", tmp_path / "m.lathe", code=4)
    engine = lathe_cli.compile_model(model, tmp_path / "m.lathe", "--shape", "x=2x3")
    assert lathe_cli.run(engine, tmp_path / "run", inputs={"x": ramp(2, 3)})["y"].shape == (2, 3)


@pytest.mark.parametrize("parts, inverse, onesided", [(1, 0, 0), (2, 0, 0), (2, 1, 0), (1, 0, 1), (2, 1, 1)])
def test_axis_of_a_dft(tmp_path, parts, inverse, onesided):
    node = helper.make_node("DFT", ["x", "", "axis"], ["y"], inverse=inverse, onesided=onesided)
    engine, session = engine_of(tmp_path, [node], [("x", FLOAT, ["N", 3, 5, parts]), ("axis", INT, [])], 4)
    x = np.random.default_rng(0).standard_normal((4, 3, 5, parts), dtype=np.float32)
    for axis in (0, 1, 2, -2, -4):
        given = {"x": x, "axis": np.array(axis)}
        got = lathe_cli.run(engine, tmp_path / "out", inputs=given)["y"]
        if inverse and onesided:  # onnxruntime knows none of half a spectrum
            want = np.fft.irfft(x[..., 0] + 1j * x[..., 1], axis=axis + (axis < 0))[..., None]
        else:
            want = session.run(None, given)[0]
        assert lathe_cli.relative_error(got, want) < 1e-6
    for axis, reason in ((3, "axis3_named"), (-1, "axis3_named"), (4, "axes")):  # the last axis is that of the parts
        np.save(tmp_path / "x.npy", x)
        np.save(tmp_path / "axis.npy", np.array(axis))
        assert reason in lathe_cli.lathe("run", engine, "--device", lathe_cli.DEVICE, f"--input=x={tmp_path / 'x.npy'}",
                                         f"--input=axis={tmp_path / 'axis.npy'}", code=5)
