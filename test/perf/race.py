# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Races lathe against onnxruntime and OpenVINO on the CPU.

    race.py [--threads 1,2] [--rounds 3] [--seconds 1] [--batch 1] [--peers ort,ov] [MODEL...]
    race.py --symbolic [MODEL...]      one engine for all sizes against engines of one size
    race.py --cells                    LSTM and GRU by themselves
    race.py --report FILE.md           all tables of results/cpu.md, with the bars they are held to

Each runtime runs in a process of its own, because the idle threads of one spin and slow another;
rounds alternate and the figure is the median of the rounds' medians, in ms. All get the same
inputs, and no runtime copies them: rivals run with bound inputs. Before the race the results of
lathe are compared with onnxruntime's and with float64. Writes tables to standard output and
--out=FILE, rows as JSON to --json=FILE.
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
import race_cells  # noqa: E402
import race_costs  # noqa: E402
import race_reference  # noqa: E402
from race_models import RACE, SYMBOLIC  # noqa: E402

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


def sizes_of(inputs):
    return [f"--shape={n}=" + "x".join(map(str, a.shape)) for n, a in inputs.items() if a.ndim]


def workplace(name):
    folder = os.path.abspath(os.path.join(WORK, name))
    os.makedirs(folder, exist_ok=True)
    return folder


def options_of(entry, inputs, folder, args):
    """Options of `lathe compile` for these sizes."""
    options = [f"--target={args.target}", *sizes_of(inputs), *(f"--{o}" for o in args.option)]
    for n in entry.const:
        np.save(os.path.join(folder, f"{n}.npy"), inputs[n])
        options.append(f"--const={n}={folder}/{n}.npy")
    return options


def errors64(entry, batch, folder, engine, session):
    """The mean over draws of inputs of the largest error against float64. Small models have few
    outputs, so that one draw says little: eight draws."""
    import lathe_cli
    names = [o.name for o in session.get_outputs()]
    errors = {"lathe": [], "ort": []}
    for seed in range(8 if os.path.getsize(entry.file) < 50_000_000 else 1):
        inputs = entry.inputs(batch, seed=seed)
        truth = race_reference.cached(entry.file, inputs, folder)
        ours = {n: a for n, a in inputs.items() if n not in entry.const}
        got = {"lathe": lathe_cli.run(engine, workplace("errors"), inputs=ours),
               "ort": dict(zip(names, session.run(None, inputs)))}
        for peer, values in got.items():
            errors[peer].append(max(lathe_cli.relative_error(values[n], t)
                                    for n, t in truth.items()))
    return {peer: float(np.mean(found)) for peer, found in errors.items()}


def prepare(name, args):
    """Compiles and checks a model; its folder and what is known of it but its speed."""
    import lathe_cli
    entry = RACE[name]
    inputs = entry.inputs(args.batch)
    folder = workplace(f"{name}_{args.batch}")
    np.savez(os.path.join(folder, "inputs.npz"), **inputs)
    options = options_of(entry, inputs, folder, args)
    engine = os.path.join(folder, "model.lathe")
    row = {"compile": race_costs.compile_cost(entry.file, engine, options)}
    ours = {n: a for n, a in inputs.items() if n not in entry.const}
    np.savez(os.path.join(folder, "ours.npz"), **ours)
    got = lathe_cli.run(engine, os.path.join(folder, "outputs"), inputs=ours)
    session = ort_session(entry.file, 1)
    want = dict(zip([o.name for o in session.get_outputs()], session.run(None, inputs)))
    row["error"] = max(lathe_cli.relative_error(got[n], w) for n, w in want.items())
    if args.costs:
        row["error64"] = errors64(entry, args.batch, folder, engine, session)
        row["memory"] = {
            "lathe": race_costs.run_memory("lathe", engine, os.path.join(folder, "ours.npz")),
            "ort": race_costs.run_memory("ort", entry.file, os.path.join(folder, "inputs.npz"))}
        row["arena"] = race_costs.arenas(entry.file, options, inputs)
    return folder, row


def bench(folder, threads, seconds, *options):
    import lathe_cli
    inputs = np.load(os.path.join(folder, "ours.npz")).files
    report = os.path.join(folder, "bench.json")
    lathe_cli.lathe("bench", os.path.join(folder, "model.lathe"), f"--threads={threads}",
                    f"--seconds={seconds}", "--json", report, *options,
                    *(f"--input={n}={folder}/outputs/input_{i}.npy" for i, n in enumerate(inputs)))
    with open(report) as f:
        return json.load(f)


def lathe_ms(folder, threads, seconds):
    return bench(folder, threads, seconds)["median_ms"]


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


