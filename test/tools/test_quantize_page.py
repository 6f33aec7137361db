# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The page of `lathe quantize --report` in a browser: a row a layer, in the order that is asked for, nothing of the net."""
import json
import os
import pathlib
import subprocess

import numpy as np
import onnx
from browser import browser
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parents[2]
LATHE = pathlib.Path(os.environ.get("LATHE_BUILD", ROOT / "build")) / "bin/lathe"


def test_page(tmp_path):
    rng = np.random.default_rng(4)
    names = ["first", "</script><b>", "third"]
    nodes = [helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"], name=name) for i, name in enumerate(names)]
    weights = [numpy_helper.from_array(rng.normal(size=(80, 80)).astype(np.float32) / 9, f"w{i}") for i in range(3)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["M", 80]) for name in ("x0", "x3")]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:], weights),
                                opset_imports=[helper.make_opsetid("", 21)], ir_version=10), tmp_path / "m.onnx")
    np.savez(tmp_path / "d.npz", x0=rng.normal(size=(20, 80)).astype(np.float32))
    subprocess.run([LATHE, "quantize", tmp_path / "m.onnx", "-o", tmp_path / "q.onnx", "--scheme=w8a8-int8", "--data", tmp_path / "d.npz",
                    "--keep=third", "--report", tmp_path / "report.html"], check=True, capture_output=True)
    layers = json.loads((tmp_path / "report.json").read_text())["layers"]
    with browser() as opened:
        opened.open(tmp_path / "report.html")
        assert opened.errors() == []

        def shown():
            return [name.text for name in opened.all("#chart g.layer > text:nth-of-type(1)")]

        assert shown() == names[:2]
        assert len(opened.all("#chart rect.sqnr")) == 2 and all(r.size["width"] > 0 for r in opened.all("#chart rect.sqnr, #chart rect.after"))
        assert len(opened.all("#layers tr")) == 3 and "third" in opened.one("#kept").text
        assert f"{layers[0]['sqnr_db']:.1f} dB" in opened.all("#layers tr")[1].text
        next(b for b in opened.all("#orders button") if b.text == "worst first").click()
        assert shown() == [layer["node"] for layer in sorted(layers, key=lambda layer: layer["sqnr_db"])]
        assert opened.errors() == [] and opened.all("#search svg") == []
        # Of a search its front, what was measured, and the choices of each layer.
        subprocess.run([LATHE, "quantize", tmp_path / "m.onnx", "-o", tmp_path / "q.onnx", "--scheme=w8a16,w4a16", "--budget=size=50%",
                        "--data", tmp_path / "d.npz", "--group=16", "--report", tmp_path / "s.html"], check=True, capture_output=True)
        found = json.loads((tmp_path / "s.json").read_text())["search"]
        opened.open(tmp_path / "s.html")
        assert opened.errors() == [] and len(opened.all("#search circle.point.chosen")) == 1
        assert len(opened.all("#search circle")) == len(found["measured"]) + 1
        assert len(opened.all("#search svg polyline")) == 1 and len(opened.all("#search table")[1].find_elements("css selector", "tr")) == 4
