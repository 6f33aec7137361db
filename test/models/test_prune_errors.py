# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What `lathe prune` refuses: with the place, the right exit code, and no file written."""
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import lathe_cli
from test_prune_widths import write_cnn, write_encoder

K, H, N = 32, 48, 16


def write_products(path, tied=False):
    """x w1, an activation, w2; `tied` adds a result that is w1 itself and has w2 read by another node."""
    rng = np.random.default_rng(3)
    weights = {"w1": rng.normal(size=(K, H)), "w2": rng.normal(size=(H, N))}
    nodes = [helper.make_node("MatMul", ["x", "w1"], ["a"], name="up"), helper.make_node("Relu", ["a"], ["r"], name="act"),
             helper.make_node("MatMul", ["r", "w2"], ["y"], name="down")]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["B", N])]
    if tied:
        nodes.append(helper.make_node("ReduceSum", ["w2"], ["s"], name="sum", keepdims=0))
        outputs += [helper.make_tensor_value_info("w1", TensorProto.FLOAT, [K, H]),
                    helper.make_tensor_value_info("s", TensorProto.FLOAT, [])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["B", K])], outputs,
                              [numpy_helper.from_array(w.astype(np.float32), n) for n, w in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return {n: w.astype(np.float32) for n, w in weights.items()}


def refused(folder, *options, code, text, model="m.onnx"):
    before = sorted(folder.iterdir())
    said = lathe_cli.lathe("prune", folder / model, "-o", folder / "p.onnx", "--json", folder / "r.json", "--report",
                           folder / "r.html", *options, code=code)
    assert text in said, said
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("ratio", ["0", "1", "1.5", "-0.5", "nan", "half", ""])
@pytest.mark.parametrize("scheme", ["block:1x16", "channels"])
def test_ratios(tmp_path, scheme, ratio):
    write_products(tmp_path / "m.onnx")
    refused(tmp_path, f"--scheme={scheme}", f"--ratio={ratio}", code=2,
            text="--ratio: is missing" if ratio == "" else f"would leave no weight; not '{ratio}'")


@pytest.mark.parametrize("options, code, text", [
    (["--scheme=2:4", "--ratio=0.75"], 2, "2:4 has a ratio of its own"),
    (["--scheme=4:2"], 2, "not '4:2'"),
    (["--scheme=rows", "--ratio=0.5"], 2, "channels, heads, ffn or blocks, not 'rows'"),
    (["--scheme=ffn", "--ratio=0.5", "--score=best"], 2, "not 'best'"),
    (["--scheme=ffn", "--ratio=0.5", "--multiple=0"], 2, "wants a number from 1 to 4096"),
    (["--scheme=ffn", "--ratio=0.5", "--seconds=0"], 2, "nothing can win"),
    (["--scheme=ffn", "--ratio=0.5", "--score=taylor"], 2, "go together"),
    (["--scheme=2:4", "--score=taylor"], 2, "gradients are for channels"),
    (["--scheme=2:4", "--masked=z.onnx"], 2, "is for channels, heads and ffn"),
    (["--scheme=ffn", "--ratio=0.5", "--only=other"], 2, "--only 'other': fits no product"),
    (["--scheme=2:4", "--only=other"], 2, "--only 'other': fits no product"),
    (["--scheme=ffn", "--ratio=0.5", "--keep=other"], 2, "--keep 'other': fits no node"),
    (["--scheme=ffn", "--ratio=0.5", "--only=down"], 4, "m.onnx: node 'down': cannot become narrower: its width stays: a "
                                                        "result of the model has it"),
    (["--scheme=heads", "--ratio=0.5"], 4, "has no heads that can be taken out, as 'down'"),
    (["--scheme=channels", "--ratio=0.5"], 4, "has no channels that can be taken out"),
])
def test_options(tmp_path, options, code, text):
    write_products(tmp_path / "m.onnx")
    refused(tmp_path, *options, code=code, text=text)


def test_results_and_ties(tmp_path):
    """A weight that is a result of the model, or that another node reads too, stays; asking for it is an error."""
    weights = write_products(tmp_path / "m.onnx", tied=True)
    for node, why in (("up", "'w1' is a result of the model"), ("down", "'w2' is tied to other nodes")):
        refused(tmp_path, "--scheme=2:4", f"--only={node}", code=4, text=f"node '{node}': has to stay: its right operand {why}")
    refused(tmp_path, "--scheme=2:4", code=4, text="has no product whose weights could have zeros")
    np.savez(tmp_path / "masks.npz", w2=np.ones_like(weights["w2"]))
    refused(tmp_path, f"--masks={tmp_path}/masks.npz", code=4, text="'w2': is of a weight that has to stay: node 'down'")
    refused(tmp_path, "--scheme=ffn", "--ratio=0.5", code=4, text="as 'up': its width stays: 'sum' (reduce) reduces along it")


def test_tied_widths(tmp_path):
    """Two products by one matrix become narrower together, or not at all."""
    rng = np.random.default_rng(3)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"], name="first"), helper.make_node("Relu", ["a"], ["r"], name="act"),
             helper.make_node("MatMul", ["r", "w"], ["b"], name="second"),
             helper.make_node("MatMul", ["b", "v"], ["y"], name="third")]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["B", K])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["B", N])],
                              [numpy_helper.from_array(rng.normal(size=s).astype(np.float32), n)
                               for n, s in (("w", (K, K)), ("v", (K, N)))])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), tmp_path / "m.onnx")
    refused(tmp_path, "--scheme=ffn", "--ratio=0.5", code=4, text="as 'first': its width stays: an input of the model has it")


