# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The models that the programs in onnxruntime_snippets open, written into a folder."""
import onnx
from conftest import affine_model
from onnx import TensorProto, helper


def affine():
    """conftest's model, with everything that a model can say of itself."""
    model, _, _ = affine_model()
    model.producer_name, model.domain, model.model_version = "the tests", "example.org", 7
    model.doc_string = "an affine map"
    model.graph.doc_string = "and a sum"
    helper.set_model_props(model, {"made": "by hand", "labels": "a,b"})
    return model


def element_types():
    """Each input and itself, added; not of a boolean; a scalar doubled."""
    types = {"half": TensorProto.FLOAT16, "double": TensorProto.DOUBLE, "long": TensorProto.INT64,
             "byte": TensorProto.UINT8, "flag": TensorProto.BOOL, "scalar": TensorProto.FLOAT}
    inputs, outputs, nodes = [], [], []
    for name, dtype in types.items():
        shape = [] if name == "scalar" else [2]
        inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        outputs.append(helper.make_tensor_value_info("y_" + name, dtype, shape))
        nodes.append(helper.make_node("Not", [name], ["y_" + name]) if name == "flag"
                     else helper.make_node("Add", [name, name], ["y_" + name]))
    graph = helper.make_graph(nodes, "types", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def write(folder):
    onnx.save(affine(), folder / "affine.onnx")
    onnx.save(element_types(), folder / "types.onnx")
