# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops whose trips only the run knows, against onnxruntime."""
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import lathe_cli

node = helper.make_node
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def value(name, dims, element=FLOAT):
    return helper.make_tensor_value_info(name, element, dims)


def constant(name, array):
    return numpy_helper.from_array(np.asarray(array), name)


def model(nodes, inputs, outputs, initial=()):
    graph = helper.make_graph(nodes, "loops", inputs, outputs, list(initial))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def loop(body, inputs, outputs):
    return node("Loop", inputs, outputs, body=body)


def body_of(nodes, carried, given, rows=(), initial=(), dims=(2, 4)):
    """A body that carries `carried` as `given`."""
    inputs = [value("i", [], INT64), value("go", [], BOOL)]
    inputs += [value(c, dims) for c in carried]
    outputs = [value("on", [], BOOL)] + [value(g, dims) for g in [*given, *rows]]
    return helper.make_graph(nodes, "body", inputs, outputs, list(initial))


def counted(rows=True, trips="n"):
    """x = relu(x w) + i, n times; p = (x0 w) is used within and behind the loop."""
    nodes = [node("Identity", ["go"], ["on"]), node("MatMul", ["x", "w"], ["a"]),
             node("Relu", ["a"], ["b"]), node("Cast", ["i"], ["f"], to=FLOAT),
             node("Add", ["b", "f"], ["c"]), node("Add", ["c", "p"], ["y"]),
             node("Neg", ["y"], ["row"])]
    body = body_of(nodes, ["x"], ["y"], ["row"] if rows else [])
    w = constant("w", np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32) * 0.3)
    outer = [node("MatMul", ["x0", "w"], ["p"]),
             loop(body, [trips, "", "x0"], ["last"] + (["rows"] if rows else [])),
             node("Add", ["last", "p"], ["z"])]
    outputs = [value("z", [2, 4])] + ([value("rows", [None, 2, 4])] if rows else [])
    return model(outer, [value("x0", [2, 4]), value("n", [], INT64)], outputs, [w])


def compare(tmp_path, proto, feeds, *options):
    onnx.save(proto, tmp_path / "model.onnx")
    engine = lathe_cli.compile_model(tmp_path / "model.onnx", tmp_path / "model.lathe", *options,
                                     target="x86-64-v3")
    session = lathe_cli.session(str(tmp_path / "model.onnx"))
    for feed in feeds:
        got = lathe_cli.run(engine, tmp_path / "out", inputs=feed)
        for output, want in zip(session.get_outputs(), session.run(None, feed)):
            assert got[output.name].shape == want.shape, (output.name, feed)
            assert want.size == 0 or lathe_cli.relative_error(got[output.name], want) < 1e-5
    return engine


def start():
    return np.random.default_rng(1).standard_normal((2, 4)).astype(np.float32)


@pytest.mark.parametrize("rows", [True, False])
def test_trips_of_a_run(tmp_path, rows):
    engine = compare(tmp_path, counted(rows), [{"x0": start(), "n": np.array(n)}
                                               for n in (5, 0, 1, 100, 3)])
    plan = lathe_cli.plans(engine)[0]
    assert lathe_cli.launches(plan) < 12  # the body stands there once


def test_many_constant_trips(tmp_path):
    proto = counted()
    del proto.graph.input[1]
    proto.graph.initializer.append(constant("n", np.int64(200)))
    engine = compare(tmp_path, proto, [{"x0": start()}])
    assert lathe_cli.launches(lathe_cli.plans(engine)[0]) < 12


def test_no_constant_trips(tmp_path):
    """No iteration says what it would collect: the body's types do."""
    proto = counted()
    del proto.graph.input[1]
    proto.graph.initializer.append(constant("n", np.int64(0)))
    compare(tmp_path, proto, [{"x0": start()}])


