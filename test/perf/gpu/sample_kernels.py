# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels that nobody tuned for: ten classes of them, of sizes that a seed draws, against copies and torch.

    sample_kernels.py prepare FOLDER [SEED] [CLASS...]   without a GPU: draws, compiles an engine for each (sm_90a)
    sample_kernels.py run FOLDER [--seconds=S] [CLASS...]  on a GPU with torch: checks each result, then times all sides
                                          in shuffled rounds; then once more, with torch.compile beside them, those that
                                          reach less than 0.85 of copy, the slowest first; nothing is begun after S seconds

Without SEED it is fresh; the first line says it. reduce, norm, depthwise, grouped, conv1d, transpose, gather, scatter,
pool and resize: types, axes, windows and layouts are drawn, sizes by even logarithms so that 12 to 200 MB move.

Caches are cold: each side goes through sets of operands and results that exceed the second-level cache, each set a CUDA
graph, one behind the other behind a kernel that waits until all are submitted. Rivals are a copy that reads and writes
half of the bytes each, torch's own kernels, and torch.compile's. A kernel's score is its speed as a part of the copy's or of
the fastest rival's, whichever is more; the mean counts no score above 1. Bars: mean 0.85, none below 0.5. Exit code 1 when
a result is wrong or a bar is not reached; the last lines say how many scores torch.compile had no part in.
"""
import ctypes
import json
import math
import os
import random
import statistics
import subprocess
import sys
import time
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.environ.get("LATHE_ROOT", os.path.abspath(os.path.join(HERE, "..", "..", "..")))
sys.path[:0] = [HERE, os.path.join(ROOT, "python-frontend")]
from generated import LATHE, TARGET, prepare_all  # noqa: E402

COUNTS = {"reduce": 40, "norm": 40, "depthwise": 30, "grouped": 25, "conv1d": 30, "transpose": 35, "gather": 35,
          "scatter": 25, "pool": 30, "resize": 30}
MEAN, LEAST = 0.85, 0.5
COLD = 150e6  # bytes that all sets of a side have together, three times the cache
ROUNDS, SLOW = 12, 0.5  # seconds of all sets, from which on one round must do
WIDTH = {"f32": 4, "f16": 2, "bf16": 2, "i64": 8, "i32": 4, "i8": 1}
ONNX = {"f32": "FLOAT", "f16": "FLOAT16", "bf16": "BFLOAT16", "i64": "INT64", "i32": "INT32", "i8": "INT8"}


# ---- What is drawn --------------------------------------------------------------------------------
# A case: op, its numbers, `inputs` {name: [type, shape]} of the run and `weights`, which are constants.

def even(rng, low, high):
    return int(math.exp(rng.uniform(math.log(low), math.log(high + 1))))


def shape(rng, elements, rank, last=1):
    """About so many elements; sizes of any kind, the last a multiple of `last`."""
    cuts = sorted(rng.uniform(0.1, 1) for _ in range(rank - 1))
    parts = [b - a for a, b in zip([0, *cuts], [*cuts, 1])]
    rng.shuffle(parts)
    sizes = [max(1, round(elements ** p)) for p in parts]
    sizes[-1] = max(last, sizes[-1] // last * last)
    axis = max(range(rank), key=lambda i: sizes[i])
    sizes[axis] = max(1, int(elements / (math.prod(sizes) / sizes[axis])))
    if axis == rank - 1:
        sizes[-1] = max(last, sizes[-1] // last * last)
    return sizes


def draw_reduce(rng):
    kind, rank = rng.choice(["f16", "bf16", "f32"]), rng.randint(1, 4)
    op = rng.choice(["sum", "mean", "amax", "amin", "norm", "logsumexp", "argmax"])
    kind = "f32" if op == "argmax" else kind
    x = shape(rng, even(rng, 12e6, 190e6) / WIDTH[kind], rank, rng.choice([1, 8]))
    axes = sorted(rng.sample(range(rank), 1 if op == "argmax" else rng.randint(1, rank)))
    return {"op": op, "axes": axes, "inputs": {"x": [kind, x]}, "weights": {}}


def draw_norm(rng):
    kind = rng.choice(["f16", "bf16", "f32"])
    op = rng.choice(["layer_norm", "rms_norm", "softmax", "log_softmax", "group_norm", "instance_norm"])
    elements = even(rng, 6e6, 95e6) / WIDTH[kind]
    case = {"op": op, "inputs": {}, "weights": {}}
    if op in ("group_norm", "instance_norm"):
        groups = even(rng, 2, 64)
        channels = groups if op == "instance_norm" else groups * even(rng, 1, 32)
        side = max(4, int((elements / channels / (n := even(rng, 1, 32))) ** 0.5))
        x = [n, channels, side, side]
        case.update(groups=groups)
    else:
        row = even(rng, 32, 65536)
        x = [max(1, int(elements / row)), row if rng.random() < 0.3 else max(8, row // 8 * 8)]
    if "softmax" in op:
        case.update(axis=1)
        if rng.random() < 0.3:  # along a middle axis
            x, case["axis"] = [even(rng, 1, 16), even(rng, 16, 2048), 0], 1
            x[2] = max(1, int(elements / math.prod(x[:2])))
    else:
        case["weights"] = {w: [kind, [x[1]]] for w in ("w", "b")[:1 if op == "rms_norm" else 2]}
    case["inputs"] = {"x": [kind, x]}
    return case


def images(rng, kind, channels, elements, least=7):
    batch = even(rng, 1, 64)
    side = max(least, int((elements / channels / batch) ** 0.5))
    return [batch, max(least, int(side * rng.choice([1, 1, 0.75, 1.4]))), side, channels]


def draw_depthwise(rng):
    kind, k, channels = rng.choice(["f16", "f16", "bf16"]), rng.choice([3, 3, 5, 7, 7, 9]), 8 * even(rng, 2, 128)
    x = images(rng, kind, channels, even(rng, 6e6, 95e6) / 2, k)
    return {"op": "conv", "stride": rng.choice([1, 1, 2]), "pad": k // 2, "groups": channels, "last": True,
            "inputs": {"x": [kind, x]}, "weights": {"w": [kind, [channels, 1, k, k]]}}


def draw_grouped(rng):
    kind, groups, width = rng.choice(["f16", "f16", "bf16"]), 2 ** rng.randint(1, 6), 8 * rng.choice([1, 2, 3, 4, 6, 8])
    x = images(rng, kind, groups * width, even(rng, 6e6, 60e6) / 2)
    return {"op": "conv", "stride": rng.choice([1, 1, 2]), "pad": 1, "groups": groups, "last": True,
            "inputs": {"x": [kind, x]}, "weights": {"w": [kind, [groups * width, width, 3, 3]]}}


def draw_conv1d(rng):
    """As models of speech have them: channels first."""
    kind, k = rng.choice(["f16", "f16", "bf16"]), rng.choice([2, 3, 3, 4, 5, 7, 8, 11, 15, 31])
    channels = 8 * even(rng, 4, 96)
    groups = rng.choice([1, 1, 1, channels, channels // 8])
    filters = channels if groups > 1 else 8 * even(rng, 4, 96)
    batch = even(rng, 1, 32)
    length = max(2 * k, int(even(rng, 6e6, 40e6) / 2 / batch / channels))
    return {"op": "conv", "stride": rng.choice([1, 1, 1, 2]), "pad": k // 2, "groups": groups, "last": False,
            "inputs": {"x": [kind, [batch, channels, length]]}, "weights": {"w": [kind, [filters, channels // groups, k]]}}


def draw_transpose(rng):
    kind, rank = rng.choice(["f16", "bf16", "f32", "i8", "i64"]), rng.randint(2, 5)
    x = shape(rng, even(rng, 6e6, 95e6) / WIDTH[kind], rank, rng.choice([1, 8]))
    order = list(range(rank))
    while order == sorted(order):
        rng.shuffle(order)
    return {"op": "permute", "perm": order, "inputs": {"x": [kind, x]}, "weights": {}}


def draw_gather(rng):
    kind, op = rng.choice(["f16", "bf16", "f32"]), rng.choice(["index_select", "index_select", "gather", "gather_nd"])
    moved = even(rng, 6e6, 95e6) / WIDTH[kind]
    if op == "gather":  # one index an element
        rows, axis = even(rng, 16, 4096), rng.choice([0, 1])
        x = [rows, max(8, int(moved / 5 / rows))]
        picked = list(x)
        picked[axis] = max(1, int(x[axis] * rng.uniform(0.3, 1.5)))
        return {"op": op, "axis": axis, "inputs": {"x": [kind, x], "i": ["i64", picked]}, "weights": {}}
    if op == "gather_nd":
        row = even(rng, 8, 2048)
        a, b = even(rng, 8, 64), even(rng, 8, 64)
        return {"op": op, "inputs": {"x": [kind, [a, b, row]], "i": ["i64", [max(1, int(moved / row)), 2]]}, "weights": {}}
    outer, inner = (1, even(rng, 16, 4096)) if rng.random() < 0.6 else (even(rng, 2, 256), even(rng, 1, 256))
    rows = even(rng, 64, 50000)
    rows = max(8, min(rows, int(moved / outer / inner)))
    return {"op": op, "axis": 1, "inputs": {"x": [kind, [outer, rows, inner]],
                                            "i": ["i64", [max(1, int(moved / outer / inner))]]}, "weights": {}}


def draw_scatter(rng):
    """No two updates have one place but where they are added."""
    kind, op = rng.choice(["f16", "f32"]), rng.choice(["scatter", "scatter_add", "scatter_nd", "scatter_nd"])
    moved = even(rng, 6e6, 60e6) / WIDTH[kind]
    if op == "scatter_nd":  # rows
        row = even(rng, 8, 2048)
        rows = max(16, int(moved / row))
        return {"op": op, "inputs": {"x": [kind, [rows, row]], "i": ["i64", [max(1, int(rows * rng.uniform(0.05, 0.9))), 1]],
                                     "u": [kind, None]}, "weights": {}}
    columns = even(rng, 16, 8192)
    rows = max(16, int(moved / columns))
    picked = max(1, int(rows * rng.uniform(0.05, 0.5)))
    kind = "f32" if op == "scatter_add" else kind
    return {"op": op, "axis": 0, "inputs": {"x": [kind, [rows, columns]], "i": ["i64", [picked, columns]],
                                            "u": [kind, [picked, columns]]}, "weights": {}}


def draw_pool(rng):
    kind, k = rng.choice(["f16", "bf16", "f32"]), rng.choice([2, 2, 3, 3, 4, 5, 7])
    channels = even(rng, 3, 1024)
    n, h, w, c = images(rng, kind, channels, even(rng, 6e6, 95e6) / WIDTH[kind], 2 * k)
    last = rng.random() < 0.5
    return {"op": rng.choice(["max_pool", "avg_pool"]), "k": k, "stride": rng.choice([1, 2, k]), "pad": rng.choice([0, k // 2]),
            "last": last, "inputs": {"x": [kind, [n, h, w, c] if last else [n, c, h, w]]}, "weights": {}}


def draw_resize(rng):
    kind, channels = rng.choice(["f16", "bf16", "f32"]), even(rng, 3, 512)
    scale = rng.choice([2, 2, 4, 0.5, 1.5, 0.75])
    n, h, w, c = images(rng, kind, channels, even(rng, 6e6, 95e6) / WIDTH[kind] / max(1, scale * scale), 8)
    last = rng.random() < 0.4
    return {"op": "resize", "mode": rng.choice(["nearest", "bilinear", "bilinear", "bicubic"]), "last": last,
            "size": [int(h * scale), int(w * scale)],
            "inputs": {"x": [kind, [n, h, w, c] if last else [n, c, h, w]]}, "weights": {}}


def draw(seed, classes):
    cases = []
    for name, count in COUNTS.items():
        rng = random.Random(f"{seed} {name}")
        for i in range(count):
            case = globals()["draw_" + name](rng)
            for given in case["inputs"].values():
                if given[1] is None:  # rows that are scattered
                    given[1] = [case["inputs"]["i"][1][0], *case["inputs"]["x"][1][1:]]
            cases.append({"class": name, "name": f"{name}_{i}", **case})
    return [c for c in cases if not classes or c["class"] in classes]


def described(case):
    form = " ".join(f"{k}={v}" for k, v in case.items() if k not in ("class", "name", "op", "inputs", "weights", "configs", "bytes"))
    sizes = "x".join(map(str, case["inputs"]["x"][1]))
    kernel = "x".join(map(str, case["weights"]["w"][1])) if case["op"] == "conv" else ""
    picked = "x".join(map(str, case["inputs"]["i"][1])) if "i" in case["inputs"] else ""
    return " ".join(filter(None, (case["op"], case["inputs"]["x"][0], sizes, kernel or picked, form)))


# ---- Without a GPU --------------------------------------------------------------------------------

def weights_of(case):
    """float32 arrays, the same on every machine."""
    import numpy as np
    out = {}
    for name, (_, dims) in case["weights"].items():
        values = ((np.arange(math.prod(dims)) * 7919 % 1009) / 504.5 - 1).astype(np.float32)
        out[name] = values.reshape(dims) / (math.prod(dims[1:]) ** 0.5 if len(dims) > 1 else 1)
    return out


def save_model(path, case):
    import numpy as np
    from onnx import TensorProto, helper, save
    kind, x = case["inputs"]["x"]
    type_of = lambda k: getattr(TensorProto, ONNX[k])
    constants, nodes, spatial = [], [], len(x) - 2

    def number(name, values, k=TensorProto.INT64):
        constants.append(helper.make_tensor(name, k, [len(values)], values))
        return name

    def node(op, inputs, **attributes):
        nodes.append(helper.make_node(op, inputs, [f"t{len(nodes)}"], **attributes))
        return f"t{len(nodes) - 1}"
    for name, values in weights_of(case).items():
        constants.append(helper.make_tensor(name, type_of(kind), values.shape, values.ravel()))
    op, at = case["op"], "x"
    if case.get("last"):
        at = node("Transpose", [at], perm=[0, spatial + 1, *range(1, spatial + 1)])
    if op in ("sum", "mean", "amax", "amin", "norm", "logsumexp"):
        name = {"sum": "Sum", "mean": "Mean", "amax": "Max", "amin": "Min", "norm": "L2", "logsumexp": "LogSumExp"}[op]
        at = node("Reduce" + name, [at, number("axes", case["axes"])], keepdims=0)
    elif op == "argmax":
        at = node("ArgMax", [at], axis=case["axes"][0], keepdims=0)
    elif op == "layer_norm":
        at = node("LayerNormalization", [at, "w", "b"], axis=-1, epsilon=1e-5)
    elif op == "rms_norm":
        at = node("RMSNormalization", [at, "w"], axis=-1, epsilon=1e-5)
    elif op in ("softmax", "log_softmax"):
        at = node("Softmax" if op == "softmax" else "LogSoftmax", [at], axis=case["axis"])
    elif op == "group_norm":
        at = node("GroupNormalization", [at, "w", "b"], num_groups=case["groups"], epsilon=1e-5)
    elif op == "instance_norm":
        at = node("InstanceNormalization", [at, "w", "b"], epsilon=1e-5)
    elif op == "conv":
        n = len(case["weights"]["w"][1]) - 2
        at = node("Conv", [at, "w"], strides=[case["stride"]] * n, pads=[case["pad"]] * 2 * n, group=case["groups"])
    elif op == "permute":
        at = node("Transpose", [at], perm=case["perm"])
    elif op == "index_select":
        at = node("Gather", [at, "i"], axis=case["axis"])
    elif op == "gather":
        at = node("GatherElements", [at, "i"], axis=case["axis"])
    elif op == "gather_nd":
        at = node("GatherND", [at, "i"])
    elif op in ("scatter", "scatter_add"):
        at = node("ScatterElements", [at, "i", "u"], axis=case["axis"], reduction="add" if op == "scatter_add" else "none")
    elif op == "scatter_nd":
        at = node("ScatterND", [at, "i", "u"])
    elif op == "max_pool":
        at = node("MaxPool", [at], kernel_shape=[case["k"]] * 2, strides=[case["stride"]] * 2, pads=[case["pad"]] * 4)
    elif op == "avg_pool":
        at = node("AveragePool", [at], kernel_shape=[case["k"]] * 2, strides=[case["stride"]] * 2, pads=[case["pad"]] * 4,
                  count_include_pad=1)
    elif op == "resize":
        sizes = [x[0], x[3] if case["last"] else x[1], *case["size"]]
        how = {"nearest": dict(mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
               "bilinear": dict(mode="linear"), "bicubic": dict(mode="cubic", cubic_coeff_a=-0.75)}[case["mode"]]
        at = node("Resize", [at, "", "", number("sizes", sizes)], **how)
    if case.get("last"):
        at = node("Transpose", [at], perm=[0, *range(2, spatial + 2), 1])
    value = lambda name, k, dims: helper.make_tensor_value_info(name, type_of(k), dims)
    result = value(at, "i64" if op == "argmax" else kind, None)
    graph = helper.make_graph(nodes, case["name"], [value(n, *v) for n, v in case["inputs"].items()], [result], constants)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), path)


def prepare(folder, seed, classes):
    os.makedirs(folder, exist_ok=True)
    print(f"seed {seed}", flush=True)

    def one(case):
        path = os.path.join(folder, case["name"])
        save_model(path + ".onnx", case)
        done = subprocess.run([LATHE, "compile", path + ".onnx", f"--target={TARGET}", "-o", path + ".lathe"],
                              capture_output=True, text=True)
        os.remove(path + ".onnx")
        if done.returncode:
            print(f"{case['name']} {described(case)}: {done.stderr.strip()[:400]}", flush=True)
            return None
        kernels = json.loads(subprocess.run([LATHE, "inspect", path + ".lathe", "--kernels", "--json"], check=True,
                                            capture_output=True).stdout)["plans"][0]["kernels"]
        return {**case, "configs": [v["config"] for k in kernels for v in k["variants"]]}
    cases, index = draw(seed, classes), os.path.join(folder, "sample.json")
    made = [case for case in prepare_all(cases, one) if case]
    kept = []
    if os.path.exists(index):  # classes that were prepared before
        with open(index) as f:
            before = json.load(f)
        if before["seed"] == seed:
            kept = [c for c in before["cases"] if c["class"] not in {case["class"] for case in cases}]
    with open(index, "w") as f:
        json.dump({"seed": seed, "cases": kept + made}, f)
    print(f"{len(made)} of {len(cases)} compiled")
    return len(made) < len(cases)


# ---- On a GPU -------------------------------------------------------------------------------------

def function_of(case):
    """What torch computes of the inputs and weights by name."""
    import torch
    import torch.nn.functional as F
    op, axes = case["op"], tuple(case.get("axes", ()))

    def spread(f):
        """`f` of channels first; a view of what lies channels last."""
        if not case.get("last"):
            return f
        n = len(case["inputs"]["x"][1])
        return lambda x, *w: f(x.permute(0, n - 1, *range(1, n - 1)), *w).permute(0, *range(2, n), 1)
    if op in ("sum", "mean", "amax", "amin", "logsumexp"):
        return lambda x: getattr(torch, op)(x, axes)
    if op == "norm":
        return lambda x: torch.linalg.vector_norm(x, dim=axes)
    if op == "argmax":
        return lambda x: torch.argmax(x, axes[0])
    if op == "layer_norm":
        return lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b)
    if op == "rms_norm":
        return lambda x, w: F.rms_norm(x, x.shape[-1:], w, 1e-5)
    if op in ("softmax", "log_softmax"):
        return lambda x: getattr(torch, op)(x, case["axis"])
    if op == "group_norm":
        return lambda x, w, b: F.group_norm(x, case["groups"], w, b)
    if op == "instance_norm":
        return lambda x, w, b: F.instance_norm(x, weight=w, bias=b)
    if op == "conv":
        f = F.conv1d if len(case["weights"]["w"][1]) == 3 else F.conv2d
        return spread(lambda x, w: f(x, w, stride=case["stride"], padding=case["pad"], groups=case["groups"]))
    if op == "permute":
        return lambda x: x.permute(case["perm"]).contiguous()
    if op == "index_select":
        return lambda x, i: torch.index_select(x, case["axis"], i)
    if op == "gather":
        return lambda x, i: torch.gather(x, case["axis"], i)
    if op == "gather_nd":
        return lambda x, i: x[i[:, 0], i[:, 1]]
    if op in ("scatter", "scatter_add"):
        return lambda x, i, u: getattr(x, op)(case["axis"], i, u)
    if op == "scatter_nd":
        return lambda x, i, u: x.index_copy(0, i[:, 0], u)
    if op == "max_pool":
        return spread(lambda x: F.max_pool2d(x, case["k"], case["stride"], case["pad"]))
    if op == "avg_pool":
        return spread(lambda x: F.avg_pool2d(x, case["k"], case["stride"], case["pad"]))
    smooth = {} if case["mode"] == "nearest" else {"align_corners": False}
    return spread(lambda x: F.interpolate(x, case["size"], mode=case["mode"], **smooth))


def operands(case, generator):
    import torch
    kinds = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64, "i8": torch.int8}
    made = []
    for name, (kind, dims) in case["inputs"].items():
        if name == "i":
            made.append(places(case, dims, generator))
        elif kind in ("i8", "i64"):
            made.append(torch.randint(-100, 100, dims, generator=generator, device="cuda", dtype=kinds[kind]))
        else:
            made.append(torch.randn(dims, generator=generator, device="cuda", dtype=torch.float32).to(kinds[kind]))
    return made


def places(case, dims, generator):
    import torch
    x = case["inputs"]["x"][1]
    if case["op"] == "gather_nd":
        return torch.stack([torch.randint(0, n, dims[:1], generator=generator, device="cuda") for n in x[:2]], 1)
    if case["op"] == "scatter_nd":
        return torch.randperm(x[0], generator=generator, device="cuda")[:dims[0], None].contiguous()
    if case["op"] == "scatter":  # each column begins elsewhere
        row, column = torch.arange(dims[0], device="cuda")[:, None], torch.arange(dims[1], device="cuda")
        return (row * 2 + column * 7919) % (x[0] // 2 * 2) + torch.zeros(dims, dtype=torch.int64, device="cuda")
    return torch.randint(0, x[case["axis"]], dims, generator=generator, device="cuda")


class Ours:
    """An engine on torch's stream: a graph for each set of operands and results."""

    def __init__(self, path, sets, results, stream):
        import lathe
        from lathe import _abi
        from lathe._tensor import input_tensor
        self.engine = lathe.load(path)
        self.context = self.engine.context("cuda:0", stream=stream.cuda_stream)
        self.library, self.handle, self.entry = self.context._library, self.context._handle, self.engine.entries[0].encode()
        self.calls, ports, place = [], (self.engine.inputs(), self.engine.outputs()), self.context._place
        for tensors, result in zip(sets, results):
            given = [input_tensor(t, p.dtype, p.name, place) for t, p in zip(tensors, ports[0])]
            made = input_tensor(result, ports[1][0].dtype, "result", place)
            out = (_abi.CTensor * 1)(made[0])
            self.calls.append(((_abi.CTensor * len(given))(*(g[0] for g in given)), len(given), out, given, made))
        self.steps = ctypes.c_uint64()

    def go(self, i):
        inputs, count, out, *_ = self.calls[i]
        self.library.lathe_submit(self.handle, self.entry, inputs, count, out, 1, None, ctypes.byref(self.steps))

    def wait(self):
        self.library.lathe_wait(self.handle, 0, ctypes.c_int64(-1))


