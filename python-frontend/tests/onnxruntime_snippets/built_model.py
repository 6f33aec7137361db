# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A model that the program builds."""
import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

graph = helper.make_graph(
    [helper.make_node("Mul", ["a", "b"], ["p"]), helper.make_node("Tanh", ["p"], ["y"])], "product",
    [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in "ab"],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
session = ort.InferenceSession(model.SerializeToString())
a = np.arange(6, dtype=np.float32).reshape(2, 3)
results = {"y": session.run(None, {"a": a, "b": a / 9})[0]}