def race_model(name, args, threads):
    row = {"model": name, "ms": {}, "ratio": {}, "error": math.nan}
    try:
        folder, known = prepare(name, args)
        row.update(known)
        for t in threads:
            ms = race(name, args, t, folder)
            row["ms"][str(t)] = ms
            row["ratio"][str(t)] = ms["lathe"] / np.nanmin([ms[p] for p in ms if p != "lathe"])
        if args.costs:
            row["roof"] = race_costs.roofline(bench(folder, 1, args.seconds, "--profile"))
    except (AssertionError, KeyError, RuntimeError, subprocess.SubprocessError) as problem:
        row["problem"] = str(problem)
        print(f"{name}: {problem}", file=sys.stderr)
    return row


def speed_line(row, threads):
    cells = [f"{row['model']:<16}"]
    for t in threads:
        ms = row["ms"].get(str(t), {})
        cells.append(" / ".join(f"{ms.get(p, math.nan):.3f}" for p in ("lathe", "ort", "ov"))
                     + f" | {row['ratio'].get(str(t), math.nan):.3f}")
    wrong = "" if row["error"] <= TOLERANCE else " **disagrees**"
    return "| " + " | ".join(cells) + f" | {row['error']:.1e}{wrong} |"


def speed_table(models, args, say):
    threads = [int(t) for t in args.threads.split(",")]
    plural = [f"{t} thread{'s' * (t > 1)}" for t in threads]
    say("| model | " + " | ".join(f"{t}: lathe / ort / ov ms | ratio" for t in plural) + " | error |")
    say("|---|" + "---|---|" * len(threads) + "---|")
    rows = []
    for name in models:
        rows.append(race_model(name, args, threads))
        say(speed_line(rows[-1], threads))
    for t, words in zip(threads, plural):
        groups = {}
        for row in rows:
            if str(t) in row["ratio"]:
                groups.setdefault(RACE[row["model"]].group or row["model"], []).append(
                    row["ratio"][str(t)])
        means = [geometric(v) for v in groups.values()]
        say(f"\n{words}: geometric mean of the ratios to the better rival "
            f"{geometric(means):.3f}, worst {max(means, default=math.nan):.3f}")
    return rows


