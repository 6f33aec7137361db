# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`lathe prune`: the zeros that it writes, what it says, and what it refuses without writing anything."""
import json

import numpy as np
import onnx
from onnx import numpy_helper

import lathe_cli
from test_quantize import H, K, of_onnxruntime, write_model


def test_blocks(tmp_path):
    """As many blocks of the least magnitude are zero as asked for; all else of the file stays."""
    w1, _ = write_model(tmp_path / "m.onnx")
    lathe_cli.lathe("prune", tmp_path / "m.onnx", "-o", tmp_path / "p.onnx", "--scheme=block:1x16", "--ratio=0.75",
                    "--apply=all", "--seconds=0.1", "--json", tmp_path / "r.json", "--report", tmp_path / "r.html")
    before, after = onnx.load(tmp_path / "m.onnx"), onnx.load(tmp_path / "p.onnx")
    got = {t.name: numpy_helper.to_array(t) for t in after.graph.initializer}
    zero = (got["w1"].reshape(K, H // 16, 16) == 0).all(axis=2)
    size = np.abs(w1).reshape(K, H // 16, 16).sum(axis=2)
    assert zero.sum() == round(0.75 * zero.size) and size[zero].max() <= size[~zero].min()
    for model in (before, after):
        for tensor in model.graph.initializer:
            tensor.ClearField("raw_data")
    assert before == after
    report = json.load(open(tmp_path / "r.json"))
    assert [w["weight"] for w in report["weights"]] == ["w1", "w2"] and "<table>" in (tmp_path / "r.html").read_text()
    x = np.random.default_rng(1).normal(size=(5, K)).astype(np.float32)
    engine = lathe_cli.compile_model(tmp_path / "p.onnx", tmp_path / "p.lathe")
    y = lathe_cli.run(engine, tmp_path / "out", inputs={"x": x})["y"]
    np.testing.assert_allclose(y, of_onnxruntime(str(tmp_path / "p.onnx"), x), rtol=1e-4, atol=1e-4)


def test_refusals(tmp_path):
    write_model(tmp_path / "m.onnx")
    for options, code, text in ((["--scheme=block:1x16", "--ratio=1"], 2, "1 would leave no weight"),
                                (["--scheme=block:0x16", "--ratio=0.5"], 2, "not 'block:0x16'"),
                                (["--scheme=2:4", "--keep=nothing"], 2, "fits no product")):
        assert text in lathe_cli.lathe("prune", tmp_path / "m.onnx", "-o", tmp_path / "p.onnx", *options, code=code)
        assert not (tmp_path / "p.onnx").exists()
    text = lathe_cli.lathe("prune", tmp_path / "m.onnx", "--scheme=2:4", "--check", code=3)
    assert "weight 'w1' of node 'up': is not 2:4: element [2, 0] is the first" in text
