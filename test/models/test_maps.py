# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ai.onnx.ml's ops on maps against onnxruntime: in columns, `y.keys` and `y.values`, and as dicts of `lathe.onnxruntime`."""
import os
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import lathe_cli

sys.path.insert(0, os.path.join(lathe_cli.ROOT, "python-frontend"))
import lathe  # noqa: E402
import lathe.onnxruntime as ort  # noqa: E402

FLOAT, DOUBLE, INT64, STRING = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64, TensorProto.STRING
OPSETS = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]


def tensor(name, element, *shape):
    return helper.make_tensor_value_info(name, element, list(shape))


def map_type(key, value):
    return helper.make_map_type_proto(key, helper.make_tensor_type_proto(value, []))


def model(nodes, inputs, outputs):
    return helper.make_model(helper.make_graph(nodes, "g", inputs, outputs), opset_imports=OPSETS, ir_version=10)


def ml(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs, outputs, op, domain="ai.onnx.ml", **attributes)


def value_info(name, kind):
    return helper.make_value_info(name, kind)


def both(made, feeds):
    """What onnxruntime and lathe say, as dicts, lists and arrays."""
    data = made.SerializeToString()
    return (onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, feeds),
            ort.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, feeds))


def classifier(labels, shape=("N", 4)):
    strings = isinstance(labels[0], str)
    kind = "strings" if strings else "int64s"
    coefficients = np.random.default_rng(3).standard_normal(4 * len(labels)).astype(np.float32)
    nodes = [ml("LinearClassifier", ["x"], ["label", "scores"], coefficients=coefficients.tolist(), intercepts=[0.1] * len(labels),
                post_transform="SOFTMAX", **{"classlabels_strings" if strings else "classlabels_ints": labels}),
             ml("Normalizer", ["scores"], ["p"], norm="L1"), ml("ZipMap", ["p"], ["maps"], **{f"classlabels_{kind}": labels})]
    key = STRING if strings else INT64
    return model(nodes, [tensor("x", FLOAT, *shape)],
                 [tensor("label", key, shape[0]), value_info("maps", helper.make_sequence_type_proto(map_type(key, FLOAT)))])


@pytest.mark.parametrize("labels", [["no", "yes", "perhaps"], [3, -1, 8], [0, 1]])
@pytest.mark.parametrize("rows", [0, 1, 5])
def test_zip_map(labels, rows):
    x = np.random.default_rng(rows).standard_normal((rows, 4)).astype(np.float32)
    want, got = both(classifier(labels), {"x": x})
    np.testing.assert_array_equal(got[0], want[0])
    assert len(got[1]) == len(want[1]) == rows
    for ours, theirs in zip(got[1], want[1]):
        assert list(ours) == list(theirs) == sorted(labels)
        np.testing.assert_allclose([ours[k] for k in labels], [theirs[k] for k in labels], rtol=1e-6)


def test_columns():
    """What C and the command see of it: keys once, and the matrix of values."""
    x = np.random.default_rng(1).standard_normal((3, 4)).astype(np.float32)
    labels = ["no", "yes", "perhaps"]
    got = lathe.compile(classifier(labels), target="x86-64-v3").run({"x": x})
    assert list(got) == ["label", "maps.keys", "maps.values"]
    assert got["maps.keys"].numpy().tolist() == labels
    assert got["maps.values"].numpy().shape == (3, 3)


@pytest.mark.parametrize("key, value, vocabulary, given", [
    (STRING, FLOAT, ["c", "a", "no such", "b"], {"a": 1.5, "b": -2.0, "z": 9.0}),
    (STRING, INT64, ["c", "a"], {"a": 7}), (STRING, DOUBLE, ["c", "a"], {"a": 0.1, "c": np.inf}), (INT64, FLOAT, [4, -1, 2], {2: 0.5, 4: np.nan}),
    (INT64, STRING, [4, -1, 2], {2: "two", 4: "four"})])
