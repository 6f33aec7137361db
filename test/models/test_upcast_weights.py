# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""f32 products with weights kept in 16 bits: one kernel, which upcasts what it reads."""
import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import lathe_cli

TYPES = {"f16": (TensorProto.FLOAT16, np.float16), "bf16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16)}


@pytest.mark.parametrize("rows", [1, 13])
@pytest.mark.parametrize("kind", TYPES)
def test_upcast_as_read(tmp_path, kind, rows):
    code, dtype = TYPES[kind]
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, 300)).astype(np.float32)
    w = rng.standard_normal((300, 70)).astype(dtype)
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Cast", ["w"], ["wide"], to=TensorProto.FLOAT),
         helper.make_node("MatMul", ["x", "wide"], ["y"])], "g",
        [value("x", TensorProto.FLOAT, [rows, 300])], [value("y", TensorProto.FLOAT, [rows, 70])],
        [helper.make_tensor("w", code, w.shape, w.tobytes(), raw=True)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
              tmp_path / "model.onnx")
    engine = lathe_cli.compile_model(tmp_path / "model.onnx", tmp_path / "model.lathe",
                                     target="x86-64-v3")
    got = lathe_cli.run(engine, tmp_path / "out", inputs={"x": x})["y"]
    want = x.astype(np.float64) @ w.astype(np.float64)
    assert lathe_cli.relative_error(got, want) < 1e-6
    assert lathe_cli.launches(lathe_cli.plans(engine)[0]) == 1
