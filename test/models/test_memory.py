# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The memory plan: what the runtime allocates is the formula, byte for byte, at every size."""
import json
import os
import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import lathe_cli
from lathe_cli import MODELS, lathe

LLAMA = os.path.join(MODELS, "llama", "dynamo18_sdpa", "model.onnx")
# name: model, options of compile, sizes to run at
CASES = {
    "cls": (os.path.join(MODELS, "ppocr_cls.onnx"),
            ["--dim=x[0]=1:1:16", "--dim=x[2]=32:48:64", "--dim=x[3]=32:192:320"],
            [{"x": (1, 3, 48, 192)}, {"x": (1, 3, 32, 32)}, {"x": (16, 3, 64, 320)},
             {"x": (5, 3, 33, 101)}]),
    "magika": (os.path.join(MODELS, "magika.onnx"), ["--dim=unk__214=1:1:16"],
               [{"bytes": (1, 2048)}, {"bytes": (16, 2048)}]),
    "llama": (LLAMA, ["--dim=B=1:1:4", "--dim=S=1:16:512", "--dim=P=0:17:511"],
              [{"ids": (1, 16), "pos": (1, 16), "mask": (1, 16)},
               {"ids": (3, 7), "pos": (3, 7), "mask": (3, 7)},
               {"ids": (4, 128), "pos": (4, 128), "mask": (4, 128)}]),
}


