# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The exported Llama agrees with onnxruntime and torch, in every form, shape and precision.

f32 forms are held to 1e-4 of the largest value against onnxruntime on the same file. 16-bit forms
are held to 1.5 times torch's own error in that precision, both against f32 on the same weights.
Faults planted in the model must break the first bound, or the tests would not see them.
"""
import json
import os

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import lathe_cli

FOLDER = os.path.join(lathe_cli.MODELS, "llama")
with open(os.path.join(FOLDER, "summary.json")) as summary_file:
    SUMMARY = json.load(summary_file)
FORMS, CASES = SUMMARY["forms"], SUMMARY["cases"]
F32 = [f for f, row in FORMS.items() if row["dtype"] == "f32"]
HALF = [f for f, row in FORMS.items() if row["dtype"] != "f32"]
BOUND = 1e-4
DIMS = ["--dim=B=1:1:4", "--dim=S=1:16:512", "--dim=P=0:17:511"]


def model_of(form):
    return os.path.join(FOLDER, form, "model.onnx")


def run_case(engine, form, case, folder):
    data = [f"{name}={FOLDER}/{form}/{case}/input_{i}.pb"
            for i, name in enumerate(SUMMARY["inputs"])]
    return lathe_cli.run(engine, folder, data=data)


def expected(form, case):
    result = {}
    for i, name in enumerate(SUMMARY["outputs"]):
        with open(f"{FOLDER}/{form}/{case}/output_{i}.pb", "rb") as f:
            result[name] = numpy_helper.to_array(onnx.TensorProto.FromString(f.read()))
    return result


def worst(got, want):
    assert list(got) == list(want)
    return max(lathe_cli.relative_error(got[n], want[n]) for n in want)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("form", F32)
def test_f32(engines, tmp_path, form, case):
    got = run_case(engines(model_of(form), *DIMS), form, case, tmp_path)
    assert worst(got, expected(form, case)) <= BOUND


def live(case, array):
    """Positions of text, not of padding, as rows: what padding attends to is not defined."""
    mask = np.load(f"{FOLDER}/inputs/{case}/mask.npy").astype(bool)
    if array.ndim == 3:
        return array[mask[:, -array.shape[1]:]]
    return array.transpose(0, 2, 1, 3)[mask]


def load(folder, case):
    return {n: live(case, np.load(f"{FOLDER}/{folder}/{case}/{n}.npy")).astype(np.float64)
            for n in SUMMARY["outputs"]}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("form", HALF)
def test_half(engines, tmp_path, form, case):
    dtype = FORMS[form]["dtype"]
    got = run_case(engines(model_of(form), *DIMS), form, case, tmp_path)
    truth, torch = load(f"truth/{dtype}", case), load(f"torch/{dtype}", case)
    for name in SUMMARY["outputs"]:
        ours = live(case, got[name]).astype(np.float64)
        error = np.sqrt(np.mean((ours - truth[name]) ** 2))
        theirs = np.sqrt(np.mean((torch[name] - truth[name]) ** 2))
        assert error <= 1.5 * theirs, f"{name}: {error:.3g}, torch has {theirs:.3g}"


def query_weight(graph):
    """The first matrix product of the graph is the first layer's query projection, [in, out]."""
    name = next(n for n in graph.node if n.op_type == "MatMul").input[1]
    return next(t for t in graph.initializer if t.name == name)


def replace_uses(graph, name, node):
    for user in graph.node:
        for i, operand in enumerate(user.input):
            if operand == name:
                user.input[i] = node.output[0]
    graph.node.insert(0, node)


def plant(graph, fault):
    heads, head = 8, 32
    if fault == "mask":  # every position is seen
        one = numpy_helper.from_array(np.array(1, np.int64), "fault_one")
        graph.initializer.append(one)
        replace_uses(graph, "mask", helper.make_node("Max", ["mask", "fault_one"], ["fault"]))
    elif fault == "rotation":  # turned the other way
        replace_uses(graph, "pos", helper.make_node("Neg", ["pos"], ["fault"]))
    else:
        weight = query_weight(graph)
        array = numpy_helper.to_array(weight).copy()
        if fault == "scale":
            array *= np.float32(1.01)
        else:  # the first and the last head change places
            columns = array.reshape(-1, heads, head)
            columns[:, [0, heads - 1]] = columns[:, [heads - 1, 0]]
        weight.CopyFrom(numpy_helper.from_array(array, weight.name))


@pytest.mark.parametrize("fault", ["scale", "mask", "rotation", "head_order"])
def test_planted_fault_is_seen(engines, tmp_path, fault):
    form = "dynamo18_sdpa"
    model = onnx.load(model_of(form))
    plant(model.graph, fault)
    path = str(tmp_path / "model.onnx")
    onnx.save(model, path)
    engine = lathe_cli.compile_model(path, tmp_path / "fault.lathe", *DIMS)
    for case in ("padded_chunk", "padded_decode"):
        got = run_case(engine, form, case, tmp_path / case)
        assert worst(got, expected(form, case)) > 10 * BOUND
