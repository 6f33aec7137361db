# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`lathe quantize --report`: what it says of each layer against numpy; a planted fault; convolutions of PP-OCR."""
import json
import os

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import lathe_cli
import test_quantize_methods as methods
from test_quantize import examples, write_model

PARTS = ["weight_rounding", "clipping", "activation_rounding", "all"]


def quantize(folder, scheme, *options, data, model="m.onnx", code=0):
    return lathe_cli.lathe("quantize", folder / model, "-o", folder / "q.onnx", f"--scheme={scheme}", "--data", data,
                           "--recipe-out", folder / "r.json", "--report", folder / "report.html", *options, code=code)


def report_of(folder):
    report = json.loads((folder / "report.json").read_text())
    return report, {layer["node"]: layer for layer in report["layers"]}


def weights_of(folder):
    """What the codes of the written model stand for."""
    made = {t.name: numpy_helper.to_array(t) for t in onnx.load(folder / "q.onnx").graph.initializer}
    def meant(name, axis):
        codes, scale = made[name + "_quantized"].astype(np.float64), made[name + "_scale"].astype(np.float64)
        if scale.ndim == 2:
            return codes * np.repeat(scale, codes.shape[axis] // scale.shape[axis], axis)
        return codes * (scale[None, :] if axis == 0 else scale[:, None])
    return meant


def expected(x, w, codes, signal, low=None, high=None):
    """Of a product x @ w whose weight becomes `codes`, and whose x gets codes of a range: shares of the signal, and what
    is clipped."""
    x, w = x.astype(np.float64), w.astype(np.float64)
    clipped = rounded = x
    share = 0.0
    if low is not None:
        low, high = min(low, 0), max(high, 0)
        scale = float(np.float32((high - low) / 255))
        zero = np.rint(-low / scale)
        least, greatest = (-zero - 0.501) * scale, (255 - zero + 0.501) * scale
        clipped = np.clip(x, least, greatest)
        rounded = (np.clip(np.rint(x / scale) + zero, 0, 255) - zero) * scale
        share = float(np.mean((x < least) | (x > greatest)))
    errors = [x @ (codes - w), (clipped - x) @ w, (rounded - clipped) @ w, rounded @ codes - x @ w]
    return [float((e ** 2).sum() / (signal.astype(np.float64) ** 2).sum()) for e in errors], share


def check(layer, x, w, codes, signal):
    want, share = expected(x, w, codes, signal, *(layer["range"] or ()))
    got = [layer["loss"][part] for part in PARTS]
    np.testing.assert_allclose(got, want, rtol=2e-3, atol=1e-12)
    assert layer["clipped"] == pytest.approx(share, abs=1e-3 / x.size)
    np.testing.assert_allclose(layer["seen"], [x.min(), x.max()], rtol=1e-5, atol=1e-6)
    assert layer["sqnr_db"] == pytest.approx(-10 * np.log10(want[3]), abs=0.02)
    assert layer["us_before"] > 0 and layer["us_after"] > 0


@pytest.mark.parametrize("scheme, options", [("w8a8-int8", ["--range=percentile:99.5"]), ("w8a8-int8", []), ("w8a16", [])])
def test_losses(tmp_path, scheme, options):
    """Each part is numpy's, in f64, of what the codes of the written model stand for; without clipping it is zero."""
    w1, w2 = write_model(tmp_path / "m.onnx")
    data = examples(tmp_path)
    quantize(tmp_path, scheme, *options, data=data)
    report, layers = report_of(tmp_path)
    model, meant, x = onnx.load(tmp_path / "m.onnx"), weights_of(tmp_path), np.load(data)["x"]
    bias = next(numpy_helper.to_array(t) for t in model.graph.initializer if t.name == "b")
    a = x @ w1
    r = np.maximum(a, 0)
    check(layers["up"], x, w1, meant("w1", 0), a)
    check(layers["down"], r, w2.T, meant("w2", 1).T, r @ w2.T + bias)
    if not options:
        assert all(layer["loss"]["clipping"] == 0 and layer["clipped"] == 0 for layer in report["layers"])
    if scheme == "w8a16":
        assert all(layer["range"] is None and layer["loss"]["activation_rounding"] == 0 for layer in report["layers"])
    # The whole: our engine of the written model against that of the float one.
    got, want = (lathe_cli.run(lathe_cli.compile_model(tmp_path / m, tmp_path / "e.lathe"), tmp_path / "run", inputs={"x": x})["y"]
                 for m in ("q.onnx", "m.onnx"))
    said, = report["outputs"]
    assert said["output"] == "y" and said["loss"] == pytest.approx(((got - want) ** 2).sum() / (want ** 2).sum(), rel=1e-3)
    assert report["ms_before"] > 0 and report["bytes_after"] < report["bytes_before"]


def test_factors_and_unnamed_nodes(tmp_path):
    """What a product reads behind SmoothQuant's factors; nodes without names are told apart by their results."""
    weights = methods.write_model(tmp_path / "named.onnx")
    model = onnx.load(tmp_path / "named.onnx")
    for node in model.graph.node:
        node.name = ""
    onnx.save(model, tmp_path / "m.onnx")
    np.savez(tmp_path / "d.npz", x=methods.inputs())
    quantize(tmp_path, "w8a8-int8", "--method=smoothquant", data=tmp_path / "d.npz")
    _, layers = report_of(tmp_path)
    factors = np.load(tmp_path / "r.npz")["factors/x"]
    x, meant = methods.inputs(), weights_of(tmp_path)
    w1 = weights["w1"] * factors[:, None]
    check(layers["a"], x / factors, w1, meant("w1", 0), x @ weights["w1"])
    assert layers["b"]["us_after"] > 0 and layers["y"]["us_before"] > 0


def test_planted_faults(tmp_path):
    """A range 50 times too narrow clips, one 50 times too wide rounds: the report blames the right layer and part."""
    write_model(tmp_path / "m.onnx")
    data = examples(tmp_path)
    quantize(tmp_path, "w8a8-int8", data=data)
    recipe = json.loads((tmp_path / "r.json").read_text())
    for factor, part in ((1 / 50, "clipping"), (50, "activation_rounding")):
        planted = json.loads(json.dumps(recipe))
        for end in ("min", "max"):
            planted["activations"]["r"][end] *= factor
        (tmp_path / "planted.json").write_text(json.dumps(planted))
        text = lathe_cli.lathe("quantize", tmp_path / "m.onnx", "-o", tmp_path / "q.onnx", "--recipe", tmp_path / "planted.json",
                               "--data", data, "--report", tmp_path / "report.html")
        assert "loses most: 'down'" in text
        report, layers = report_of(tmp_path)
        assert report["kept"] is None  # a recipe does not say
        assert layers["down"]["sqnr_db"] + 20 < layers["up"]["sqnr_db"]
        assert layers["down"]["loss"][part] > 0.9 * sum(layers["down"]["loss"][p] for p in PARTS[:3])


@pytest.mark.parametrize("options", [["w8a8-int8", "--dynamic"], ["nf4"], ["w4a16", "--format=microsoft"], ["mxfp4"]], ids=" ".join)
def test_other_forms(tmp_path, options):
    """Ranges that each run finds clip nothing; of ops that read codes themselves the loss is their weights'."""
    write_model(tmp_path / "m.onnx")
    quantize(tmp_path, *options, data=examples(tmp_path))
    report, layers = report_of(tmp_path)
    assert set(layers) == {"up", "down"}
    for layer in layers.values():
        assert layer["loss"]["clipping"] == 0 and 0 < layer["loss"]["weight_rounding"] < 0.05
        assert (layer["loss"]["activation_rounding"] > 0) == report["dynamic"]
        assert layer["us_before"] > 0 and layer["us_after"] > 0


def losses_of_conv(model, quantized, node, images, span):
    """What `expected` is of a product, of a node of a model: onnxruntime computes the layer of every operand."""
    whole = onnx.load(model)
    made = {t.name: t for t in onnx.load(quantized).graph.initializer}
    whole.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in (node.input[0], node.output[0])
                              if name != whole.graph.input[0].name)
    session = lathe_cli.session(whole.SerializeToString())
    names = [node.output[0]] if node.input[0] == "x" else [node.input[0], node.output[0]]
    x, y = ([images] + session.run(names, {"x": images}))[-2:]
    w = next(numpy_helper.to_array(n.attribute[0].t) for n in whole.graph.node if n.output[0] == node.input[1])
    scale = numpy_helper.to_array(made[node.input[1] + "_scale"])[:, None, None, None]
    codes = numpy_helper.to_array(made[node.input[1] + "_quantized"]).astype(np.float32) * scale
    step = np.float32((max(span[1], 0) - min(span[0], 0)) / 255)
    zero = np.rint(-min(span[0], 0) / step)
    clipped = np.clip(x, (-zero - 0.501) * step, (255 - zero + 0.501) * step)
    rounded = (np.clip(np.rint(x / step) + zero, 0, 255) - zero).astype(np.float32) * step
    alone = helper.make_node("Conv", ["x", "w"], ["y"])
    alone.attribute.extend(node.attribute)
    graph = helper.make_graph([alone], "g", [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ["a", "b", "c", "d"]) for n in "xw"],
                              [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["a", "b", "c", "d"])])
    session = lathe_cli.session(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString())
    conv = lambda x, w: session.run(None, {"x": x, "w": w})[0].astype(np.float64)  # noqa: E731
    errors = [conv(x, codes - w), conv(clipped - x, w), conv(rounded - clipped, w), conv(rounded, codes) - conv(x, w)]
    return [float((e ** 2).sum() / (y.astype(np.float64) ** 2).sum()) for e in errors]


