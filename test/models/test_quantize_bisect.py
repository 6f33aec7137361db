# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`lathe compare --float`: what a quantized model loses against its float form, and which layers are to blame."""
import json
import math
import os
import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import lathe_cli

LAYERS, K = 22, 80  # no power of two


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A chain of residual layers, quantized to 8 bits."""
    folder = tmp_path_factory.mktemp("bisect")
    rng = np.random.default_rng(9)
    nodes, weights = [], []
    for i in range(LAYERS):
        weights.append(numpy_helper.from_array((rng.normal(size=(K, K)) / np.sqrt(K)).astype(np.float32), f"w{i}"))
        nodes += [helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"a{i}"], name=f"layer{i}"), helper.make_node("Relu", [f"a{i}"], [f"r{i}"]),
                  helper.make_node("Add", [f"x{i}", f"r{i}"], [f"s{i}"]),
                  helper.make_node("LayerNormalization", [f"s{i}", "g"], [f"x{i + 1}"], axis=-1)]
    weights.append(numpy_helper.from_array(np.ones(K, np.float32), "g"))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["M", K]) for name in ("x0", f"x{LAYERS}")]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:], weights),
                                opset_imports=[helper.make_opsetid("", 21)], ir_version=10), folder / "m.onnx")
    np.savez(folder / "d.npz", x0=rng.normal(size=(16, K)).astype(np.float32))
    lathe_cli.lathe("quantize", folder / "m.onnx", "-o", folder / "q.onnx", "--scheme=w8a8-int8", "--data", folder / "d.npz",
                    "--recipe-out", folder / "r.json")
    return folder


def plant(folder, name, bad):
    """The recipe with ranges 50 times off: `bad` gives the factor by layer."""
    recipe = json.loads((folder / "r.json").read_text())
    for layer, factor in bad.items():
        for end in ("min", "max"):
            recipe["activations"][f"x{layer}"][end] *= factor
    (folder / name).write_text(json.dumps(recipe))
    return folder / name


def bisect(folder, recipe, *options, code):
    text = lathe_cli.lathe("compare", "--float", folder / "m.onnx", recipe, "--bisect", "--data", folder / "d.npz", *options, code=code)
    builds = int(re.search(r"in (\d+) builds", text)[1])
    assert text.count("build ") == builds
    return re.findall(r"culprit: '(.*)', weight", text), builds, text


@pytest.mark.parametrize("bad", [{3: 50, 4: 1 / 50, 17: 50}, {0: 50, 21: 50}], ids=str)
def test_planted_layers(folder, bad):
    """Exactly those, and in as few builds as promised, the float model's among them."""
    found, builds, text = bisect(folder, plant(folder, "bad.json", bad), code=1)
    assert found == [f"layer{i}" for i in sorted(bad)] and "FAILED" in text
    assert builds <= len(bad) * (math.log2(LAYERS) + 1) + 3


def test_right_recipe(folder):
    found, builds, text = bisect(folder, folder / "r.json", code=0)
    assert not found and builds == 2 and "PASSED" in text


def test_outputs(folder):
    """A model, an engine and a recipe are the same form; each against the float one, with numpy's loss."""
    x = np.load(folder / "d.npz")["x0"]
    want, got = (lathe_cli.run(lathe_cli.compile_model(folder / m, folder / f"{m}.lathe"), folder / "run", inputs={"x0": x})[f"x{LAYERS}"]
                 for m in ("m.onnx", "q.onnx"))
    loss = ((got - want) ** 2).sum() / (want ** 2).sum()
    for form in ("q.onnx", "q.onnx.lathe", "r.json"):
        text = lathe_cli.lathe("compare", "--float", folder / "m.onnx", folder / form, "--data", folder / "d.npz")
        assert float(re.search(r"loss ([^,]*),", text)[1]) == pytest.approx(loss, rel=0.01) and "PASSED" in text
    text = lathe_cli.lathe("compare", "--float", folder / "m.onnx", plant(folder, "one.json", {9: 50}), "--data", folder / "d.npz", code=1)
    assert "FAILED" in text


def test_integers_sizes_and_nan(tmp_path):
    """Of integers those count that differ; NaN and other sizes are all lost, never exact."""
    def model(name, *nodes):
        outputs = [helper.make_tensor_value_info(n, t, None) for n, t in
                   (("place", TensorProto.INT64), ("some", TensorProto.INT64), ("y", TensorProto.FLOAT))]
        graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 10])], outputs,
                                  [numpy_helper.from_array(np.float32(v), n) for n, v in (("one", 1), ("none", 0))])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), tmp_path / name)

    def of(y, changed="x", least="one"):
        return [helper.make_node("ArgMax", [changed], ["place"]), helper.make_node("Greater", ["x", least], ["more"]),
                helper.make_node("NonZero", ["more"], ["some"]), y]

    x = np.arange(40, dtype=np.float32).reshape(4, 10) - 20
    np.savez(tmp_path / "d.npz", x=x)
    model("m.onnx", *of(helper.make_node("Abs", ["x"], ["y"])))
    model("q.onnx", helper.make_node("Neg", ["x"], ["n"]), *of(helper.make_node("Sqrt", ["x"], ["y"]), "n", "none"))

    def said(form, code):
        text = lathe_cli.lathe("compare", "--float", tmp_path / "m.onnx", tmp_path / form, "--data", tmp_path / "d.npz", code=code)
        return dict(re.findall(r"output '(.*)': loss .*, signal to quantization noise (.*)", text))

    assert said("m.onnx", 0) == dict.fromkeys(["place", "some", "y"], "exact")
    assert said("q.onnx", 1) == {"place": "0.0 dB", "some": "all lost", "y": "all lost"}


def test_parts_of_recipes_with_factors_and_codes(folder, tmp_path):
    """Layers that are left out keep f32 beside others whose inputs are divided by factors, and whose codes GPTQ chose."""
    import test_quantize_methods as methods
    methods.write_model(tmp_path / "m.onnx", norm=True)
    np.savez(tmp_path / "d.npz", x=methods.inputs())
    for scheme, method in (("w8a8-int8", "smoothquant"), ("w4a16", "gptq")):
        lathe_cli.lathe("quantize", tmp_path / "m.onnx", "-o", tmp_path / "q.onnx", f"--scheme={scheme}", f"--method={method}",
                        "--data", tmp_path / "d.npz", "--recipe-out", tmp_path / "r.json")
        found, _, text = bisect(tmp_path, tmp_path / "r.json", "--loss=0", code=1)
        assert found == ["up", "gate", "down"], text  # nothing may be lost


def test_refusals(folder, tmp_path):
    def refused(*options, code, text):
        assert text in lathe_cli.lathe("compare", *options, code=code)
    m = folder / "m.onnx"
    refused(folder / "r.json", "--bisect", code=2, text="--float=MODEL")
    refused("--float", m, folder / "q.onnx", "--bisect", code=2, text="wants the recipe")
    refused("--float", m, folder / "q.onnx", "--loss=-1", code=2, text="--loss")
    refused("--float", m, folder / "q.onnx", "--against=onnxruntime", code=2, text="without --entry and --against")
    refused("--float", m, os.path.join(lathe_cli.MODELS, "magika.onnx"), code=2, text="other inputs than the float model")
    refused("--float", folder / "none.onnx", folder / "r.json", "--bisect", code=2, text="none.onnx")
    recipe = json.loads((folder / "r.json").read_text())
    (tmp_path / "other.json").write_text(json.dumps({**recipe, "products": ["elsewhere"]}))
    refused("--float", m, tmp_path / "other.json", "--bisect", code=3, text="of another model")
