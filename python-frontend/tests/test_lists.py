# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sequences and optionals whose length only the run knows, one engine for all lengths, against onnxruntime.

`LATHE_TEST_DEVICE=cuda:0` runs the engines on a GPU.
"""
import os

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import lathe
import lathe.onnxruntime

DEVICE = os.environ.get("LATHE_TEST_DEVICE", "cpu")
TARGET = "native" if DEVICE == "cpu" else "sm_90a"
FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64
RNG = np.random.default_rng(7)


def tensor(shape, element=FLOAT):
    return helper.make_tensor_type_proto(element, shape)


def sequence(shape, element=FLOAT):
    return helper.make_sequence_type_proto(tensor(shape, element))


def optional(inside):
    return helper.make_optional_type_proto(inside)


def model_of(nodes, inputs, outputs, **constants):
    def values(types):
        return [helper.make_value_info(name, kind) for name, kind in types.items()]

    graph = helper.make_graph(nodes, "g", values(inputs), values(outputs),
                              [onnx.numpy_helper.from_array(np.array(v, np.int64), n) for n, v in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(model)
    return model


def context_of(nodes, inputs, outputs, **constants):
    model = model_of(nodes, inputs, outputs, **constants)
    return lathe.compile(model.SerializeToString(), target=TARGET).context(DEVICE, threads=1)


def arrays(*shapes):
    return [RNG.standard_normal(shape).astype(np.float32) for shape in shapes]


def same(got, want):
    if want is None:
        assert got is None
    elif isinstance(want, list):
        assert len(got) == len(want)
        for a, b in zip(got, want):
            same(a, b)
    else:
        assert got.shape == want.shape and got.dtype == want.dtype and np.array_equal(got, want)


class Pair:
    """A model compiled once, and onnxruntime's session of it."""

    def __init__(self, model):
        self.context = lathe.compile(model.SerializeToString(), target=TARGET).context(DEVICE, threads=1)
        self.session = lathe.onnxruntime.InferenceSession(model.SerializeToString(), strict=True)
        self.other = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])

    def check(self, **inputs):
        want = self.other.run(None, inputs)
        same(self.session.run(None, inputs), want)
        got = self.context.run(inputs)
        for output, value in zip(self.other.get_outputs(), want):
            result = got[output.name]
            same(result if isinstance(result, list) else result.numpy(), value)

    def fails(self, code, text, **inputs):
        with pytest.raises(lathe.Error, match=text) as error:
            self.context.run(inputs)
        assert error.value.code == code


LISTS = [[], [(4, 2)], [(0, 2), (3, 2)]]
LENGTHS = [[], [(3,)], [(1,), (0,), (5,)], [(n % 4,) for n in range(40)]]


def test_all_ops_at_any_length():
    pair = Pair(model_of(
        [helper.make_node("SequenceInsert", ["s", "x", "at"], ["t"]),
         helper.make_node("SequenceLength", ["t"], ["n"]),
         helper.make_node("SequenceAt", ["t", "at"], ["y"]),
         helper.make_node("SequenceErase", ["t", "at"], ["u"]),
         helper.make_node("ConcatFromSequence", ["t"], ["joined"], axis=0)],
        {"s": sequence(["N"]), "x": tensor(["K"]), "at": tensor([], INT)},
        {"t": sequence(["N"]), "n": tensor([], INT), "y": tensor(["A"]), "u": sequence(["N"]),
         "joined": tensor(["M"])}))
    for shapes in LENGTHS:
        for at in {0, -1 if shapes else 0, -len(shapes), len(shapes)}:
            pair.check(s=arrays(*shapes), x=arrays((2,))[0], at=np.array(at))
    two = arrays((2,), (1,))
    pair.fails(lathe.Code.RUNTIME_FAILURE, "position 3 is out of range of a list of 2 tensors", s=two, x=two[0],
               at=np.array(3))
    pair.fails(lathe.Code.USAGE, r"\[1x2\] where the model states \[\?\]", s=arrays((1, 2)), x=two[0],
               at=np.array(0))
    with pytest.raises(lathe.Error, match="expected f32"):
        pair.context.run({"s": [np.ones(2)], "x": two[0], "at": 0})


