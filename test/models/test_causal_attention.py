# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Causal attention of known lengths, with more queries than a kernel takes at once, against numpy in double."""
import numpy as np
import onnx.parser
import pytest
from onnx import save

import lathe_cli

HEAD = 16


@pytest.mark.parametrize("length", [97, 200])
def test_causal_of_many(tmp_path, length):
    """The first queries see few of the keys."""
    x = np.random.default_rng(5).standard_normal((1, 2, length, HEAD)).astype(np.float32)
    shape = f"float[1,2,{length},{HEAD}]"
    save(onnx.parser.parse_model(f'<ir_version: 11, opset_import: ["" : 24]> g ({shape} x) => ({shape} y)\n'
                                 "{\n  y = Attention<is_causal = 1>(x, x, x)\n}"), tmp_path / "m.onnx")
    engine = lathe_cli.compile_model(tmp_path / "m.onnx", tmp_path / "m.lathe")
    got = lathe_cli.run(engine, tmp_path / "o", inputs={"x": x})["y"]
    scores = x.astype(np.float64) @ x.astype(np.float64).transpose(0, 1, 3, 2) / np.sqrt(HEAD)
    weights = np.exp(np.where(np.tril(np.ones((length, length), bool)), scores, -np.inf))
    assert lathe_cli.relative_error(got, weights / weights.sum(-1, keepdims=True) @ x) < 2e-6
