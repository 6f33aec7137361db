#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The mesh simulator against SimGrid: the same all-reduces on the same machines.

    test/perf/mesh/against_simgrid.py [--build=build] [--log=FILE] [--golden=FILE] [--most=1024]

Compiles SimgridCollectives.cpp, which shares nothing with lathe, against Debian's libsimgrid-dev, and compares times of
algorithms, sizes, hosts and late ranks. SimGrid is told to share links max-min fairly and to leave TCP out of it.
--golden writes SimGrid's times for test/unit/MeshSimulatorTest.cpp. Exit code 1 when a time is off by more than 5 %.
"""
import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
PEERS, NETWORK, MEETING = (7e-7, 2e-7, 3.2e11), (5e-6, 1e-6, 4.5e10), 9e-7
# algorithm, hosts, GPUs a host, bytes, whose port, late ranks
CASES = [(algorithm, 1, gpus, size, "gpu", late)
         for algorithm in ("one-shot", "two-shot", "ring") for gpus in (2, 4, 8) for size in (8192, 1 << 20, 1 << 26)
         for late in ({}, {1: 3e-5})]
CASES += [("one-shot", 2, 8, 1 << 16, port, {3: 1e-5}) for port in ("gpu", "host")]
CASES += [("two-shot", hosts, 8, 1 << 22, port, {}) for hosts in (2, 8) for port in ("gpu", "host")]
CASES += [(algorithm, hosts, 8, size, "gpu", late)
          for algorithm in ("ring", "tree") for hosts in (2, 3, 16, 128) for size in (1 << 16, 1 << 24, 1 << 28)
          for late in ({}, {5: 1e-3}) if algorithm == "tree" or hosts < 128 or size == 1 << 24]  # SimGrid takes a minute
CASES += [("tree", hosts, 8, 1 << 24, "host", {9: 1e-4}) for hosts in (4, 128)]


def lathe(build, folder, case):
    algorithm, hosts, gpus, size, port, late = case
    link = lambda l: {"latency": l[0], "message": l[1], "bytes_per_second": l[2]}
    topology = {"hosts": hosts, "gpus_per_host": gpus, "peers": link(PEERS), "network": link(NETWORK) | {"port": port},
                "meeting": MEETING, "kernels": {"bytes_per_second": 1, "flops": 1}}
    path = Path(folder) / "topology.json"
    path.write_text(json.dumps(topology))
    command = [build / "bin/lathe", "simulate", f"--collective=all_reduce:{size}", f"--topology={path}",
               f"--algorithm={algorithm}", "--json", *(f"--late={r}={s}" for r, s in late.items())]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["seconds"]


def simgrid(program, case):
    algorithm, hosts, gpus, size, port, late = case
    link = lambda l: ",".join(map(repr, l))
    command = [program, "--log=root.thresh:error", algorithm, hosts, gpus, size, port, link(PEERS), link(NETWORK), MEETING,
               *(f"{r}={s}" for r, s in late.items())]
    run = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    if run.returncode:
        raise RuntimeError(f"{case}: {run.stderr[-2000:]}")
    return float(run.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=Path("build"))
    parser.add_argument("--log", type=Path)
    parser.add_argument("--golden", type=Path)
    parser.add_argument("--most", type=int, default=1024)
    options = parser.parse_args()
    rows, golden, worst = [], ["# algorithm, hosts, GPUs a host, bytes, whose port, late rank, its seconds, SimGrid's seconds"], 0.0
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "simgrid-collectives"
        subprocess.run(["c++", "-std=c++17", "-O2", HERE / "SimgridCollectives.cpp", "-o", program, "-lsimgrid"], check=True)
        for case in CASES:
            algorithm, hosts, gpus, size, port, late = case
            if hosts * gpus > options.most:
                continue
            begin = time.perf_counter()
            ours = lathe(options.build, folder, case)
            middle = time.perf_counter()
            theirs = simgrid(program, case)
            end = time.perf_counter()
            off = ours / theirs - 1
            worst = max(worst, abs(off))
            rows.append(f"{algorithm:9} {hosts:4} x {gpus} {size:10} B port of a {port:4} {len(late)} late: lathe {ours * 1e6:12.3f} us, "
                        f"SimGrid {theirs * 1e6:12.3f} us, {100 * off:+.3f} %; took {middle - begin:.2f} and {end - middle:.2f} s")
            print(rows[-1], flush=True)
            golden.append("\t".join(map(str, (*case[:5], *(next(iter(late.items())) if late else (0, 0)), f"{theirs:.9g}"))))
    rows.append(f"{len(rows)} all-reduces, the worst off by {100 * worst:.3f} %")
    print(rows[-1])
    if options.golden:
        options.golden.write_text("\n".join(golden) + "\n")
    if options.log:
        options.log.write_text("\n".join(rows) + "\n")
    return 0 if worst <= 0.05 else 1


if __name__ == "__main__":
    sys.exit(main())
