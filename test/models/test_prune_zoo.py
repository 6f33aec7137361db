# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A sample of test/zoo/pruned.py: exported families made smaller are what they are with zeros; and it sees what is not."""
import os
import sys

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import lathe_cli
from test_prune_widths import FAMILIES

sys.path.insert(0, os.path.join(lathe_cli.ROOT, "test", "zoo"))
import pruned  # noqa: E402


def family(name):
    folder = os.path.join(FAMILIES, name)
    path = os.path.join(folder, "model.onnx")
    graph = onnx.load(path, load_external_data=False).graph
    return path, {v.name: np.load(os.path.join(folder, f"input_{i}.npy")) for i, v in enumerate(graph.input)}


@pytest.mark.parametrize("name, scheme, ratio, result", [("falcon", "ffn", 0.1, "equal"), ("qwen2", "heads", 0.5, "equal"),
                                                         ("gemma", "ffn", 0.9, "equal"), ("gemma", "blocks", 0.75, "equal"),
                                                         ("bert", "heads", 0.1, "equal"), ("vit", "channels", 0.5, "nothing")])
def test_sample(tmp_path, name, scheme, ratio, result):
    path, inputs = family(name)
    row = pruned.hold(path, inputs, scheme, ratio, str(tmp_path))
    assert row["result"] == result, row
    if result == "equal":
        gone, units = map(int, row["units"].split("/"))
        assert 0 < gone < units and float(row["change"]) > 1e-3 and float(row["left"]) < 1


def test_what_differs_is_seen(tmp_path):
    """A weight that is another; a file that is no model of ONNX."""
    path, inputs = family("bert")
    assert pruned.hold(path, inputs, "ffn", 0.5, str(tmp_path))["result"] == "equal"
    narrower, masked = (str(tmp_path / name) for name in ("narrower.onnx", "masked.onnx"))
    model = onnx.load(narrower)
    weight = max(model.graph.initializer, key=lambda t: len(t.raw_data))
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * np.float32(1.1), weight.name))
    onnx.save(model, narrower)
    assert pruned.compare(path, masked, narrower, inputs, str(tmp_path))[0] == "differs"
    del model.graph.node[3]
    onnx.save(model, narrower)
    assert pruned.compare(path, masked, narrower, inputs, str(tmp_path))[0] == "invalid"
