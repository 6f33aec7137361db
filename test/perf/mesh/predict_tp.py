#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the mesh simulator predicts of Llama-8B's sizes on several GPUs, beside what was measured.

    test/perf/mesh/predict_tp.py ENGINES --race=LOG --collectives=LOG --products=LOG --topology=FILE [--build=build]

ENGINES is the folder that test/perf/gpu/race_tp.py prepares (NAME-RANKS.lathe.xz), --race what its race printed. The
topology's link is that of fit_topology.py. Kernel rates come of ONE GPU alone:

  seconds           a norm behind an all-reduce of at most 32 KB ("with norm": apart, less the all-reduce alone)
  tile_seconds      of products of 16 and 64 rows of race_gemm.py the time that no bytes explain, less the above
  bytes_per_second  so that a step of one sequence on one GPU takes what it took
  flops             so that the prompt on one GPU takes what it took

All rows of several GPUs, and that of 64 sequences on one, are predictions; so are those that --race does not have yet. FILE
is written with these rates.
"""
import argparse
import json
import lzma
import re
import subprocess
import sys
import tempfile
from pathlib import Path

CASES = {"one": ("llama1", "step", ["P=1024"]), "many": ("llama64", "step", ["P=1016"]),
         "prompt": ("llama1", "prefill", ["S=2048"]), "one of 70B": ("llama70", "step", ["P=1024"])}
LAYER = {"qkv": (6144, 4096), "o": (4096, 4096), "gateup": (28672, 4096), "down": (4096, 14336)}


def kernel_seconds(log):
    """What a small kernel adds behind an all-reduce, mean over ranks and sizes."""
    reduces = {(m[1], m[2]): float(m[3]) for m in re.finditer(r"all-reduce x(\d+)\s+(\d+) KB\s+\w+\s+lathe ([\d.]+)", log)}
    found = [float(m[3]) - reduces[m[1], m[2]]
             for m in re.finditer(r"with norm x(\d+)\s+(\d+) KB\s+\w+\s+fused [\d.]+  apart ([\d.]+)", log)
             if (m[1], m[2]) in reduces and int(m[2]) <= 32]
    return sum(found) / len(found) * 1e-6


def tile_seconds(log):
    """The intercept of a line through times and bytes, by least squares of relative differences."""
    points = []
    for m in re.finditer(r"^(qkv|o|gateup|down)_(16|64)\s+gemm\.split\S+\s+([\d.]+) us .* x torch", log, re.MULTILINE):
        n, k = LAYER[m[1]]
        rows = int(m[2])
        points.append((2 * (n * k + rows * (n + k)), float(m[3]) * 1e-6))
    w = [1 / t ** 2 for _, t in points]
    sw, sx, sy = sum(w), sum(a * x for a, (x, _) in zip(w, points)), sum(a * t for a, (_, t) in zip(w, points))
    sxx, sxy = sum(a * x * x for a, (x, _) in zip(w, points)), sum(a * x * t for a, (x, t) in zip(w, points))
    slope = (sw * sxy - sx * sy) / (sw * sxx - sx * sx)
    return (sy - slope * sx) / sw


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engines", type=Path)
    for name in ("race", "collectives", "products", "topology"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--build", type=Path, default=Path("build"))
    options = parser.parse_args()
    race = options.race.read_text()
    measured = {(int(m[1]), m[2]): float(m[3]) * 1e-3
                for m in re.finditer(r"llama(?:-8B)?, (\d+) GPUs?, (one|many|prompt|one of 70B): ([\d.]+) ms", race)}
    topology = json.loads(options.topology.read_text())
    seconds = kernel_seconds(options.collectives.read_text())
    kernels = topology["kernels"] = {"seconds": seconds, "tile_seconds": max(0.0, tile_seconds(options.products.read_text()) - seconds),
                                     "bytes_per_second": 3e12, "flops": 6e14}
    with tempfile.TemporaryDirectory() as folder:
        def simulate(ranks, case):
            name, entry, sizes = CASES[case]
            engine = Path(folder) / f"{name}-{ranks}.lathe"
            if not engine.exists():
                with lzma.open(options.engines / f"{name}-{ranks}.lathe.xz") as packed:
                    engine.write_bytes(packed.read())
            path = Path(folder) / "topology.json"
            path.write_text(json.dumps(topology))
            run = subprocess.run([options.build / "bin/lathe", "simulate", engine, f"--topology={path}", f"--entry={entry}", "--json",
                                  *(f"--size={s}" for s in sizes)], capture_output=True, text=True, check=False)
            if run.returncode:
                sys.exit(run.stderr)
            return json.loads(run.stdout)
        for _ in range(4):  # either rate hardly moves the other's row
            for rate, case in (("bytes_per_second", "one"), ("flops", "prompt")):
                low, high = kernels[rate] / 4, kernels[rate] * 4
                for _ in range(24):
                    kernels[rate] = (low * high) ** 0.5
                    if simulate(1, case)["seconds"] > measured[1, case]:
                        low = kernels[rate]
                    else:
                        high = kernels[rate]
        for name, value in kernels.items():
            kernels[name] = float(f"{value:.4g}")
        options.topology.write_text(json.dumps(topology, indent=1) + "\n")
        print(f"kernel rates of one GPU: {kernels}")
        worst, compared = 0.0, 0
        for ranks, case in sorted((r, c) for r in (1, 2, 4, 8) for c in CASES
                                  if (options.engines / f"{CASES[c][0]}-{r}.lathe.xz").exists()):
            ours = simulate(ranks, case)
            if not (time := measured.get((ranks, case))):
                print(f"Llama, {ranks} GPUs, {case:6}: predicted {ours['seconds'] * 1e3:.3f} ms, of it exchanges "
                      f"{ours['exchanges'] * 1e3:.3f} ms")
                continue
            off = ours["seconds"] / time - 1
            fitted = ranks == 1 and case != "many"
            if not fitted:
                worst, compared = max(worst, abs(off)), compared + 1
            print(f"Llama, {ranks} GPUs, {case:6}: measured {time * 1e3:7.3f} ms, {'fitted   ' if fitted else 'predicted'} "
                  f"{ours['seconds'] * 1e3:7.3f} ms ({100 * off:+.1f} %), of it exchanges {ours['exchanges'] * 1e3:.3f} ms")
        print(f"the worst of {compared} predictions is off by {100 * worst:.1f} %")
    return 0 if compared and worst <= 0.10 else 1


if __name__ == "__main__":
    sys.exit(main())