class Graphs:
    def __init__(self, calls, stream):
        import torch
        self.graphs, self.keep = [], []
        for call in calls:
            call()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                self.keep.append(call())
            self.graphs.append(graph)

    def go(self, i):
        self.graphs[i].replay()

    def wait(self):
        pass


def race(sides, sets, stream, rounds=ROUNDS):
    """{side: median us of a set}; each round has another order, the first two warm up."""
    import torch
    times = {k: [] for k in sides}
    order = list(sides.items())
    with torch.cuda.stream(stream):
        for round_ in range(rounds + 2):
            random.Random(round_).shuffle(order)
            marks = []
            for k, side in order:
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                torch.cuda._sleep(500_000)  # until everything is submitted
                begin.record()
                for i in range(sets):
                    side.go(i)
                end.record()
                side.wait()
                marks.append((k, begin, end))
            torch.cuda.synchronize()
            if round_ > 1:
                for k, begin, end in marks:
                    times[k].append(begin.elapsed_time(end) * 1e3 / sets)
    return {k: statistics.median(v) for k, v in times.items()}


def differs(case, got, eager, exact):
    """What is wrong with a result, or nothing; torch's own error is the measure."""
    import torch
    if case["op"] in ("argmax", "permute", "index_select", "gather", "gather_nd", "scatter", "scatter_nd", "max_pool"):
        return "" if torch.equal(got, eager) else f"{int((got != eager).sum())} elements differ"
    scale = exact.abs().max()
    errors = [float(((y.double() - exact).abs() / scale).max().nan_to_num(1e9)) for y in (got, eager)]
    limit = {torch.float32: 2e-6, torch.float16: 2 ** -10, torch.bfloat16: 2 ** -7}[got.dtype]
    return "" if errors[0] <= max(limit, 1.5 * errors[1]) else f"error {errors[0]:.1e}, torch's {errors[1]:.1e}"


