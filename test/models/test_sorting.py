# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""TopK and sorting of rows of any length on every way that the CPU has, of all types that order in their own way, against
numpy's stable sort: equal elements by place, NaN greatest, zeros of either sign equal."""
import numpy as np
import onnx
import pytest
from onnx import helper

import lathe_cli

DTYPES = [np.float32, np.float64, np.float16, np.int32, np.int64, np.uint8, np.uint64, np.int16]
# What the lengths around the borders of insertion, merging and sorting by digits are.
LENGTHS = [1, 2, 48, 49, 127, 128, 129, 255, 1000, 6401]


def values_of(dtype, rows, length, seed):
    """Few values, so that many are equal; numbers of all magnitudes; or what differs in single bits alone."""
    rng = np.random.default_rng(seed)
    kind = seed % 3
    if np.issubdtype(dtype, np.floating):
        x = rng.integers(-5, 5, (rows, length)).astype(dtype) if kind == 0 else \
            (rng.standard_normal((rows, length)) * np.exp2(rng.integers(-9, 9, (rows, length)))).astype(dtype)
        for special in (np.nan, np.inf, -np.inf, -0.0, 0.0):
            x[rng.random((rows, length)) < 0.02] = special
        return x
    info = np.iinfo(dtype)
    if kind == 2:
        return (np.asarray(1, dtype) << rng.integers(0, info.bits - 1, (rows, length)).astype(dtype)).astype(dtype)
    return rng.integers(info.min, info.max, (rows, length), dtype, endpoint=True) if kind else rng.integers(0, 6, (rows, length)).astype(dtype)


def order(x, largest):
    """Places of each row in order, by ranks of distinct values."""
    _, ranks = np.unique(np.where(x == 0, np.zeros_like(x), x), return_inverse=True) # NaN last, as one
    ranks = ranks.reshape(x.shape).astype(np.int64)
    return np.argsort(-ranks if largest else ranks, axis=1, kind="stable")


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
def test_rows_of_any_length(dtype, tmp_path):
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    ints = onnx.TensorProto.INT64
    nodes, outputs = [], []
    for largest in (0, 1):
        nodes.append(helper.make_node("TopK", ["x", "k"], [f"v{largest}", f"i{largest}"], axis=1, largest=largest))
        outputs += [helper.make_tensor_value_info(f"v{largest}", element, ["R", "K"]),
                    helper.make_tensor_value_info(f"i{largest}", ints, ["R", "K"])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", element, ["R", "N"]),
                                           helper.make_tensor_value_info("k", ints, [1])], outputs)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11), tmp_path / "m.onnx")
    engine = lathe_cli.compile_model(tmp_path / "m.onnx", tmp_path / "m.lathe")
    for seed, length in enumerate(LENGTHS):
        x = values_of(dtype, 3, length, seed)
        for k in sorted({min(length, 20), max(1, length - 1), length}):
            got = lathe_cli.run(engine, tmp_path / f"{length}_{k}", inputs={"x": x, "k": np.array([k])})
            for largest in (0, 1):
                wanted = order(x, largest)[:, :k]
                assert np.array_equal(got[f"i{largest}"], wanted), (length, k, largest)
                assert np.array_equal(got[f"v{largest}"], np.take_along_axis(x, wanted, 1), equal_nan=np.issubdtype(dtype, np.floating))
