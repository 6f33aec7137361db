#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Engines of fixed sizes against engines of any size from the same file, on the CPU.

    test/perf/race_static.py [--target native] [--rounds 9] [--seconds 0.1] [--log FILE] [--prepare FOLDER] [NAME...]

What is known of sizes must never make a model slower: stacks of 3x3 convolutions over long maps of audio, a YOLO at
320x320, a small network on one channel. Each model is compiled with --shape and without; both engines run in turn in
this process by one thread, and the figure is the median over rounds of the ratio of processor times. Ends with 1 where
a fixed one takes more than 1.03 of the other. The target says the caches: --target=x86-64-v3 is a machine like that on
which these lost. With --prepare, models and engines are made in FOLDER if they are not there, to be timed alone later.
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

BAR = 1.03


class Net:
    """A graph of convolutions with seeded weights, in the order of its calls."""

    def __init__(self, channels):
        self.rng, self.nodes, self.weights = np.random.default_rng(1), [], []
        self.channels = {"x": channels}

    def node(self, op, inputs, channels, **attributes):
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        self.channels[name] = channels
        return name

    def conv(self, x, filters, window=3, stride=1, act="Relu", group=1):
        channels = self.channels[x]
        w = self.rng.normal(size=(filters, channels // group, window, window)) / (window * np.sqrt(channels / group))
        b = self.rng.normal(size=filters) / 10
        names = [f"w{len(self.nodes)}", f"b{len(self.nodes)}"]
        self.weights += [numpy_helper.from_array(v.astype(np.float32), n) for n, v in zip(names, (w, b))]
        y = self.node("Conv", [x, *names], filters, pads=[window // 2] * 4, strides=[stride] * 2, group=group)
        if act == "Silu":
            return self.node("Mul", [y, self.node("Sigmoid", [y], filters)], filters)
        return self.node(act, [y], filters) if act else y

    def save(self, path, result):
        sizes = ["N", self.channels["x"], "H", "W"]
        graph = helper.make_graph(self.nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes)],
                                  [helper.make_tensor_value_info(result, TensorProto.FLOAT, None)], self.weights)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def stack(filters, layers, first=1):
    net = Net(first)
    y = net.conv("x", filters)
    for _ in range(layers):
        y = net.conv(y, filters)
    return net, net.conv(y, 1, 1, act=None)


def small():
    """One channel in, pooled twice, as detectors of voice and key words are."""
    net = Net(1)
    y = net.conv("x", 16)
    y = net.node("MaxPool", [net.conv(y, 16)], 16, kernel_shape=[2, 2], strides=[2, 2])
    y = net.node("MaxPool", [net.conv(net.conv(y, 32), 32)], 32, kernel_shape=[2, 2], strides=[2, 2])
    y = net.conv(net.conv(y, 48), 48)
    return net, net.conv(y, 10, 1, act=None)


def yolo(width=16):
    """The backbone and the neck of a YOLO of width 0.25: bottlenecks whose halves are kept, pyramids up and down."""
    net = Net(3)

    def bottlenecks(x, filters, count, add=True):
        half = filters // 2
        a, kept = net.conv(x, half, 1, act="Silu"), [net.conv(x, half, 1, act="Silu")]
        for _ in range(count):
            b = net.conv(net.conv(a, half, act="Silu"), half, act="Silu")
            a = net.node("Add", [a, b], half) if add else b
            kept.append(a)
        joined = net.node("Concat", kept, half * len(kept), axis=1)
        return net.conv(joined, filters, 1, act="Silu")

    def up(x):
        net.weights.append(numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), f"s{len(net.nodes)}"))
        return net.node("Resize", [x, "", f"s{len(net.nodes)}"], net.channels[x], mode="nearest",
                        coordinate_transformation_mode="asymmetric", nearest_mode="floor")

    def join(*parts):
        return net.node("Concat", list(parts), sum(net.channels[p] for p in parts), axis=1)
    y, levels = net.conv("x", width, stride=2, act="Silu"), []
    for i, count in enumerate((1, 2, 2, 1)):
        y = bottlenecks(net.conv(y, width << (i + 1), stride=2, act="Silu"), width << (i + 1), count)
        levels.append(y)
    pooled = [net.conv(y, width * 8, 1, act="Silu")]
    for _ in range(3):
        pooled.append(net.node("MaxPool", [pooled[-1]], width * 8, kernel_shape=[5, 5], pads=[2] * 4))
    deep = net.conv(join(*pooled), width * 16, 1, act="Silu")
    middle = bottlenecks(join(up(deep), levels[2]), width * 8, 1, add=False)
    fine = bottlenecks(join(up(middle), levels[1]), width * 4, 1, add=False)
    heads = [fine]
    for other, filters in ((middle, width * 8), (deep, width * 16)):
        fine = bottlenecks(join(net.conv(fine, filters // 2, stride=2, act="Silu"), other), filters, 1, add=False)
        heads.append(fine)
    outs = []
    for head in heads:
        pooled = net.node("GlobalAveragePool", [net.conv(net.conv(head, 64, act="Silu"), 64, 1, act=None)], 64)
        outs.append(pooled)
    return net, join(*outs)


# name: (graph, sizes of x)
MODELS = {
    "3x3 of 64 over 900x160": (lambda: stack(64, 3), (1, 1, 900, 160)),
    "3x3 of 96 over 900x160": (lambda: stack(96, 2), (1, 1, 900, 160)),
    "3x3 of 128 over 900x160": (lambda: stack(128, 2), (1, 1, 900, 160)),
    "3x3 of 192 over 225x40": (lambda: stack(192, 3, first=32), (1, 32, 225, 40)),
    "yolo at 320x320": (yolo, (1, 3, 320, 320)),
    "one channel, 96x64": (small, (1, 1, 96, 64)),
    "one channel, 800x80": (small, (1, 1, 800, 80)),
}


def prepare(folder, name, target):
    """The engines of a model: {"fixed": path, "any": path}."""
    net, sizes = MODELS[name]
    stem = os.path.join(folder, "".join(c if c.isalnum() else "_" for c in name))
    paths = {"fixed": stem + ".fixed.lathe", "any": stem + ".any.lathe"}
    if not all(map(os.path.exists, paths.values())):
        graph, result = net()
        graph.save(stem + ".onnx", result)
        shape = "x=" + "x".join(map(str, sizes))
        for how, more in (("fixed", ["--shape", shape]), ("any", [])):
            subprocess.run([LATHE, "compile", stem + ".onnx", "-o", paths[how], "--target", target, *more], check=True)
    return paths


class Engine:
    def __init__(self, path, inputs):
        self.run = runtime.load(path).context("cpu", threads=1).bind(inputs)
        self.result = next(iter(self.run().values())).copy()

    def ms(self, seconds):
        runs, begin, spent = 0, time.thread_time(), 0.0
        while runs < 2 or spent < seconds:
            self.run()
            runs, spent = runs + 1, time.thread_time() - begin
        return spent / runs * 1e3


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--target", default="native")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.1)
    parser.add_argument("--log")
    parser.add_argument("--prepare")
    options = parser.parse_args()
    wanted = [name for name in MODELS if not options.names or any(n in name for n in options.names)]
    if not wanted:
        parser.error("no such model; there are: " + "; ".join(MODELS))
    lines = []

    def say(text):
        print(text, flush=True)
        lines.append(text)
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.prepare or scratch
        os.makedirs(folder, exist_ok=True)
        if options.prepare and not os.path.exists(os.path.join(folder, "ready")):
            for name in wanted:
                prepare(folder, name, options.target)
            open(os.path.join(folder, "ready"), "w").close()
            print(f"engines are in {folder}: call again to time them")
            return 0
        say(f"# target {runtime.load(prepare(folder, wanted[0], options.target)['fixed']).targets[0]}, "
            f"{options.rounds} rounds, ms by one thread; bar {BAR}")
        worst = 0
        for name in wanted:
            x = np.random.default_rng(2).normal(size=MODELS[name][1]).astype(np.float32)
            engines = {how: Engine(path, {"x": x}) for how, path in prepare(folder, name, options.target).items()}
            a, b = (engines[how].result for how in ("fixed", "any"))
            if not np.abs(a - b).max() <= 1e-4 * np.abs(b).max():
                sys.exit(f"{name}: the engines differ")
            rounds = [{how: engines[how].ms(options.seconds) for how in order}
                      for order in (list(engines)[::1 if i % 2 else -1] for i in range(options.rounds))]
            ratio = statistics.median(r["fixed"] / r["any"] for r in rounds)
            worst = max(worst, ratio)
            say(f"{name:26} fixed {statistics.median(r['fixed'] for r in rounds):9.3f} any "
                f"{statistics.median(r['any'] for r in rounds):9.3f} ratio {ratio:.3f}  rounds " +
                " ".join(f"{r['fixed']:.3f}/{r['any']:.3f}" for r in rounds))
        say(f"# worst {worst:.3f}")
        if options.log:
            with open(options.log, "w") as f:
                f.write("\n".join(lines) + "\n")
    return int(worst > BAR)


if __name__ == "__main__":
    sys.exit(main())
