# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The greatest (or least) element of what follows from a product, against numpy in double: beside results that are
quantized by a known scale or by that element, of gated pairs, with a residual. On sm_90a the product finds it, and a
small kernel behind it has the rest to do."""
import math

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, save

import lathe_cli

HALVES = {"bf16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16, 8e-3), "f16": (TensorProto.FLOAT16, np.float16, 2e-3)}
BATCH, TOKENS, DEPTH = 3, 112, 264


def node(name, inputs, output, **attributes):
    return helper.make_node(name, inputs, [output], **attributes)


@pytest.mark.parametrize("half, form, columns, kernels", [
    ("bf16", "known", 192, 2), ("f16", "known", 64, 2), ("bf16", "dynamic", 320, 3), ("f16", "gated", 256, 2),
    ("bf16", "least", 192, 2), ("f16", "residual", 128, 2), ("bf16", "ragged", 200, 3)])
def test_amax(tmp_path, half, form, columns, kernels):
    code, dtype, tolerance = HALVES[half]
    rng = np.random.default_rng(5)
    w = (rng.standard_normal((columns, DEPTH)) / 16).astype(dtype)
    value = helper.make_tensor_value_info
    inputs, wide = [value("x", code, [BATCH, TOKENS, DEPTH])], columns // 2 if form == "gated" else columns
    nodes = [node("Transpose", ["w"], "wt", perm=[1, 0]), node("MatMul", ["x", "wt"], "p"), node("Gelu", ["p"], "t")]
    if form == "gated":
        nodes = nodes[:-1] + [helper.make_node("Split", ["p"], ["g", "u"], axis=-1, num_outputs=2), node("Mul", ["g", "u"], "t")]
    if form == "residual":
        inputs.append(value("r", code, [BATCH, TOKENS, columns]))
        nodes[-1] = node("Add", ["p", "r"], "t")
    least = form == "least"
    nodes += [node("Abs", ["t"], "m"), node("ReduceMin" if least else "ReduceMax", ["t" if least else "m"], "extreme", keepdims=0)]
    scale = np.array(0.25, dtype)
    constants = [helper.make_tensor("w", code, w.shape, w.tobytes(), raw=True),
                 helper.make_tensor("known", code, [], scale.tobytes(), raw=True),
                 helper.make_tensor("most", code, [], np.array(448, dtype).tobytes(), raw=True)]
    if form == "dynamic":
        nodes.append(node("Div", ["extreme", "most"], "scale"))
    if form in ("known", "dynamic", "gated", "ragged"):
        nodes += [node("Div", ["t", "scale" if form == "dynamic" else "known"], "d"),
                  node("Cast", ["d"], "y", to=TensorProto.FLOAT8E4M3FN)]
    else:
        nodes.append(node("Identity", ["t"], "y"))
    quantized = nodes[-1].op_type == "Cast"
    outputs = [value("y", TensorProto.FLOAT8E4M3FN if quantized else code, [BATCH, TOKENS, wide]), value("extreme", code, [])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), tmp_path / "m.onnx")
    engine = lathe_cli.compile_model(tmp_path / "m.onnx", tmp_path / "m.lathe")
    if lathe_cli.DEVICE != "cpu":
        assert lathe_cli.launches(lathe_cli.plans(engine)[0]) == kernels
    x = rng.standard_normal((BATCH, TOKENS, DEPTH)).astype(dtype)
    given = {"x": x}
    p = x.astype(np.float64) @ w.T.astype(np.float64)
    if form == "gated":
        t = p[..., :wide] * p[..., wide:]
    elif form == "residual":
        given["r"] = rng.standard_normal((BATCH, TOKENS, columns)).astype(dtype)
        t = p + given["r"].astype(np.float64)
    else:
        t = p * 0.5 * (1 + np.vectorize(math.erf)(p / np.sqrt(2)))
    got = lathe_cli.run(engine, tmp_path / "out", inputs=given)
    extreme = t.min() if least else np.abs(t).max()
    assert abs(float(got["extreme"]) - extreme) <= tolerance * abs(extreme)
    if quantized:
        by = float(got["extreme"]) / 448 if form == "dynamic" else 0.25
        y = got["y"].view(ml_dtypes.float8_e4m3fn).astype(np.float64)
        assert lathe_cli.relative_error(y, np.clip(t / by, -448, 448)) < 0.05
    else:
        assert lathe_cli.relative_error(got["y"].astype(np.float64), t) < tolerance