def test_while_data_says_so(tmp_path):
    """Fibonacci's numbers, a swap, until the sum is above a limit."""
    nodes = [node("Identity", ["b"], ["a1"]), node("Add", ["a", "b"], ["b1"]),
             node("ReduceSum", ["b1"], ["s"], keepdims=0), node("Less", ["s", "limit"], ["on"])]
    body = body_of(nodes, ["a", "b"], ["a1", "b1"], dims=(2, 4))
    outer = [loop(body, ["", "start", "x0", "x1"], ["a9", "b9"])]
    proto = model(outer, [value("x0", [2, 4]), value("x1", [2, 4]), value("limit", []),
                          value("start", [], BOOL)], [value("a9", [2, 4]), value("b9", [2, 4])])
    ones = np.ones((2, 4), np.float32)
    compare(tmp_path, proto, [{"x0": ones, "x1": 2 * ones, "limit": np.array(limit, np.float32),
                               "start": np.array(begin)}
                              for limit, begin in ((1000, True), (3, True), (1e6, False))])


def test_trips_and_condition(tmp_path):
    nodes = [node("Mul", ["x", "x"], ["y"]), node("ReduceMax", ["y"], ["m"], keepdims=0),
             node("Less", ["m", "limit"], ["on"])]
    outer = [loop(body_of(nodes, ["x"], ["y"]), ["n", "", "x0"], ["z"])]
    proto = model(outer, [value("x0", [2, 4]), value("limit", []), value("n", [1], INT64)],
                  [value("z", [2, 4])])
    compare(tmp_path, proto, [{"x0": 1 + abs(start()), "limit": np.array(limit, np.float32),
                               "n": np.array([n])} for limit, n in ((100, 50), (1e30, 2), (1, 7))])


def test_loop_in_loop_and_branch(tmp_path):
    inner = body_of([node("Identity", ["go"], ["on"]), node("Add", ["x", "outer"], ["y"])],
                    ["x"], ["y"])
    then = helper.make_graph([node("Neg", ["u"], ["t"])], "then", [], [value("t", [2, 4])])
    other = helper.make_graph([node("MatMul", ["u", "w"], ["e"])], "else", [], [value("e", [2, 4])])
    middle = helper.make_graph(
        [node("Identity", ["go2"], ["on2"]), node("Mul", ["v", "half"], ["outer"]),
         loop(inner, ["m", "", "outer"], ["u"]), node("Equal", ["j", "two"], ["is"]),
         node("If", ["is"], ["v1"], then_branch=then, else_branch=other)], "middle",
        [value("j", [], INT64), value("go2", [], BOOL), value("v", [2, 4])],
        [value("on2", [], BOOL), value("v1", [2, 4])])
    w = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32) * 0.3
    proto = model([loop(middle, ["n", "", "x0"], ["z"])],
                  [value("x0", [2, 4]), value("n", [], INT64), value("m", [], INT64)],
                  [value("z", [2, 4])],
                  [constant("w", w), constant("half", np.float32(0.5)), constant("two", np.int64(2))])
    compare(tmp_path, proto, [{"x0": start(), "n": np.array(n), "m": np.array(m)}
                              for n, m in ((5, 3), (0, 2), (4, 0))])


def counting(limit, start, trips, real, step=1, first="Less", rows=True):
    """While c < limit: x = x / 2 + seq[c], c = c + step, as converters write it: the number of the iteration is
    compared, too, `real` as floats. `limit`: a number, "length" of seq, or "n", an input; `first`: whether there is a
    condition ahead of the loop."""
    int32 = TensorProto.INT32
    nodes = [node("Gather", ["seq", "c"], ["s"]), node("Mul", ["x", "half"], ["h"]), node("Add", ["h", "s"], ["y"]),
             node("Add", ["c", "step"], ["c1"]), node("Neg", ["y"], ["row"])]
    outer, compared = [], {"i": "i", "c1": "c1", "limit": "limit", "limit64": "limit64", "start": "start"}
    initial = [constant("half", np.float32(0.5)), constant("step", np.int32(step)),
               constant("start", np.int32(start))]
    if limit == "length":
        outer += [node("Shape", ["seq"], ["length1"], start=0, end=1), node("Squeeze", ["length1"], ["limit64"]),
                  node("Cast", ["limit64"], ["limit"], to=int32)]
    elif limit == "n":
        outer += [node("Cast", ["limit"], ["limit64"], to=INT64)]
    else:
        initial += [constant("limit", np.int32(limit)), constant("limit64", np.int64(limit))]
    if real:
        nodes += [node("Cast", [v], [v + "_f"], to=FLOAT) for v in ("i", "c1")]
        outer += [node("Cast", [v], [v + "_f"], to=FLOAT) for v in ("limit", "limit64", "start")]
        compared = {v: v + "_f" for v in compared}
    nodes += [node("LessOrEqual", [compared["i"], compared["limit64"]], ["a"]),
              node("Greater", [compared["limit"], compared["c1"]], ["b"]), node("And", ["a", "b"], ["on"])]
    outer += [node("Less", [compared["start"], compared["limit"]], ["go0"])] if first else []
    if trips:
        initial.append(constant("trips", np.int64(trips)))
    given = [value("i", [], INT64), value("go", [], BOOL), value("c", [], int32), value("x", [2, 4])]
    made = [value("on", [], BOOL), value("c1", [], int32), value("y", [2, 4])] + [value("row", [2, 4])] * rows
    operands = ["trips" if trips else "", "go0" if first else "", "start", "x0"]
    outer.append(loop(helper.make_graph(nodes, "body", given, made), operands, ["c9", "last"] + ["rows"] * rows))
    inputs = [value("x0", [2, 4]), value("seq", ["T", 2, 4])] + [value("limit", [], int32)] * (limit == "n")
    outputs = [value("last", [2, 4]), value("c9", [], int32)] + [value("rows", [None, 2, 4])] * rows
    return model(outer, inputs, outputs, initial)


