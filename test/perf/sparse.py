#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products by weights with blocks of zeros against the dense ones, on the CPU.

    test/perf/sparse.py [--rows 1,128] [--zeros 0,0.2,...,0.9] [--scheme 1x16,4x16] [--sizes 768x3072,...]
                        [--target native] [--rounds 9] [--seconds 0.05] [--log FILE]
    test/perf/sparse.py --held-out SEED [--count 60] [--rounds 9] ...
    test/perf/sparse.py --inactive 0,0.25,0.5,0.75 [--sizes 4096x4096,...] ...

Each row: one model, one MatMul; the same options but for --sparse-weights=never and always, both engines run in turn in
this process by one thread, and the medians over rounds of the processor time of a run (so that a busy neighbour takes
time from neither). The bar is 2.2 at 80 % zeros of 1x16: ends with 1 where a row misses it. The constants of
codegen/select/ChooseCpuBlocks.cpp come from here.

--held-out draws problems that this sweep never had: sizes that are no powers of two, rows, blocks and shares of zeros
from the seed. Of each it also asks what --sparse-weights=auto chooses, and says how many of the predicted winners win
3 % measured (the bar is 95 %), and how many of those that win were predicted (90 %): ends with 1 below either.

--inactive measures one row that comes from a threshold below which these shares of it are, in weights without zeros: the
bar is 1.5 at half.
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

BAR, BAR_ZEROS = 2.2, 0.8
BAR_INACTIVE, HALF = 1.5, 0.5


HELD_PREDICTED, HELD_FOUND, WIN = 0.95, 0.90, 1 / 0.97


def draw(seed, count):
    """Problems as (rows, depth, columns, block, share of zero blocks); sizes are multiples of 16 from 128 to 4096."""
    rng = np.random.default_rng(seed)

    def size():
        return 16 * int(round(2 ** rng.uniform(3, 8)))

    return [(int(round(2 ** rng.uniform(0, 8))), size(), size(), int(rng.choice([1, 4])), float(rng.uniform(0, 0.97)))
            for _ in range(count)]


def model(path, rows, depth, columns, block, zeros, seed=1):
    rng = np.random.default_rng(seed)
    w = rng.normal(size=(depth, columns)).astype(np.float32)
    blocks = rng.permutation(depth // block * (columns // 16))[:int(round(zeros * (depth // block) * (columns // 16)))]
    for b in blocks:
        k, n = divmod(int(b), columns // 16)
        w[k * block:(k + 1) * block, n * 16:(n + 1) * 16] = 0
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, depth])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, columns])],
                              [numpy_helper.from_array(w, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)


def thresholded(path, depth, columns, inactive):
    """One row, of which so much counts as zero, by dense weights."""
    w = np.random.default_rng(1).normal(size=(depth, columns)).astype(np.float32)
    least = np.sort(np.abs(inputs(1, depth))[0])[min(depth - 1, round(inactive * depth))]
    nodes = [helper.make_node("Abs", ["x"], ["m"]), helper.make_node("Less", ["m", "t"], ["small"]),
             helper.make_node("Where", ["small", "z", "x"], ["a"]), helper.make_node("MatMul", ["a", "w"], ["y"])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, depth])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, columns])],
                              [numpy_helper.from_array(np.float32(v), n) for n, v in (("w", w), ("t", least), ("z", 0))])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)


def lathe(*arguments):
    return subprocess.run([LATHE, *map(str, arguments)], check=True, capture_output=True, text=True).stdout


def inputs(rows, depth):
    return np.random.default_rng(2).normal(size=(rows, depth)).astype(np.float32)


class Engine:
    """An engine with inputs and outputs of its own; `us` is the processor time of one run."""

    def __init__(self, path, rows, depth):
        self.run = runtime.load(path).context("cpu", threads=1).bind({"x": inputs(rows, depth)})
        self.run()

    def us(self, seconds):
        runs, begin, spent = 0, time.thread_time(), 0.0
        while runs < 3 or spent < seconds:
            self.run()
            runs, spent = runs + 1, time.thread_time() - begin
        return spent / runs * 1e6


def measure(folder, problem, options, seed=1):
    """Medians of the dense and the sparse engine in us."""
    rows, depth, columns, block, zeros = problem
    path = os.path.join(folder, "m.onnx")
    model(path, rows, depth, columns, block, zeros, seed)
    return both(folder, path, rows, depth, options)


