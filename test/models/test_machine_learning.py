# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Classifiers of trees and encoders of numbers of ai.onnx.ml, against onnxruntime."""
from statistics import NormalDist

import numpy as np
import pytest
from onnx import TensorProto, helper, save

import lathe_cli

FLOAT, DOUBLE, INT = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64


def built(folder, node, inputs, outputs, ml=3):
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info(*i) for i in inputs],
                              [helper.make_tensor_value_info(*o) for o in outputs])
    path = str(folder / "m.onnx")
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", ml)],
                           ir_version=10), path)
    return path


def forest(rng, trees, depth, features, classes, positive):
    """Complete trees as the attributes of ONNX, leaves that weigh for the classes given."""
    a = {k: [] for k in ("nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_values", "nodes_modes",
                         "nodes_truenodeids", "nodes_falsenodeids", "class_treeids", "class_nodeids", "class_ids",
                         "class_weights")}
    for tree in range(trees):
        inner = 2**depth - 1
        for node in range(2 * inner + 1):
            leaf = node >= inner
            a["nodes_treeids"].append(tree)
            a["nodes_nodeids"].append(node)
            a["nodes_featureids"].append(0 if leaf else int(rng.integers(features)))
            a["nodes_values"].append(0.0 if leaf else float(np.float32(rng.normal())))
            a["nodes_modes"].append("LEAF" if leaf else "BRANCH_LEQ")
            a["nodes_truenodeids"].append(0 if leaf else 2 * node + 1)
            a["nodes_falsenodeids"].append(0 if leaf else 2 * node + 2)
            for c in classes if leaf else ():
                a["class_treeids"].append(tree)
                a["class_nodeids"].append(node)
                a["class_ids"].append(c)
                weight = rng.uniform(0.05, 1) / trees if positive else rng.normal()
                a["class_weights"].append(float(np.float32(weight)))
    return a


# labels, classes that leaves weigh for, all above 0, post_transform
CLASSIFIERS = [([3, 7, 11], [0, 1, 2], True, "NONE"), ([3, 7, 11], [0, 1, 2], False, "SOFTMAX"),
               ([3, 7, 11, -2], [0, 1, 2, 3], False, "LOGISTIC"), ([3, 7, 11], [0, 2], False, "SOFTMAX_ZERO"),
               ([0, 1], [1], True, "NONE"), ([5, 4], [1], False, "LOGISTIC"), ([0, 1], [0], True, "NONE"),
               ([5, 4], [0], False, "LOGISTIC"), ([5, 4], [0], False, "NONE")]


@pytest.mark.parametrize("labels, classes, positive, transform", CLASSIFIERS)
def test_tree_classifier(tmp_path, labels, classes, positive, transform):
    rng = np.random.default_rng(len(labels) + len(transform))
    node = helper.make_node("TreeEnsembleClassifier", ["x"], ["label", "scores"], domain="ai.onnx.ml",
                            classlabels_int64s=labels, post_transform=transform, **forest(rng, 5, 3, 4, classes, positive))
    model = built(tmp_path, node, [("x", FLOAT, ["N", 4])], [("label", INT, ["N"]), ("scores", FLOAT, ["N", len(labels)])])
    x = rng.normal(size=(50, 4)).astype(np.float32)
    want = lathe_cli.session(model).run(None, {"x": x})
    got = lathe_cli.run(lathe_cli.compile_model(model, tmp_path / "m.lathe"), tmp_path / "out", inputs={"x": x})
    np.testing.assert_array_equal(got["label"], want[0])
    assert lathe_cli.relative_error(got["scores"], want[1]) <= 1e-6
    assert len(set(want[0])) > 1  # or the labels would say nothing


