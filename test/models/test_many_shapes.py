# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One engine for all shapes: 200 random assignments of sizes to ten models, each compiled once. Results are onnxruntime's, and
the memory that a run asks the allocator for (count_memory.c, preloaded) is what `inspect --memory` says, byte for byte: the
arenas, the scratch memory of each thread and status words; in whole pages, as CpuDevice allocates.

As a program it is the process with that allocator:  test_many_shapes.py ENGINE FOLDER COUNT
"""
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

import lathe_cli

HERE = os.path.dirname(os.path.abspath(__file__))
ASSIGNMENTS = 20  # of each model
PAGE, HUGE_PAGE = 4096, 2 << 20


def floats(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32) / 4


# name: text of the nodes, inputs (dtype and sizes), outputs, initializers, and the greatest value of each size
MODELS = {
    "rows": ("""h = MatMul(x, w) r = Relu(h) p = MatMul(r, v) s = Concat<axis = 0>(p, x) y = Softmax(s)""",
             {"x": ["N", 24]}, {"y": ["M", 24]}, {"w": floats(24, 77), "v": floats(77, 24)}, {"N": 300}),
    "norms": ("""a = LayerNormalization<axis = -1>(x, w) m = ReduceMean<axes = [0], keepdims = 1>(a) c = Sub(a, m)
               y = LogSoftmax<axis = 0>(c)""", {"x": ["N", "C", 48]}, {"y": ["N", "C", 48]}, {"w": floats(48)}, {"N": 40, "C": 30}),
    "images": ("""a = Conv<pads = [1, 1, 1, 1]>(x, w) r = Relu(a) p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r)
               b = Conv<pads = [1, 1, 1, 1], group = 8>(p, d) c = Conv(b, v) y = Sigmoid(c)""",
               {"x": ["N", 3, "H", "W"]}, {"y": ["N", 5, "P", "Q"]},
               {"w": floats(8, 3, 3, 3), "d": floats(8, 1, 3, 3), "v": floats(5, 8, 1, 1)}, {"N": 4, "H": 70, "W": 70}),
    "attention": ("""q = MatMul(x, w) k = MatMul(x, v) t = Transpose<perm = [0, 2, 1]>(k) s = MatMul(q, t) p = Softmax(s)
                  y = MatMul(p, x)""", {"x": ["B", "S", 32]}, {"y": ["B", "S", 32]}, {"w": floats(32, 32), "v": floats(32, 32)},
                  {"B": 5, "S": 90}),
    "cells": ("y, h, c = LSTM<hidden_size = 20>(x, w, r)", {"x": ["S", "B", 12]}, {"y": ["S", 1, "B", 20]},
              {"w": floats(1, 80, 12), "r": floats(1, 80, 20)}, {"S": 20, "B": 9}),
    "sorted": ("""shape = Shape(x) one = Constant<value_ints = [1]>() columns = Gather(shape, one)
               v, y = TopK(x, columns) few = Constant<value_ints = [5]>() z, i = TopK(x, few) t = Mul(z, z)""",
               {"x": ["N", "M"]}, {"v": ["N", "M"], "t": ["N", 5]}, {}, {"N": 12, "M": 900}),
    "resized": ("""none = Constant<value_floats = [0.0]>() e = Resize<mode = "linear">(x, , s) y = Add(e, e)""",
                {"x": ["N", 4, "H", "W"]}, {"y": ["N", 4, "P", "Q"]}, {"s": np.array([1, 1, 2, 1.5], np.float32)},
                {"N": 3, "H": 60, "W": 60}),
    "lookups": ("""e = Gather(w, i) r = ReduceSum<keepdims = 0>(e, axis) y = MatMul(r, v)""", {"i": ["N", "L"]}, {"y": ["N", 9]},
                {"w": floats(50, 16), "v": floats(16, 9), "axis": np.array([1])}, {"N": 80, "L": 30}),
    "products": ("""p = MatMul(a, b) s = Softmax(p) t = Transpose<perm = [1, 0, 2]>(s) y = ReduceMax<axes = [0], keepdims = 0>(t)""",
                 {"a": ["B", "M", "K"], "b": ["B", "K", "N"]}, {"y": ["B", "N"]}, {},
                 {"B": 4, "M": 60, "K": 50, "N": 70}),
    "waves": ("""a = Conv<pads = [4, 4]>(x, w) r = Tanh(a) g = ConvTranspose<strides = [2]>(r, v) y = CumSum(g, axis)""",
              {"x": ["N", 2, "T"]}, {"y": ["N", 3, "U"]}, {"w": floats(6, 2, 9), "v": floats(6, 3, 4), "axis": np.array(2)},
              {"N": 6, "T": 500}),
}


def write_model(name, path):
    import onnx
    from onnx import helper, numpy_helper, parser
    nodes, inputs, outputs, weights, _ = MODELS[name]

    def ports(sides):
        return ", ".join(f"{'int64' if n == 'i' else 'float'}[{', '.join(map(str, dims))}] {n}" for n, dims in sides.items())

    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 17]> g ({ports(inputs)}) => ({ports(outputs)}) {{ {nodes} }}')
    model.graph.initializer.extend(numpy_helper.from_array(value, n) for n, value in weights.items())
    onnx.save(model, path)


def aligned(shape, dtype):
    """An array that a run can use where it lies."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape))
    memory = np.zeros(count * dtype.itemsize + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start:start + count * dtype.itemsize].view(dtype).reshape(shape)


