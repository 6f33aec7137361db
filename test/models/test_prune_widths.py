# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`lathe prune --scheme channels|heads|ffn`: the narrower model is what ONNX accepts, gives what the model with zeros in
the place of what went gives, and keeps all else of the file."""
import json
import os

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import lathe_cli

FAMILIES = os.path.join(lathe_cli.MODELS, "families")
RATIOS = [0.1, 0.25, 0.5, 0.75, 0.9]


class Graph:
    """Nodes named after their results, with weights drawn from a seed."""

    def __init__(self):
        self.nodes, self.weights, self.rng = [], [], np.random.default_rng(7)

    def weight(self, name, *dims, positive=False):
        values = self.rng.normal(size=dims) / np.sqrt(np.prod(dims[1:]) if len(dims) > 1 else 4)
        self.constant(name, (np.abs(values) + 0.5 if positive else values).astype(np.float32))
        return name

    def constant(self, name, values):
        self.weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def op(self, kind, result, *inputs, **attributes):
        self.nodes.append(helper.make_node(kind, list(inputs), [result], name=result + "_node", **attributes))
        return result

    def conv(self, name, x, o, i, k, **attributes):
        return self.op("Conv", name, x, self.weight(name + ".w", o, i, k, k), self.weight(name + ".b", o),
                       pads=[k // 2] * 4, **attributes)

    def norm(self, name, x, c):
        weights = [self.weight(f"{name}.{p}", c, positive=p in "sv") for p in "sbmv"]
        return self.op("BatchNormalization", name, x, *weights)

    def save(self, path, x, y):
        graph = helper.make_graph(self.nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)],
                                  [helper.make_tensor_value_info("y", TensorProto.FLOAT, y)], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], producer_name="test", ir_version=10)
        helper.set_model_props(model, {"author": "test"})
        onnx.save(onnx.shape_inference.infer_shapes(model), path)


def write_cnn(path):
    """A residual, an inverted bottleneck with a depthwise convolution, squeeze and excite, groups, concat, split, and
    channels that become columns of a product."""
    g = Graph()
    s = g.op("Relu", "s", g.norm("sn", g.conv("stem", "x", 32, 3, 3), 32))
    a = g.op("Relu", "ar", g.norm("an", g.conv("a", s, 48, 32, 3), 48))
    r = g.op("Relu", "r", g.op("Add", "sum", g.norm("bn", g.conv("b", a, 32, 48, 3), 32), s))
    d = g.op("HardSwish", "dh", g.conv("dw", g.op("HardSwish", "eh", g.conv("e", r, 96, 32, 1)), 96, 1, 3, group=96))
    q = g.conv("se1", g.op("GlobalAveragePool", "pool", d), 24, 96, 1)
    d = g.op("Mul", "scaled", d, g.op("Sigmoid", "gate", g.conv("se2", q, 96, 24, 1)))
    p = g.conv("p", d, 64, 96, 1)
    c = g.op("Concat", "c", p, g.op("Sigmoid", "gs", g.conv("gr", p, 64, 16, 3, group=4)), axis=1)
    g.nodes.append(helper.make_node("Split", [c], ["c0", "c1"], name="halves", axis=1, num_outputs=2))
    m = g.op("MaxPool", "mp", g.op("Mul", "cm", "c0", "c1"), kernel_shape=[4, 4], strides=[4, 4])
    f = g.op("Reshape", "flat", m, g.constant("shape", np.array([0, 64 * 4])))
    h = g.op("Relu", "h", g.op("Gemm", "f1", f, g.weight("f1.w", 80, 256), g.weight("f1.b", 80), transB=1))
    g.op("Gemm", "y", h, g.weight("f2.w", 10, 80), transB=1)
    g.save(path, ["N", 3, 8, 8], ["N", 10])


def write_encoder(path):
    """Attention of 8 heads on 4 of keys (of one product, which is split), whose shapes are computed; gated columns."""
    g, width, heads, keys, size = Graph(), 96, 8, 4, 16

    def lengths(name, *parts):
        pieces = []
        for i, part in enumerate(parts):
            if isinstance(part, str):
                part = g.op("Gather", f"{name}.{i}", "sizes", g.constant(f"{name}.at{i}", np.array([int(part)])))
            else:
                part = g.constant(f"{name}.{i}", np.array([part]))
            pieces.append(part)
        return g.op("Concat", name, *pieces, axis=0)

    g.op("Shape", "sizes", "x")
    n = g.op("LayerNormalization", "n", "x", g.weight("n.s", width, positive=True), g.weight("n.b", width))
    joint = (heads + 2 * keys) * size
    qkv = g.op("Add", "qkvb", g.op("MatMul", "qkv", n, g.weight("qkv.w", width, joint)), g.weight("qkv.b", joint))
    g.nodes.append(helper.make_node("Split", [qkv, g.constant("parts", np.array([heads, keys, keys]) * size)],
                                    ["q", "k", "v"], name="parts_node", axis=2))
    split = {}
    for part, count in (("q", heads), ("k", keys), ("v", keys)):
        r = g.op("Reshape", part + "r", part, lengths(part + "l", "0", "1", count, size))
        split[part] = g.op("Transpose", part + "t", r, perm=[0, 2, 1, 3])
    for part in "kv":
        u = g.op("Unsqueeze", part + "u", split[part], g.constant(part + "axis", np.array([2])))
        e = g.op("Expand", part + "e", u, lengths(part + "el", "0", keys, heads // keys, "1", size))
        split[part] = g.op("Reshape", part + "h", e, lengths(part + "hl", "0", heads, "1", size))
    s = g.op("Mul", "scores", g.op("MatMul", "qk", split["q"], g.op("Transpose", "kT", split["k"], perm=[0, 1, 3, 2])),
             g.constant("scale", np.float32(0.25)))
    o = g.op("MatMul", "pv", g.op("Softmax", "p", s, axis=-1), split["v"])
    o = g.op("Reshape", "joined", g.op("Transpose", "ot", o, perm=[0, 2, 1, 3]), lengths("ol", "0", "1", heads * size))
    a = g.op("Add", "residual", "x", g.op("MatMul", "out", o, g.weight("out.w", heads * size, width)))
    n = g.op("LayerNormalization", "n2", a, g.weight("n2.s", width, positive=True), g.weight("n2.b", width))
    gate = g.op("MatMul", "gate", n, g.weight("gate.w", width, 256))
    both = g.op("Mul", "both", g.op("Mul", "silu", gate, g.op("Sigmoid", "sg", gate)),
                g.op("MatMul", "up", n, g.weight("up.w", width, 256)))
    g.op("Add", "y", a, g.op("MatMul", "down", both, g.weight("down.w", 256, width)))
    g.save(path, ["N", "S", width], ["N", "S", width])


def of_onnxruntime(path, inputs):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(None, inputs)


def prune(folder, model, scheme, ratio, *options, seconds=0):
    lathe_cli.lathe("prune", model, "-o", folder / "p.onnx", f"--scheme={scheme}", f"--ratio={ratio}", "--apply=all",
                    f"--seconds={seconds}", "--masked", folder / "m.onnx", "--json", folder / "r.json", *options)
    return json.loads((folder / "r.json").read_text())


def check_narrower(folder, model, inputs):
    """ONNX accepts it, onnxruntime gives what it gives of the masked model, and no name or metadata is another."""
    onnx.checker.check_model(str(folder / "p.onnx"), full_check=True)
    want, got = of_onnxruntime(folder / "m.onnx", inputs), of_onnxruntime(folder / "p.onnx", inputs)
    for a, b, dense in zip(want, got, of_onnxruntime(model, inputs)):
        if a.dtype.kind == "f":
            assert lathe_cli.relative_error(b, a) < 2e-5
            assert lathe_cli.relative_error(a, dense) > 1e-3  # what went was worth something
    before, after = onnx.load(model), onnx.load(folder / "p.onnx")
    assert [n.name for n in before.graph.node] == [n.name for n in after.graph.node]
    assert before.graph.input == after.graph.input and before.graph.output == after.graph.output
    assert before.metadata_props == after.metadata_props and before.producer_name == after.producer_name
    names = {t.name for t in after.graph.initializer}
    assert all(t.name in names for t in before.graph.initializer)
    return sum(t.ByteSize() for t in after.graph.initializer) / sum(t.ByteSize() for t in before.graph.initializer)


@pytest.mark.parametrize("ratio", RATIOS)
def test_convolutions(tmp_path, ratio):
    write_cnn(tmp_path / "cnn.onnx")
    report = prune(tmp_path, tmp_path / "cnn.onnx", "channels", ratio, "--multiple=4")
    widths = {tuple(w["layers"]): w["stay"] for w in report["widths"]}
    assert set(widths) == {("b_node", "stem_node"), ("a_node",), ("dw_node", "e_node", "se2_node"), ("se1_node",),
                           ("gr_node", "p_node")}
    x = np.random.default_rng(1).normal(size=(2, 3, 8, 8)).astype(np.float32)
    assert check_narrower(tmp_path, tmp_path / "cnn.onnx", {"x": x}) < min(0.97, 1.1 - ratio)
    sizes = {t.name: list(t.dims) for t in onnx.load(tmp_path / "p.onnx").graph.initializer}
    stem, a, e = widths["b_node", "stem_node"], widths["a_node",], widths["dw_node", "e_node", "se2_node"]
    assert sizes["a.w"] == [a, stem, 3, 3] and sizes["b.w"] == [stem, a, 3, 3] and sizes["bn.v"] == [stem]
    assert sizes["dw.w"] == [e, 1, 3, 3] and sizes["gr.w"][1] == 16 and sizes["f1.w"] == [80, sizes["p.w"][0] * 4]
    assert all(n % 4 == 0 for layers, n in widths.items() if "gr_node" not in layers)


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("scheme", ["heads", "ffn"])
def test_transformers(tmp_path, scheme, ratio):
    write_encoder(tmp_path / "e.onnx")
    report = prune(tmp_path, tmp_path / "e.onnx", scheme, ratio)
    width, = report["widths"]
    x = np.random.default_rng(1).normal(size=(2, 5, 96)).astype(np.float32)
    if width["applied"]:
        check_narrower(tmp_path, tmp_path / "e.onnx", {"x": x})
    else:
        assert "no unit goes at this ratio" in width["why"]
    sizes = {t.name: list(t.dims) for t in onnx.load(tmp_path / "p.onnx").graph.initializer}
    if scheme == "heads":  # two of queries with each of keys
        keys = max(1, 4 - int(np.floor(4 * ratio + 0.5)))
        assert width["units"] == 4 and width["stay"] == keys and sizes["qkv.w"] == [96, keys * 64]
        assert sizes["out.w"] == [keys * 32, 96]
    else:
        assert sizes["gate.w"] == [96, width["stay"]] and sizes["down.w"] == [width["stay"], 96]
        assert width["stay"] % 8 == 0
    why = {k["node"]: k["why"] for k in report["kept"]}
    assert "a result of the model" in why["down_node"] or "an input of the model" in why["down_node"]


def test_what_runs_along_a_width_keeps_it(tmp_path):
    """Zeros are no absence for norms, softmaxes, means and maxima, nor for what picks by values or in steps."""
    g = Graph()

    def layer(name, x, columns, depth=32):
        return g.op("MatMul", name, x, g.weight(name + ".w", depth, columns))

    n = g.op("LayerNormalization", "ln", layer("a", "x", 32), g.weight("s", 32, positive=True))
    n = g.op("Softmax", "sm", layer("b", n, 32), axis=-1)
    m = layer("c", n, 32)
    n = g.op("Sub", "centred", m, g.op("ReduceMean", "mean", m, g.constant("axis", np.array([1]))))
    m = layer("d", n, 32)
    n = g.op("Div", "scaled", m, g.op("ReduceMax", "max", g.op("Abs", "abs", m), "axis"))
    n = g.op("Gather", "picked", layer("e", n, 32), g.constant("order", np.random.default_rng(2).permutation(32)), axis=1)
    m = layer("f", n, 64)
    n = g.op("Slice", "stepped", m, *(g.constant(f"slice{i}", np.array([v])) for i, v in enumerate((0, 64, 1, 2))))
    n = g.op("CumSum", "sums", layer("g", n, 32), g.constant("one", np.array(1)))
    n = g.op("Relu", "r", layer("h", n, 48))
    layer("y", n, 8, 48)
    g.save(tmp_path / "w.onnx", ["N", 32], ["N", 8])
    report = prune(tmp_path, tmp_path / "w.onnx", "ffn", 0.5)
    assert [w["layers"] for w in report["widths"]] == [["h_node"]]
    why = {k["node"]: k["why"] for k in report["kept"]}
    for layer_, reason in (("a", "'ln_node' (layer_norm) runs along it"), ("b", "'sm_node' (softmax) runs along it"),
                           ("c", "'mean_node' (reduce) reduces along it"), ("d", "'max_node' (reduce) reduces along it"),
                           ("e", "'picked_node' (gather) picks from it by values"),
                           ("f", "'stepped_node' (slice) reads it at computed places"),
                           ("g", "'sums_node' (scan) runs along it"), ("y", "a result of the model has it")):
        assert why[layer_ + "_node"] == "its width stays: " + reason
    check_narrower(tmp_path, tmp_path / "w.onnx", {"x": np.random.default_rng(1).normal(size=(3, 32)).astype(np.float32)})


def write_rows(path):
    """Attention of four heads, as GPT-2 is exported: products see rows of all texts, the size of a head is what the width is
    divided into, and a bias begins where the length says."""
    g, width, longest = Graph(), 96, 16
    g.op("Shape", "sizes", "x")
    n, s = (g.op("Gather", f"size{i}", "sizes", g.constant(f"at{i}", np.array([i]))) for i in (0, 1))

    def product(name, x, depth, columns):
        rows = g.op("Reshape", name + ".rows", x, g.constant(name + ".flat", np.array([-1, depth])))
        y = g.op("Gemm", name, rows, g.weight(name + ".w", depth, columns), g.weight(name + ".b", columns))
        last = g.constant(name + ".columns", np.array([columns]))
        return g.op("Reshape", name + ".texts", y, g.op("Concat", name + ".sizes", n, s, last, axis=0))

    split = {}
    for name in "qkv":
        y = product(name, "x", width, 64)
        last = g.op("Gather", name + ".last", g.op("Shape", name + ".shape", y), g.constant(name + ".at", np.array([2])))
        four = g.constant(name + ".four", np.array([4]))
        sizes = g.op("Concat", name + ".parts", n, s, four, g.op("Div", name + ".size", last, four), axis=0)
        split[name] = g.op("Transpose", name + "t", g.op("Reshape", name + "r", y, sizes), perm=[0, 2, 1, 3])
    scores = g.op("MatMul", "qk", split["q"], g.op("Transpose", "kT", split["k"], perm=[0, 1, 3, 2]))
    whole, zero = g.constant("longest", np.array([longest])), g.constant("zero", np.array([0]))
    begin = g.op("Max", "begin", g.op("Sub", "left", whole, s), zero)
    bias = g.op("Slice", "slope", g.weight("bias", 4, 1, longest), begin, whole, g.constant("axis", np.array([2])))
    o = g.op("MatMul", "pv", g.op("Softmax", "p", g.op("Add", "biased", scores, bias), axis=-1), split["v"])
    o = g.op("Reshape", "joined", g.op("Transpose", "ot", o, perm=[0, 2, 1, 3]), g.constant("to", np.array([0, 0, 64])))
    g.op("Add", "y", "x", product("out", g.op("Relu", "r", product("up", product("o", o, 64, 96), 96, 128)), 128, width))
    g.save(path, ["N", "S", width], ["N", "S", width])


@pytest.mark.parametrize("scheme, layers, left", [("heads", ["k_node", "q_node", "v_node"], 2), ("ffn", ["up_node"], 64)])
def test_rows_of_all_texts(tmp_path, scheme, layers, left):
    write_rows(tmp_path / "r.onnx")
    widths = {tuple(w["layers"]): w for w in prune(tmp_path, tmp_path / "r.onnx", scheme, 0.5)["widths"]}
    assert widths[tuple(layers)]["stay"] == left
    x = np.random.default_rng(1).normal(size=(2, 5, 96)).astype(np.float32)
    check_narrower(tmp_path, tmp_path / "r.onnx", {"x": x})


def test_sizes_given_for_one_run_stay_free(tmp_path):
    """What --dim says finds the widths, and does not become a part of the file."""
    write_rows(tmp_path / "r.onnx")
    prune(tmp_path, tmp_path / "r.onnx", "heads", 0.5, "--dim", "N=2", "--dim", "S=5")
    for sizes in [(2, 5, 96), (3, 7, 96)]:
        check_narrower(tmp_path, tmp_path / "r.onnx", {"x": np.random.default_rng(1).normal(size=sizes).astype(np.float32)})


def write_halves(path, axes):
    """Two slices of a convolution's channels, at places computed from the channels of the input, through which one of them
    goes into a depthwise convolution."""
    g = Graph()
    first = g.constant("zero", np.array([0]))
    half = g.op("Gather", "half", g.op("Shape", "sizes", "x"), g.constant("one", np.array([1])))
    whole = g.op("Add", "whole", half, half)
    more = [g.constant("more", np.array([0])), g.constant("most", np.array([8]))]

    def places(name, value, other):
        return value if len(axes) == 1 else g.op("Concat", name, value, other, axis=0)

    stem = g.conv("stem", "x", 64, 32, 1)
    parts = [g.op("Slice", name, stem, places(name + "s", begin, more[0]), places(name + "e", end, more[1]),
                  g.constant(name + "a", np.array(axes))) for name, begin, end in (("a", first, half), ("b", half, whole))]
    m = g.op("Mul", "m", parts[0], g.conv("dw", parts[1], 32, 1, 3, group=32))
    g.conv("y", m, 8, 32, 1)
    g.save(path, ["N", 32, 8, 8], ["N", 8, 8, 8])


def test_computed_places(tmp_path):
    """Where slices begin and end follows, also where the file computes it from sizes that stay."""
    write_halves(tmp_path / "s.onnx", [1])
    width, = prune(tmp_path, tmp_path / "s.onnx", "channels", 0.5)["widths"]
    assert width["layers"] == ["dw_node", "stem_node"] and width["units"] == 32 and width["stay"] == 16
    x = np.random.default_rng(1).normal(size=(2, 32, 8, 8)).astype(np.float32)
    check_narrower(tmp_path, tmp_path / "s.onnx", {"x": x})
    # In one number with another axis they are not edited, and what is ahead of the node that is refused then stays.
    write_halves(tmp_path / "t.onnx", [1, 2])
    text = lathe_cli.lathe("prune", tmp_path / "t.onnx", "-o", tmp_path / "q.onnx", "--scheme=channels", "--ratio=0.5",
                           "--apply=all", "--seconds=0", code=4)
    assert "has no channels that can be taken out" in text and "a size that is not edited" in text
    assert not (tmp_path / "q.onnx").exists()


def test_measured(tmp_path):
    """Both engines run, and the narrower one gives what the one of the masked model gives; the report has it all."""
    write_encoder(tmp_path / "e.onnx")
    report = prune(tmp_path, tmp_path / "e.onnx", "ffn", 0.5, "--report", tmp_path / "r.html", seconds=0.1)
    width, = report["widths"]
    assert width["dense_us"] > 0 and width["pruned_us"] > 0 and 0 < width["score_share"] < 0.5
    assert report["masked_difference"] < 1e-4 and report["outputs"][0]["relative_change"] > 1e-3
    # Kernels of nodes without names are found too.
    model = onnx.load(tmp_path / "e.onnx")
    for node in model.graph.node:
        node.name = ""
    onnx.save(model, tmp_path / "u.onnx")
    width, = prune(tmp_path, tmp_path / "u.onnx", "ffn", 0.5, seconds=0.01)["widths"]
    assert width["layers"] == ["gate", "up"] and width["dense_us"] > 0 and width["pruned_us"] > 0
    assert not any(node.name for node in onnx.load(tmp_path / "p.onnx").graph.node)
    page = (tmp_path / "r.html").read_text()
    assert "gate_node, up_node" in page and "Differs by" in page and "break-even" not in page


@pytest.mark.parametrize("name, scheme, ratio", [("bert", "heads", 0.5), ("vit", "ffn", 0.25), ("t5", "heads", 0.75),
                                                 ("whisper", "ffn", 0.9), ("phi3", "heads", 0.5)])
def test_exported(tmp_path, name, scheme, ratio):
    folder = os.path.join(FAMILIES, name)
    model = os.path.join(folder, "model.onnx")
    prune(tmp_path, model, scheme, ratio)
    names = [i.name for i in onnx.load(model, load_external_data=False).graph.input]
    check_narrower(tmp_path, model, {n: np.load(os.path.join(folder, f"input_{i}.npy")) for i, n in enumerate(names)})


@pytest.mark.parametrize("name, ratio", [*(("bert", ratio) for ratio in RATIOS), ("vit", 0.5), ("gemma", 0.75)])
def test_blocks(tmp_path, name, ratio):
    """Residual branches of the least scores go, with all that only they needed."""
    folder = os.path.join(FAMILIES, name)
    model = os.path.join(folder, "model.onnx")
    report = prune(tmp_path, model, "blocks", ratio)
    gone = [w["layers"][0] for w in report["widths"] if w["applied"]]
    assert len(report["widths"]) == 4 and len(gone) == min(3, int(4 * ratio + 0.5))
    onnx.checker.check_model(str(tmp_path / "p.onnx"), full_check=True)
    before, after = onnx.load(model), onnx.load(tmp_path / "p.onnx")
    inputs = {v.name: np.load(os.path.join(folder, f"input_{i}.npy")) for i, v in enumerate(before.graph.input)}
    want, got = of_onnxruntime(tmp_path / "m.onnx", inputs)[0], of_onnxruntime(tmp_path / "p.onnx", inputs)[0]
    assert lathe_cli.relative_error(got, want) < 1e-6
    if gone:
        assert lathe_cli.relative_error(of_onnxruntime(model, inputs)[0], want) > 1e-3
        read = {i for n in after.graph.node for i in n.input}
        assert all(t.name in read for t in after.graph.initializer if t.name in {i for n in before.graph.node for i in n.input})
        products = [sum(n.op_type in ("MatMul", "Gemm") for n in m.graph.node) for m in (before, after)]
        assert products[0] - products[1] >= 2 * len(gone)
    assert before.graph.input == after.graph.input and before.graph.output == after.graph.output


def test_ends_of_blocks(tmp_path):
    """Branches behind a scale, or in another form, and beside a cast to the type that was there already; one whose result
    others read stays."""
    g = Graph()
    x = g.op("Cast", "c", "x", to=TensorProto.FLOAT)
    scaled = g.op("Mul", "scaled", g.op("MatMul", "m1", g.op("Relu", "r", x), g.weight("w1", 32, 32)), g.weight("gamma", 32))
    a = g.op("Add", "a", x, scaled)
    turned = g.op("MatMul", "m2", g.weight("w2", 32, 32), g.op("Transpose", "t", a, perm=[0, 2, 1]))
    b = g.op("Add", "b", g.op("Transpose", "back", g.op("Cast", "again", turned, to=TensorProto.FLOAT), perm=[0, 2, 1]), a)
    rows = g.op("Reshape", "rows", g.op("MatMul", "m3", b, g.weight("w3", 32, 32)), g.constant("same", np.array([0, 0, 32])))
    d = g.op("Add", "d", b, rows)
    m = g.op("MatMul", "m4", d, g.weight("w4", 32, 32))
    g.op("Mul", "y", g.op("Add", "e", d, m), m)
    g.save(tmp_path / "b.onnx", ["N", "S", 32], ["N", "S", 32])
    report = prune(tmp_path, tmp_path / "b.onnx", "blocks", 0.5)
    assert [w["layers"] for w in report["widths"]] == [["a_node"], ["d_node"]] and sum(w["applied"] for w in report["widths"]) == 1
    why = {k["node"]: k["why"] for k in report["kept"]}
    assert why["e_node"] == "'m4' is read by others, too"
    assert why["b_node"].startswith("it ends in") or "is no constant" in why["b_node"]
    inputs = {"x": np.random.default_rng(1).normal(size=(2, 5, 32)).astype(np.float32)}
    want, got = of_onnxruntime(tmp_path / "m.onnx", inputs)[0], of_onnxruntime(tmp_path / "p.onnx", inputs)[0]
    assert lathe_cli.relative_error(got, want) < 1e-6
    assert lathe_cli.relative_error(of_onnxruntime(tmp_path / "b.onnx", inputs)[0], want) > 1e-3


def test_external_weights(tmp_path):
    """What changes comes inside the new model; all else stays in the file beside it, and the model in that folder."""
    write_encoder(tmp_path / "in.onnx")
    model = onnx.load(tmp_path / "in.onnx")
    (tmp_path / "sub").mkdir()
    onnx.save(model, tmp_path / "sub" / "e.onnx", save_as_external_data=True, location="e.bin", size_threshold=64)
    options = ["prune", tmp_path / "sub" / "e.onnx", "--scheme=ffn", "--ratio=0.5", "--apply=all", "--seconds=0"]
    text = lathe_cli.lathe(*options, "-o", tmp_path / "p.onnx", code=2)
    assert "must be in the same folder" in text and not (tmp_path / "p.onnx").exists()
    lathe_cli.lathe(*options, "-o", tmp_path / "sub" / "p.onnx")
    after = onnx.load(tmp_path / "sub" / "p.onnx", load_external_data=False)
    outside = {t.name for t in after.graph.initializer if t.data_location == TensorProto.EXTERNAL}
    assert "qkv.w" in outside and not outside & {"gate.w", "up.w", "down.w"}
    lathe_cli.lathe("prune", tmp_path / "in.onnx", *options[2:], "-o", tmp_path / "p.onnx")
    x = {"x": np.random.default_rng(1).normal(size=(2, 5, 96)).astype(np.float32)}
    np.testing.assert_array_equal(of_onnxruntime(tmp_path / "sub" / "p.onnx", x)[0], of_onnxruntime(tmp_path / "p.onnx", x)[0])


def test_blocks_measured(tmp_path):
    write_encoder(tmp_path / "e.onnx")
    report = prune(tmp_path, tmp_path / "e.onnx", "blocks", 0.5, seconds=0.1)
    assert report["masked_difference"] < 1e-6 and sorted(w["stay"] for w in report["widths"]) == [0, 1]
    text = lathe_cli.lathe("prune", tmp_path / "e.onnx", "-o", tmp_path / "q.onnx", "--scheme=blocks", "--ratio=0.5",
                           "--only=qkvb_node", code=2)
    assert "--only 'qkvb_node': fits no addition of a branch" in text and not (tmp_path / "q.onnx").exists()