def ceildiv(a, b):
    return -(-a // b)


def bcast(a, b):
    return b if a == 1 else a


FUNCTIONS = {"floordiv": lambda a, b: a // b, "ceildiv": ceildiv, "mod": lambda a, b: a % b,
             "min": min, "max": max, "bcast": bcast, "__builtins__": {}}


def evaluate(formula, sizes):
    """A formula of `inspect`, by Python's own arithmetic."""
    names = {re.sub(r"\W", "_", name): value for name, value in sizes.items()}
    text = re.sub(r"[A-Za-z_][\w.$]*", lambda m: re.sub(r"\W", "_", m[0]), formula)
    return eval(text, FUNCTIONS, names)


def sizes_of(plan, shapes):
    """Values of the entry's symbols for these input shapes; inputs left out are empty states."""
    result = {}
    for port in plan["ports"]["inputs"]:
        for dim, size in zip(port["dims"], shapes.get(port["name"], [])):
            if not dim.isdigit() and re.fullmatch(r"[\w.$]+", dim):
                result[dim] = size
    for symbol in plan["ports"]["symbols"]:
        result.setdefault(symbol["name"], symbol["min"])
    return result


@pytest.mark.parametrize("name", CASES)
def test_allocation_equals_the_formula(tmp_path, engines, name):
    model, options, cases = CASES[name]
    engine = engines(model, *options)
    plan, = json.loads(lathe("inspect", engine, "--json", "--memory", "--entries"))["plans"]
    formula = plan["memory"]["peak"]["formula"]
    seen = set()
    for shapes in cases:
        sizes = sizes_of(plan, shapes)
        given = []
        for port in plan["ports"]["inputs"]:
            dims = [evaluate(dim, sizes) for dim in port["dims"]]
            given.append(f"--shape={port['name']}={'x'.join(map(str, dims))}")
        result = tmp_path / "bench.json"
        lathe("bench", engine, *given, "--device", lathe_cli.DEVICE, "--seconds=0.01", "--json",
              result)
        with open(result) as f:
            measured = json.load(f)["arena_bytes"]
        assert measured == evaluate(formula, sizes), sizes
        seen.add(measured)
    assert len(seen) == len(cases) or not plan["ports"]["symbols"]


def test_peak_as_formula_numbers_and_picture(tmp_path, engines):
    model, options, _ = CASES["cls"]
    engine = engines(model, *options)
    text = lathe("inspect", engine, "--memory", "--svg", tmp_path / "memory.svg")
    memory = json.loads(lathe("inspect", engine, "--json", "--memory"))["plans"][0]["memory"]
    formula = memory["peak"]["formula"]
    assert f"peak of the arenas: {formula} bytes" in text
    for which in ("smallest", "usual", "largest"):
        point = dict(pair.split("=") for pair in memory["peak"][which]["sizes"].split(", "))
        sizes = {name: int(value) for name, value in point.items()}
        assert memory["peak"][which]["bytes"] == evaluate(formula, sizes)
        assert f"at the {which} sizes" in text
    with open(tmp_path / "memory.svg") as f:
        picture = f.read()
    drawn = [b for b in memory["buffers"]
             if b["kind"] in ("arena", "workspace") and b["first_step"] >= 0 and b["bytes"] > 0]
    assert drawn and picture.count("<rect") > len(drawn)
    for b in drawn:
        assert f"bytes {b['offset']} to {b['offset'] + b['bytes']} ({b['bytes']})" in picture


def weight(name, *sizes):
    rng = np.random.default_rng(sum(name.encode()))
    return numpy_helper.from_array((0.2 * rng.standard_normal(sizes)).astype(np.float32), name)


def images():
    """Two convolutions side by side, as in an inception block."""
    nodes = [helper.make_node("Conv", ["x", "w1"], ["a"]), helper.make_node("Relu", ["a"], ["r"]),
             helper.make_node("Conv", ["x", "w2"], ["b"], pads=[1, 1, 1, 1]),
             helper.make_node("Concat", ["r", "b"], ["c"], axis=1),
             helper.make_node("Conv", ["c", "w3"], ["y"], pads=[1, 1, 1, 1])]
    weights = [weight("w1", 5, 8, 1, 1), weight("w2", 7, 8, 3, 3), weight("w3", 4, 12, 3, 3)]
    return nodes, weights, ["N", 8, 13, 11], ["N", 4, 13, 11]


def rows():
    """Columns side by side, a residual, and rows below each other in an output."""
    nodes = [helper.make_node("MatMul", ["x", "w1"], ["a"]),
             helper.make_node("MatMul", ["x", "w2"], ["b"]),
             helper.make_node("Concat", ["a", "b"], ["c"], axis=1),
             helper.make_node("MatMul", ["c", "w3"], ["d"]),
             helper.make_node("MatMul", ["d", "w4"], ["e"]),
             helper.make_node("MatMul", ["e", "w5"], ["f"]),
             helper.make_node("Add", ["f", "d"], ["g"]),
             helper.make_node("MatMul", ["g", "w6"], ["h"]),
             helper.make_node("MatMul", ["g", "w7"], ["i"]),
             helper.make_node("Concat", ["h", "i"], ["y"], axis=0)]
    weights = [weight("w1", 16, 5), weight("w2", 16, 30), weight("w3", 35, 9), weight("w4", 9, 33),
               weight("w5", 33, 9), weight("w6", 9, 3), weight("w7", 9, 3)]
    return nodes, weights, ["N", 16], ["M", 3]


@pytest.mark.parametrize("make, slices, counts", [(images, 1, (1, 3)), (rows, 2, (1, 7, 64))])
def test_results_in_slices_of_concatenations(tmp_path, make, slices, counts):
    nodes, weights, given, wanted = make()
    graph = helper.make_graph(nodes, "g",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, given)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, wanted)], weights)
    model = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10),
              model)
    engine = lathe_cli.compile_model(model, tmp_path / "m.lathe", "--dim=N=1:1:64",
                                     f"--remarks={tmp_path / 'remarks.json'}")
    if lathe_cli.DEVICE == "cpu":
        with open(tmp_path / "remarks.json") as f:
            assert sum(r["name"] == "PlaceConcats" and r["kind"] == "passed"
                       for r in json.load(f)) == slices
    session = lathe_cli.session(str(model))
    for count in counts:
        x = np.random.default_rng(count).standard_normal([count, *given[1:]]).astype(np.float32)
        got = lathe_cli.run(engine, tmp_path / str(count), inputs={"x": x})["y"]
        assert lathe_cli.relative_error(got, session.run(None, {"x": x})[0]) < 1e-5
