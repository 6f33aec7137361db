# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`lathe compare` passes on right models and finds each of twenty planted faults, by name."""
import os
import re
import subprocess

import numpy as np
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

import lathe_cli
from lathe_cli import MODELS, lathe

LLAMA = os.path.join(MODELS, "llama", "dynamo18_sdpa")
# name: model, options, how many faults
PLANTED = {
    "magika": (os.path.join(MODELS, "magika.onnx"), ["--input-shape=bytes=2x2048"], 6),
    "cls": (os.path.join(MODELS, "ppocr_cls.onnx"), ["--input-shape=x=1x3x48x97"], 7),
    "llama": (os.path.join(LLAMA, "model.onnx"), ["--data", os.path.join(LLAMA, "padded_chunk")],
              7),
}
CASES = [(name, i) for name, (_, _, count) in PLANTED.items() for i in range(count)]


@pytest.fixture(scope="session")
def kernels(engines):
    """Names of a model's kernels."""
    def of(name):
        model, _, _ = PLANTED[name]
        return [kernel["name"] for kernel in lathe_cli.plans(engines(model))[0]["kernels"]]
    return of


def compare(model, *options, code=0):
    return lathe("compare", model, "--device", lathe_cli.DEVICE, *options, code=code)


def test_twenty_are_planted():
    assert len(CASES) == 20


@pytest.mark.parametrize("name", PLANTED)
def test_nothing_is_wrong(name):
    model, options, _ = PLANTED[name]
    text = compare(model, *options)
    assert text.strip().endswith("PASSED")
    replayed = re.search(r"(\d+) kernel launches, (\d+) replayed", text)
    assert int(replayed[1]) == int(replayed[2]) > 0


def test_loops_and_branches(tmp_path):
    """A launch in a loop is judged in each iteration, and what stands behind a loop or in a branch is taken for no other."""
    body = "(int64 i, bool c, float[2, 6] v) => (bool d, float[2, 6] w, float[2, 6] r) { d = Identity(c) p = Softmax(v) w = MatMul(p, m) r = Tanh(w) }"
    text = (f'<ir_version: 10, opset_import: ["" : 21]> g (float[2, 6] x, float[T, 6] l, bool b) => (float[2, 6] y, float[T, 2, 6] rows) '
            f'<float[6, 6] m = {{{", ".join(f"{v:.3f}" for v in np.random.default_rng(1).normal(size=36))}}}> {{ '
            f's = Shape<end = 1>(l) zero = Constant<value = int64[1] {{0}}>() n = Squeeze(s, zero) '
            f'u, rows = Loop(n, , x) <body = b {body}> '
            'k = If(b) <then_branch = t () => (float[2, 6] a) { h = Softmax(u) a = MatMul(h, m) }, '
            'else_branch = e () => (float[2, 6] a) { g = Exp(u) a = MatMul(g, m) }> '
            'q = LpNormalization<axis = 0>(k) y = MatMul(q, m) }')
    onnx.save(onnx.parser.parse_model(text), tmp_path / "loop.onnx")
    options = ["--dim=T=1:5:9", "--input-shape=l=7x6"]
    said = compare(tmp_path / "loop.onnx", *options)
    launched, replayed = map(int, re.search(r"(\d+) kernel launches, (\d+) replayed", said).groups())
    assert launched == replayed >= 14 and said.strip().endswith("PASSED")
    engine = lathe_cli.compile_model(str(tmp_path / "loop.onnx"), tmp_path / "loop.lathe", "--dim=T=1:5:9")
    found = {}
    for name in [kernel["name"] for kernel in lathe_cli.plans(engine)[0]["kernels"]]:
        said = subprocess.run([lathe_cli.LATHE, "compare", tmp_path / "loop.onnx", "--device", lathe_cli.DEVICE, *options, f"--inject-fault={name}"],
                              capture_output=True, text=True, timeout=100).stdout
        found[name] = re.findall(r"(?:first|also) wrong: launch \d+, kernel (\S+) \(", said)
    unused = [name for name, wrong in found.items() if not wrong]
    assert all(set(wrong) <= {name} for name, wrong in found.items()), found
    assert len(unused) <= 2 <= len(found) - len(unused), found  # of the branch that is not taken


@pytest.mark.parametrize("name,which", CASES)
def test_fault_is_found(kernels, name, which):
    model, options, count = PLANTED[name]
    names = kernels(name)
    fault = names[which * (len(names) - 1) // (count - 1)]
    text = compare(model, *options, f"--inject-fault={fault}", code=1)
    first = re.search(r"first wrong: .*kernel (\S+) \(.*\), ONNX nodes (.+)", text)
    assert first, text
    assert first[1] == fault
    assert first[2] != "-"


def test_against_onnxruntime():
    model, options, _ = PLANTED["cls"]
    assert compare(model, *options, "--against=onnxruntime").strip().endswith("PASSED")


def nearly_constant(form):
    """Layer norm over rows, as the op or as exporters write it: E[x^2] - E[x]^2 for the variance."""
    node, value = helper.make_node, helper.make_tensor_value_info
    number = lambda v, name: numpy_helper.from_array(np.array(v, np.float32), name)
    initial = [number(1e-5, "epsilon"), number(np.ones(768), "ones")]
    if form == "op":
        nodes = [node("LayerNormalization", ["x", "ones"], ["y"])]
    else:
        nodes = [node("ReduceMean", ["x"], ["mean"], axes=[-1]), node("Mul", ["x", "x"], ["square"]),
                 node("ReduceMean", ["square"], ["squares"], axes=[-1]), node("Mul", ["mean", "mean"], ["of_mean"]),
                 node("Sub", ["squares", "of_mean"], ["variance"]), node("Add", ["variance", "epsilon"], ["safe"]),
                 node("Sqrt", ["safe"], ["deviation"]), node("Sub", ["x", "mean"], ["centred"]),
                 node("Div", ["centred", "deviation"], ["y"])]
    graph = helper.make_graph(nodes, "norm", [value("x", TensorProto.FLOAT, ["N", 768])],
                              [value("y", TensorProto.FLOAT, ["N", 768])], initial)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("form", ["op", "difference"])
def test_norm_of_nearly_constant_rows(tmp_path, form):
    """Rows of mean 1e4 and variance 1e-3: nothing to flag, and as near to the truth as the mean's rounding allows."""
    onnx.save(nearly_constant(form), tmp_path / "norm.onnx")
    x = (1e4 + np.random.default_rng(4).standard_normal((37, 768)) * 1e-3 ** 0.5).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    assert compare(tmp_path / "norm.onnx", f"--input=x={tmp_path / 'x.npy'}").strip().endswith("PASSED")
    engine = lathe_cli.compile_model(tmp_path / "norm.onnx", tmp_path / "norm.lathe")
    got = lathe_cli.run(engine, tmp_path / "out", inputs={"x": x})["y"].astype(np.float64)
    wide = x.astype(np.float64)
    want = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    # Half the spacing of f32 at 1e4 is a sixtieth of the deviation.
    assert np.abs(got - want).max() < 0.05
