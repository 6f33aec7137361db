# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Axes and steps of slices, pads that reflect, scales, depths and lengths that arrive with a run."""
import itertools

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, save

import lathe_cli
from test_run_time_sizes import INT, X, engine_of, ramp

FLOAT = TensorProto.FLOAT


def check(engine, session, folder, inputs, exact=True):
    want = session.run(None, inputs)
    for name, array in zip([o.name for o in session.get_outputs()], want):
        got = lathe_cli.run(engine, folder, inputs=inputs)[name]
        assert got.shape == array.shape
        assert lathe_cli.relative_error(got, array) <= (0 if exact else 2e-6), inputs


def refused(engine, folder, inputs, reason):
    folder.mkdir()
    files = []
    for name, array in inputs.items():
        np.save(folder / f"{name}.npy", array)
        files += ["--input", f"{name}={folder / name}.npy"]
    text = lathe_cli.lathe("run", engine, "--device", lathe_cli.DEVICE, *files, code=5)
    assert reason in text, text


def test_slices(tmp_path):
    """Starts, ends, axes and steps: all that numpy's slices of two axes of a small tensor can be."""
    names = ["starts", "ends", "axes", "steps"]
    engine, session = engine_of(tmp_path, [helper.make_node("Slice", ["x", *names], ["y"])],
                                [X, *((n, INT, [2]) for n in names)], 3)
    x = ramp(2, 3, 4)
    rng = np.random.default_rng(1)
    rows = [(0, 3, 1, 1), (2, -10**9, 1, -1), (-1, -4, 1, -2), (10**9, 0, 1, -1), (1, 2**62, 1, 2), (3, 1, 1, 1)]
    for i, (start, end, axis, step) in enumerate(rows):
        values = [[start, 1], [end, 4], [axis, -1], [step, 2]]
        check(engine, session, tmp_path / str(i), {"x": x, **{n: np.array(v) for n, v in zip(names, values)}})
    for i in range(8):
        axes = rng.permutation(3)[:2] - 3 * rng.integers(0, 2)
        values = [rng.integers(-6, 7, 2), rng.integers(-6, 7, 2), axes, rng.choice([-3, -2, -1, 1, 2, 3], 2)]
        check(engine, session, tmp_path / f"r{i}", {"x": x, **dict(zip(names, values))})
    ends, two = np.array([2, 2]), np.array([1, 1])
    refused(engine, tmp_path / "zero", {"x": x, "starts": two, "ends": ends, "axes": np.array([0, 1]),
                                        "steps": np.array([1, 0])}, "stride")
    refused(engine, tmp_path / "twice", {"x": x, "starts": two, "ends": ends, "axes": np.array([1, -2]),
                                         "steps": two}, "axis1")


@pytest.mark.parametrize("mode", ["reflect", "wrap"])
def test_pads_that_continue(tmp_path, mode):
    engine, session = engine_of(tmp_path, [helper.make_node("Pad", ["x", "v"], ["y"], mode=mode)],
                                [X, ("v", INT, [6])], 3)
    for i, pads in enumerate([[0] * 6, [1, 0, 3, 0, 2, 1], [0, 2, 2, 1, 1, 3]]):
        check(engine, session, tmp_path / str(i), {"x": ramp(2, 3, 4), "v": np.array(pads)})


@pytest.mark.parametrize("mode, coordinates", [("nearest", "asymmetric"), ("nearest", "half_pixel"), ("linear", "half_pixel"),
                                               ("linear", "align_corners"), ("cubic", "half_pixel"),
                                               ("linear", "pytorch_half_pixel")])
def test_scales(tmp_path, mode, coordinates):
    """Scales are data: the sizes follow from them in the run."""
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], mode=mode, coordinate_transformation_mode=coordinates,
                            nearest_mode="floor" if coordinates == "asymmetric" else "round_prefer_floor")
    engine, session = engine_of(tmp_path, [node], [("x", FLOAT, [1, 1, "H", "W"]), ("s", FLOAT, [4])], 4)
    x = np.random.default_rng(0).standard_normal((1, 1, 5, 8)).astype(np.float32)
    for i, (h, w) in enumerate([(2, 3), (0.6, 0.5), (1, 1.75)]):
        check(engine, session, tmp_path / str(i), {"x": x, "s": np.array([1, 1, h, w], np.float32)}, mode == "nearest")
    refused(engine, tmp_path / "bad", {"x": x, "s": np.array([1, 1, -1, 1], np.float32)}, "count")


