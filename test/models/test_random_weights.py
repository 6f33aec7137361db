# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A graph whose external weights are absent compiles and runs on weights made from a seed."""
import re

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

import lathe_cli

TYPES = {"f32": (TensorProto.FLOAT, np.float32), "f16": (TensorProto.FLOAT16, np.float16)}


def random_elements(digest, dims, dtype):
    """Elements of `#lathe.weight<"random", ..., digest>`: include/lathe/support/RandomWeights.h."""
    stream = np.uint64(int(digest[:16], 16))
    center, reach = (np.array([int(digest[i:i + 8], 16)], np.uint32).view(np.float32)[0]
                     for i in (16, 24))
    with np.errstate(over="ignore"):
        z = stream + (np.arange(np.prod(dims), dtype=np.uint64) + np.uint64(1)) * np.uint64(
            0x9e3779b97f4a7c15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xbf58476d1ce4e5b9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94d049bb133111eb)
        z ^= z >> np.uint64(31)
    u = ((z >> np.uint64(40)).astype(np.int64) - (1 << 23)).astype(np.float64) * 2.0 ** -23
    wide = np.float64(center) + np.float64(reach) * u
    return wide.astype(np.float32).astype(dtype).reshape(dims)


def make_model(path, kind, known=None):
    """y = relu(x w + b) v: the weights external, in a file that is not there; or `known`."""
    proto, dtype = TYPES[kind]
    shapes = {"w": (96, 200), "b": (200,), "v": (200, 7)}
    weights = []
    for name, dims in shapes.items():
        if known is not None:
            weights.append(numpy_helper.from_array(known[name], name))
            continue
        tensor = TensorProto(name=name, data_type=proto, dims=dims,
                             data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value="absent.bin")
        weights.append(tensor)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["xw"]),
             helper.make_node("Add", ["xw", "b"], ["xwb"]),
             helper.make_node("Relu", ["xwb"], ["r"]), helper.make_node("MatMul", ["r", "v"], ["y"])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", proto, ["N", 96])],
                              [helper.make_tensor_value_info("y", proto, ["N", 7])], weights)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10),
         str(path))
    return path


def weights_of(model, seed, folder):
    """What the text of the imported model says that its weights are."""
    text = folder / f"import{seed}.mlir"
    lathe_cli.lathe("compile", model, f"--random-weights={seed}", "--stop-after=import", "-o", text)
    found = re.findall(r'#lathe.weight<"random", 0, \d+, "(\w+)"> : tensor<([0-9x]+)x(\w+)>',
                       text.read_text())
    return {tuple(map(int, dims.split("x"))): digest for digest, dims, _ in found}


@pytest.mark.parametrize("kind", sorted(TYPES))
def test_weights_are_what_the_seed_says(tmp_path, kind):
    model = make_model(tmp_path / "m.onnx", kind)
    digests = weights_of(model, 7, tmp_path)
    assert len(digests) == 3 and digests != weights_of(model, 8, tmp_path)
    dtype = TYPES[kind][1]
    names = {(96, 200): "w", (200,): "b", (200, 7): "v"}
    known = {names[dims]: random_elements(d, dims, dtype) for dims, d in digests.items()}
    assert 0.5 < np.abs(known["w"].astype(np.float32)).max() * np.sqrt(96 / 3) <= 1.001
    x = np.random.default_rng(0).standard_normal((5, 96)).astype(dtype)
    want = (np.maximum(x.astype(np.float64) @ known["w"] + known["b"], 0) @ known["v"])
    engine = lathe_cli.compile_model(model, tmp_path / "m.lathe", "--random-weights=7")
    got = lathe_cli.run(engine, tmp_path / "out", inputs={"x": x})["y"]
    assert np.abs(got - want).max() < (1e-5 if kind == "f32" else 2e-2)
    # Bytes in the file or made when it is loaded: the same function, bit for bit on one device.
    present = make_model(tmp_path / "known.onnx", kind, known)
    lathe_cli.compile_model(present, tmp_path / "known.lathe")
    assert np.array_equal(
        got, lathe_cli.run(tmp_path / "known.lathe", tmp_path / "out2", inputs={"x": x})["y"])


def test_texts_of_phases_give_the_same_engine(tmp_path):
    model = make_model(tmp_path / "m.onnx", "f16")
    for target in (lathe_cli.TARGET, "sm_90a"):
        options = [f"--target={target}", "--random-weights=7"]
        lathe_cli.lathe("compile", model, "-o", tmp_path / "m.lathe", *options)
        lathe_cli.lathe("compile", model, "-o", tmp_path / "m.mlir", "--stop-after=select", *options)
        lathe_cli.lathe("compile", tmp_path / "m.mlir", "-o", tmp_path / "n.lathe")
        assert (tmp_path / "m.lathe").read_bytes() == (tmp_path / "n.lathe").read_bytes()


def test_absent_weights_need_the_option(tmp_path):
    model = make_model(tmp_path / "m.onnx", "f32")
    text = lathe_cli.lathe("compile", model, "-o", tmp_path / "m.lathe", code=3)
    assert "--random-weights=SEED" in text and "'w'" in text
    text = lathe_cli.lathe("compile", model, "-o", tmp_path / "m.lathe", "--random-weights=1",
                           f"--target={lathe_cli.TARGET}")
    assert f"{(96 * 200 + 200 + 200 * 7) * 4} bytes of weights are absent" in text
