# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of 16-bit activations with weights kept in 8 bits (DequantizeLinear of a constant), against numpy in
double: scales of columns or of blocks of k, zero points, either layout. On sm_90a one kernel, which reads the 8 bits."""
import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, save

import lathe_cli

HALVES = {"bf16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16, 8e-3), "f16": (TensorProto.FLOAT16, np.float16, 2e-3)}
NARROW = {"i8": (TensorProto.INT8, np.int8), "u8": (TensorProto.UINT8, np.uint8),
          "e4m3": (TensorProto.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn)}
ROWS = (5,) if lathe_cli.DEVICE == "cpu" else (1, 7, 13, 33, 300)


def tensor(name, code, values):
    return helper.make_tensor(name, code, values.shape, values.tobytes(), raw=True)


@pytest.mark.parametrize("half, narrow, block, zero, along, n, k", [
    ("bf16", "i8", 0, False, False, 301, 528), ("f16", "u8", 0, True, True, 264, 1024),
    ("bf16", "i8", 32, False, False, 272, 544), ("f16", "i8", 16, True, True, 300, 336),
    ("bf16", "e4m3", 0, False, True, 137, 608), ("bf16", "u8", 48, True, False, 200, 400)])
def test_dequantized(tmp_path, half, narrow, block, zero, along, n, k):
    code, dtype, tolerance = HALVES[half]
    narrow_code, narrow_type = NARROW[narrow]
    rng = np.random.default_rng(3)
    shape, axis = ((n, k), 1) if along else ((k, n), 0)  # axis: of k
    if narrow == "e4m3":
        q = rng.standard_normal(shape).astype(narrow_type)
    else:
        q = rng.integers(0, 256, shape).astype(np.uint8).view(narrow_type)
    blocks = list(shape)
    blocks[axis] = -(-k // block) if block else 1
    s = rng.uniform(0.002, 0.02, blocks).astype(dtype)
    constants = [tensor("q", narrow_code, q), tensor("s", code, s if block else s.reshape(-1))]
    wide = lambda p: np.repeat(p.astype(np.float32), block or k, axis).take(range(k), axis)
    z = np.zeros(blocks, np.float32)
    if zero:
        z = rng.integers(0, 100, blocks).astype(narrow_type)
        constants.append(tensor("z", narrow_code, z if block else z.reshape(-1)))
    attributes = {"axis": axis, "block_size": block} if block else {"axis": 1 - axis}
    nodes = [helper.make_node("DequantizeLinear", ["q", "s", "z"][:2 + zero], ["w"], **attributes),
             helper.make_node("Gemm", ["x", "w"], ["t"], transB=1) if along else helper.make_node("MatMul", ["x", "w"], ["t"]),
             helper.make_node("Relu", ["t"], ["y"])]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [value("x", code, ["M", k])], [value("y", code, ["M", n])], constants)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), tmp_path / "m.onnx")
    engine = lathe_cli.compile_model(tmp_path / "m.onnx", tmp_path / "m.lathe")
    if lathe_cli.DEVICE != "cpu":
        assert lathe_cli.launches(lathe_cli.plans(engine)[0]) == 1
    w = ((q.astype(np.float32) - wide(z)) * wide(s)).astype(dtype).astype(np.float64)
    for m in ROWS:
        x = rng.standard_normal((m, k)).astype(dtype)
        want = np.maximum(x.astype(np.float64) @ (w.T if along else w), 0)
        got = lathe_cli.run(engine, tmp_path / str(m), inputs={"x": x})["y"]
        assert lathe_cli.relative_error(got.astype(np.float64), want) < tolerance
