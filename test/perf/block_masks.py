#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention on the CPU whose mask hides most blocks, against the same without a mask.

    test/perf/block_masks.py [FORM...] [--tokens 16384] [--heads 1] [--head 64] [--target native] [--rounds 3]
                             [--log FILE]
    test/perf/block_masks.py --decode [--tokens 16384] [--heads 8] [--head 128] ...

One thread; all engines run in turn in this process, and the medians over rounds of the processor time of a run. A
density is the share of pairs of queries and keys that see each other; whatever makes the mask, pooled scores and their
top-k too, counts into the time. The bar is (density + 0.05) of the time without a mask: ends with 1 where a form misses
it. Every result is compared with float64 on some queries first.

--decode: one query, which sees the pages of 64 keys that may score best, by the least and greatest element of each page
and dimension, which a cache would keep (Quest).
"""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LATHE = os.path.join(os.environ.get("LATHE_BUILD", os.path.join(ROOT, "build")), "bin", "lathe")
sys.path.insert(0, os.path.join(ROOT, "python-frontend"))
import lathe as runtime  # noqa: E402

BLOCK, WINDOW, GLOBAL, STEP, REACH, DOCUMENTS, TOLERANCE = 64, 512, 64, 4, 16, 16, 1e-4


class Graph:
    def __init__(self):
        self.nodes, self.constants = [], []

    def __call__(self, op, *inputs, outputs=1, **attributes):
        inputs = [x if isinstance(x, str) else self.constant(x) for x in inputs]
        names = [f"n{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, value):
        self.constants.append(numpy_helper.from_array(np.asarray(value), f"c{len(self.constants)}"))
        return self.constants[-1].name


def spread(g, table, heads, tokens):
    n = tokens // BLOCK
    apart = g("Expand", g("Reshape", table, [1, heads, n, 1, n, 1]), [1, heads, n, BLOCK, n, BLOCK])
    return g("Reshape", apart, [1, heads, tokens, tokens])


def mask_of(form, g, heads, tokens, head):
    """The mask in a graph, and a function that gives the rows of some queries of a head as numpy has them."""
    n, at = tokens // BLOCK, np.arange(tokens)
    keys, queries = g("Range", 0, tokens, 1), g("Unsqueeze", g("Range", 0, tokens, 1), [-1])
    rng = np.random.default_rng(2)
    if form == "local":
        near = g("LessOrEqual", g("Abs", g("Sub", queries, keys)), WINDOW)
        mask = g("Or", g("Or", near, g("Less", keys, GLOBAL)), g("Less", queries, GLOBAL))
        return mask, lambda a, h, q: (abs(q[:, None] - at) <= WINDOW) | (at < GLOBAL) | (q[:, None] < GLOBAL)
    if form == "dilated":
        apart = g("Sub", g("Div", queries, BLOCK), g("Div", keys, BLOCK))
        mask = g("And", g("LessOrEqual", g("Abs", apart), REACH), g("Equal", g("Mod", apart, STEP), 0))
        far = lambda q: q[:, None] // BLOCK - at // BLOCK
        return mask, lambda a, h, q: (abs(far(q)) <= REACH) & (far(q) % STEP == 0)
    if form == "bigbird":
        table = np.zeros((n, n), bool)
        for i in range(n):
            table[i, max(0, i - 1):i + 2] = table[i, rng.choice(n, 3, replace=False)] = True
        table[0] = table[:, 0] = True
        number = g("Div", keys, BLOCK)
        mask = g("Gather", g("Gather", table, number, axis=0), number, axis=1)
        return mask, lambda a, h, q: table[q // BLOCK].repeat(BLOCK, 1)
    if form == "documents":
        ids = np.sort(rng.integers(0, DOCUMENTS, tokens))
        return g("Equal", ids[:, None], ids[None]), lambda a, h, q: ids[q][:, None] == ids
    if form.startswith("pages"):
        best = round(float(form.removeprefix("pages")) * n)
        bounds = [g("Mul", "q", bound) for bound in ("kmin", "kmax")]  # of [1, heads, n, head]
        index = g("TopK", g("ReduceSum", g("Max", *bounds), [3], keepdims=0), [best], outputs=2)[1]
        empty, ones = np.zeros((1, heads, n), bool), np.ones((1, heads, best), bool)
        table = g("ScatterElements", empty, index, ones, axis=2)
        apart = g("Expand", g("Reshape", table, [1, heads, 1, n, 1]), [1, heads, 1, n, BLOCK])

        def page_rows(a, h, q):
            bound = np.maximum(*(a["q"][0, h].astype(np.float64) * a[x][0, h] for x in ("kmin", "kmax"))).sum(-1)
            chosen = np.zeros((1, n), bool)
            chosen[0, np.argsort(-bound)[:best]] = True
            return chosen.repeat(BLOCK, 1)
        return g("Reshape", apart, [1, heads, 1, tokens]), page_rows
    if form.startswith("chosen"):  # so many of the best of pooled scores
        best = max(1, round(float(form.removeprefix("chosen")) * n))
        pool = lambda x: g("ReduceMean", g("Reshape", x, [1, heads, n, BLOCK, head]), [3], keepdims=0)
        _, index = g("TopK", g("MatMul", pool("q"), g("Transpose", pool("k"), perm=[0, 1, 3, 2])), [best], outputs=2)
        empty, ones = np.zeros((1, heads, n, n), bool), np.ones((1, heads, n, best), bool)
        table = g("ScatterElements", empty, index, ones, axis=3)

        def rows(a, h, q):
            pooled = [a[x][0, h].astype(np.float64).reshape(n, BLOCK, head).mean(1) for x in "qk"]
            chosen = np.zeros((n, n), bool)
            np.put_along_axis(chosen, np.argsort(-(pooled[0] @ pooled[1].T), -1)[:, :best], True, -1)
            return chosen[q // BLOCK].repeat(BLOCK, 1)
        return spread(g, table, heads, tokens), rows
    return None, lambda a, h, q: np.ones((len(q), tokens), bool)


FORMS = ("none", "local", "dilated", "bigbird", "documents", "chosen0.0625", "chosen0.25", "chosen0.5")
DECODE_FORMS = ("none", "pages0.0625", "pages0.25", "pages0.5")


def build(form, path, a, target):
    """The engine, a function that gives rows of the mask, and the inputs' names."""
    g = Graph()
    _, heads, tokens, head = a["k"].shape
    mask, rows = mask_of(form, g, heads, tokens, head)
    g.nodes.append(helper.make_node("Attention", ["q", "k", "v"] + ([mask] if mask else []), ["y"]))
    names = [n for n in a if any(n in node.input for node in g.nodes)]
    value = lambda n: helper.make_tensor_value_info(n, TensorProto.FLOAT, a["q" if n == "y" else n].shape)
    graph = helper.make_graph(g.nodes, form, [value(n) for n in names], [value("y")], g.constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), path)
    engine = path.replace(".onnx", ".lathe")
    subprocess.run([LATHE, "compile", path, "-o", engine, "--target", target], check=True, capture_output=True)
    return engine, rows, names


