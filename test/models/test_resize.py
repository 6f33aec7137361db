# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Resize where sizes are symbols: of the batch alone, of the image, as numbers that arrive with a run; against
onnxruntime at several shapes of one engine."""
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

import lathe_cli

COORDINATES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric",
               "tf_half_pixel_for_nn", "tf_crop_and_resize")
ROUNDING = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")


def forms(mode):
    """Attribute sets of a mode that onnxruntime takes."""
    for coordinates in COORDINATES:
        if mode == "nearest":
            yield from ({"coordinate_transformation_mode": coordinates, "nearest_mode": r} for r in ROUNDING)
        elif coordinates != "tf_half_pixel_for_nn":
            yield {"coordinate_transformation_mode": coordinates}
            if mode == "cubic" and coordinates in ("half_pixel", "align_corners"):
                yield {"coordinate_transformation_mode": coordinates, "cubic_coeff_a": -0.5, "exclude_outside": 1}


def build(folder, nodes, inputs, constants, outputs):
    folder.mkdir(exist_ok=True)
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info(y, TensorProto.FLOAT, [None] * 4) for y in outputs],
                              [numpy_helper.from_array(v, k) for k, v in constants.items()])
    model = str(folder / "m.onnx")
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9), model)
    return lathe_cli.compile_model(model, folder / "m.lathe"), lathe_cli.session(model)


def check(folder, engine, session, feeds, tolerance=3e-6):
    want = session.run(None, feeds)
    got = lathe_cli.run(engine, folder, inputs=feeds)
    for output, expected in zip(session.get_outputs(), want):
        assert lathe_cli.relative_error(got[output.name], expected) <= tolerance, output.name


IMAGE = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2, "H", "W"])
ROI = np.array([0, 0, 0.13, 0.2, 1, 1, 0.9, 1.2], np.float32)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_symbolic_image(tmp_path, mode):
    """By scales, and to the size of another image."""
    nodes, outputs = [helper.make_node("Shape", ["other"], ["to"], start=2), helper.make_node("Shape", ["x"], ["nc"], end=2),
                      helper.make_node("Concat", ["nc", "to"], ["sizes"], axis=0)], []
    constants = {"roi": ROI}
    for i, attributes in enumerate(forms(mode)):
        roi = "roi" if attributes["coordinate_transformation_mode"] == "tf_crop_and_resize" else ""
        extra = {"extrapolation_value": 0.25} if roi else {}
        for kind in ("sizes", "scales"):
            name = f"{kind}_{i}"
            if kind == "scales":
                # By corners ONNX divides by the exact width, onnxruntime by it rounded down: whole factors.
                whole = attributes["coordinate_transformation_mode"] in ("align_corners", "tf_crop_and_resize", "half_pixel_symmetric")
                factors = (2, 3) if whole else ((0.7, 2), (1.5, 0.6), (2.3, 3))[i % 3]
                constants[f"s{i}"] = np.array([1, 1, *factors], np.float32)
            operands = ["x", roi, "", "sizes"] if kind == "sizes" else ["x", roi, f"s{i}"]
            nodes.append(helper.make_node("Resize", operands, [name], name, mode=mode, **attributes, **extra))
            outputs.append(name)
    other = helper.make_tensor_value_info("other", TensorProto.FLOAT, ["M", 1, "A", "B"])
    engine, session = build(tmp_path, nodes, [IMAGE, other], constants, outputs)
    rng = np.random.default_rng(1)
    for i, (n, h, w, a, b) in enumerate([(1, 8, 10, 5, 20), (2, 10, 7, 13, 9), (3, 5, 6, 1, 9), (1, 20, 30, 10, 15)]):
        feeds = {"x": rng.normal(size=(n, 2, h, w)).astype(np.float32), "other": np.zeros((1, 1, a, b), np.float32)}
        check(tmp_path / str(i), engine, session, feeds)


def test_symbolic_batch(tmp_path):
    """A detector's: the batch is a symbol, the image's size known. Two neighbours are gathered along each axis."""
    nodes = [helper.make_node("Shape", ["x"], ["n"], end=1), helper.make_node("Concat", ["n", "rest"], ["sizes"], axis=0),
             helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="linear")]
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2, 6, 12])
    engine, session = build(tmp_path, nodes, [image], {"rest": np.array([2, 17, 31])}, ["y"])
    for n in (1, 3):
        check(tmp_path / str(n), engine, session, {"x": np.random.default_rng(n).normal(size=(n, 2, 6, 12)).astype(np.float32)})
    kernels = lathe_cli.lathe("inspect", engine, "--kernels")
    assert "matmul" not in kernels and "gather" in kernels


def test_known_sizes_weigh_as_exactly(tmp_path):
    """Where both sizes are known: the weights of places far along an axis are right to the last bits of f32, too."""
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="linear", coordinate_transformation_mode="pytorch_half_pixel")
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 2, 997])
    engine, _ = build(tmp_path, [node], [image], {"sizes": np.array([1, 1, 2, 90])}, ["y"])
    x = np.random.default_rng(3).normal(size=(1, 1, 2, 997)).astype(np.float32)
    places = (np.arange(90) + 0.5) * 997 / 90 - 0.5
    left = np.floor(places).astype(int)
    expected = x[..., left] * (1 - (places - left)) + x[..., left + 1] * (places - left)
    assert lathe_cli.relative_error(lathe_cli.run(engine, tmp_path / "run", inputs={"x": x})["y"], expected) <= 3e-7


def test_border_is_exact(tmp_path):
    """Beyond the border both neighbours are the same element: the result is that element, whether the size is known or not."""
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="linear")
    for i, width in enumerate((1, "W")):
        image = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 3, width])
        engine, _ = build(tmp_path / str(i), [node], [image], {"sizes": np.array([1, 1, 3, 18])}, ["y"])
        x = np.random.default_rng(5).normal(size=(1, 1, 3, 1)).astype(np.float32)
        got = lathe_cli.run(engine, tmp_path / str(i) / "run", inputs={"x": x})["y"]
        assert (got == np.repeat(x, 18, axis=3)).all(), width


def test_sizes_of_a_run(tmp_path):
    """The sizes are an input."""
    node = helper.make_node("Resize", ["x", "", "", "v"], ["y"], mode="linear", axes=[2, 3])
    sizes = helper.make_tensor_value_info("v", TensorProto.INT64, [2])
    engine, session = build(tmp_path, [node], [IMAGE, sizes], {}, ["y"])
    for i, v in enumerate([(3, 4), (16, 1), (10, 10)]):
        x = np.random.default_rng(i).normal(size=(2, 2, 10, 6)).astype(np.float32)
        check(tmp_path / str(i), engine, session, {"x": x, "v": np.array(v)})


def test_antialias(tmp_path):
    """By a scale that is known."""
    scales = {"s": np.array([1, 1, 0.6, 0.35], np.float32)}
    nodes = [helper.make_node("Resize", ["x", "", "s"], [mode], mode=mode, antialias=1) for mode in ("linear", "cubic")]
    engine, session = build(tmp_path, nodes, [IMAGE], scales, ["linear", "cubic"])
    for i, (h, w) in enumerate([(10, 20), (15, 40)]):
        check(tmp_path / str(i), engine, session, {"x": np.random.default_rng(i).normal(size=(1, 2, h, w)).astype(np.float32)}, 1e-5)


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_kept_aspect(tmp_path, policy):
    """One scale for both axes, whichever the run's sizes decide."""
    node = helper.make_node("Resize", ["x", "", "", "v"], ["y"], mode="linear", axes=[2, 3], keep_aspect_ratio_policy=policy)
    sizes = helper.make_tensor_value_info("v", TensorProto.INT64, [2])
    engine, session = build(tmp_path, [node], [IMAGE, sizes], {}, ["y"])
    for i, v in enumerate([(3, 4), (16, 5), (10, 7), (7, 20)]):
        x = np.random.default_rng(i).normal(size=(1, 2, 10, 6)).astype(np.float32)
        check(tmp_path / str(i), engine, session, {"x": x, "v": np.array(v)})


