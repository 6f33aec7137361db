# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a model of the race costs beside time: compiling, memory, and how near the roof it runs.

    race_costs.py memory lathe|ort FILE INPUTS.npz     (what a child process does)
"""
import os
import subprocess
import sys
import tempfile
import time

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
for folder in ("planner", "../models", "../../python-frontend"):
    sys.path.insert(0, os.path.join(HERE, folder))


def status_bytes(pid, field):
    """A field of /proc/PID/status, "VmHWM" for the peak of the resident set; 0 once it is gone."""
    try:
        with open(f"/proc/{pid}/status") as f:
            for line in f:
                if line.startswith(field + ":"):
                    return int(line.split()[1]) << 10
    except OSError:
        pass
    return 0


def compile_once(file, engine, options, cache):
    """Seconds, and the peak resident set in bytes. (What wait4 says has the parent's in it.)"""
    import lathe_cli
    begin = time.perf_counter()
    process = subprocess.Popen([lathe_cli.LATHE, "compile", file, "-o", engine, *options],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               env={**os.environ, "LATHE_CACHE_DIR": cache})
    peak = 0
    while process.poll() is None:
        peak = max(peak, status_bytes(process.pid, "VmHWM"))
        time.sleep(0.005)
    seconds = time.perf_counter() - begin
    assert process.returncode == 0, process.stdout.read()[-2000:]
    return seconds, peak


def compile_cost(file, engine, options):
    """Cold, and the median of three from the cache, each time to a path where nothing is: {"cold",
    "cached": seconds, "peak": bytes of the worst, "allowed": bytes}. The cache is on the engine's file
    system, where an engine needs no copy."""
    runs = []
    with tempfile.TemporaryDirectory(dir=os.path.dirname(engine)) as cache:
        for _ in range(4):
            if os.path.exists(engine):
                os.remove(engine)
            runs.append(compile_once(file, engine, options, cache))
    seconds = [run[0] for run in runs]
    return {"cold": seconds[0], "cached": float(np.median(seconds[1:])),
            "peak": max(run[1] for run in runs), "allowed": 2 * os.path.getsize(file) + 500_000_000}


def mapped_bytes(file):
    """Resident bytes of this process that are pages of a file."""
    total, inside = 0, False
    with open("/proc/self/smaps") as f:
        for line in f:
            if "-" in line.split(" ", 1)[0]:
                inside = line.rstrip().endswith(os.path.abspath(file))
            elif inside and line.startswith("Rss:"):
                total += int(line.split()[1]) << 10
    return total


def weights_of(file):
    import onnx
    from onnx import TensorProto
    sizes = {TensorProto.FLOAT: 4, TensorProto.INT64: 8, TensorProto.INT32: 4,
             TensorProto.FLOAT16: 2, TensorProto.DOUBLE: 8}
    graph = onnx.load(file, load_external_data=False).graph
    return sum(int(np.prod(t.dims)) * sizes.get(t.data_type, 1) for t in graph.initializer)


def memory_lathe(file, inputs):
    import lathe
    before = status_bytes("self", "VmRSS")
    context = lathe.load(file).context("cpu", threads=1)
    for _ in range(3):
        context.run(inputs)
    peak = status_bytes("self", "VmHWM")
    return peak - before - mapped_bytes(file)


def memory_ort(file, inputs):
    weights = weights_of(file)
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    before = status_bytes("self", "VmRSS")
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    settled = status_bytes("self", "VmRSS")
    # What loading alone took at its peak is not running: the mark starts again here.
    with open("/proc/self/clear_refs", "w") as f:
        f.write("5")
    for _ in range(3):
        session.run(None, inputs)
    peak = max(settled, status_bytes("self", "VmHWM"))
    return peak - before - weights


def run_memory(runtime, file, inputs):
    """Bytes that loading a model and running it adds to a process at its peak, weights apart."""
    done = subprocess.run([sys.executable, os.path.abspath(__file__), "memory", runtime, file, inputs],
                          capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    return int(done.stdout.split()[-1])


def arenas(file, options, inputs):
    """Bytes: lathe's arena, onnxruntime's pattern and all it needs, the lower bound."""
    import arena
    ours = arena.lathe_arena(file, options)
    pattern, everything = arena.onnxruntime_arena(file, inputs)
    return {"lathe": ours["arena"], "bound": ours["bound"], "ort": everything, "pattern": pattern}


def roofline(report):
    """Share of the roof: the time that flops and bytes take at the measured peaks, by the time
    that all kernels take. Flops are the model's own: a Winograd product counts as what it replaces."""
    gbs, gflops = report["roof_gb_per_s"], report["roof_gflop_per_s"]
    rows = report["profile"]
    ideal = sum(row["us_per_call"] * max(row["gb_per_s"] / gbs, row["gflop_per_s"] / gflops)
                for row in rows)
    spent = sum(row["us_per_call"] for row in rows)
    flops = sum(row["us_per_call"] * row["gflop_per_s"] * 1e3 for row in rows)
    return {"share": ideal / max(spent, 1e-9), "gflop": flops / 1e9,
            "gflops": flops / max(spent, 1e-9) / 1e3}


def main():
    _, what, runtime, file, inputs = sys.argv
    assert what == "memory"
    run = {"lathe": memory_lathe, "ort": memory_ort}[runtime]
    print(run(file, dict(np.load(inputs))))


if __name__ == "__main__":
    main()