def sequence(length):
    return np.random.default_rng(2).standard_normal((length, 2, 4)).astype(np.float32)


@pytest.mark.parametrize("real", [True, False])
@pytest.mark.parametrize("limit, trips", [(11, 11), (150, 2**63 - 1), (150, 140), (150, 0)])
def test_condition_counts_to_a_constant(tmp_path, limit, trips, real):
    compare(tmp_path, counting(limit, 0, trips, real), [{"x0": start(), "seq": sequence(160)}])


@pytest.mark.parametrize("begin, rows", [(0, True), (2, True), (2, False)])
@pytest.mark.parametrize("real", [True, False])
def test_condition_counts_to_a_length(tmp_path, begin, rows, real):
    proto = counting("length", begin, 2**63 - 1, real, rows=rows)
    engine = compare(tmp_path, proto, [{"x0": start(), "seq": sequence(t)} for t in (7, 3, 1, 100)])
    assert lathe_cli.launches(lathe_cli.plans(engine)[0]) < 16


@pytest.mark.parametrize("first", ["Less", ""])
def test_condition_counts_to_an_input(tmp_path, first):
    """Without a condition ahead of it the first iteration runs in any case."""
    compare(tmp_path, counting("n", 3, 0, False, first=first),
            [{"x0": start(), "seq": sequence(40), "limit": np.array(n, np.int32)} for n in (9, 4, 3, 0, -5, 38)])


def test_condition_that_counts_by_twos_is_refused(tmp_path):
    onnx.save(counting(150, 0, 2**63 - 1, False, step=2), tmp_path / "model.onnx")
    text = lathe_cli.lathe("compile", tmp_path / "model.onnx", "-o", tmp_path / "m.lathe", code=4)
    assert "a loop that collects rows" in text


def test_rows_of_unknown_number_are_refused(tmp_path):
    nodes = [node("Mul", ["x", "x"], ["y"]), node("ReduceMax", ["y"], ["m"], keepdims=0),
             node("Less", ["m", "limit"], ["on"]), node("Neg", ["y"], ["row"])]
    outer = [loop(body_of(nodes, ["x"], ["y"], ["row"]), ["n", "", "x0"], ["z", "rows"])]
    onnx.save(model(outer, [value("x0", [2, 4]), value("limit", []), value("n", [], INT64)],
                    [value("z", [2, 4]), value("rows", [None, 2, 4])]), tmp_path / "model.onnx")
    text = lathe_cli.lathe("compile", tmp_path / "model.onnx", "-o", tmp_path / "m.lathe", code=4)
    assert "a loop that collects rows" in text and "--const" in text


def test_changing_sizes_are_refused(tmp_path):
    body = body_of([node("Identity", ["go"], ["on"]), node("Concat", ["x", "x"], ["y"], axis=0)],
                   ["x"], ["y"], dims=(None, 4))
    onnx.save(model([loop(body, ["n", "", "x0"], ["z"])],
                    [value("x0", [2, 4]), value("n", [], INT64)], [value("z", [None, 4])]),
              tmp_path / "model.onnx")
    text = lathe_cli.lathe("compile", tmp_path / "model.onnx", "-o", tmp_path / "m.lathe", code=4)
    assert "changing sizes" in text and "--const" in text


