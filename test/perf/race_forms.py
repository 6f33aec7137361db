# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Forms of convolutions by themselves, against the rivals: one node with constant weights and a bias,
f32, images with channels first on both sides, as the file has them."""
import os

import numpy as np

import race_measure

# name: (op, channels, filters, window, strides, image, attributes)
FORMS = {
    "transposed 4x4 s2, 128-64, 32^2": ("ConvTranspose", 128, 64, (4, 4), 2, (32, 32), {"pads": 1}),
    "transposed 4x4 s2, 64-3, 64^2": ("ConvTranspose", 64, 3, (4, 4), 2, (64, 64), {"pads": 1}),
    "transposed 3x3 s2, 64-64, 56^2": ("ConvTranspose", 64, 64, (3, 3), 2, (56, 56),
                                       {"pads": 1, "output_padding": [1, 1]}),
    "transposed 3x3 s2 whole, 64-32, 28^2": ("ConvTranspose", 64, 32, (3, 3), 2, (28, 28), {}),
    "transposed 2x2 s2, 128-64, 32^2": ("ConvTranspose", 128, 64, (2, 2), 2, (32, 32), {}),
    "transposed 16x16 s8, 21-21, 20^2": ("ConvTranspose", 21, 21, (16, 16), 8, (20, 20), {"pads": 4}),
    "transposed 4x4 s2 of each channel, 128, 32^2": ("ConvTranspose", 128, 128, (4, 4), 2, (32, 32),
                                                     {"pads": 1, "group": 128}),
    "transposed 16 s8, 256-128, 200": ("ConvTranspose", 256, 128, (16,), 8, (200,), {"pads": 4}),
    "transposed 4x4x4 s2, 32-16, 16^3": ("ConvTranspose", 32, 16, (4, 4, 4), 2, (16, 16, 16),
                                         {"pads": 1}),
    "depthwise 31, 256, 400": ("Conv", 256, 256, (31,), 1, (400,), {"pads": 15, "group": 256}),
    "depthwise 4, 1536, 256": ("Conv", 1536, 1536, (4,), 1, (256,), {"pads": [3, 0], "group": 1536}),
    "1-d 7, 256-256, 400": ("Conv", 256, 256, (7,), 1, (400,), {"pads": 3}),
    "3-d 3x7x7 s1,2,2, 3-64, 16x112^2": ("Conv", 3, 64, (3, 7, 7), (1, 2, 2), (16, 112, 112),
                                         {"pads": [1, 3, 3, 1, 3, 3]}),
    "3-d 3x3x3, 3-64, 8x56^2": ("Conv", 3, 64, (3, 3, 3), 1, (8, 56, 56), {"pads": 1}),
    "3-d 3x3x3, 64-64, 8x28^2": ("Conv", 64, 64, (3, 3, 3), 1, (8, 28, 28), {"pads": 1}),
}


def names():
    return list(FORMS)


def model_of(op, channels, filters, window, strides, image, attributes):
    import onnx
    from onnx import TensorProto, helper
    rank, group = len(image), attributes.get("group", 1)
    settings = {"kernel_shape": list(window), **attributes,
                "strides": list(strides) if isinstance(strides, tuple) else [strides] * rank}
    if isinstance(settings.get("pads"), int):
        settings["pads"] = [settings["pads"]] * (2 * rank)
    r = np.random.default_rng(0)
    shape = [channels, filters // group] if op == "ConvTranspose" else [filters, channels // group]
    w = r.standard_normal(shape + list(window), dtype=np.float32) / np.float32(np.sqrt(channels))
    b = r.standard_normal(filters, dtype=np.float32)
    graph = helper.make_graph(
        [helper.make_node(op, ["x", "w", "b"], ["y"], **settings)], "form",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, channels, *image])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(w, "w"), onnx.numpy_helper.from_array(b, "b")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return onnx.shape_inference.infer_shapes(model), r


def case(name, args, workplace):
    """As race_cells.case: the engine, and what measures it."""
    import lathe_cli
    import onnx
    folder = workplace("form_" + "".join(c if c.isalnum() else "_" for c in name))
    file, inputs = os.path.join(folder, "model.onnx"), os.path.join(folder, "ours.npz")
    model, r = model_of(*FORMS[name])
    onnx.save(model, file)
    x = r.uniform(-1, 1, [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim])
    x = x.astype(np.float32)
    np.savez(inputs, x=x)
    engine = os.path.join(folder, "model.lathe")
    lathe_cli.lathe("compile", file, "-o", engine, f"--target={args.target}")

    def measure():
        got = lathe_cli.run(engine, os.path.join(folder, "outputs"), inputs={"x": x})["y"]
        want = race_measure.ort_session(file, 1).run(None, {"x": x})[0]
        row = {"threads": {}, "error": lathe_cli.relative_error(got, want)}
        for t in map(int, args.threads.split(",")):
            row["threads"][str(t)] = race_measure.race(
                folder, file, inputs, t, args.peers.split(","), args)
        return row
    return [engine], measure
