# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Races lathe against onnxruntime and OpenVINO on the CPU.

    race.py [--threads 1,2] [--rounds 3] [--seconds 1] [--batch 1] [--peers ort,ov] [MODEL...]

Each runtime runs in a process of its own, because the idle threads of one spin and slow another;
rounds alternate and the figure is the median of the rounds' medians, in ms. All get the same
inputs, and no runtime copies them: rivals run with bound inputs. Before the race the results of
lathe are compared with onnxruntime's. Writes a table to standard output and --out=FILE, rows as
JSON to --json=FILE.
"""
import argparse
import json
import math
import os
import subprocess
import sys
import time

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "..", "models"))
from race_models import RACE  # noqa: E402

WORK = os.path.join(HERE, "..", "..", "build", "race-cpu")
TOLERANCE = 1e-4


def median_ms(run, seconds):
    for _ in range(3):
        run()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return 1e3 * float(np.median(times))


def ort_session(path, threads):
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def ort_ms(path, inputs, threads, seconds):
    session = ort_session(path, threads)
    bound = session.io_binding()
    for name, array in inputs.items():
        bound.bind_cpu_input(name, array)
    for output in session.get_outputs():
        bound.bind_output(output.name)
    return median_ms(lambda: session.run_with_iobinding(bound), seconds)


def ov_ms(path, inputs, threads, seconds):
    import openvino
    core = openvino.Core()
    model = core.read_model(path)
    names = {i.any_name for i in model.inputs}
    sizes = {n: list(a.shape) for n, a in inputs.items() if n in names}
    model.reshape({n: openvino.PartialShape(size) for n, size in sizes.items()})
    request = core.compile_model(model, "CPU", {
        "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32"}).create_infer_request()
    for name, array in inputs.items():
        if name in names:
            request.set_tensor(name, openvino.Tensor(array, shared_memory=array.ndim > 0))
    return median_ms(request.infer, seconds)


def rival(args):
    """What a child process does: one rival, one model; prints the median."""
    inputs = dict(np.load(args.inputs))
    run = {"ort": ort_ms, "ov": ov_ms}[args.rival]
    print(run(args.models[0], inputs, int(args.threads), args.seconds))


def prepare(name, args):
    """Compiles and checks a model; returns its folder and the compile time in seconds."""
    import lathe_cli
    entry = RACE[name]
    inputs = entry.inputs(args.batch)
    folder = os.path.abspath(os.path.join(WORK, f"{name}_{args.batch}"))
    os.makedirs(folder, exist_ok=True)
    np.savez(os.path.join(folder, "inputs.npz"), **inputs)
    options = list(entry.dims) if args.symbolic else [
        f"--shape={n}=" + "x".join(map(str, a.shape)) for n, a in inputs.items() if a.ndim]
    for n in entry.const:
        np.save(os.path.join(folder, f"{n}.npy"), inputs[n])
        options.append(f"--const={n}={folder}/{n}.npy")
    engine = os.path.join(folder, "model.lathe")
    begin = time.perf_counter()
    lathe_cli.lathe("compile", entry.file, "-o", engine, f"--target={args.target}", *options)
    seconds = time.perf_counter() - begin
    ours = {n: a for n, a in inputs.items() if n not in entry.const}
    np.savez(os.path.join(folder, "ours.npz"), **ours)
    got = lathe_cli.run(engine, os.path.join(folder, "outputs"), inputs=ours)
    session = ort_session(entry.file, 1)
    want = dict(zip([o.name for o in session.get_outputs()], session.run(None, inputs)))
    error = max(lathe_cli.relative_error(got[n], w) for n, w in want.items())
    return folder, seconds, error


def lathe_ms(folder, threads, seconds):
    import lathe_cli
    inputs = np.load(os.path.join(folder, "ours.npz")).files
    report = os.path.join(folder, "bench.json")
    lathe_cli.lathe("bench", os.path.join(folder, "model.lathe"), f"--threads={threads}",
                    f"--seconds={seconds}", "--json", report,
                    *(f"--input={n}={folder}/outputs/input_{i}.npy" for i, n in enumerate(inputs)))
    with open(report) as f:
        return json.load(f)["median_ms"]


def rival_ms(peer, name, folder, threads, seconds):
    done = subprocess.run([sys.executable, __file__, "--rival", peer, "--inputs",
                           os.path.join(folder, "inputs.npz"), "--threads", str(threads),
                           "--seconds", str(seconds), RACE[name].file],
                          capture_output=True, text=True, timeout=600)
    return float(done.stdout.split()[-1]) if done.returncode == 0 else math.nan


def race(name, args, threads, folder):
    row = {p: [] for p in ("lathe", *args.peers.split(","))}
    for _ in range(args.rounds):
        for peer in row:
            row[peer].append(lathe_ms(folder, threads, args.seconds) if peer == "lathe"
                             else rival_ms(peer, name, folder, threads, args.seconds))
    return {p: float(np.median(v)) for p, v in row.items()}


def geometric(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def line(row, threads):
    cells = [f"{row['model']:<16}"]
    for t in threads:
        ms = row["ms"].get(str(t), {})
        cells.append(" / ".join(f"{ms.get(p, math.nan):.3f}" for p in ("lathe", "ort", "ov"))
                     + f" | {row['ratio'].get(str(t), math.nan):.3f}")
    return "| " + " | ".join(cells) + f" | {row['error']:.1e} | {row['compile']:.1f} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="*")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--symbolic", action="store_true", help="one engine for a range of sizes")
    parser.add_argument("--target", default="native")
    parser.add_argument("--peers", default="ort,ov")
    parser.add_argument("--out")
    parser.add_argument("--json")
    parser.add_argument("--rival", help=argparse.SUPPRESS)
    parser.add_argument("--inputs", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rival:
        return rival(args)
    threads = [int(t) for t in args.threads.split(",")]
    rows, lines = [], []

    def say(text):
        print(text, flush=True)
        lines.append(text)

    say("| model | " + " | ".join(f"{t} thread{'s' * (t > 1)}: lathe / ort / ov ms | ratio"
                                  for t in threads) + " | error | compile s |")
    say("|---|" + "---|---|" * len(threads) + "---|---|")
    for name in args.models or RACE:
        row = {"model": name, "ms": {}, "ratio": {}, "error": math.nan, "compile": math.nan}
        try:
            folder, row["compile"], row["error"] = prepare(name, args)
            for t in threads:
                ms = race(name, args, t, folder)
                row["ms"][str(t)] = ms
                row["ratio"][str(t)] = ms["lathe"] / np.nanmin([ms[p] for p in ms if p != "lathe"])
        except (AssertionError, KeyError, subprocess.TimeoutExpired) as problem:
            row["problem"] = str(problem)
            print(f"{name}: {problem}", file=sys.stderr)
        rows.append(row)
        say(line(row, threads) + ("" if row["error"] <= TOLERANCE else " **disagrees**"))
    for t in threads:
        groups = {}
        for row in rows:
            if str(t) in row["ratio"]:
                groups.setdefault(RACE[row["model"]].group or row["model"], []).append(
                    row["ratio"][str(t)])
        means = [geometric(v) for v in groups.values()]
        say(f"\n{t} thread{'s' * (t > 1)}: geometric mean of the ratios to the better rival "
            f"{geometric(means):.3f}, worst {max(means, default=math.nan):.3f}")
    if args.json:
        with open(args.json, "w") as f:
            json.dump(rows, f, indent=1)
    if args.out:
        with open(args.out, "w") as f:
            f.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