def test_errors_of_an_empty_list():
    pair = Pair(model_of([helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=1)], {"s": sequence([2, "N"])},
                         {"y": tensor([2, "M"])}))
    pair.check(s=arrays((2, 3), (2, 0), (2, 1)))
    pair.fails(lathe.Code.RUNTIME_FAILURE, "an empty list has nothing to join", s=[])
    pair = Pair(model_of([helper.make_node("SequenceErase", ["s"], ["y"])], {"s": sequence(["N"])},
                         {"y": sequence(["N"])}))
    pair.fails(lathe.Code.RUNTIME_FAILURE, "nothing to erase from an empty list", s=[])


@pytest.mark.parametrize("axis, new_axis", [(0, 0), (1, 0), (-1, 0), (0, 1), (2, 1), (-1, 1)])
def test_joins(axis, new_axis):
    pair = Pair(model_of([helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=axis, new_axis=new_axis)],
                         {"s": sequence(["A", "B"])}, {"y": tensor(["X", "Y", "Z"][:2 + new_axis])}))
    for count in (1, 2, 7):
        pair.check(s=arrays(*[(3, 2)] * count))
    pair.fails(lathe.Code.RUNTIME_FAILURE, "are joined", s=arrays((3, 2), (2, 3)))


def test_parts_of_a_size_of_the_run():
    pair = Pair(model_of([helper.make_node("SplitToSequence", ["x", "size"], ["s"], axis=1),
                          helper.make_node("SequenceLength", ["s"], ["n"])],
                         {"x": tensor(["N", "M", 2]), "size": tensor([], INT)},
                         {"s": sequence(["N", "A", 2]), "n": tensor([], INT)}))
    for width, size in [(6, 2), (7, 3), (1, 5), (5, 1)]:
        pair.check(x=arrays((2, width, 2))[0], size=np.array(size))
    pair.fails(lathe.Code.RUNTIME_FAILURE, "parts of 0", x=arrays((2, 3, 2))[0], size=np.array(0))


def test_maps_over_lists_of_equal_length():
    body = helper.make_graph(
        [helper.make_node("Max", ["a", "b"], ["p"]), helper.make_node("Add", ["p", "k"], ["r"]),
         helper.make_node("Shape", ["a"], ["size"])], "body",
        [helper.make_tensor_value_info(n, FLOAT, s) for n, s in [("a", ["N", 3]), ("b", ["N", 3]), ("k", [3])]],
        [helper.make_tensor_value_info("r", FLOAT, ["N", 3]), helper.make_tensor_value_info("size", INT, [2])])
    pair = Pair(model_of([helper.make_node("SequenceMap", ["s", "t", "k"], ["y", "sizes"], body=body)],
                         {"s": sequence(["N", 3]), "t": sequence(["N", 3]), "k": tensor([3])},
                         {"y": sequence(["N", 3]), "sizes": sequence([2], INT)}))
    for shapes in ([], [(4, 3)], [(1, 3), (0, 3), (70, 3)], [(n, 3) for n in range(100)]):
        pair.check(s=arrays(*shapes), t=arrays(*shapes), k=arrays((3,))[0])
    pair.fails(lathe.Code.RUNTIME_FAILURE, "lengths", s=arrays((1, 3)), t=[], k=arrays((3,))[0])