def test_depth_that_is_a_float(tmp_path):
    engine, session = engine_of(tmp_path, [helper.make_node("OneHot", ["i", "d", "v"], ["y"])],
                                [("i", INT, ["N"]), ("d", FLOAT, [1]), ("v", FLOAT, [2])], 2)
    for n, depth in enumerate((4, 9)):
        check(engine, session, tmp_path / str(n), {"i": np.array([0, -1, 3, 8]), "d": np.array([depth], np.float32),
                                                   "v": np.array([-1, 5], np.float32)})


def test_rows_that_a_computed_number_of_iterations_gives(tmp_path):
    """A range of floats, as ONNX's function body has it: its length is computed."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Add", ["at", "delta"], ["next"]),
         helper.make_node("Identity", ["at"], ["row"])], "body",
        [helper.make_tensor_value_info("i", INT, []), helper.make_tensor_value_info("go", TensorProto.BOOL, []),
         helper.make_tensor_value_info("at", FLOAT, [])],
        [helper.make_tensor_value_info("on", TensorProto.BOOL, []), helper.make_tensor_value_info("next", FLOAT, []),
         helper.make_tensor_value_info("row", FLOAT, [])])
    nodes = [helper.make_node("Sub", ["limit", "start"], ["far"]), helper.make_node("Div", ["far", "delta"], ["steps"]),
             helper.make_node("Ceil", ["steps"], ["up"]), helper.make_node("Relu", ["up"], ["positive"]),
             helper.make_node("Cast", ["positive"], ["trips"], to=INT),
             helper.make_node("Loop", ["trips", "", "start"], ["last", "y"], body=body)]
    engine, session = engine_of(tmp_path, nodes, [(n, FLOAT, []) for n in ("start", "limit", "delta")], 1)
    for n, values in enumerate([(1, 5, 2), (0, 3, 0.4), (5, 1, -1.5), (2, 2, 1)]):
        check(engine, session, tmp_path / str(n),
              {k: np.array(v, np.float32) for k, v in zip(("start", "limit", "delta"), values)}, exact=False)


# kind, direction, clip (which no one kernel has: the steps stand one after another), given state
RECURRENT = [(*k, *s) for k, s in itertools.product([("LSTM", "forward"), ("LSTM", "bidirectional"), ("GRU", "bidirectional")],
                                                    [(0.0, False), (0.0, True), (3.0, True)])] + [("RNN", "reverse", 0.0, True)]


@pytest.mark.parametrize("kind, direction, clip, given", RECURRENT)
def test_lengths_of_sequences(tmp_path, kind, direction, clip, given):
    """A sequence ends before the others: its state stays, and its later rows are 0."""
    rng = np.random.default_rng(3)
    gates, ways, hidden = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind], 1 + (direction == "bidirectional"), 6
    weights = [(n, (rng.standard_normal(s) * 0.4).astype(np.float32)) for n, s in
               (("w", (ways, gates * hidden, 3)), ("r", (ways, gates * hidden, hidden)), ("b", (ways, 2 * gates * hidden)))]
    states = (["h0", "c0"] if kind == "LSTM" else ["h0"]) if given else []
    outputs = ["y", "yh"] + (["yc"] if kind == "LSTM" else [])
    node = helper.make_node(kind, ["x", "w", "r", "b", "n", *states], outputs, hidden_size=hidden, direction=direction,
                            **({"clip": clip} if clip else {}))
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", FLOAT, [7, "B", 3]),
                      helper.make_tensor_value_info("n", TensorProto.INT32, ["B"]),
                      *(helper.make_tensor_value_info(s, FLOAT, [ways, "B", hidden]) for s in states)],
        [helper.make_tensor_value_info(o, FLOAT, [None] * (4 if o == "y" else 3)) for o in outputs],
        [onnx.numpy_helper.from_array(v, n) for n, v in weights])
    model = str(tmp_path / "m.onnx")
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), model)
    engine, session = lathe_cli.compile_model(model, tmp_path / "m.lathe"), lathe_cli.session(model)
    inputs = {"x": rng.standard_normal((7, 4, 3)).astype(np.float32), "n": np.array([7, 3, 1, 5], np.int32)}
    for state in states:
        inputs[state] = rng.standard_normal((ways, 4, hidden)).astype(np.float32)
    check(engine, session, tmp_path / "out", inputs, exact=False)
