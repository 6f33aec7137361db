#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Races two builds of lathe on the graphs whose machine code differs between them.

    race_versions.py OLD NEW [GRAPH...] [--rounds=20] [--most=N] [--targets=sm_90a] [--only=TEXT]
                             [--device=cuda:0] [--run | --compile] [--entry=NAME] [--seconds=0.02] [--log=FILE]

Needs NVRTC and a GPU, or with --device=cpu --targets=x86-64-v3 neither. test/tools/same_code.py makes
the graphs (then onnx is needed) and says which differ; a GRAPH given here, a model with its options in
one argument or `@FILE` with lines of them, is raced as it is. Both builds compile an engine of each, and
OLD and NEW measure theirs in turn, in another order each round. A row a graph: kernels' time (their sum,
by events; with --run the time of a whole run, with --compile of compiling without a cache) of NEW over OLD, the median of the rounds' ratios and their
middle half; the bar is 1.02. Exit code 1 when a median is above it. FILE keeps every round: rounds that it
has already count, so that a race goes on where it was cut off.
"""
import argparse
import json
import os
import random
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
BAR = 1.02


def differing(args, folder):
    """Lines of graphs whose code differs, in the order in which they were made."""
    tool = os.path.join(HERE, "..", "..", "tools", "same_code.py")
    done = subprocess.run([sys.executable, tool, args.old, args.new, "--made", f"--targets={args.targets}",
                           f"--jobs={os.cpu_count()}", f"--keep={folder}"], capture_output=True, text=True)
    print(done.stdout.splitlines()[-1] if done.stdout else done.stderr[-2000:], flush=True)
    found = []
    for block in re.split(r"^(?=\[\d+/)", done.stdout, flags=re.M):
        head = re.match(r"\[(\d+)/\d+\] (.*?): \d+ kernel", block)
        if head and re.search(r"^  \S+ (code|launch|old|new) ", block, re.M):
            found.append((int(head[1]), head[2]))
    return [line for _, line in sorted(found)]


def compile_command(lathe, graph, engine, args):
    return [lathe, "compile", *shlex.split(graph), f"--target={args.targets}", "--no-cache", "-o", engine]


def milliseconds(lathe, graph, engine, args):
    """Of one run: the sum of its kernels' device time, or the median of whole runs; or of one compilation."""
    if args.compile:
        begin = time.perf_counter()
        subprocess.run(compile_command(lathe, graph, engine, args), check=True, capture_output=True)
        return (time.perf_counter() - begin) * 1e3
    report = engine + ".json"
    subprocess.run([lathe, "bench", engine, f"--device={args.device}", *([] if args.run else ["--profile"]),
                    f"--seconds={args.seconds}", f"--json={report}",
                    *([f"--entry={args.entry}"] if args.entry else []), *(["--threads=1"] if args.device == "cpu" else [])],
                   check=True, capture_output=True, text=True)
    with open(report) as f:
        found = json.load(f)
    if args.run:
        return found["median_ms"]
    rows = found["profile"]
    runs = min(row["calls"] for row in rows) # a kernel may stand in a plan several times
    return sum(row["us_per_call"] * row["calls"] for row in rows) / runs / 1e3


def main(argv):
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("graphs", nargs="*")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--most", type=int, default=10 ** 6)
    parser.add_argument("--targets", default="sm_90a")
    parser.add_argument("--only", default="")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--seconds", type=float, default=0.02)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--entry")
    parser.add_argument("--log")
    args = parser.parse_intermixed_args(argv)
    folder = tempfile.mkdtemp(prefix="race_versions.")
    given = []
    for graph in args.graphs:
        given += [line.strip() for line in open(graph[1:]) if line.strip()] if graph[0] == "@" else [graph]
    graphs = [g for g in given or differing(args, folder) if re.search(args.only, g)]
    print(f"{len(graphs)} graphs " + ("given" if given else "differ"), flush=True)
    step = max(1, -(-len(graphs) // args.most))
    graphs = graphs[::step]
    builds = {"old": args.old, "new": args.new}

    def engines(item):
        number, graph = item
        made = {}
        for side, lathe in builds.items():
            made[side] = os.path.join(folder, f"{number}.{side}.lathe")
            done = subprocess.run(compile_command(lathe, graph, made[side], args), capture_output=True, text=True)
            if done.returncode:
                print(f"{graph}: {side} does not compile it: {done.stderr.strip()[:200]}", flush=True)
                return None
        return made
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = list(pool.map(engines, enumerate(graphs)))
    times = {i: {} for i, m in enumerate(made) if m} # of each graph {(turn, side): ms}
    if args.log and os.path.exists(args.log):
        for turn, graph, side, ms in (line.rstrip("\n").split("\t") for line in open(args.log)):
            if graph in graphs and graphs.index(graph) in times:
                times[graphs.index(graph)][int(turn), side] = float(ms)
    log = open(args.log, "a") if args.log else None
    for turn in range(args.rounds):
        order = [(i, side) for i in times for side in random.Random(turn * 1000 + i).sample(["old", "new"], 2)
                 if not {(turn, "old"), (turn, "new")} <= times[i].keys()]
        for i, side in order:
            times[i][turn, side] = ms = milliseconds(builds[side], graphs[i], made[i][side], args)
            if log:
                log.write(f"{turn}\t{graphs[i]}\t{side}\t{ms:.6f}\n")
                log.flush()
    worst = 0
    for i, found in times.items():
        ratios = [found[turn, "new"] / found[turn, "old"] for turn in range(args.rounds)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        worst = max(worst, middle)
        name = os.path.basename(graphs[i].split()[0])
        print(f"{name:58} {middle:6.3f}  ({low:.3f} .. {high:.3f})" + ("" if middle <= BAR else "  ABOVE"))
    print(f"worst median {worst:.3f}, bar {BAR}")
    return 1 if worst > BAR or None in made else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