def test_loops_that_collect_and_take():
    """Each iteration appends what lies between two positions of x, and adds up what it finds at the end."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["go"]),
         helper.make_node("Add", ["i", "one"], ["end"]),
         helper.make_node("Reshape", ["end", "vector"], ["ends"]),
         helper.make_node("Slice", ["x", "zero", "ends"], ["row"]),
         helper.make_node("SequenceInsert", ["s_in", "row"], ["s_out"]),
         helper.make_node("SequenceAt", ["s_out", "last"], ["found"]),
         helper.make_node("ReduceSum", ["found"], ["sum"], keepdims=0),
         helper.make_node("Add", ["sum", "total_in"], ["total_out"])],
        "body", [helper.make_tensor_value_info("i", INT, []), helper.make_tensor_value_info("c", TensorProto.BOOL, []),
                 helper.make_value_info("s_in", sequence(["N"])), helper.make_tensor_value_info("total_in", FLOAT, [])],
        [helper.make_tensor_value_info("go", TensorProto.BOOL, []), helper.make_value_info("s_out", sequence(["N"])),
         helper.make_tensor_value_info("total_out", FLOAT, [])])
    pair = Pair(model_of([helper.make_node("Loop", ["trips", "", "s", "start"], ["y", "total"], body=body)],
                         {"s": sequence(["N"]), "x": tensor(["L"]), "trips": tensor([], INT), "start": tensor([])},
                         {"y": sequence(["N"]), "total": tensor([])}, one=1, zero=[0], vector=[1], last=-1))
    x = np.arange(200, dtype=np.float32)
    for trips, shapes in [(0, [(2,)]), (1, []), (5, [(3,), (1,)]), (150, [])]:
        pair.check(s=arrays(*shapes), x=x, trips=np.array(trips), start=np.array(1, np.float32))


def test_a_loop_that_reads_a_list_that_is_empty_at_first():
    """Each iteration adds up the tensor that the one before appended, if there was one."""
    size = tensor([])
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["go"]),
         helper.make_node("SequenceLength", ["s_in"], ["n"]), helper.make_node("Greater", ["n", "zero"], ["some"]),
         helper.make_node("If", ["some"], ["sum"], **branches(
             then_branch=([helper.make_node("SequenceAt", ["s_in", "last"], ["found"]),
                           helper.make_node("ReduceSum", ["found"], ["all"], keepdims=0)], "all", size),
             else_branch=([helper.make_node("Identity", ["start"], ["none"])], "none", size))),
         helper.make_node("Add", ["sum", "total_in"], ["total_out"]),
         helper.make_node("Add", ["i", "one"], ["end"]), helper.make_node("Reshape", ["end", "vector"], ["ends"]),
         helper.make_node("Slice", ["x", "zeros", "ends"], ["row"]),
         helper.make_node("SequenceInsert", ["s_in", "row"], ["s_out"])],
        "body", [helper.make_tensor_value_info("i", INT, []), helper.make_tensor_value_info("c", TensorProto.BOOL, []),
                 helper.make_value_info("s_in", sequence(["N"])), helper.make_tensor_value_info("total_in", FLOAT, [])],
        [helper.make_tensor_value_info("go", TensorProto.BOOL, []), helper.make_value_info("s_out", sequence(["N"])),
         helper.make_tensor_value_info("total_out", FLOAT, [])])
    pair = Pair(model_of([helper.make_node("SequenceEmpty", [], ["s"]),
                          helper.make_node("Loop", ["trips", "", "s", "start"], ["y", "total"], body=body)],
                         {"x": tensor(["L"]), "trips": tensor([], INT), "start": tensor([])},
                         {"y": sequence(["N"]), "total": tensor([])}, one=1, zero=0, zeros=[0], vector=[1], last=-1))
    for trips in (1, 2, 7):
        pair.check(x=np.arange(20, dtype=np.float32), trips=np.array(trips), start=np.array(1, np.float32))


def branches(**sides):
    return {name: helper.make_graph(nodes, name, [], [helper.make_value_info(out, kind)])
            for name, (nodes, out, kind) in sides.items()}


def test_branches_give_lists_of_different_lengths():
    kind = sequence(["N"])
    pair = Pair(model_of(
        [helper.make_node("If", ["c"], ["y"], **branches(
            then_branch=([helper.make_node("SequenceConstruct", ["x"], ["a"])], "a", kind),
            else_branch=([helper.make_node("SequenceConstruct", ["x", "x", "x"], ["b"])], "b", kind))),
         helper.make_node("SequenceLength", ["y"], ["n"])],
        {"x": tensor(["K"]), "c": tensor([], TensorProto.BOOL)}, {"y": kind, "n": tensor([], INT)}))
    for c in (True, False):
        pair.check(x=arrays((4,))[0], c=np.array(c))


def test_a_branch_that_takes_what_may_not_be_there():
    size, found = tensor(["N", 2]), "found"
    pair = Pair(model_of(
        [helper.make_node("SequenceLength", ["s"], ["n"]), helper.make_node("Greater", ["n", "zero"], ["some"]),
         helper.make_node("If", ["some"], ["y"], **branches(
             then_branch=([helper.make_node("SequenceAt", ["s", "zero"], [found])], found, size),
             else_branch=([helper.make_node("Neg", ["x"], ["other"])], "other", size)))],
        {"s": sequence(["N", 2]), "x": tensor(["K", 2])}, {"y": size}, zero=0))
    for shapes in LISTS:
        pair.check(s=arrays(*shapes), x=arrays((3, 2))[0])


@pytest.mark.parametrize("element", ["float16", "float64", "int8", "uint64", "bool"])
def test_types_of_elements(element):
    kind = helper.make_sequence_type_proto(tensor(["N"], helper.np_dtype_to_tensor_dtype(np.dtype(element))))
    pair = Pair(model_of([helper.make_node("SequenceErase", ["s", "at"], ["t"])], {"s": kind}, {"t": kind}, at=0))
    pair.check(s=[np.arange(n).astype(element) for n in (2, 0, 3)])


def test_a_loop_that_ends_early():
    """Takes tensors off the end until one has an element that is not positive."""
    body = helper.make_graph(
        [helper.make_node("SequenceAt", ["s_in", "last"], ["x"]),
         helper.make_node("SequenceErase", ["s_in"], ["s_out"]),
         helper.make_node("ReduceMin", ["x"], ["least"], keepdims=0),
         helper.make_node("Cast", ["zero"], ["bound"], to=FLOAT),
         helper.make_node("Greater", ["least", "bound"], ["go"])],
        "body", [helper.make_tensor_value_info("i", INT, []), helper.make_tensor_value_info("c", TensorProto.BOOL, []),
                 helper.make_value_info("s_in", sequence(["N"]))],
        [helper.make_tensor_value_info("go", TensorProto.BOOL, []), helper.make_value_info("s_out", sequence(["N"]))])
    pair = Pair(model_of([helper.make_node("Loop", ["", "c", "s"], ["t"], body=body)],
                         {"s": sequence(["N"]), "c": tensor([], TensorProto.BOOL)}, {"t": sequence(["N"])},
                         last=-1, zero=0))
    s = [np.array(v, np.float32) for v in ([1, 2], [3], [4, -1, 5], [6, 7], [8])]
    for c in (True, False):
        pair.check(s=s, c=np.array(c))
    pair.fails(lathe.Code.RUNTIME_FAILURE, "an element of an empty list", s=s[:2], c=np.array(True))


def test_optionals():
    """onnxruntime's optionals as inputs are not taken by its Python interface, so that results are told here."""
    kind = optional(sequence(["N"]))
    context = context_of([helper.make_node("OptionalHasElement", ["o"], ["has"]),
                          helper.make_node("Identity", ["o"], ["p"])],
                         {"o": kind}, {"has": tensor([], TensorProto.BOOL), "p": kind})
    with pytest.raises(lathe.Error, match="a sequence is a list of arrays, not ndarray") as error:
        context.run({"o": arrays((2,))[0]})
    assert error.value.code == lathe.Code.USAGE
    for value in (None, [], arrays((2,)), arrays((2,), (0,), (3,))):
        got = context.run({"o": value})
        assert bool(got["has"].numpy()) == (value is not None)
        same(got["p"], value)
    context = context_of([helper.make_node("OptionalGetElement", ["o"], ["x"]), helper.make_node("Neg", ["x"], ["y"])],
                         {"o": optional(tensor(["N"]))}, {"y": tensor(["N"])})
    for size in (0, 1, 9):
        x = arrays((size,))[0]
        same(context.run({"o": x})["y"].numpy(), -x)
    with pytest.raises(lathe.Error, match="the optional has no value") as error:
        context.run({"o": None})
    assert error.value.code == lathe.Code.RUNTIME_FAILURE
    same(context_of([helper.make_node("Identity", ["o"], ["p"])], {"o": optional(tensor(["N"]))},
                    {"p": optional(tensor(["N"]))}).run({"o": None})["p"], [])
    with pytest.raises(lathe.Error, match="2 tensors for an optional of one"):
        context.run({"o": arrays((1,), (1,))})


