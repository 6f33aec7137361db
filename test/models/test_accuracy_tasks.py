# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What test/accuracy counts with: multiplications, shares, losses, distances, text. The tasks themselves take too long for here."""
import gzip
import os
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import lathe_cli

sys.path.insert(0, os.path.join(lathe_cli.ROOT, "test", "accuracy"))
import frame  # noqa: E402
import key_values  # noqa: E402
import packages  # noqa: E402
import run as command  # noqa: E402
import text_lines  # noqa: E402


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """x [N, 4, 8, 8] -> convolution by 16 filters of 3 x 3 -> mean -> product by [16, 96] -> y; a product of activations beside it."""
    random = np.random.default_rng(1)
    weights = {"f": random.normal(size=(16, 4, 3, 3)), "w": random.normal(size=(16, 512))}
    nodes = [helper.make_node("Conv", ["x", "f"], ["c"], name="conv"), helper.make_node("Relu", ["c"], ["r"]),
             helper.make_node("ReduceMean", ["r"], ["m"], axes=[2, 3], keepdims=0), helper.make_node("MatMul", ["m", "w"], ["y"], name="product"),
             helper.make_node("Gemm", ["y", "y"], ["z"], name="both", transA=1)]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [value("x", TensorProto.FLOAT, ["N", 4, 8, 8])],
                              [value("y", TensorProto.FLOAT, ["N", 512]), value("z", TensorProto.FLOAT, [512, 512])],
                              [numpy_helper.from_array(a.astype(np.float32), n) for n, a in weights.items()])
    path = tmp_path_factory.mktemp("accuracy") / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return str(path)


def task(model, score):
    random = np.random.default_rng(2)
    data = [{"x": random.normal(size=(2, 4, 8, 8)).astype(np.float32)} for _ in range(3)]
    return frame.Task("toy", "right", model, data, score, 2000, {"N": (1, 2, 2)}, [frame.INT8])


def test_multiplications(model):
    counts = frame.multiplications(model, {"x": np.zeros((2, 4, 8, 8), np.float32)})
    assert counts == {"c": 2 * 16 * 6 * 6 * 4 * 9, "y": 2 * 16 * 512, "z": 512 * 512 * 2}


def test_row(model):
    """The share that is quantized leaves out the product of activations; what is lost is seen, and held against the bar."""
    x = np.random.default_rng(3).normal(size=(2, 4, 8, 8)).astype(np.float32)
    scores = []

    def score(run):
        scores.append(run({"x": x})["y"].copy())
        return 90.0 if len(scores) == 1 else 89.0

    row, = frame.measure(task(model, score))
    convolution, product, both = 2 * 16 * 36 * 36, 2 * 16 * 512, 512 * 512 * 2
    assert row.share == (convolution + product) / (convolution + product + both)
    assert 0 < lathe_cli.relative_error(scores[1], scores[0]) < 0.05
    assert row.lost == 1 and not row.is_kept
    assert "loses too much" in command.line(row, command.wrongs(row)) and "too little is quantized" in command.wrongs(row)


def test_row_that_is_right(model):
    row = frame.Row("toy", "right", 2000, "int8", 0.96, 90, 89.6, 0.4, 0.5)
    assert command.wrongs(row) == []
    row.examples = 1999
    assert command.wrongs(row) == ["too few examples"]


def test_worst_layers():
    """The noisiest ones that fit in what other contractions leave of the share."""
    counts = {"a": 3, "b": 10, "c": 2, "d": 84, "attention": 1}
    layers = [{"node": n.upper(), "result": n, "sqnr_db": db} for n, db in (("a", 20), ("b", 10), ("c", 30), ("d", 25))]
    assert frame.worst_layers(layers, counts, 0.05) == ["A"]
    assert frame.worst_layers(layers, counts, 0.06) == ["A", "C"]
    assert frame.worst_layers(layers, counts, 0.01) == []


def test_layers_that_are_kept(model):
    """Beside the product of activations 5 % may be in f32: the product fits in, the convolution does not."""
    wanted = task(model, lambda run: 90.0)
    wanted.schemes = [frame.Scheme("int8", frame.INT8.options, 0.5, keeps=0.95)]
    row, = frame.measure(wanted)
    convolution, product, both = 2 * 16 * 36 * 36, 2 * 16 * 512, 512 * 512 * 2
    assert row.share == convolution / (convolution + product + both)


def test_distance():
    assert [text_lines.distance(*pair) for pair in (("kitten", "sitting"), ("", "abc"), ("same", "same"))] == [3, 3, 0]


def test_text_of_manual(tmp_path):
    path = tmp_path / "page.1.gz"
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write('.\\" a comment\n.TH PAGE 1\n.SH "SEE ALSO"\nUse \\fBthis\\fP \\-x.\n')
    assert packages.text_of_manual(path) == "SEE ALSO\nUse this -x.\n"


def test_logits_of_pages():
    """A step of all tokens of a batch has the logits that the model has of each; codes are near them, of 4 bits less
    than of 8."""
    import export_llama
    import torch

    import lathe.torch
    model = export_llama.build("sdpa")
    ids = np.random.default_rng(8).integers(export_llama.VOCAB, size=(3, 21))
    with torch.no_grad():
        want = model(input_ids=torch.from_numpy(ids)).logits.numpy()
    errors = []
    for options in [], [("kv", "int8")], [("kv", "int4")]:
        got = key_values.logits_of(lathe.torch.export(model, paged=True, options=options, tolerance=None), ids)
        assert got.shape == want.shape
        errors.append(np.linalg.norm(got - want) / np.linalg.norm(want))
    assert errors[0] < 1e-5 and 1e-4 < errors[1] < 0.02 and errors[1] < errors[2] < 0.3
