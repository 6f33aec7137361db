# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What observing ranges takes: test/perf/race_calibration.py on a small model. Times say nothing here; memory does."""
import os
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import lathe_cli

sys.path.insert(0, os.path.join(lathe_cli.ROOT, "test", "perf"))
import race_calibration  # noqa: E402

LAYERS, K, ROWS = 6, 96, 64


@pytest.mark.parametrize("method", ["minmax", "mse"])
def test_memory(tmp_path, method):
    """Values are summed up where they lie: no more of them is kept than inference keeps, of a chain whose layers'
    results all die soon."""
    rng = np.random.default_rng(3)
    nodes, weights = [], []
    for i in range(LAYERS):
        weights.append(numpy_helper.from_array((rng.normal(size=(K, K)) / np.sqrt(K)).astype(np.float32), f"w{i}"))
        nodes += [helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"a{i}"]),
                  helper.make_node("Relu", [f"a{i}"], [f"x{i + 1}"])]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["M", K]) for name in ("x0", f"x{LAYERS}")]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:], weights),
                                opset_imports=[helper.make_opsetid("", 21)], ir_version=10), tmp_path / "m.onnx")
    examples = [{"x0": rng.normal(size=(ROWS, K)).astype(np.float32)} for _ in range(3)]
    model = str(tmp_path / "m.onnx")
    places, base, more, inference, observing = race_calibration.measure(model, tmp_path, examples, method, 1)
    assert places == LAYERS and inference > 0 and observing > 0
    histograms = LAYERS * race_calibration.HISTOGRAM if method == "mse" else 0  # which outweigh so small a model
    assert more - histograms <= race_calibration.MEMORY * base


def test_bars():
    assert race_calibration.wrongs(1.3, 3.0) == []
    assert race_calibration.wrongs(1.31, 3.01) == ["memory", "time"]
