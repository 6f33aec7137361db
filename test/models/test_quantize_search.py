# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`lathe quantize --budget`: a format for each layer, against what each format makes of the whole model; planted layers that
no integers can have; what cannot be reached; metrics, and scripts that are none."""
import json
import os

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import lathe_cli

K, LAYERS, PLANTED = 256, 8, (1, 4, 6)


def write_model(folder):
    """Products and Relus. The planted weights have a row of very large numbers for an input that is next to nothing: a scale
    of 8 bits leaves nothing of the others."""
    rng = np.random.default_rng(0)
    nodes, weights, value = [], [], "x"
    for i in range(LAYERS):
        w = (rng.normal(size=(K, K)) * np.sqrt(2 / K)).astype(np.float32)
        if i in PLANTED:
            w[1] = rng.choice([-60, 60], size=K)
        if i + 1 in PLANTED:
            w[:, 1] *= 1e-3
        weights.append(numpy_helper.from_array(w, f"w{i}"))
        result = "y" if i == LAYERS - 1 else f"a{i}"
        nodes.append(helper.make_node("MatMul", [value, f"w{i}"], [result], name=f"layer{i}"))
        if i < LAYERS - 1:
            nodes.append(helper.make_node("Relu", [result], [f"r{i}"]))
            value = f"r{i}"
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", K]) for name in "xy"]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:], weights),
                                opset_imports=[helper.make_opsetid("", 21)], ir_version=10), folder / "m.onnx")
    np.savez(folder / "d.npz", x=rng.normal(size=(64, K)).astype(np.float32))


def search(folder, *options, scheme="w8a8-int8", code=0):
    return lathe_cli.lathe("quantize", folder / "m.onnx", "-o", folder / "q.onnx", f"--scheme={scheme}", "--data", folder / "d.npz",
                           "--dim=N=16", "--threads=1", *options, code=code)


def report_of(folder):
    return json.loads((folder / "r.json").read_text())["search"]


def test_planted_layers(tmp_path):
    """Exactly the planted layers stay as they are. The recipe, the lockfile and the report say what was found; what is
    predicted is what is built; kernel times are taken from the lockfile again."""
    write_model(tmp_path)
    text = search(tmp_path, "--budget=loss=0.002", "--report", tmp_path / "r.html", "--recipe-out", tmp_path / "q.json",
                  "--lock", tmp_path / "times.lock")
    assert f"{len(PLANTED)} float {LAYERS - len(PLANTED)} w8a8-int8; float: 'w1', 'w4', 'w6'" in text
    found = report_of(tmp_path)
    assert [i for i, layer in enumerate(found["layers"]) if layer["chosen"] == "float"] == list(PLANTED)
    losses = [layer["choices"][0]["loss"] for layer in found["layers"]]
    good = [loss for i, loss in enumerate(losses) if i not in PLANTED]
    assert min(losses[i] for i in PLANTED) > 20 * max(good)
    assert json.loads((tmp_path / "q.json").read_text())["weights"].keys() == {f"w{i}" for i in range(LAYERS) if i not in PLANTED}
    chosen, = (one for one in found["measured"] if one["chosen"])
    assert chosen["loss"] <= 0.002 and chosen["ms"] <= chosen["float_ms"]
    assert chosen["loss"] == pytest.approx(chosen["predicted_loss"], rel=0.5)
    # Neighbours pass codes on: a Relu between two layers that are quantized writes codes, and does not quantize twice.
    assert found["neighbours"] and len(found["front"]) > 3
    fronts = [(point["ms"], point["loss"]) for point in found["front"]]
    assert fronts == sorted(fronts) and [loss for _, loss in fronts] == sorted((loss for _, loss in fronts), reverse=True)
    times = [line for line in (tmp_path / "times.lock").read_text().splitlines() if line.startswith("time ")]
    assert len(times) > 3
    # What compare says of the model is what the search measured.
    said = lathe_cli.lathe("compare", "--float", tmp_path / "m.onnx", tmp_path / "q.onnx", "--data", tmp_path / "d.npz", "--dim=N=16")
    assert f"loss {chosen['loss']:.3g}," in said
    assert "Pareto" in (tmp_path / "r.html").read_text()
    # Of a run with the same lockfile no kernel is measured again; of another model there is none.
    search(tmp_path, "--budget=loss=0.002", "--lock", tmp_path / "times.lock")
    assert [line for line in (tmp_path / "times.lock").read_text().splitlines() if line.startswith("time ")] == times
    (tmp_path / "times.lock").write_text((tmp_path / "times.lock").read_text().replace("threads 1", "threads 7"))
    assert "--lock" in search(tmp_path, "--budget=loss=0.002", "--lock", tmp_path / "times.lock", code=2)


def test_sizes_and_mixed_schemes(tmp_path):
    """A size that only 4 bits reach: the layers that lose most keep more bits. The recipe is of several schemes, and gives the
    same model again."""
    write_model(tmp_path)
    whole = os.path.getsize(tmp_path / "m.onnx")
    search(tmp_path, "--budget=size=20%", "--report", tmp_path / "r.json", "--recipe-out", tmp_path / "q.json",
           scheme="w8a16,w4a16,f16")
    assert os.path.getsize(tmp_path / "q.onnx") <= 0.2 * whole
    found = report_of(tmp_path)
    chosen = [layer["chosen"] for layer in found["layers"]]
    assert chosen.count("w4a16") >= 4 and len(set(chosen)) > 1
    recipe = json.loads((tmp_path / "q.json").read_text())
    assert recipe["scheme"] == "mixed"
    lathe_cli.lathe("quantize", tmp_path / "m.onnx", "-o", tmp_path / "again.onnx", "--recipe", tmp_path / "q.json")
    assert (tmp_path / "again.onnx").read_bytes() == (tmp_path / "q.onnx").read_bytes()
    # It is the best there is: any two layers' formats exchanged lose more or are too large, by what each loses alone.
    table = [{"float": (0, 0), **{c["scheme"]: (c["loss"], c["bytes"]) for c in layer["choices"]}} for layer in found["layers"]]
    loss = sum(t[c][0] for t, c in zip(table, chosen))
    size = whole + sum(t[c][1] for t, c in zip(table, chosen))
    for i in range(LAYERS):
        for j in range(LAYERS):
            for a in table[i]:
                for b in table[j]:
                    if i != j:
                        other = loss - table[i][chosen[i]][0] - table[j][chosen[j]][0] + table[i][a][0] + table[j][b][0]
                        bytes_ = size - table[i][chosen[i]][1] - table[j][chosen[j]][1] + table[i][a][1] + table[j][b][1]
                        assert other >= loss * (1 - 1e-9) or bytes_ > 0.2 * whole


def test_budgets_that_nothing_keeps(tmp_path):
    """Exit 1 with the best point, and no file."""
    write_model(tmp_path)
    before = sorted(os.listdir(tmp_path))
    text = search(tmp_path, "--budget=size=1K", "--recipe-out", tmp_path / "q.json", code=1)
    assert "the best point is too large: all of w8a8-int8: loss" in text
    text = search(tmp_path, "--budget=latency=0.001us", code=1)
    assert "the best point takes too long" in text
    # Weights alone of 16 rows gain nothing on a CPU; less loss than rounding has is not to be had.
    text = search(tmp_path, "--budget=loss=1e-12", code=1)
    assert "the best point loses too much" in text
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize("metric", ["kl", "cosine", "top1"])
def test_metrics(tmp_path, metric):
    write_model(tmp_path)
    search(tmp_path, f"--metric={metric}", "--budget=size=60%", "--report", tmp_path / "r.json")
    found = report_of(tmp_path)
    x = np.load(tmp_path / "d.npz")["x"]
    want, got = (lathe_cli.run(lathe_cli.compile_model(tmp_path / m, tmp_path / "e.lathe", "--dim=N=64"), tmp_path / "run",
                               inputs={"x": x})["y"].astype(np.float64) for m in ("m.onnx", "q.onnx"))

    def softmax(v):
        e = np.exp(v - v.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)

    loss = {"kl": lambda: (softmax(want) * np.log(softmax(want) / softmax(got))).sum(1).mean(),
            "cosine": lambda: 1 - ((want * got).sum(1) / np.linalg.norm(want, axis=1) / np.linalg.norm(got, axis=1)).mean(),
            "top1": lambda: (want.argmax(1) != got.argmax(1)).mean()}[metric]()
    chosen, = (one for one in found["measured"] if one["chosen"])
    assert found["metric"] == metric and chosen["loss"] == pytest.approx(loss, rel=1e-3, abs=1e-9)


def test_metric_scripts(tmp_path):
    """A script's number counts; one that raises, returns nothing or is no Python is an error in its line, and leaves nothing."""
    write_model(tmp_path)
    script = tmp_path / "metric.py"
    script.write_text("import numpy as np\n\ndef loss(want, got):\n    assert len(want) == 4 and want[0]['y'].shape == (16, 256)\n"
                      "    return 1000 * max(np.abs(w['y'] - g['y']).max() for w, g in zip(want, got))\n")
    search(tmp_path, f"--metric={script}", "--budget=size=60%", "--report", tmp_path / "r.json")
    chosen, = (one for one in report_of(tmp_path)["measured"] if one["chosen"])
    assert chosen["loss"] > 1
    os.remove(tmp_path / "q.onnx"), os.remove(tmp_path / "r.json")
    before = sorted(os.listdir(tmp_path))
    for text, line, message in (("def loss(want, got):\n    return want[0]['nothing']\n", 2, "KeyError"),
                                ("def loss(want, got):\n    return 'much'\n", 1, "ValueError"),
                                ("def loss(want, got):\n    return -1\n", 1, "not a number of 0 or more"),
                                ("import this is no python\n", 1, "SyntaxError"), ("x = 1\n", 1, "loss"),
                                ("raise SystemExit(0)\n", 1, "SystemExit")):
        script.write_text(text)
        said = search(tmp_path, f"--metric={script}", "--budget=size=60%", code=3)
        assert f"metric.py:{line}: " in said and message in said, said
        assert sorted(os.listdir(tmp_path)) == before
    assert "there is no file" in search(tmp_path, "--metric=nothing.py", "--budget=size=60%", code=2)
    assert "mse, kl, cosine, top1" in search(tmp_path, "--metric=mae", "--budget=size=60%", code=2)