@pytest.mark.parametrize("gives", [True, False])
def test_a_loop_that_takes_the_value_of_an_optional(gives):
    """How many of three iterations find a value, where each gives the next one an optional with or without one."""
    kind, truth = optional(sequence(["N"])), tensor([], TensorProto.BOOL)

    def give(name, some):
        return helper.make_node("Optional", ["s"] if some else [], [name], type=None if some else sequence(["N"]))

    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["go"]),
         helper.make_node("OptionalHasElement", ["o_in"], ["has"]),
         helper.make_node("Cast", ["has"], ["found"], to=INT),
         helper.make_node("Add", ["count_in", "found"], ["count_out"]), give("o_out", gives)],
        "body", [helper.make_value_info(name, what) for name, what in
                 [("i", tensor([], INT)), ("c", truth), ("o_in", kind), ("count_in", tensor([], INT))]],
        [helper.make_value_info(name, what) for name, what in
         [("go", truth), ("o_out", kind), ("count_out", tensor([], INT))]])
    context = context_of([give("o", not gives),
                          helper.make_node("Loop", ["trips", "", "o", "zero"], ["p", "count"], body=body),
                          helper.make_node("OptionalHasElement", ["p"], ["has_end"])],
                         {"s": sequence(["N"]), "trips": tensor([], INT)},
                         {"count": tensor([], INT), "has_end": truth, "p": kind}, zero=0)
    s = arrays((2,), (3,))
    for trips in (0, 1, 3):
        got = context.run({"s": s, "trips": np.array(trips)})
        assert got["count"].numpy() == (max(trips - 1, 0) if gives else min(trips, 1))
        there = gives == (trips > 0)
        assert bool(got["has_end"].numpy()) == there
        same(got["p"], s if there else None)