def draw(name, sizes, rng):
    """The inputs of a model at these sizes."""
    given = {}
    for port, dims in MODELS[name][1].items():
        shape = [sizes.get(d, d) for d in dims]
        values = aligned(shape, np.int64 if port == "i" else np.float32)
        values[...] = rng.integers(0, 50, shape) if port == "i" else rng.standard_normal(shape)
        given[port] = values
    return given


def whole_pages(size):
    size = max(size, 64)
    page = HUGE_PAGE if size >= HUGE_PAGE else PAGE
    return -(-size // page) * page


FUNCTIONS = {"floordiv": lambda a, b: a // b, "ceildiv": lambda a, b: -(-a // b), "mod": lambda a, b: a % b, "min": min, "max": max,
             "bcast": lambda a, b: b if a == 1 else a, "otherwise": True, "__builtins__": {}}


def evaluate(text, sizes):
    """A formula or a guard of `inspect`, by Python's own arithmetic."""
    return eval(text.replace("&&", "and"), FUNCTIONS, sizes)


def told(memory, sizes):
    """Bytes that a run of one thread takes, by what `inspect --memory` says."""
    arenas = sum(whole_pages(evaluate(arena["formula"], sizes)) for arena in memory["arenas"])
    scratch = [next(evaluate(v["formula"], sizes) for v in one["variants"] if evaluate(v["guard"], sizes)) for one in memory["scratch"]]
    status = whole_pages(memory["status_bytes"]) if memory["status_bytes"] else 0
    return arenas + (whole_pages(max(scratch)) if scratch and max(scratch) else 0) + status


@pytest.fixture(scope="module")
def allocator(tmp_path_factory):
    path = tmp_path_factory.mktemp("allocator") / "count_memory.so"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", path, os.path.join(HERE, "count_memory.c")], check=True)
    return str(path)


@pytest.mark.parametrize("name", MODELS)
def test_one_engine_for_all_sizes(name, allocator, tmp_path):
    write_model(name, tmp_path / "model.onnx")
    engine = lathe_cli.compile_model(tmp_path / "model.onnx", tmp_path / "model.lathe", target="native")
    plan, = json.loads(lathe_cli.lathe("inspect", engine, "--json", "--memory"))["plans"]
    rng = np.random.default_rng(sorted(MODELS).index(name))
    least = {"M": 5} if name == "sorted" else {"H": 2, "W": 2} if name == "images" else {}
    session = lathe_cli.session(str(tmp_path / "model.onnx"))
    cases, seen = [], set()
    for number in range(ASSIGNMENTS):
        sizes = {d: int(rng.integers(least.get(d, 1), most + 1)) for d, most in MODELS[name][4].items()}
        inputs = draw(name, sizes, rng)
        wanted = dict(zip((o.name for o in session.get_outputs()), session.run(None, inputs)))
        np.savez(tmp_path / f"inputs_{number}.npz", **inputs)
        np.savez(tmp_path / f"shapes_{number}.npz", **{n: np.array(v.shape) for n, v in wanted.items()})
        cases.append((sizes, wanted))
    environment = {**os.environ, "LD_PRELOAD": allocator, "LATHE_BUILD": lathe_cli.BUILD,
                   "PYTHONPATH": os.pathsep.join([os.path.join(lathe_cli.ROOT, "python-frontend"), HERE])}
    done = subprocess.run([sys.executable, os.path.abspath(__file__), engine, tmp_path, str(ASSIGNMENTS)], env=environment,
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    counted = json.loads(done.stdout)
    for number, (sizes, wanted) in enumerate(cases):
        got = np.load(tmp_path / f"outputs_{number}.npz")
        for output, value in wanted.items():
            assert got[output].shape == value.shape and lathe_cli.relative_error(got[output], value) < 1e-4, (sizes, output)
        assert counted[number]["arena_bytes"] == evaluate(plan["memory"]["peak"]["formula"], sizes), sizes
        assert counted[number]["bytes"] == told(plan["memory"], sizes), sizes
        seen.add(counted[number]["arena_bytes"])
    assert len(seen) > 1 or not re.search("[A-Z]", plan["memory"]["peak"]["formula"])


def main(engine_file, folder, count):
    """Runs an engine once in each of new contexts, at sizes of its own; says what that took."""
    import ctypes

    import lathe
    allocator = ctypes.CDLL(os.environ["LD_PRELOAD"])
    allocator.count_end.restype = ctypes.c_size_t
    engine, counted = lathe.load(engine_file), []
    for number in range(count):
        inputs = {}
        for name, value in np.load(os.path.join(folder, f"inputs_{number}.npz")).items():
            inputs[name] = aligned(value.shape, value.dtype)
            inputs[name][...] = value
        outputs = {name: aligned(tuple(shape), np.float32)
                   for name, shape in np.load(os.path.join(folder, f"shapes_{number}.npz")).items()}
        context = engine.context(threads=1)
        step = context.bind(inputs, outputs)
        allocator.count_begin()
        step()
        counted.append({"bytes": allocator.count_end(), "arena_bytes": context.counters["arena_bytes"]})
        np.savez(os.path.join(folder, f"outputs_{number}.npz"), **outputs)
    print(json.dumps(counted))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