def test_trees_that_fill_lanes(tmp_path):
    """37 deep and shallow trees are walked side by side: those at a leaf wait; NaN goes where each node says, zeros of
    either sign are one."""
    special = [0.0, -0.0, np.inf, -np.inf]
    rng = np.random.default_rng(4)
    tall, short = forest(rng, 20, 5, 6, [0], False), forest(rng, 17, 1, 6, [0], False)
    short["nodes_treeids"] = [t + 20 for t in short["nodes_treeids"]]
    short["class_treeids"] = [t + 20 for t in short["class_treeids"]]
    a = {k.replace("class", "target"): tall[k] + short[k] for k in tall}
    a["nodes_missing_value_tracks_true"] = rng.integers(0, 2, len(a["nodes_modes"])).tolist()
    a["nodes_values"] = [float(rng.choice(special)) if rng.random() < 0.3 else v for v in a["nodes_values"]]
    node = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1, **a)
    model = built(tmp_path, node, [("x", FLOAT, ["N", 6])], [("y", FLOAT, ["N", 1])])
    engine = lathe_cli.compile_model(model, str(tmp_path / "m.lathe"))
    for rows in (1, 40):
        x = rng.normal(size=(rows, 6)).astype(np.float32)
        x[rng.random(x.shape) < 0.3] = np.nan
        x = np.where(rng.random(x.shape) < 0.3, rng.choice(special, x.shape), x).astype(np.float32)
        got = lathe_cli.run(engine, str(tmp_path / f"o{rows}"), inputs={"x": x})["y"]
        np.testing.assert_allclose(got, lathe_cli.session(model).run(None, {"x": x})[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("trees_of", [(3, 3, 3, 3), (5, 4, 5, 5), (1, 9, 1, 2)], ids=["equal", "filled", "unequal"])
@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_trees_of_one_target_each(tmp_path, trees_of, aggregate):
    """As boosting for several classes makes them: one weight a leaf, of equal numbers of trees or about as many; in any order."""
    rng = np.random.default_rng(sum(trees_of))
    targets = rng.permutation(np.repeat(np.arange(len(trees_of)), trees_of))
    tables = [forest(np.random.default_rng(30 + tree), 1, 3, 4, [int(target)], False) for tree, target in enumerate(targets)]
    a = {k.replace("class", "target"): [tree if k.endswith("treeids") else v for tree, table in enumerate(tables)
                                        for v in table[k]] for k in tables[0]}
    node = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=len(trees_of),
                            aggregate_function=aggregate, base_values=[0.5, -1.0, 2.0, 0.25], **a)
    model = built(tmp_path, node, [("x", FLOAT, ["N", 4])], [("y", FLOAT, ["N", len(trees_of)])])
    x = rng.normal(size=(30, 4)).astype(np.float32)
    got = lathe_cli.run(lathe_cli.compile_model(model, tmp_path / "m.lathe"), tmp_path / "out", inputs={"x": x})["y"]
    assert lathe_cli.relative_error(got, lathe_cli.session(model).run(None, {"x": x})[0]) <= 1e-6


def test_many_classes_of_trees_are_no_table_of_zeros(tmp_path):
    """76,800 leaves times 300 classes would be more than 2^24 weights."""
    rng = np.random.default_rng(6)
    tables = [forest(rng, 1, 8, 4, [tree], False) for tree in range(300)]
    a = {k: [tree if k.endswith("treeids") else v for tree, table in enumerate(tables) for v in table[k]] for k in tables[0]}
    node = helper.make_node("TreeEnsembleClassifier", ["x"], ["label", "scores"], domain="ai.onnx.ml",
                            classlabels_int64s=list(range(300)), **a)
    model = built(tmp_path, node, [("x", FLOAT, ["N", 4])], [("label", INT, ["N"]), ("scores", FLOAT, ["N", 300])])
    x = rng.normal(size=(5, 4)).astype(np.float32)
    got = lathe_cli.run(lathe_cli.compile_model(model, tmp_path / "m.lathe"), tmp_path / "out", inputs={"x": x})
    want = lathe_cli.session(model).run(None, {"x": x})
    np.testing.assert_array_equal(got["label"], want[0])
    assert lathe_cli.relative_error(got["scores"], want[1]) <= 1e-6


def test_tree_regressor_by_the_normal_quantile(tmp_path):
    """onnxruntime's quantile has three digits: the truth is that of the standard library."""
    rng = np.random.default_rng(5)
    tables = {k.replace("class_", "target_"): v for k, v in forest(rng, 3, 2, 4, [0], True).items()}
    results = {}
    for transform in ("NONE", "PROBIT"):
        node = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1,
                                post_transform=transform, **tables)
        model = built(tmp_path, node, [("x", FLOAT, ["N", 4])], [("y", FLOAT, ["N", 1])])
        x = rng.normal(size=(40, 4)).astype(np.float32) if not results else x
        results[transform] = lathe_cli.run(lathe_cli.compile_model(model, tmp_path / "m.lathe"), tmp_path / transform,
                                           inputs={"x": x})["y"]
    truth = np.vectorize(NormalDist().inv_cdf)(results["NONE"].astype(np.float64))
    assert lathe_cli.relative_error(results["PROBIT"], truth) <= 1e-6


NAN = float("nan")
# type of keys, keys, type of values, values, default
ENCODERS = [(INT, [1, 5, -9, 2**40], FLOAT, [0.5, 2.5, -1.0, 7.0], {"default_float": 9.0}, [1, 5, -9, 2**40, 3]),
            (FLOAT, [1.0, NAN, 0.5], INT, [4, 2**53 - 1, -1], {"default_int64": 77}, [1, NAN, 0.5, 0.25, -1]),
            (INT, [3, 4], INT, [4, 3], {}, [3, 4, 5])]


@pytest.mark.parametrize("key, keys, value, values, default, given", ENCODERS)
def test_label_encoder(tmp_path, key, keys, value, values, default, given):
    names = {INT: "int64s", FLOAT: "floats"}
    node = helper.make_node("LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml",
                            **{f"keys_{names[key]}": keys, f"values_{names[value]}": values}, **default)
    model = built(tmp_path, node, [("x", key, ["N", 1])], [("y", value, ["N", 1])], ml=2)
    x = np.array(given, np.int64 if key == INT else np.float32)[:, None]
    want, = lathe_cli.session(model).run(None, {"x": x})
    got = lathe_cli.run(lathe_cli.compile_model(model, tmp_path / "m.lathe"), tmp_path / "out", inputs={"x": x})["y"]
    np.testing.assert_array_equal(got, want)


def test_label_encoder_of_tensors(tmp_path):
    """From opset 4 on keys and values are tensors of any numbers."""
    tensor = helper.make_tensor
    node = helper.make_node("LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", keys_tensor=tensor("k", INT, [3], [8, 9, 10]),
                            values_tensor=tensor("v", DOUBLE, [3], [0.1, 0.2, 0.3]),
                            default_tensor=tensor("d", DOUBLE, [1], [-5.0]))
    model = built(tmp_path, node, [("x", INT, ["N"])], [("y", DOUBLE, ["N"])], ml=4)
    x = np.array([10, 8, 0, 9])
    got = lathe_cli.run(lathe_cli.compile_model(model, tmp_path / "m.lathe"), tmp_path / "out", inputs={"x": x})["y"]
    np.testing.assert_array_equal(got, [0.3, 0.1, -5.0, 0.2])