def both(folder, path, rows, depth, options):
    engines = {}
    for how in ("never", "always"):
        file = os.path.join(folder, how + ".lathe")
        lathe("compile", path, "-o", file, "--target", options.target, "--sparse-weights", how)
        engines[how] = Engine(file, rows, depth)
    times = {how: [] for how in engines}
    for _ in range(options.rounds):
        for how in engines:
            times[how].append(engines[how].us(options.seconds))
    return [statistics.median(times[how]) for how in ("never", "always")]


def held_out(folder, options, say):
    predicted = winners = both = 0
    for problem in draw(options.held_out, options.count):
        rows, depth, columns, block, zeros = problem
        dense, sparse = measure(folder, problem, options, seed=options.held_out + 1)
        chosen = "gemm.bsr" in lathe("inspect", os.path.join(folder, "m.onnx"), "--kernels", "--target", options.target)
        wins = dense / sparse >= WIN
        predicted, winners, both = predicted + chosen, winners + wins, both + (chosen and wins)
        say(f"{rows:5d} {depth:6d} {columns:7d} {block}x16 {zeros:8.2f} {dense:10.1f} {sparse:10.1f} {dense / sparse:6.2f}  "
            f"{'right' if chosen == wins else 'predicted, does not win' if chosen else 'wins, not predicted'}")
    say(f"# seed {options.held_out}: {both} of {predicted} predicted winners win, {both} of {winners} that win were predicted")
    return both < HELD_PREDICTED * predicted or both < HELD_FOUND * winners


def half_inactive(folder, options, say):
    missed = False
    for size in options.sizes.split(","):
        depth, columns = map(int, size.split("x"))
        for share in map(float, options.inactive.split(",")):
            path = os.path.join(folder, "m.onnx")
            thresholded(path, depth, columns, share)
            dense, sparse = both(folder, path, 1, depth, options)
            miss = share == HALF and dense / sparse < BAR_INACTIVE
            missed |= miss
            say(f"{1:5d} {depth:6d} {columns:7d} {'-':>5} {share:6.2f} {dense:10.1f} {sparse:10.1f} "
                f"{dense / sparse:6.2f}{'  below ' + str(BAR_INACTIVE) if miss else ''}")
    return missed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", default="1,128")
    parser.add_argument("--zeros", default="0,0.25,0.5,0.8,0.9")
    parser.add_argument("--scheme", default="1x16,4x16")
    parser.add_argument("--sizes", default="768x3072,3072x768")
    parser.add_argument("--target", default="native")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.05)
    parser.add_argument("--held-out", type=int, metavar="SEED")
    parser.add_argument("--inactive", metavar="SHARES")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--log")
    options = parser.parse_args()
    lines, missed = [], 0

    def say(line):
        print(line, flush=True)
        lines.append(line)

    cpu = next((l.split(":", 1)[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), "?")
    say(f"# {cpu}, {options.target}, one thread, {options.rounds} alternating rounds of {options.seconds} s of processor time; "
        f"load before {os.getloadavg()[0]:.1f}")
    say(f"{'rows':>5} {'depth':>6} {'columns':>7} {'block':>5} {'zeros':>6} {'dense us':>10} {'sparse us':>10} {'gain':>6}")
    with tempfile.TemporaryDirectory() as folder:
        if options.held_out is not None:
            missed = held_out(folder, options, say)
        elif options.inactive:
            missed = half_inactive(folder, options, say)
        for size in [] if options.held_out is not None or options.inactive else options.sizes.split(","):
            depth, columns = map(int, size.split("x"))
            for rows in map(int, options.rows.split(",")):
                for scheme in options.scheme.split(","):
                    for zeros in map(float, options.zeros.split(",")):
                        block = int(scheme.split("x")[0])
                        dense, sparse = measure(folder, (rows, depth, columns, block, zeros), options)
                        miss = block == 1 and zeros == BAR_ZEROS and dense / sparse < BAR
                        missed += miss
                        say(f"{rows:5d} {depth:6d} {columns:7d} {scheme:>5} {zeros:6.2f} {dense:10.1f} {sparse:10.1f} "
                            f"{dense / sparse:6.2f}{'  below ' + str(BAR) if miss else ''}")
    say(f"# load after {os.getloadavg()[0]:.1f}")
    if options.log:
        with open(options.log, "w") as f:
            f.write("\n".join(lines) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