def test_roi_of_a_run(tmp_path):
    node = helper.make_node("Resize", ["x", "roi", "", "to"], ["y"], mode="linear", axes=[2, 3], extrapolation_value=0.5,
                            coordinate_transformation_mode="tf_crop_and_resize")
    roi = helper.make_tensor_value_info("roi", TensorProto.FLOAT, [4])
    engine, session = build(tmp_path, [node], [IMAGE, roi], {"to": np.array([7, 9])}, ["y"])
    for i, place in enumerate([(0, 0, 1, 1), (0.2, -0.3, 0.7, 1.1)]):
        x = np.random.default_rng(i).normal(size=(1, 2, 10, 6)).astype(np.float32)
        check(tmp_path / str(i), engine, session, {"x": x, "roi": np.array(place, np.float32)})


def test_antialias_of_a_run(tmp_path):
    """How many elements count follows from the sizes of the run."""
    nodes = [helper.make_node("Resize", ["x", "", "", "v"], [mode], mode=mode, axes=[2, 3], antialias=1) for mode in ("linear", "cubic")]
    sizes = helper.make_tensor_value_info("v", TensorProto.INT64, [2])
    engine, session = build(tmp_path, nodes, [IMAGE, sizes], {}, ["linear", "cubic"])
    for i, v in enumerate([(4, 5), (9, 2), (12, 3)]):
        x = np.random.default_rng(i).normal(size=(1, 2, 10, 16)).astype(np.float32)
        check(tmp_path / str(i), engine, session, {"x": x, "v": np.array(v)}, 1e-5)
