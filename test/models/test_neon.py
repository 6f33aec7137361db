# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every form of CPU kernel for AArch64 is NEON code, with vectors where there is math. That it computes the right
values is seen where it runs, under qemu: the suite `AArch64` of tools/check."""
import glob
import os
import platform
import re
import shutil
import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import lathe_cli

CLANG = shutil.which("clang-22")
pytestmark = pytest.mark.skipif(CLANG is None, reason="needs clang-22")

# name: inputs with sizes, weights with sizes, nodes (type, inputs, attributes; each reads `y`, the
# result of the one before). Sizes are multiples of a vector, so that no tail is scalar.
FORMS = {
    "gemm": ({"x": [64, 96]}, {"w": [96, 64], "b": [64]}, [("MatMul", "y w", {}), ("Add", "y b", {}),
                                                          ("Gelu", "y", {})]),
    "gemv": ({"x": [1, 96]}, {"w": [96, 64]}, [("MatMul", "y w", {})]),
    "products": ({"x": [4, 32, 16], "z": [4, 16, 32]}, {}, [("MatMul", "y z", {})]),
    "pixels": ({"x": [1, 16, 8, 8]}, {"w": [32, 16, 1, 1]}, [("Conv", "y w", {}), ("Relu", "y", {})]),
    "winograd": ({"x": [1, 32, 16, 16]}, {"w": [32, 32, 3, 3]}, [("Conv", "y w", {"pads": [1] * 4})]),
    "strided": ({"x": [1, 32, 16, 16]}, {"w": [32, 32, 3, 3]},
                [("Conv", "y w", {"pads": [1] * 4, "strides": [2, 2]})]),
    "depthwise": ({"x": [1, 32, 16, 16]}, {"w": [32, 1, 3, 3]},
                  [("Conv", "y w", {"pads": [1] * 4, "group": 32})]),
    "transposed": ({"x": [1, 32, 8, 8]}, {"w": [32, 16, 2, 2]}, [("ConvTranspose", "y w", {"strides": [2, 2]})]),
    "attention": ({"x": [1, 4, 32, 16], "k": [1, 4, 32, 16], "v": [1, 4, 32, 16]}, {},
                  [("Attention", "y k v", {})]),
    "softmax": ({"x": [32, 64]}, {}, [("Softmax", "y", {})]),
    "norm": ({"x": [32, 64]}, {"s": [64], "b": [64]}, [("LayerNormalization", "y s b", {})]),
    "pointwise": ({"x": [32, 64]}, {}, [("Tanh", "y", {}), ("Sigmoid", "y", {}), ("Exp", "y", {})]),
    "columns": ({"x": [8, 32, 64]}, {}, [("ReduceMax", "y", {"axes": [1]})]),
    "pool": ({"x": [1, 32, 16, 16]}, {}, [("MaxPool", "y", {"kernel_shape": [2, 2], "strides": [2, 2]})]),
    "lstm": ({"x": [6, 4, 8]}, {"w": [1, 64, 8], "r": [1, 64, 16]}, [("LSTM", "y w r", {"hidden_size": 16})]),
    "gru": ({"x": [6, 4, 8]}, {"w": [1, 48, 8], "r": [1, 48, 16]}, [("GRU", "y w r", {"hidden_size": 16})]),
}
MULTIPLIES = {"gemm", "gemv", "products", "pixels", "winograd", "strided", "depthwise", "transposed",
              "attention", "softmax", "pointwise", "lstm", "gru"}


def model(form):
    inputs, weights, nodes = FORMS[form]
    rng = np.random.default_rng(0)
    made, last = [], "x"
    for i, (kind, names, attributes) in enumerate(nodes):
        names = [last if n == "y" else n for n in names.split()]
        attributes, initial = dict(attributes), []
        if "axes" in attributes:
            initial = [numpy_helper.from_array(np.array(attributes.pop("axes")), f"axes{i}")]
            made.append(helper.make_node("Constant", [], [f"axes{i}"], value=initial[0]))
            names.append(f"axes{i}")
        last = f"y{i}"
        made.append(helper.make_node(kind, names, [last], **attributes))
    ranks = {"columns": 3, "lstm": 4, "gru": 4}
    rank = ranks.get(form, len(inputs["x"]))
    graph = helper.make_graph(
        made, form, [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, [None] * rank)],
        [numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), n)
         for n, s in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)


@pytest.fixture(scope="module")
def assembly(tmp_path_factory):
    """{form: text of all its kernels}"""
    folder, result = tmp_path_factory.mktemp("neon"), {}
    for form in FORMS:
        onnx.save(model(form), folder / f"{form}.onnx")
        dump = folder / form
        lathe_cli.lathe("compile", folder / f"{form}.onnx", "--target=armv8-a", "--stop-after=codegen",
                        "-o", folder / f"{form}.mlir", f"--dump-dir={dump}")
        sources = sorted(glob.glob(f"{dump}/**/*.ll", recursive=True))
        assert sources, sorted(os.listdir(dump))
        text = ""
        for source in sources:
            command = [CLANG, "-O2", "--target=aarch64-linux-gnu", "-march=armv8-a", "-x", "ir",
                       "-Wno-override-module", source]
            text += subprocess.run([*command, "-S", "-o", "-"], check=True, capture_output=True,
                                   text=True).stdout
        result[form] = text
    return result


@pytest.mark.parametrize("form", FORMS)
def test_vectors(assembly, form):
    text = assembly[form]
    if form in MULTIPLIES:
        assert re.search(r"\bfmla\s+v\d+\.4s", text), "no vector multiplies and adds"
    assert re.search(r"\bld[rp]\s+q|\bld1", text), "no vector is loaded"
    # Products are never taken element by element (but for a row's variance), and nothing calls a
    # library.
    scalar = re.findall(r"\bfn?m(?:add|sub)\s+s\d+", text)
    assert len(scalar) <= (form == "norm"), scalar[:3]
    assert not re.search(r"\bbl\s+\w", text)


def test_same_bytes_and_refused_elsewhere(tmp_path):
    onnx.save(model("gemm"), tmp_path / "gemm.onnx")
    engines = []
    for i in range(2):
        engines.append(tmp_path / f"gemm{i}.lathe")
        lathe_cli.lathe("compile", tmp_path / "gemm.onnx", "--target=armv8-a", "-o", engines[-1],
                        env={"LATHE_NO_CACHE": "1"})
    assert engines[0].read_bytes() == engines[1].read_bytes()
    assert "armv8-a" in lathe_cli.lathe("inspect", engines[0])
    if platform.machine() != "aarch64":
        text = lathe_cli.lathe("run", engines[0], code=4)
        assert "armv8-a" in text and "this CPU has no fp-armv8" in text