def aligned(x):
    """In memory as engines want it, which otherwise copy it at every run."""
    line = 64
    room = np.empty(x.nbytes + line, np.uint8)
    at = -room.ctypes.data % line
    y = room[at:at + x.nbytes].view(x.dtype).reshape(x.shape)
    y[...] = x
    return y


def check(y, a, rows):
    """The density, of some rows; ends where the result is wrong."""
    _, heads, queries, head = y.shape
    some, seen = np.sort(np.random.default_rng(7).choice(queries, min(queries, 256), replace=False)), []
    for h in range(heads):
        q, k, v = (a[n][0, h].astype(np.float64) for n in "qkv")
        seen.append(rows(a, h, some))
        scores = np.where(seen[-1], q[some] @ k.T / np.sqrt(head), -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        want = weights @ v / weights.sum(-1, keepdims=True)
        error = abs(y[0, h, some] - want).max() / abs(want).max()
        if not error < TOLERANCE:
            sys.exit(f"wrong by {error:.1e}")
    return np.mean(seen)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("forms", nargs="*", default=[])
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--heads", type=int)
    parser.add_argument("--head", type=int)
    parser.add_argument("--decode", action="store_true")
    parser.add_argument("--target", default="native")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--log")
    options = parser.parse_args()
    tokens = options.tokens
    heads, head, forms = (8, 128, DECODE_FORMS) if options.decode else (1, 64, FORMS)
    if unknown := [form for form in options.forms if form not in forms]:
        parser.error(f"no form is called {', '.join(unknown)}: {', '.join(forms)}")
    heads, head = options.heads or heads, options.head or head
    queries, lines = 1 if options.decode else tokens, []

    def say(line):
        print(line, flush=True)
        lines.append(line)

    with open("/proc/cpuinfo") as f:
        cpu = next((l.split(":", 1)[1].strip() for l in f if l.startswith("model name")), "?")
    say(f"# {cpu}, {options.target}, one thread, {heads} heads of {head}, {queries} by {tokens} tokens, f32, "
        f"{options.rounds} alternating rounds of processor time; load before {os.getloadavg()[0]:.1f}")
    rng = np.random.default_rng(1)
    a = {n: rng.standard_normal((1, heads, queries if n == "q" else tokens, head)).astype(np.float32) for n in "qkv"}
    pages = a["k"].reshape(1, heads, -1, BLOCK, head)
    a = {n: aligned(x) for n, x in (a | {"kmin": pages.min(3), "kmax": pages.max(3)}).items()}
    runs, densities = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for form in ["none", *(f for f in forms[1:] if not options.forms or f in options.forms)]:
            engine, rows, names = build(form, os.path.join(folder, form + ".onnx"), a, options.target)
            runs[form] = runtime.load(engine).context("cpu", threads=1).bind({n: a[n] for n in names})
            densities[form] = check(np.asarray(runs[form]()["y"]), a, rows)
        times = {form: [] for form in runs}
        for _ in range(options.rounds):
            for form, run in runs.items():
                begin, repeats = time.thread_time(), 20 if options.decode else 1
                for _ in range(repeats):
                    run()
                times[form].append((time.thread_time() - begin) / repeats)
    missed, dense = 0, statistics.median(times["none"])
    for form in runs:
        took, bar = statistics.median(times[form]), densities[form] + 0.05
        share = took / dense
        missed += form != "none" and share > bar
        text = f"  {share:.4f} of the time without a mask (bar {bar:.4f}){'  BELOW' if share > bar else ''}"
        say(f"{form:12} {took * 1e3:9.2f} ms  density {densities[form]:.4f}{text if form != 'none' else ''}")
    say(f"# load after {os.getloadavg()[0]:.1f}")
    if options.log:
        with open(options.log, "w") as f:
            f.write("\n".join(lines) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
