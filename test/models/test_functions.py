# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions that a model brings along mean what their own operator sets say. onnxruntime inlines them and takes their nodes for
those of the model's opset, so that it is asked for the body alone, as a model of the function's opset."""
import os
import sys

import numpy as np
import onnxruntime
import pytest
from onnx import AttributeProto, TensorProto, helper

import lathe_cli

sys.path.insert(0, os.path.join(lathe_cli.ROOT, "python-frontend"))
import lathe  # noqa: E402

IMAGE = (1, 2, 4, 6)
SCALES = helper.make_node("Constant", [], ["s"], value=helper.make_tensor("v", TensorProto.FLOAT, [4], [1, 1, 2, 1.5]))
ONE = helper.make_node("Constant", [], ["a"], value=helper.make_tensor("v", TensorProto.INT64, [1], [1]))
UNARY = {"inputs": ["x"], "outputs": ["y"]}
# nodes, the function's opset, the model's
FUNCTIONS = {
    "softmax": ([helper.make_node("Softmax", **UNARY, axis=1)], 11, 22),
    "newer softmax": ([helper.make_node("Softmax", **UNARY, axis=1)], 13, 11),
    "hardmax": ([helper.make_node("Hardmax", **UNARY, axis=1)], 12, 23),
    "axes as an attribute": ([helper.make_node("ReduceSum", **UNARY, axes=[1], keepdims=0)], 12, 22),
    "axes as an operand": ([ONE, helper.make_node("ReduceSum", ["x", "a"], ["y"], keepdims=0)], 13, 12),
    "resize": ([SCALES, helper.make_node("Resize", ["x", "s"], ["y"], mode="linear")], 10, 22),
    "upsample": ([SCALES, helper.make_node("Upsample", ["x", "s"], ["y"], mode="nearest")], 9, 21),
    "clip": ([helper.make_node("Clip", **UNARY, min=-0.5, max=0.5)], 6, 22),
    "squeeze": ([helper.make_node("Unsqueeze", ["x"], ["u"], axes=[0]), helper.make_node("Squeeze", ["u"], ["y"], axes=[0])], 11, 18),
    "pad": ([helper.make_node("Pad", **UNARY, mode="reflect", pads=[0, 0, 1, 2, 0, 0, 2, 1])], 10, 22),
}


def model(nodes, imports, functions=()):
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, IMAGE)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(*i) for i in imports], functions=list(functions), ir_version=8)


def run(proto, x):
    (y,) = lathe.compile(proto, target="x86-64-v3").run({"x": x}).values()
    return y.numpy()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_own_opset(name):
    nodes, own, models = FUNCTIONS[name]
    function = helper.make_function("local", "F", ["x"], ["y"], nodes, [helper.make_opsetid("", own)])
    x = np.random.default_rng(0).standard_normal(IMAGE, dtype=np.float32)
    got = run(model([helper.make_node("F", ["x"], ["y"], domain="local")], [("", models), ("local", 1)], [function]), x)
    (want,) = onnxruntime.InferenceSession(model(nodes, [("", own)]).SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


def test_attribute_of_the_call():
    node = helper.make_node("Softmax", ["x"], ["y"])
    node.attribute.append(AttributeProto(name="axis", type=AttributeProto.INT, ref_attr_name="which"))
    function = helper.make_function("local", "F", ["x"], ["y"], [node], [helper.make_opsetid("", 11)], ["which"])
    x = np.random.default_rng(0).standard_normal(IMAGE, dtype=np.float32)
    got = run(model([helper.make_node("F", ["x"], ["y"], domain="local", which=2)], [("", 22), ("local", 1)], [function]), x)
    powers = np.exp(x - x.max((2, 3), keepdims=True))
    np.testing.assert_allclose(got, powers / powers.sum((2, 3), keepdims=True), rtol=1e-6)