def test_dict_vectorizer(key, value, vocabulary, given):
    name = "string_vocabulary" if key == STRING else "int64_vocabulary"
    made = model([ml("DictVectorizer", ["x"], ["y"], **{name: vocabulary})], [value_info("x", map_type(key, value))],
                 [tensor("y", value, 1, len(vocabulary))])
    got, want = ort.InferenceSession(made.SerializeToString()).run(None, {"x": given})[0], [given.get(v, "" if value == STRING else 0) for v in vocabulary]
    np.testing.assert_array_equal(got, [want])
    assert got.dtype == helper.tensor_dtype_to_np_dtype(value)
    if value == FLOAT:  # the maps that onnxruntime takes from Python
        np.testing.assert_array_equal(both(made, {"x": given})[0][0], [want])


@pytest.mark.parametrize("value, given", [(FLOAT, {7: 1.0, 0: 2.5, 3: -4.75}), (STRING, {2: "15", 1: "-3"})])
@pytest.mark.parametrize("to", ["TO_FLOAT", "TO_INT64", "TO_STRING"])
@pytest.mark.parametrize("form", ["DENSE", "SPARSE"])
def test_cast_map(value, given, to, form):
    result = {"TO_FLOAT": FLOAT, "TO_INT64": INT64, "TO_STRING": STRING}[to]
    made = model([ml("CastMap", ["x"], ["y"], cast_to=to, map_form=form, max_map=9)], [value_info("x", map_type(INT64, value))],
                 [tensor("y", result, 1, None)])
    if form == "SPARSE" and STRING in (value, result):
        with pytest.raises(Exception, match="map_form = SPARSE of strings"):
            lathe.compile(made, target="x86-64-v3")
        return
    got = ort.InferenceSession(made.SerializeToString()).run(None, {"x": given})[0]
    count = 9 if form == "SPARSE" else len(given)
    want = [given.get(k, 0) for k in range(9)] if form == "SPARSE" else [given[k] for k in sorted(given)]
    convert = int if result == INT64 else float
    assert got.shape == (1, count) and [convert(v) for v in want] == [convert(v) for v in got[0]]
    if value == FLOAT and result != STRING:  # the maps that onnxruntime takes from Python; its texts of numbers are C's
        np.testing.assert_array_equal(got, both(made, {"x": given})[0][0])


def test_bad_maps():
    made = classifier([1, 2, 3])
    made.graph.node[2].attribute[0].ints.append(4)
    with pytest.raises(lathe.Error, match="'ZipMap' .*there are 4 classes for scores of 3"):
        lathe.compile(made, target="x86-64-v3")
    # A map is no sequence of its keys and values.
    length = model([ml("ZipMap", ["x"], ["m"], classlabels_int64s=[1, 2, 3]), helper.make_node("SequenceLength", ["m"], ["y"])],
                   [tensor("x", FLOAT, 2, 3)], [tensor("y", INT64)])
    with pytest.raises(lathe.Error, match="operand 0 is a map"):
        lathe.compile(length, target="x86-64-v3")
    vector = model([ml("DictVectorizer", ["x"], ["y"], string_vocabulary=["a"])], [value_info("x", map_type(INT64, FLOAT))],
                   [tensor("y", FLOAT, 1, 1)])
    with pytest.raises(lathe.Error, match="a vocabulary of the type of the map's keys"):
        lathe.compile(vector, target="x86-64-v3")
    vector.graph.node[0].attribute[0].CopyFrom(helper.make_attribute("int64_vocabulary", [1]))
    engine = lathe.compile(vector, target="x86-64-v3")
    with pytest.raises(lathe.Error, match="x.values"):
        engine.run({"x.keys": np.array([1, 2]), "x.values": np.array([1], np.float32)})
    with pytest.raises(ort.InvalidArgument, match="expected: .map.int64,tensor.float"):
        ort.InferenceSession(vector.SerializeToString()).run(None, {"x": [1, 2]})
