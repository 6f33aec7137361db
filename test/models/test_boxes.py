# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""NonMaxSuppression of any number of boxes against onnxruntime: fewer kept than fill a vector and many more, both forms of boxes,
with and without a limit and a threshold."""
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import lathe_cli


def boxes_and_scores(batches, classes, count, centers, seed):
    rng = np.random.default_rng(seed)
    corner, size = rng.uniform(0, 100, (batches, count, 2)), rng.uniform(1, 40, (batches, count, 2))
    boxes = np.concatenate([corner, size if centers else corner + size], 2)
    if not centers:  # corners come in any order
        turned = rng.random((batches, count)) < 0.5
        boxes[turned] = boxes[turned][:, [2, 1, 0, 3]]
    return boxes.astype(np.float32), rng.random((batches, classes, count)).astype(np.float32)


@pytest.mark.parametrize("centers", [0, 1])
def test_boxes_of_any_number(centers, tmp_path):
    floats, ints = TensorProto.FLOAT, TensorProto.INT64
    node = helper.make_node("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], ["y"], center_point_box=centers)
    inputs = [helper.make_tensor_value_info(*port) for port in (
        ("boxes", floats, ["B", "N", 4]), ("scores", floats, ["B", "C", "N"]), ("most", ints, [1]), ("overlap", floats, [1]),
        ("least", floats, [1]))]
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", ints, ["K", 3])])
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=10), path)
    engine, session = lathe_cli.compile_model(path, tmp_path / "m.lathe"), lathe_cli.session(str(path))
    for number, (batches, classes, count, most, overlap, least) in enumerate((
            (1, 1, 1, 5, 0.5, 0), (2, 3, 7, 100, 0.3, 0), (1, 2, 33, 4, 0.6, 0.2), (2, 2, 400, 1000, 0.4, 0), (1, 3, 700, 65, 0.9, 0.5),
            (1, 1, 50, 0, 0.5, 0), (1, 2, 40, 10, 0.5, 2))):
        boxes, scores = boxes_and_scores(batches, classes, count, centers, number)
        given = {"boxes": boxes, "scores": scores, "most": np.array([most]), "overlap": np.array([overlap], np.float32),
                 "least": np.array([least], np.float32)}
        got = lathe_cli.run(engine, tmp_path / str(number), inputs=given)["y"]
        assert np.array_equal(got, session.run(None, given)[0]), number