def test_usage(tmp_path):
    write_model(tmp_path)
    for budget in ("loss", "loss=-1", "loss=1%", "latency=3", "size=3ms", "speed=1", "loss=nan", "size="):
        assert "--budget" in search(tmp_path, f"--budget={budget}", code=2)
    assert "chooses among several" in search(tmp_path, scheme="w8a16,w4a16", code=2)
    assert "says what a --budget is about" in search(tmp_path, "--metric=kl", code=2)
    assert "factors for all readers" in search(tmp_path, "--budget=loss=0.1", "--method=smoothquant", code=2)
    assert "a budget chooses" in search(tmp_path, "--budget=loss=0.1", "--layer=w1=f16", code=2)


def test_layers_by_hand(tmp_path):
    """--layer: others' schemes, whichever the order; what fits nothing is an error."""
    write_model(tmp_path)
    search(tmp_path, "--layer=layer1=f16", "--layer=w4=w8a16", "--layer=y=w8a8-fp8", "--recipe-out", tmp_path / "q.json")
    recipe = json.loads((tmp_path / "q.json").read_text())
    assert recipe["weights"]["w1"]["format"] == "f16" and recipe["weights"]["w7"]["format"] == "f8e4m3"
    assert recipe["weights"]["w4"]["weight_only"] and "r3" not in recipe["activations"]
    types = {node.name: node.op_type for node in onnx.load(tmp_path / "q.onnx").graph.node}
    assert types["layer1_Cast"] == "Cast"
    onnx.checker.check_model(onnx.load(tmp_path / "q.onnx"), full_check=True)
    assert "fits no layer" in search(tmp_path, "--layer=other=f16", code=2)
    assert "GLOB=SCHEME" in search(tmp_path, "--layer=w1", code=2)
    assert "unknown scheme" in search(tmp_path, "--layer=w1=f12", code=2)