def test_steps_give_lists():
    context = context_of([helper.make_node("Identity", ["s"], ["y"])], {"s": sequence(["N"])}, {"y": sequence(["N"])})
    s = arrays((1,), (2,))
    same(context.submit({"s": s}).wait()["y"], s)


def test_members_of_a_group_give_lists():
    model = model_of([helper.make_node("Identity", ["s"], ["y"])], {"s": sequence(["N"])}, {"y": sequence(["N"])})
    group = lathe.compile(model.SerializeToString(), target=TARGET).group([DEVICE, DEVICE], threads=1)
    lists = [arrays((1,), (2,)), []]
    step = group.submit([{"s": s} for s in lists])
    assert step.wait() is step.wait()
    for got, want in zip(step.wait(), lists):
        same(got["y"], want)


def test_a_session_of_an_engine(tmp_path):
    kind = optional(sequence(["N"]))
    model = model_of([helper.make_node("Identity", ["s"], ["y"]), helper.make_node("Identity", ["o"], ["p"])],
                     {"s": sequence(["N"]), "o": kind}, {"y": sequence(["N"]), "p": kind})
    path = str(tmp_path / "model.lathe")
    lathe.compile(model.SerializeToString(), path, target=TARGET)
    providers = ["CPUExecutionProvider" if DEVICE == "cpu" else "CUDAExecutionProvider"]
    session = lathe.onnxruntime.InferenceSession(path, providers=providers, strict=True)
    assert [(v.name, v.type) for v in session.get_outputs()] == [
        ("y", "seq(tensor(float))"), ("p", "optional(seq(tensor(float)))")]
    assert [v.name for v in session.get_inputs()] == ["s", "o"]
    s = arrays((1,), (2,))
    for o in (None, arrays((3,))):
        same(session.run(None, {"s": s, "o": o}), [s, o])
    same(session.run(["p"], {"s": [], "o": []}), [[]])