def windows(width, rows=True):
    """x = x + seq[i : i + width] in each iteration that an input counts, which a condition of the run may forbid."""
    nodes = [node("Identity", ["go"], ["on"]), node("Add", ["i", "width"], ["end"]),
             node("Reshape", ["i", "one"], ["first"]), node("Reshape", ["end", "one"], ["last"]),
             node("Slice", ["seq", "first", "last"], ["part"]), node("Add", ["x", "part"], ["y"])]
    nodes += [node("Neg", ["y"], ["row"])] * rows
    body = body_of(nodes, ["x"], ["y"], ["row"] * rows, dims=(width,))
    return model([loop(body, ["n", "start", "x0"], ["z"] + ["rows"] * rows)],
                 [value("x0", [width]), value("n", [], INT64), value("start", [], BOOL)],
                 [value("z", [width])] + [value("rows", [None, width])] * rows,
                 [constant("width", np.int64(width)), constant("one", np.array([1])),
                  constant("seq", np.arange(8, dtype=np.float32))])


@pytest.mark.parametrize("width, rows", [(1, True), (3, True), (1, False)])
def test_windows_of_each_iteration(tmp_path, width, rows):
    x = np.full(width, 0.5, np.float32)
    engine = compare(tmp_path, windows(width, rows), [{"x0": x, "n": np.array(n), "start": np.array(go)}
                                                      for n, go in ((5, True), (0, True), (6, True), (4, False))])
    np.save(tmp_path / "x0.npy", x)
    np.save(tmp_path / "n.npy", np.array(9))
    np.save(tmp_path / "start.npy", np.array(True))
    given = [f"--input={name}={tmp_path / name}.npy" for name in ("x0", "n", "start")]
    text = lathe_cli.lathe("run", engine, *given, code=5)
    # The end of seq cuts a window.
    assert ("Loop_0_carried_size is -1; this engine takes" if width == 1 else "do not fit in add") in text


def test_counts_of_windows(tmp_path):
    """How many of a window are not zero is another number in each iteration, although no operand of NonZero says so: rows
    have room for a whole window, and the run says where one has less."""
    nodes = [node("Identity", ["go"], ["on"]), node("Neg", ["x"], ["y"]), node("Add", ["i", "three"], ["end"]),
             node("Reshape", ["i", "one"], ["first"]), node("Reshape", ["end", "one"], ["last"]),
             node("Slice", ["seq", "first", "last"], ["part"]), node("NonZero", ["part"], ["places"]),
             node("Shape", ["places"], ["size"]), node("ConstantOfShape", ["size"], ["row"])]
    proto = model([loop(body_of(nodes, ["x"], ["y"], ["row"], dims=(4,)), ["n", "", "x0"], ["z", "rows"])],
                  [value("x0", [4]), value("n", [], INT64), value("seq", [8])], [value("z", [4]), value("rows", [None, 1, None])],
                  [constant("three", np.int64(3)), constant("one", np.array([1]))])
    x, seq = np.ones(4, np.float32), np.arange(1, 9, dtype=np.float32)
    engine = compare(tmp_path, proto, [{"x0": x, "seq": seq, "n": np.array(n)} for n in (5, 6)])
    seq[4] = 0
    for name, array in (("x0", x), ("seq", seq), ("n", np.array(5))):
        np.save(tmp_path / f"{name}.npy", array)
    text = lathe_cli.lathe("run", engine, *(f"--input={name}={tmp_path / name}.npy" for name in ("x0", "seq", "n")), code=5)
    assert "this engine takes" in text


def test_slices_before_the_end(tmp_path):
    """x[i : i - 2]: with i below 2 the end counts from the end of x."""
    proto = model([node("Sub", ["i", "two"], ["end"]), node("Slice", ["x", "i", "end"], ["part"]), node("Neg", ["part"], ["y"])],
                  [value("x", [9]), value("i", [1], INT64)], [value("y", [None])], [constant("two", np.array([2]))])
    x = np.arange(9, dtype=np.float32)
    compare(tmp_path, proto, [{"x": x, "i": np.array([i])} for i in (1, 0, 3, 1)])