def test_masks(tmp_path):
    weights = write_products(tmp_path / "m.onnx")
    mask = {n: np.random.default_rng(5).random(w.shape) < 0.3 for n, w in weights.items()}
    np.savez(tmp_path / "masks.npz", **mask)
    lathe_cli.lathe("prune", tmp_path / "m.onnx", "-o", tmp_path / "p.onnx", f"--masks={tmp_path}/masks.npz", "--apply=all",
                    "--seconds=0.01")
    got = {t.name: numpy_helper.to_array(t) for t in onnx.load(tmp_path / "p.onnx").graph.initializer}
    for name, w in weights.items():
        np.testing.assert_array_equal(got[name], w * mask[name])
    (tmp_path / "p.onnx").unlink()
    bad = tmp_path / "masks.npz"
    for masks, code, text in (({"w9": mask["w1"]}, 3, "masks.npz: 'w9': is no weight of"),
                              ({"w1": mask["w2"]}, 3, "masks.npz: 'w1': has other sizes than the weight"),
                              ({"w1": mask["w1"] & False}, 3, "masks.npz: 'w1': would leave nothing of the weight")):
        np.savez(bad, **masks)
        refused(tmp_path, f"--masks={bad}", code=code, text=text)
    refused(tmp_path, f"--masks={bad}", "--scheme=2:4", code=2, text="--masks: say where zeros are, without --scheme")
    bad.write_bytes(b"PK")
    refused(tmp_path, f"--masks={bad}", code=3, text="masks.npz")


def test_almost_groups(tmp_path):
    """Of a matrix in 2:4 but for one element, the check names that element."""
    weights = write_products(tmp_path / "m.onnx")
    model = onnx.load(tmp_path / "m.onnx")
    for tensor, (name, w) in zip(model.graph.initializer, weights.items()):
        w = w.copy()
        w[2::4] = w[3::4] = 0
        if name == "w2":
            w[6, 5] = 1
        tensor.CopyFrom(numpy_helper.from_array(w, name))
    onnx.save(model, tmp_path / "m.onnx")
    text = lathe_cli.lathe("prune", tmp_path / "m.onnx", "--scheme=2:4", "--check", code=3)
    assert "weight 'w2' of node 'down': is almost 2:4: element [6, 5] is the first with more than 2 of 4" in text
    text = lathe_cli.lathe("prune", tmp_path / "m.onnx", "--scheme=2:4", "--check", "--keep=w2")
    assert "1 weights, all 2:4" in text


