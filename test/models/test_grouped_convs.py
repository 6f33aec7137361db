# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Convolutions in groups of filters that do not fill vectors (passes/layout/PadGroups.cpp), against onnxruntime."""
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import lathe_cli


@pytest.mark.parametrize("target", ["x86-64-v3", "native"])
@pytest.mark.parametrize("rows", [2, "N"])
@pytest.mark.parametrize("groups, channels, filters, image", [
    (3, 2, 12, [9, 7]), (3, 2, 5, [9, 7]), (2, 5, 13, [40]), (5, 4, 3, [6, 5, 4]), (4, 12, 47, [8, 8])])
def test_groups(tmp_path, groups, channels, filters, image, rows, target):
    """Filters of groups are where they belong, whatever their number; two convolutions read one weight."""
    rng = np.random.default_rng(3)
    weight = rng.normal(size=[groups * filters, channels, *[3] * len(image)]).astype(np.float32)
    bias = rng.normal(size=groups * filters).astype(np.float32)
    pads = {"pads": [1] * (2 * len(image)), "group": groups}
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"], **pads), helper.make_node("Relu", ["c"], ["y"]),
             helper.make_node("Neg", ["x"], ["n"]), helper.make_node("Conv", ["n", "w"], ["z"], strides=[2] * len(image), **pads)]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [value("x", TensorProto.FLOAT, [rows, groups * channels, *image])],
                              [value("y", TensorProto.FLOAT, None), value("z", TensorProto.FLOAT, None)],
                              [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(bias, "b")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), tmp_path / "m.onnx")
    text = lathe_cli.lathe("compare", tmp_path / "m.onnx", "--against=onnxruntime", f"--target={target}")
    assert "PASSED" in text
