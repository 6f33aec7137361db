# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How many windows there are where the window is as large as the image, or larger."""
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

import lathe_cli


def make_model(folder, op, kernel, stride, **more):
    """One op over rows of x [1, 2, H, 3]."""
    attributes = dict(kernel_shape=[kernel, 1], strides=[stride, 1], **more)
    inputs, weights = ["x"], []
    if op == "Conv":
        inputs.append("w")
        values = np.random.default_rng(0).standard_normal((2, 2, kernel, 1)).astype(np.float32)
        weights.append(numpy_helper.from_array(values, "w"))
    graph = helper.make_graph(
        [helper.make_node(op, inputs, ["y"], **attributes)], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, "H", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2, None, 3])], weights)
    model = str(folder / "m.onnx")
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10),
         model)
    return model


def image(rows):
    return np.random.default_rng(rows).standard_normal((1, 2, rows, 3)).astype(np.float32)


@pytest.mark.parametrize("op,kernel,stride,more", [
    ("MaxPool", 2, 2, {}), ("MaxPool", 3, 2, {}), ("MaxPool", 3, 3, {}), ("MaxPool", 5, 3, {}),
    ("MaxPool", 2, 2, {"ceil_mode": 1}), ("MaxPool", 3, 2, {"pads": [1, 0, 1, 0]}),
    ("AveragePool", 2, 2, {}), ("AveragePool", 3, 2, {"count_include_pad": 1}),
    ("LpPool", 2, 2, {})])
def test_pool_of_few_rows(tmp_path, op, kernel, stride, more):
    model = make_model(tmp_path, op, kernel, stride, **more)
    session = lathe_cli.session(model)
    engine = lathe_cli.compile_model(model, tmp_path / "m.lathe")
    for rows in (1, 2, 3, 4, 7):
        x = image(rows)
        try:
            want, = session.run(None, {"x": x})
        except Exception:  # fewer than no windows: an error there and here
            want = None
        if want is None:
            lathe_cli.lathe("run", engine, "--device", lathe_cli.DEVICE, "--shape",
                            f"x=1x2x{rows}x3", code=5)
        else:
            got = lathe_cli.run(engine, tmp_path / str(rows), inputs={"x": x})["y"]
            assert lathe_cli.relative_error(got, want) <= 1e-6, rows


def test_window_larger_than_the_image(tmp_path):
    """onnxruntime refuses such a convolution; so does lathe, by name."""
    model = make_model(tmp_path, "Conv", 3, 2)
    engine = lathe_cli.compile_model(model, tmp_path / "m.lathe")
    text = lathe_cli.lathe("run", engine, "--device", lathe_cli.DEVICE, "--shape", "x=1x2x2x3",
                           code=5)
    assert "the window is larger than the image" in text
    want, = lathe_cli.session(model).run(None, {"x": image(3)})
    got = lathe_cli.run(engine, tmp_path / "out", inputs={"x": image(3)})["y"]
    assert lathe_cli.relative_error(got, want) <= 1e-5
