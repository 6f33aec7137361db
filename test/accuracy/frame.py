# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the tasks have in common: a float model, examples to calibrate by, and a score on others against the truth."""
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime

import packages

sys.path.insert(0, os.path.join(packages.ROOT, "python-frontend"))
import lathe  # noqa: E402

LATHE = os.path.join(os.environ.get("LATHE_BUILD", os.path.join(packages.ROOT, "build")), "bin", "lathe")
THREADS = 1  # results do not depend on it
CONTRACTIONS = {"MatMul", "Gemm", "Conv", "ConvTranspose", "LSTM", "GRU", "RNN", "Einsum"}


@dataclasses.dataclass
class Scheme:
    """A way to quantize, and how much worse it may be: in points of percent, or as a factor of a perplexity. `keeps`: the share of the
    multiplications that may be in f32, those of the layers whose results are the noisiest on the calibration's examples."""

    name: str
    options: list[str]
    bar: float
    keeps: float = 0


INT8, FP8 = Scheme("int8", ["--scheme=w8a8-int8"], 0.5), Scheme("fp8", ["--scheme=w8a8-fp8"], 0.5)


@dataclasses.dataclass
class Task:
    """model        path of the float ONNX file
    calibration  runs that ranges and codes follow from, a mapping from inputs to arrays each; none of them is tested on
    score        of a function from such a mapping to outputs: percent that are right, or a perplexity
    examples     how many the score counts
    sizes        bounds of free sizes, as lathe.compile takes them
    """

    name: str
    measure: str
    model: str
    calibration: list[dict[str, np.ndarray]]
    score: Callable[[Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]], float]
    examples: int
    sizes: dict[str, object] = dataclasses.field(default_factory=dict)
    schemes: list[Scheme] = dataclasses.field(default_factory=lambda: [INT8, FP8])
    is_perplexity: bool = False


@dataclasses.dataclass
class Row:
    task: str
    measure: str
    examples: int
    scheme: str
    share: float  # of the multiplications that are quantized
    float_score: float
    score: float
    lost: float  # points of percent, or a factor of the perplexity
    bar: float

    @property
    def is_kept(self):
        return self.lost <= self.bar


def exported(name):
    """The path of a model that test/perf/export_models.py makes."""
    path = os.path.join(packages.ROOT, "build", "models", "perf", f"{name}.onnx")
    if not os.path.exists(path):
        subprocess.run([sys.executable, os.path.join(packages.ROOT, "test", "perf", "export_models.py"), name], check=True)
    return path


def multiplications(model, example):
    """{result of a contraction: multiplications of one run}, of sizes that onnxruntime sees."""
    proto = onnx.load(model)
    nodes = [n for n in proto.graph.node if n.op_type in CONTRACTIONS]
    known = {o.name for o in proto.graph.output}
    names = dict.fromkeys(v for n in nodes for v in (*n.input[:3], n.output[0]) if v)
    constants = {i.name: tuple(i.dims) for i in proto.graph.initializer}
    values = [v for v in names if v not in constants and v not in example and v not in known]
    proto.graph.output.extend(onnx.ValueInfoProto(name=v) for v in values)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    results = [o.name for o in session.get_outputs()]
    sizes = {**constants, **{n: a.shape for n, a in example.items()}, **{n: a.shape for n, a in zip(results, session.run(None, example))}}
    counts = {}
    for node in nodes:
        left, right, result = (sizes[v] for v in (node.input[0], node.input[1], node.output[0]))
        if node.op_type in ("MatMul", "Gemm"):
            swapped = node.op_type == "Gemm" and any(a.name == "transA" and a.i for a in node.attribute)
            depth = left[0 if swapped else -1]
        elif node.op_type == "Conv":
            depth = int(np.prod(right[1:]))
        else:
            raise ValueError(f"multiplications of {node.op_type} are not counted: '{node.name}'")
        counts[node.output[0]] = int(np.prod(result)) * int(depth)
    return counts


def opened(model, sizes):
    """A function from inputs to outputs, of lathe's engine for the CPU."""
    context = lathe.compile(model, dims=sizes or None).context("cpu", threads=THREADS)
    return lambda inputs: {name: value.numpy() for name, value in context.run(inputs).items()}


def worst_layers(layers, counts, share):
    """Nodes of those layers whose results have the least signal to noise, as many as leave this share of all multiplications in f32."""
    left, kept = share * sum(counts.values()) - sum(counts.values()) + sum(counts[one["result"]] for one in layers), []
    for layer in sorted(layers, key=lambda one: one["sqnr_db"]):
        if counts[layer["result"]] <= left:
            left -= counts[layer["result"]]
            kept.append(layer["node"] or layer["result"])
    return kept


def quantize(task, scheme, folder):
    """The quantized model and the share of the multiplications in it."""
    model, recipe, report, data = (os.path.join(folder, n) for n in ("quantized.onnx", "recipe.json", "report.json", "data"))
    if not os.path.exists(data):
        os.mkdir(data)
        for number, arrays in enumerate(task.calibration):
            np.savez(os.path.join(data, f"{number:04}.npz"), **arrays)
    sizes = [f"--dim={name}={value if isinstance(value, int) else ':'.join(map(str, value))}" for name, value in task.sizes.items()]

    def run(*options):
        done = subprocess.run([LATHE, "quantize", task.model, "-o", model, *scheme.options, "--data", data, "--recipe-out", recipe,
                               f"--threads={THREADS}", *sizes, *options], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"lathe quantize of {task.name} to {scheme.name}: {done.stdout}{done.stderr}")

    counts = multiplications(task.model, task.calibration[0])
    worst = []
    if scheme.keeps:
        run("--report", report)
        with open(report, encoding="utf-8") as file:
            worst = worst_layers(json.load(file)["layers"], counts, scheme.keeps)
    run(*(f"--keep={name}" for name in worst))
    with open(recipe, encoding="utf-8") as file:
        products = set(json.load(file)["products"])
    missing = products - counts.keys()
    if missing:
        raise RuntimeError(f"{task.name}: the recipe has products that the model has not: {sorted(missing)}")
    kept = [result for result in counts if result not in products]
    if kept:
        print(f"  {task.name}, {scheme.name}: {len(kept)} contractions keep their type, the first makes '{kept[0]}'",
              file=sys.stderr)
    return model, sum(counts[p] for p in products) / sum(counts.values())


def measure(task):
    """A row for each scheme of the task."""
    if not task.schemes:
        return
    want = task.score(opened(task.model, task.sizes))
    with tempfile.TemporaryDirectory() as folder:
        for scheme in task.schemes:
            model, share = quantize(task, scheme, folder)
            score = task.score(opened(model, task.sizes))
            yield Row(task.name, task.measure, task.examples, scheme.name, share, want, score,
                      score / want if task.is_perplexity else want - score, scheme.bar)
