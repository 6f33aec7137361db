# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs written for onnxruntime: what they see with lathe.onnxruntime is what they saw."""
import os
import pathlib
import re
import subprocess
import sys
import warnings

import numpy as np
import pytest
import snippet_models
from onnx import TensorProto, helper

import lathe
import lathe.onnxruntime as ort
from lathe.onnxruntime import _options

SNIPPETS = sorted((pathlib.Path(__file__).parent / "onnxruntime_snippets").glob("*.py"))


def run(source, folder):
    """`results` of a program that is run in `folder`."""
    names, before = {"__name__": "snippet"}, os.getcwd()
    os.chdir(folder)
    try:
        exec(compile(source, "snippet", "exec"), names)
    finally:
        os.chdir(before)
    return names["results"]


def same(got, want, where="results"):
    assert type(got) is type(want) or isinstance(want, np.generic), (where, got, want)
    if isinstance(want, dict):
        assert set(got) == set(want), where
        for key in want:
            same(got[key], want[key], f"{where}[{key!r}]")
    elif isinstance(want, (list, tuple)):
        assert len(got) == len(want), where
        for i, (g, w) in enumerate(zip(got, want)):
            same(g, w, f"{where}[{i}]")
    elif isinstance(want, np.ndarray):
        assert got.dtype == want.dtype and got.shape == want.shape, where
        np.testing.assert_allclose(got, want, rtol=2e-6, atol=1e-6, err_msg=where)
    else:
        assert got == want, where


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("snippets")
    snippet_models.write(made)
    return made


def test_there_are_twenty():
    assert len(SNIPPETS) == 20


def with_lathe(source):
    """The program with its imports changed, and nothing else."""
    return re.sub(r"^(import|from) onnxruntime", r"\1 lathe.onnxruntime", source, flags=re.M)


@pytest.mark.filterwarnings("ignore::lathe.onnxruntime.IgnoredOption")
@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda p: p.stem)
def test_snippet(snippet, folder):
    pytest.importorskip("onnxruntime")
    source = snippet.read_text()
    same(run(with_lathe(source), folder), run(source, folder))


def test_ignored_options_are_said_once(folder):
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.intra_op_num_threads = 2
    _options._said.clear()
    with pytest.warns(ort.IgnoredOption, match="SessionOptions.enable_profiling") as said:
        ort.InferenceSession(folder / "affine.onnx", options)
    assert len(said) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ort.InferenceSession(folder / "affine.onnx", options)
    with pytest.raises(ValueError, match="enable_profiling"):
        ort.InferenceSession(folder / "affine.onnx", options, strict=True)
    with pytest.raises(AttributeError, match="threads_of_intra"):
        options.threads_of_intra = 3
    with pytest.warns(UserWarning, match="TensorrtExecutionProvider"):
        session = ort.InferenceSession(folder / "affine.onnx", providers=["TensorrtExecutionProvider"])
    assert session.get_providers() == ["CPUExecutionProvider"]
    with pytest.raises(ValueError, match="TensorrtExecutionProvider"):
        ort.InferenceSession(folder / "affine.onnx", providers=["TensorrtExecutionProvider"], strict=True)


def test_what_cannot_be_ignored(folder):
    options = ort.SessionOptions()
    for call in (lambda: options.register_custom_ops_library("ops.so"),
                 lambda: options.add_initializer("w", None),
                 lambda: ort.OrtValue.ortvalue_from_numpy(np.ones(2), "cuda")):
        with pytest.raises(NotImplementedError):
            call()


def test_engines_are_opened_too(folder):
    x = np.ones((2, 8), np.float32)
    lathe.compile(folder / "affine.onnx", folder / "affine.lathe")
    want = ort.InferenceSession(folder / "affine.onnx").run(None, {"x": x})
    for model in (folder / "affine.lathe", (folder / "affine.lathe").read_bytes()):
        session = ort.InferenceSession(model)
        assert session.get_inputs()[0].name == "x" and session.get_modelmeta().version == 0
        for got, expected in zip(session.run(None, {"x": x}), want):
            np.testing.assert_array_equal(got, expected)


def test_files_of_every_length(folder):
    """A model that is cut off within a field is an error of a kind that programs catch."""
    data = (folder / "affine.onnx").read_bytes()
    refused = 0
    for size in range(0, len(data), 13):
        try:
            ort.InferenceSession(data[:size])
        except ort.OrtError:
            refused += 1
    assert refused >= len(data) // 13 - 4  # between fields of the model it may be a whole one


def in_another_process(program, cwd):
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], cwd=cwd, capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(lathe.__file__))})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_install(folder):
    assert in_another_process("""
import lathe.onnxruntime
lathe.onnxruntime.install()
import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument
import onnxruntime.capi._pybind_state as state
assert onnxruntime is lathe.onnxruntime and state.InvalidArgument is InvalidArgument
assert onnxruntime.InferenceSession("affine.onnx").get_inputs()[0].name == "x"
lathe.onnxruntime.uninstall()
import onnxruntime
print(onnxruntime is lathe.onnxruntime)
""", folder) == "False\n"


def test_models_that_want_sizes():
    """A condition that only the run knows, and branches of two shapes: an engine for each that comes."""
    nodes = (helper.make_node("Neg", ["x"], ["z"]), helper.make_node("Unsqueeze", ["x", "first"], ["z"]))
    branch = [helper.make_graph([node], node.op_type, [],
                                [helper.make_tensor_value_info("z", TensorProto.FLOAT, shape)])
              for node, shape in zip(nodes, (["N", 3], [1, "N", 3]))]
    graph = helper.make_graph(
        [helper.make_node("Constant", [], ["rate"], value_int=16000),
         helper.make_node("Constant", [], ["first"], value_ints=[0]),
         helper.make_node("Constant", [], ["flat"], value_ints=[-1]),
         helper.make_node("Equal", ["sr", "rate"], ["is"]),
         helper.make_node("If", ["is"], ["z"], then_branch=branch[0], else_branch=branch[1]),
         helper.make_node("Reshape", ["z", "flat"], ["y"])],
        "choice", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3]),
                   helper.make_tensor_value_info("sr", TensorProto.INT64, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["K"])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = ort.InferenceSession(model.SerializeToString())
    assert [(i.name, i.type, i.shape) for i in session.get_inputs()] == [
        ("x", "tensor(float)", ["N", 3]), ("sr", "tensor(int64)", [])]
    with pytest.warns(ort.Specialized):
        for n in (2, 4, 2):
            x = np.arange(3 * n, dtype=np.float32).reshape(n, 3)
            for rate, want in ((16000, -x), (8000, x)):
                got = session.run(None, {"x": x, "sr": np.array(rate)})[0]
                np.testing.assert_array_equal(got, want.reshape(-1))
    assert len(session._engines) == 4
