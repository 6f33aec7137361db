# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small models, compiled once a test session."""
import os
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import lathe  # noqa: E402


def affine_model():
    """y = relu(x @ w + b), s = sum of y along the last axis; x is N x 8."""
    random = np.random.default_rng(5)
    weight = random.standard_normal((8, 4)).astype(np.float32)
    bias = random.standard_normal(4).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["p"]),
         helper.make_node("Add", ["p", "b"], ["q"]),
         helper.make_node("Relu", ["q"], ["y"]),
         helper.make_node("ReduceSum", ["y", "axes"], ["s"], keepdims=0)],
        "affine", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4]),
         helper.make_tensor_value_info("s", TensorProto.FLOAT, ["N"])],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(bias, "b"),
         numpy_helper.from_array(np.array([-1], np.int64), "axes")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    return model, weight, bias


def double_model(dtype):
    """y = x + x in any type."""
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["y"])], "double",
        [helper.make_tensor_value_info("x", dtype, ["N"])],
        [helper.make_tensor_value_info("y", dtype, ["N"])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


@pytest.fixture(scope="session")
def affine(tmp_path_factory):
    """(engine, path, w, b)"""
    folder = tmp_path_factory.mktemp("affine")
    model, weight, bias = affine_model()
    onnx.save(model, folder / "affine.onnx")
    path = str(folder / "affine.lathe")
    engine = lathe.compile(folder / "affine.onnx", path, dims={"N": (0, 4, 64)})
    return engine, path, weight, bias


@pytest.fixture
def doubled(tmp_path):
    def make(dtype):
        onnx.save(double_model(dtype), tmp_path / "double.onnx")
        return lathe.compile(tmp_path / "double.onnx", tmp_path / "double.lathe")
    return make
