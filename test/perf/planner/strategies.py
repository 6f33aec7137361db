#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Choices within memory (lathe/analysis/LimitedSearch.h) on the instances of the ASPLOS 2025 contest on intra-operator
parallelism, against toulbar2.

    test/perf/planner/strategies.py FOLDER [NAME...] [--seconds=60] [--rival] [--build=build]

FOLDER holds asplos-2025-iopddl-NAME.json.gz as github.com/google/iopddl has them in benchmarks/ (Apache-2.0). A
row has what lathe found in so many seconds on one core, its bound, and the share of the limit that is used; every
answer is checked here, in integers. With --rival toulbar2 (pytoulbar2 of test/perf/requirements.txt) has as much
processor time for the same problem, with a linear constraint for each step at which memory could pass the limit;
problems with more than 20 million terms in these are not given to it. Exit code 1 when an answer is wrong or none was
found, or when the rival's is better by more than 5 %.
"""
import argparse
import array
import gzip
import json
import multiprocessing
import queue
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

IMPOSSIBLE = 10**18  # what the contest writes for infinite costs
MOST_TERMS = 20_000_000


def load(path):
    with gzip.open(path) as file:
        problem = json.load(file)["problem"]
    return problem["nodes"], problem["edges"], problem["usage_limit"]


def write(path, nodes, edges, limit):
    """The form of StrategyBench.cpp."""
    def costs(values):
        return array.array("d", [float("inf") if v >= IMPOSSIBLE else v for v in values]).tobytes()

    with open(path, "wb") as out:
        out.write(struct.pack("<qqq", len(nodes["costs"]), len(edges["nodes"]), limit))
        for own, bytes_, (first, last) in zip(nodes["costs"], nodes["usages"], nodes["intervals"]):
            out.write(struct.pack("<qqq", first, last, len(own)) + costs(own) + array.array("q", bytes_).tobytes())
        for (a, b), table in zip(edges["nodes"], edges["costs"]):
            out.write(struct.pack("<qq", a, b) + costs(table))


def check(nodes, edges, limit, choices):
    """Cost and peak of an answer, in integers; fails where it is impossible or above the limit."""
    cost = sum(own[c] for own, c in zip(nodes["costs"], choices))
    for (a, b), table in zip(edges["nodes"], edges["costs"]):
        cost += table[choices[a] * len(nodes["costs"][b]) + choices[b]]
    change = {}
    for bytes_, (first, last), c in zip(nodes["usages"], nodes["intervals"], choices):
        if first < last:
            change[first] = change.get(first, 0) + bytes_[c]
            change[last] = change.get(last, 0) - bytes_[c]
    peak = used = 0
    for step in sorted(change):
        used += change[step]
        peak = max(peak, used)
    if cost >= IMPOSSIBLE:
        raise ValueError("an answer has an impossible pair")
    if peak > limit:
        raise ValueError(f"an answer takes {peak} bytes of {limit}")
    return cost, peak


def sections(nodes, limit):
    """The ops alive at steps where memory could pass the limit, after a birth that a death follows."""
    events = {}
    for op, (first, last) in enumerate(nodes["intervals"]):
        if first < last:
            events.setdefault(first, ([], []))[0].append(op)
            events.setdefault(last, ([], []))[1].append(op)
    most = [max(bytes_) for bytes_ in nodes["usages"]]
    alive, born, bytes_now = set(), False, 0
    for step in sorted(events):
        births, deaths = events[step]
        if deaths and born:
            if bytes_now > limit:
                yield sorted(alive)
            born = False
        alive.difference_update(deaths)
        alive.update(births)
        bytes_now += sum(most[op] for op in births) - sum(most[op] for op in deaths)
        born |= bool(births)


def write_rival(path, nodes, edges, limit, most):
    """The wcsp form; false where it would be too large. `most`: above any cost that matters."""
    terms, constraints = 0, []
    for alive in sections(nodes, limit):
        terms += sum(len(nodes["usages"][op]) for op in alive)
        if terms > MOST_TERMS:
            return False
        weights = " ".join(f"{len(u)} " + " ".join(f"{c} {-b}" for c, b in enumerate(u))
                           for u in (nodes["usages"][op] for op in alive))
        constraints.append(f"{len(alive)} {' '.join(map(str, alive))} -1 knapsackp {-limit} {weights}\n")
    sizes = [len(own) for own in nodes["costs"]]
    with open(path, "w") as out:
        out.write(f"strategies {len(sizes)} {max(sizes)} {len(sizes) + len(edges['nodes']) + len(constraints)} {most}\n")
        out.write(" ".join(map(str, sizes)) + "\n")
        for op, own in enumerate(nodes["costs"]):
            out.write(f"1 {op} 0 {len(own)}\n" + "".join(f"{c} {min(v, most)}\n" for c, v in enumerate(own)))
        for (a, b), table in zip(edges["nodes"], edges["costs"]):
            out.write(f"2 {a} {b} 0 {len(table)}\n")
            out.write("".join(f"{i // sizes[b]} {i % sizes[b]} {min(v, most)}\n" for i, v in enumerate(table)))
        out.writelines(constraints)
    return True


def solve_rival(path, seconds, most, found):
    import pytoulbar2

    network = pytoulbar2.CFN(ubinit=float(most), resolution=0)
    network.Read(str(path))
    network.Solve(timeLimit=seconds)
    solutions = network.GetSolutions()
    found.put([int(c) for c in min(solutions)[1]] if solutions else None)


def rival(path, seconds, most):
    """toulbar2's best choices, or nothing; in a process of its own, ended when its time is over."""
    found = multiprocessing.Queue()
    process = multiprocessing.Process(target=solve_rival, args=(path, seconds, most, found))
    process.start()
    try:
        return found.get(timeout=4 * seconds)  # its limit is of processor time
    except queue.Empty:
        return None
    finally:
        process.terminate()
        process.join()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--rival", action="store_true")
    parser.add_argument("--build", type=Path, default=Path("build"))
    options = parser.parse_args()
    prefix = "asplos-2025-iopddl-"
    names = options.names or sorted(p.name[len(prefix):-8] for p in options.folder.glob(prefix + "*.json.gz"))
    if not names:
        parser.error(f"{options.folder} has no {prefix}*.json.gz")
    right = True
    for name in names:
        path = options.folder / f"{prefix}{name}.json.gz"
        if not path.is_file():
            parser.error(f"{path} does not exist")
        nodes, edges, limit = load(path)
        row = f"{name}  {len(nodes['costs']):6} ops {len(edges['nodes']):7} pairs"
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder) / "problem", nodes, edges, limit)
            run = subprocess.run([options.build / "bin/lathe-strategy-bench", Path(folder) / "problem", str(options.seconds)],
                                 capture_output=True, text=True, check=False)
            if run.returncode:
                print(f"{row}  {run.stderr.strip()}", flush=True)
                right = False
                continue
            first, second = run.stdout.splitlines()
            cost, peak = check(nodes, edges, limit, [int(c) for c in second.split()])
            row += f"  cost {cost}  bound {float(first.split()[1]):.0f}  memory {peak / limit:.4f}"
            if options.rival:
                most = 100 * cost
                if not write_rival(Path(folder) / "wcsp", nodes, edges, limit, most):
                    row += "  toulbar2: not given, too many terms"
                elif not (answer := rival(Path(folder) / "wcsp", options.seconds, most)):
                    row += "  toulbar2: nothing"
                else:
                    theirs, _ = check(nodes, edges, limit, answer)
                    row += f"  toulbar2 {theirs}: {cost / theirs:.3f} of it"
                    right &= cost <= 1.05 * theirs
        print(row, flush=True)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