def cost_table(rows, say):
    """What the rows of speed_table say beside speed; bars that are not met are bold."""
    def held(text, ok):
        return text if ok else f"**{text}**"

    say("| model | float64 error: lathe / ort | of ort's | compile cold / cached s | its peak / allowed MB "
        "| run MB: lathe / ort | arena kB: lathe / ort / bound | GFLOP | GFLOP/s | of the roof |")
    say("|---|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        if "roof" not in row:
            say(f"| {row['model']} | {row.get('problem', '')} |" + " |" * 8)
            continue
        error, cost, memory, arena = (row[k] for k in ("error64", "compile", "memory", "arena"))
        ratio = error["lathe"] / max(error["ort"], 1e-12)
        say("| " + " | ".join([
            f"{row['model']:<16}", f"{error['lathe']:.1e} / {error['ort']:.1e}",
            held(f"{ratio:.2f}", ratio <= 1.5),
            held(f"{cost['cold']:.1f} / {cost['cached']:.2f}",
                 cost["cold"] <= 10 and cost["cached"] <= 0.7),
            held(f"{cost['peak'] / 1e6:.0f} / {cost['allowed'] / 1e6:.0f}",
                 cost["peak"] <= cost["allowed"]),
            held(f"{memory['lathe'] / 1e6:.1f} / {memory['ort'] / 1e6:.1f}",
                 memory["lathe"] <= memory["ort"]),
            " / ".join(f"{arena[k] / 1e3:,.1f}" for k in ("lathe", "ort", "bound")),
            f"{row['roof']['gflop']:.2f}", f"{row['roof']['gflops']:.1f}",
            f"{100 * row['roof']['share']:.0f} %"]) + " |")


def symbolic_table(models, args, say):
    """One engine for a range of sizes against an engine for each, on one thread."""
    say("| model | size | any ms | one ms | ratio |")
    say("|---|---|---|---|---|")
    import lathe_cli
    rows = []
    for name in models:
        entry, cases = RACE[name], SYMBOLIC[name]
        folders = {}
        for kind in ("any", *cases):
            folder = folders[kind] = workplace(f"{name}_{kind.replace(' ', '')}")
            inputs = entry.inputs(**cases.get(kind, next(iter(cases.values()))))
            options = ([f"--target={args.target}", *entry.dims] if kind == "any"
                       else options_of(entry, inputs, folder, args))
            engine = os.path.join(folder, "model.lathe")
            lathe_cli.lathe("compile", entry.file, "-o", engine, *options)
        for kind, sizes in cases.items():
            inputs = entry.inputs(**sizes)
            outputs = {}
            for which in ("any", kind):
                np.savez(os.path.join(folders[which], "ours.npz"), **inputs)
                outputs[which] = lathe_cli.run(os.path.join(folders[which], "model.lathe"),
                                               os.path.join(folders[which], "outputs"), inputs=inputs)
            apart = max(lathe_cli.relative_error(outputs["any"][n], v)
                        for n, v in outputs[kind].items())
            assert apart <= TOLERANCE, f"{name}, {kind}: the engines differ by {apart}"
            ms = {which: [] for which in ("any", kind)}
            for _ in range(args.rounds):
                for which in ms:
                    ms[which].append(lathe_ms(folders[which], 1, args.seconds))
            any_ms, one_ms = (float(np.median(v)) for v in ms.values())
            rows.append({"model": name, "size": kind, "any": any_ms, "one": one_ms})
            ratio = any_ms / one_ms
            say(f"| {name} | {kind} | {any_ms:.3f} | {one_ms:.3f} | "
                + (f"{ratio:.3f} |" if ratio <= 1.05 else f"**{ratio:.3f}** |"))
    say(f"\nGeometric mean {geometric([r['any'] / r['one'] for r in rows]):.3f}, worst "
        f"{max((r['any'] / r['one'] for r in rows), default=math.nan):.3f} (bar: 1.05)")
    return rows


def machine(args):
    with open("/proc/cpuinfo") as f:
        model = next(line.split(":")[1].strip() for line in f if line.startswith("model name"))
    load = " ".join(f"{x:.1f}" for x in os.getloadavg())
    return (f"{len(os.sched_getaffinity(0))} cores of {model}, f32, engines for `{args.target}`; "
            f"{args.rounds} alternating rounds of {args.seconds} s, medians; load {load} at the start")


def report(args, say):
    """All tables of results/cpu.md."""
    result = {}
    say(f"# CPU race, {time.strftime('%Y-%m-%d')}\n\nWritten by `race.py --report`. {machine(args)}.\n"
        "Ratios are to the better rival; nan: OpenVINO does not take the file. Bars: geometric mean\n"
        "0.88, none above 1.03.\n\n## Batch 1\n")
    args.costs = True
    result["batch 1"] = speed_table(args.models or RACE, args, say)
    say("\n## Costs, batch 1\n\nErrors are max |difference| by the largest value. Memory of a run: the peak "
        "resident set,\nwithout weights, above the process before loading. Bold: above the bar (error "
        "1.5 times\nonnxruntime's, compile 10 s and 0.7 s, 2 models + 500 MB, onnxruntime's memory).\n")
    cost_table(result["batch 1"], say)
    args.costs = False
    for batch in (8, 32):
        args.batch = batch
        say(f"\n## Batch {batch} (bar: 0.95)\n")
        result[f"batch {batch}"] = speed_table(["resnet50", "bert_base"], args, say)
    say("\n## One engine for all sizes against engines of one size (one thread)\n")
    result["symbolic"] = symbolic_table(SYMBOLIC, args, say)
    say(f"\n## LSTM and GRU, {race_cells.STEPS} steps\n")
    result["cells"] = race_cells.table(args, say, workplace, lathe_ms)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="*")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--costs", action="store_true", help="errors, compile time, memory, roof too")
    parser.add_argument("--symbolic", action="store_true", help="one engine for a range of sizes")
    parser.add_argument("--cells", action="store_true", help="LSTM and GRU by themselves")
    parser.add_argument("--report", metavar="FILE", help="write all tables there")
    parser.add_argument("--target", default="native")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE",
                        help="of lathe compile, as winograd-tolerance=1e-5")
    parser.add_argument("--peers", default="ort,ov")
    parser.add_argument("--out")
    parser.add_argument("--json")
    parser.add_argument("--rival", help=argparse.SUPPRESS)
    parser.add_argument("--inputs", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rival:
        return rival(args)
    lines, out = [], args.report or args.out

    def say(text):
        print(text, flush=True)
        lines.append(text)
        if out:
            with open(out, "w") as f:
                f.write("\n".join(lines) + "\n")

    if args.report:
        rows = report(args, say)
    elif args.cells:
        rows = race_cells.table(args, say, workplace, lathe_ms)
    elif args.symbolic:
        rows = symbolic_table(args.models or SYMBOLIC, args, say)
    else:
        rows = speed_table(args.models or RACE, args, say)
        if args.costs:
            say("")
            cost_table(rows, say)
    if args.json:
        with open(args.json, "w") as f:
            json.dump(rows, f, indent=1)


if __name__ == "__main__":
    main()