def one_case(case, folder, stream, generator, compiled):
    """({side: us}, what is wrong, bytes that move)."""
    import torch
    function = function_of(case)
    types = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
    weights = [torch.from_numpy(w).cuda().to(types[case["weights"][n][0]]) for n, w in weights_of(case).items()]
    first = operands(case, generator)
    eager = function(*first, *weights)
    wide = lambda t: t if not t.is_floating_point() else t.float() if case["op"] == "conv" else t.double()
    exact = function(*map(wide, first), *map(wide, weights)).double()
    moved = sum(t.numel() * t.element_size() for t in [*first, *weights, eager])
    count = max(2, min(12, math.ceil(COLD / moved)))
    sets = [first] + [operands(case, generator) for _ in range(count - 1)]
    results = [torch.full(eager.shape, float("nan") if eager.is_floating_point() else 77, dtype=eager.dtype, device="cuda")
               for _ in sets]
    torch.cuda.synchronize()
    ours = Ours(os.path.join(folder, case["name"] + ".lathe"), sets, results, stream)
    begin = time.perf_counter()
    for i in range(count):
        ours.go(i)
    ours.wait()
    torch.cuda.synchronize()
    rounds = ROUNDS if time.perf_counter() - begin < SLOW else 1
    wrong = differs(case, results[0], eager, exact)
    del exact
    halves = [[torch.empty(moved // 2, device="cuda", dtype=torch.uint8) for _ in range(2)] for _ in sets]
    rival = lambda f: Graphs([lambda s=s: f(*s, *weights) for s in sets], stream)
    sides = {"lathe": ours, "copy": Graphs([lambda a=a, b=b: b.copy_(a) for a, b in halves], stream), "eager": rival(function)}
    if compiled:
        torch._dynamo.reset()
        try:
            sides["compiled"] = rival(torch.compile(function, dynamic=False))
        except Exception as problem:  # what cannot is no rival
            print(f"{case['name']}: torch.compile: {str(problem)[:200]}")
    return race(sides, count, stream, rounds), wrong, moved


class Scores:
    """What was measured, by the name of a kernel."""

    def __init__(self):
        self.times, self.wrong = {}, set()

    def take(self, case, folder, stream, generator, compiled=False):
        import torch
        try:
            times, wrong, moved = one_case(case, folder, stream, generator, compiled)
        except Exception as problem:
            times, wrong = None, str(problem)[:300]
        torch.cuda.empty_cache()
        if wrong:
            self.wrong.add(case["name"])
        if times is None:
            print(f"{case['name']:13} FAILED {described(case)} {wrong}", flush=True)
            return
        self.times[case["name"]] = times
        mine, best = times["lathe"], self.rival(case)
        print(f"{case['name']:13} {self.score(case):5.2f} " + " ".join(f"{k} {v:.1f}" for k, v in times.items()) +
              f" us, {moved / mine / 1e6:.2f} TB/s, {self.of_copy(case):.2f} of copy, {times[best] / mine:.2f} of {best}; "
              f"{described(case)}; {' '.join(case['configs'])}{'  WRONG: ' + wrong if wrong else ''}", flush=True)

    def rival(self, case):
        times = self.times[case["name"]]
        return min((k for k in times if k not in ("lathe", "copy")), key=times.get)

    def of_copy(self, case):
        times = self.times[case["name"]]
        return times["copy"] / times["lathe"]

    def score(self, case):
        times = self.times[case["name"]]
        return max(self.of_copy(case), times[self.rival(case)] / times["lathe"])


def judge(cases, scores, seconds):
    """Prints means and leasts; whether a bar is not reached."""
    mean = lambda values: math.exp(sum(math.log(min(1, v)) for v in values) / len(values))
    done = [c for c in cases if c["name"] in scores.times]
    for name in COUNTS:
        if values := {c["name"]: scores.score(c) for c in done if c["class"] == name}:
            least = min(values, key=values.get)
            print(f"{name:10} {len(values):3} kernels, mean {mean(values.values()):.3f}, least {values[least]:.2f} ({least}), "
                  f"{sum(v < LEAST for v in values.values())} below {LEAST}, {sum(v >= MEAN for v in values.values())} from {MEAN} on")
    if not done:
        return True
    every = [scores.score(c) for c in done]
    low = sum(v < LEAST for v in every)
    alone = sum(scores.of_copy(c) < MEAN and "compiled" not in scores.times[c["name"]] for c in done)
    print(f"{len(done)} of {len(cases)} kernels in {seconds:.0f} s, {len(scores.wrong)} wrong; mean {mean(every):.3f} (bar {MEAN}), "
          f"least {min(every):.2f}, {low} below {LEAST}; {alone} below {MEAN} of copy without torch.compile beside them")
    return bool(scores.wrong or low or mean(every) < MEAN)


def run(folder, seconds, classes):
    import torch
    begin = time.time()
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = False
    with open(os.path.join(folder, "sample.json")) as f:
        sample = json.load(f)
    cases = [c for c in sample["cases"] if not classes or c["class"] in classes]
    random.Random(sample["seed"]).shuffle(cases)  # of all classes where time runs out
    print(f"seed {sample['seed']}", torch.cuda.get_device_name(), "torch", torch.__version__, flush=True)
    stream, generator, scores = torch.cuda.Stream(), torch.Generator("cuda").manual_seed(1), Scores()
    warnings.simplefilter("ignore")
    with torch.no_grad():
        for case in cases:
            if time.time() - begin < seconds:
                scores.take(case, folder, stream, generator)
        # Windows are the library's kernels, compiled or not.
        slow = [c for c in cases if c["name"] in scores.times and scores.of_copy(c) < MEAN]
        for case in sorted(slow, key=lambda c: (c["op"] == "conv", scores.of_copy(c))):
            if time.time() - begin < seconds:
                scores.take(case, folder, stream, generator, compiled=True)
    return judge(cases, scores, time.time() - begin)


if __name__ == "__main__":
    words = [w for w in sys.argv[3:] if not w.startswith("--")]
    names = [w for w in words if w in COUNTS]
    seeds = [int(w) for w in words if w.isdigit()]
    if len(sys.argv) < 3 or sys.argv[1] not in ("prepare", "run") or len(names) + len(seeds) < len(words):
        sys.exit(__doc__)
    if sys.argv[1] == "prepare":
        sys.exit(prepare(sys.argv[2], seeds[0] if seeds else int(time.time()), names))
    limit = [float(w.partition("=")[2]) for w in sys.argv[3:] if w.startswith("--seconds=")]
    sys.exit(int(run(sys.argv[2], limit[0] if limit else 1e9, names)))
