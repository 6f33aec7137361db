#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fits a topology's link to what race_collectives.py measured: four numbers for all sizes, forms and ranks.

    test/perf/mesh/fit_topology.py LOG... [--kernels=SECONDS,BYTES_PER_SECOND,FLOPS] [--gpus=N] > topology.json

Reads the rows "all-reduce xN SIZE KB FORM lathe T" and "parts xN SIZE KB gather T ... scatter T" of the logs. The sum of
squares of relative differences is brought down by trying steps of each number by itself; what is left is printed to
stderr, row by row. Kernel rates are not fitted here: predict_tp.py does that.
"""
import argparse
import json
import math
import re
import sys
from pathlib import Path


def rows(path):
    for line in path.read_text().splitlines():
        if m := re.match(r"all-reduce x(\d+)\s+(\d+) KB\s+(\w+)\s+lathe ([\d.]+)", line):
            yield int(m[1]), m[3], int(m[2]) * 1024, float(m[4]) * 1e-6
        elif m := re.match(r"parts x(\d+)\s+(\d+) KB\s+gather ([\d.]+)  nccl gather [\d.]+  scatter ([\d.]+)  ", line):
            for time in (m[3], m[4]):  # sizes are of a part
                yield int(m[1]), "Parts", int(m[2]) * 1024 * int(m[1]), float(time) * 1e-6


def predicted(link, ranks, form, size):
    """What CollectiveTimes.h says of ranks that come together."""
    latency, message, rate, meeting = link

    def everyone(part):
        return latency + max(message + (ranks - 1) * part / rate, (ranks - 1) * message + part / rate)
    part = size / ranks
    return meeting + {"OneShot": lambda: everyone(size), "TwoShot": lambda: 2 * everyone(part),
                      "Direct": lambda: 2 * everyone(0) + 2 * everyone(part),
                      "Parts": lambda: 2 * everyone(0) + everyone(part)}[form]()


def fit(measured):
    link, step = [1e-6, 2e-7, 3e11, 1e-6], 0.3

    def error(candidate):
        return sum(math.log(predicted(candidate, *row[:3]) / row[3]) ** 2 for row in measured)
    best = error(link)
    while step > 1e-5:
        before = best
        for i in range(len(link)):
            for factor in (1 + step, 1 / (1 + step)):
                candidate = link.copy()
                candidate[i] *= factor
                if (now := error(candidate)) < best:
                    best, link = now, candidate
        if best == before:
            step /= 2
    return link


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", nargs="+", type=Path)
    parser.add_argument("--kernels", default="2e-6,3e12,6e14")
    parser.add_argument("--gpus", type=int)
    options = parser.parse_args()
    measured = [row for log in options.logs for row in rows(log)]
    if not measured:
        parser.error("the logs have no rows of collectives")
    link = fit(measured)
    off = []
    for ranks, form, size, time in measured:
        ours = predicted(link, ranks, form, size)
        off.append(ours / time - 1)
        print(f"x{ranks} {form:8} {size:9} B  measured {time * 1e6:7.2f} us, fitted {ours * 1e6:7.2f}, {100 * off[-1]:+.1f} %", file=sys.stderr)
    print(f"{len(off)} rows, mean {100 * sum(map(abs, off)) / len(off):.1f} %, worst {100 * max(map(abs, off)):.1f} %", file=sys.stderr)
    seconds, rate, flops = map(float, options.kernels.split(","))
    round3 = lambda x: float(f"{x:.3g}")
    print(json.dumps({"gpus_per_host": options.gpus or max(r[0] for r in measured),
                      "peers": {"latency": round3(link[0]), "message": round3(link[1]), "bytes_per_second": round3(link[2])},
                      "meeting": round3(link[3]),
                      "kernels": {"seconds": seconds, "bytes_per_second": rate, "flops": flops}}, indent=1))


if __name__ == "__main__":
    main()
