# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`lathe prune --budget latency=`: widths of their own for each group of layers, and what is refused."""
import json

import numpy as np
import onnx
import pytest

import lathe_cli
from test_prune_widths import Graph, check_narrower, write_encoder


def write_convs(path):
    """Two widths of 32, of which one convolution has both."""
    g = Graph()
    a = g.op("Relu", "ar", g.conv("a", "x", 32, 3, 3))
    b = g.op("Relu", "br", g.conv("b", a, 32, 32, 3))
    g.conv("y", b, 8, 32, 3)
    g.save(path, ["N", 3, 32, 32], ["N", 8, 32, 32])


def search(folder, model, scheme, budget, *options, code=0):
    text = lathe_cli.lathe("prune", model, "-o", folder / "p.onnx", f"--scheme={scheme}", f"--budget=latency={budget}", "--threads=1",
                           "--seconds=0.1", "--masked", folder / "m.onnx", "--json", folder / "r.json", *options, code=code)
    return text if code else json.loads((folder / "r.json").read_text())


@pytest.mark.parametrize("write, scheme, x, multiple, models", [(write_encoder, "ffn,blocks", (2, 64, 96), 8, 8),
                                                      (write_convs, "channels", (16, 3, 32, 32), 16, 4)])
def test_budget(tmp_path, write, scheme, x, multiple, models):
    """Within the budget as predicted; what was measured is told beside it (test/perf/prune.py judges it). The model is
    what the masked one is."""
    write(tmp_path / "m0.onnx")
    data = np.random.default_rng(1).normal(size=x).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=data)
    report = search(tmp_path, tmp_path / "m0.onnx", scheme, "90%", "--data", tmp_path / "data.npz", f"--multiple={multiple}")
    found = report["search"]
    assert found["predicted_ms"] <= found["budget_ms"] * 1.001 and found["models"] == models
    assert found["measured_ms"] > 0
    assert any(w["stay"] < w["units"] and w["score_share"] > 0 for w in report["widths"])
    assert report["masked_difference"] < 1e-4
    if not any(w["stay"] == 0 for w in report["widths"]):
        check_narrower(tmp_path, tmp_path / "m0.onnx", {"x": data})
    onnx.checker.check_model(str(tmp_path / "p.onnx"), full_check=True)


def test_refusals(tmp_path):
    write_encoder(tmp_path / "e.onnx")
    for scheme, budget, options, code, text in (
            ("ffn", "60", [], 2, "--budget: wants latency=60% or latency=2.5ms, not 'latency=60'"),
            ("ffn", "100%", [], 2, "--budget: wants latency=60%"), ("ffn", "-1ms", [], 2, "--budget: wants latency=60%"),
            ("ffn", "60%", ["--ratio=0.5"], 2, "--ratio: is what a budget decides"),
            ("2:4", "60%", [], 2, "--scheme: with --budget wants some of channels,heads,ffn,blocks, not '2:4'"),
            ("ffn,", "60%", [], 2, "not ''"), ("channels", "60%", [], 4, "has no channels that can be taken out"),
            ("ffn", "0.000001ms", [], 4, "no choice of widths is that fast: a run takes")):
        assert text in search(tmp_path, tmp_path / "e.onnx", scheme, budget, *options, code=code)
        assert not (tmp_path / "p.onnx").exists() and not (tmp_path / "m.onnx").exists()