def test_convolutions_of_pp_ocr(tmp_path):
    """Ten layers of a real model, pointwise, depthwise and of squeezed images, at a batch that is not known ahead."""
    x = np.random.default_rng(3).normal(size=(2, 3, 48, 96)).astype(np.float32)
    np.savez(tmp_path / "d.npz", x=x)
    keep = [f"--keep=Conv@{d}?" for d in range(1, 6)]
    lathe_cli.lathe("quantize", os.path.join(lathe_cli.MODELS, "ppocr_cls.onnx"), "-o", tmp_path / "q.onnx", "--scheme=w8a8-int8",
                    "--data", tmp_path / "d.npz", "--range=mse", "--report", tmp_path / "report.json", "--target=x86-64-v3",
                    "--dim=x[2]=48", "--dim=x[3]=96", *keep)
    report, layers = report_of(tmp_path)
    assert not (tmp_path / "report.html").exists()
    assert [f"Conv@{d}" for d in range(10)] == list(layers) and len(report["kept"]) == 44
    model = os.path.join(lathe_cli.MODELS, "ppocr_cls.onnx")
    for layer in layers.values():
        together = sum(np.sqrt(layer["loss"][p]) for p in PARTS[:3]) ** 2  # the most that the parts can be at once
        assert 25 < layer["sqnr_db"] < 70 and layer["loss"]["all"] < 1.05 * together, layer
        assert layer["us_before"] > 0 and layer["us_after"] > 0
    assert max(layer["loss"]["clipping"] for layer in layers.values()) > 0
    # The first one (3 x 3, of the image), a depthwise and a pointwise one, computed by onnxruntime.
    for layer in (layers[f"Conv@{d}"] for d in (0, 2, 5)):
        node = next(n for n in onnx.load(model).graph.node if n.output[0] == layer["result"])
        want = losses_of_conv(model, tmp_path / "q.onnx", node, x, layer["range"])
        np.testing.assert_allclose([layer["loss"][p] for p in PARTS], want, rtol=5e-3, atol=1e-10)


def test_refusals(tmp_path):
    """Before any file is written."""
    write_model(tmp_path / "m.onnx")
    data = examples(tmp_path)
    assert "wants FILE.html or FILE.json" in quantize(tmp_path, "w8a16", "--report=r.txt", data=data, code=2)
    assert "come from --data" in lathe_cli.lathe("quantize", tmp_path / "m.onnx", "-o", tmp_path / "q.onnx", "--scheme=w8a16",
                                                 "--report", tmp_path / "r.html", code=2)
    text = quantize(tmp_path, "w8a16", "--report", tmp_path / "r.html", data=data, code=2)
    assert "--report" in text and "r.json" in text
    assert sorted(os.listdir(tmp_path)) == ["data.npz", "m.onnx"]