def test_gradients(tmp_path):
    """The columns whose weight x gradient sums to the least go, wherever magnitudes are the least."""
    weights = write_products(tmp_path / "m.onnx")
    gradients = {n: np.zeros_like(w) for n, w in weights.items()}
    for column in range(H):
        gradients["w1"][0, column] = (column if column % 2 else 1e-3) / weights["w1"][0, column]
    np.savez(tmp_path / "g.npz", **gradients)
    options = ["--scheme=ffn", "--ratio=0.5", "--apply=all", "--seconds=0", "--score=taylor", "--gradients"]
    lathe_cli.lathe("prune", tmp_path / "m.onnx", "-o", tmp_path / "p.onnx", *options, tmp_path / "g.npz")
    got = {t.name: numpy_helper.to_array(t) for t in onnx.load(tmp_path / "p.onnx").graph.initializer}
    np.testing.assert_array_equal(got["w1"], weights["w1"][:, 1::2])
    np.testing.assert_array_equal(got["w2"], weights["w2"][1::2])
    (tmp_path / "p.onnx").unlink()
    np.savez(tmp_path / "g.npz", w1=gradients["w1"])
    refused(tmp_path, *options, tmp_path / "g.npz", code=3, text="weight 'w2': has no gradient")
    np.savez(tmp_path / "g.npz", w1=gradients["w1"], w2=gradients["w1"])
    refused(tmp_path, *options, tmp_path / "g.npz", code=3, text="weight 'w2': has a gradient of other sizes")


def test_scores(tmp_path):
    """L1 and L2 order columns by their magnitudes; what a seed draws is the same each time."""
    weights = write_products(tmp_path / "m.onnx")

    def stays(*options):
        lathe_cli.lathe("prune", tmp_path / "m.onnx", "-o", tmp_path / "p.onnx", "--scheme=ffn", "--ratio=0.5", "--apply=all",
                        "--seconds=0", *options)
        got = {t.name: numpy_helper.to_array(t) for t in onnx.load(tmp_path / "p.onnx").graph.initializer}
        return [c for c in range(H) if any((weights["w1"][:, c] == g).all() for g in got["w1"].T)]

    for score, power in (("l1", 1), ("l2", 2)):
        size = (np.abs(weights["w1"]) ** power).sum(0) + (np.abs(weights["w2"]) ** power).sum(1)
        assert stays(f"--score={score}") == sorted(np.argsort(size)[H // 2:])
    drawn = stays("--score=random", "--seed=5")
    assert drawn == stays("--score=random", "--seed=5") != stays("--score=random", "--seed=6")


def test_sizes_that_are_not_edited(tmp_path):
    """A node that states a size in a way that is not known keeps its units, with the place as the reason."""
    write_cnn(tmp_path / "m.onnx")
    model = onnx.load(tmp_path / "m.onnx")
    # A Resize to sizes, of which the second is the channels'.
    at = next(i for i, n in enumerate(model.graph.node) if n.name == "ar_node")
    node = helper.make_node("Resize", ["a", "", "", "resized"], ["a_resized"], name="resize", mode="nearest")
    model.graph.initializer.append(numpy_helper.from_array(np.array([1, 48, 8, 8]), "resized"))
    model.graph.node.insert(at, node)
    for user in model.graph.node:
        if user.name == "an_node":
            user.input[0] = "a_resized"
    names = [n.name for n in model.graph.node]
    order = names.index("a_node") + 1
    model.graph.node.insert(order, model.graph.node.pop(names.index("resize")))
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    del model.graph.value_info[:]
    onnx.save(model, tmp_path / "m.onnx")
    text = lathe_cli.lathe("prune", tmp_path / "m.onnx", "-o", tmp_path / "p.onnx", "--scheme=channels", "--ratio=0.5",
                           "--apply=all", "--seconds=0")
    assert "'a_node': its width stays: 'an_node' or one ahead of it states a size that is not edited: " in text
    assert "b_node, stem_node: narrower" in text
