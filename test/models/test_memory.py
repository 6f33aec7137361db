# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The memory plan: what the runtime allocates is the formula, byte for byte, at every size."""
import json
import os
import re

import pytest

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
        lathe("bench", engine, *given, "--seconds=0.01", "--json", result)
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
