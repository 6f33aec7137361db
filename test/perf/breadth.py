# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Races lathe against onnxruntime and OpenVINO over many families that nobody tuned for, on the CPU at batch 1.

    breadth.py prepare [MODEL...]                 exports, compiles and compares what is not there yet: build/breadth
    breadth.py run [MODEL...] [--threads=1] [--log=FILE]   times what is prepared; goes on where FILE ends
    breadth.py table [FILE...]                    ratios and bars, in Markdown; exit code 1 when a bar is not met

The models are those of breadth_models.py, the engines made for the sizes that are run. `prepare` writes a line a model
into build/breadth/prepared.tsv: how far the results are from onnxruntime's, or what was said, and the commit. Times are
taken as race_measure.py says. A row of FILE is a round: model, threads, round, ms of each runtime (nothing where it does
not run), the load before, the share of the cores that others took, the commit at which the model was prepared, the
digest of its engine. What does not run, or does not agree with onnxruntime, counts 2.0 and has a row that says so; a model
that chooses among tied scores is judged around its choices (race_choices.py), which its line in prepared.tsv says. The
ratio of a model is the median over its rounds of lathe's time by that of the better rival; rounds beside other work do
not count unless they were taken with --any-load.
"""
import argparse
import concurrent.futures
import hashlib
import math
import os
import re
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "..", ".."))
for folder in (HERE, os.path.join(HERE, "..", "models"), os.path.join(HERE, "..", "zoo")):
    sys.path.insert(0, folder)
from breadth_models import MODELS, ROWS  # noqa: E402

WORK = os.path.join(ROOT, "build", "breadth")
TOLERANCE = 1e-4  # of the largest value of a result
FAILED = 2.0  # the ratio of a model that does not run
PEERS = ("ort", "ov")
COLUMNS = ["model", "threads", "round", "lathe", *PEERS, "load", "others", "counts", "commit", "digest", "said"]
STATE = ["model", "error", "seconds", "said", "commit", "judged"]
BARS = {"all": 0.80, "products": 0.95, "worst": 1.03}


def place(model):
    return os.path.join(WORK, model)


def lines(path, columns):
    """The rows of a file that has a line a row; the lines that begin with # are remarks."""
    if not os.path.exists(path):
        return []
    with open(path) as f:
        return [dict(zip(columns, line.rstrip("\n").split("\t"))) for line in f if not line.startswith("#")]


def add_line(path, columns, row):
    with open(path, "a") as out:
        out.write("\t".join(str(row.get(c, "")) for c in columns) + "\n")


def commit():
    return subprocess.run(["git", "-C", HERE, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()


# ---- Preparing ----------------------------------------------------------------------------------


def write_model(name, path):
    """Writes the ONNX file; {input: array}."""
    import numpy as np
    model = MODELS[name]
    if model.trees:
        import breadth_networks
        breadth_networks.trees(path, **model.trees)
        return {"x": np.random.default_rng(0).normal(size=(ROWS, model.trees["features"])).astype(np.float32)}
    if model.real:
        import onnx
        import real
        import real_files
        real.fetch([model.real])
        graph = onnx.load(real.path_of(model.real))
        onnx.save(graph, path)
        return real.inputs_of(real_files.FILES[model.real], real.ports(graph), model.case, np.random.default_rng(0))
    import onnx
    import torch
    import zoo
    torch.set_num_threads(1)
    module, inputs = model.make()
    zoo.export(path, module, inputs, {}, "torchscript")
    here = {i.name for i in onnx.load(path, load_external_data=False).graph.input}
    return {n: np.ascontiguousarray(v.numpy()) for n, v in inputs.items() if n in here}


def prepare_one(name):
    """The model, its inputs and engine in its folder; the largest difference from onnxruntime, and how it was judged."""
    import lathe_cli
    import numpy as np
    import race_choices
    import race_measure
    import zoo
    at = place(name)
    os.makedirs(at, exist_ok=True)
    file, engine = os.path.join(at, "model.onnx"), os.path.join(at, "model.lathe")
    if not os.path.exists(os.path.join(at, "ours.npz")):
        inputs = write_model(name, file)
        np.savez(os.path.join(at, "ours.npz"), **inputs)
    inputs = dict(np.load(os.path.join(at, "ours.npz")))
    session = race_measure.ort_session(file, 1)
    wanted = dict(zip([o.name for o in session.get_outputs()], session.run(None, inputs)))
    sizes = [f"--shape={n}=" + "x".join(map(str, a.shape)) for n, a in inputs.items() if a.ndim]

    def ran(file, engine):
        lathe_cli.lathe("compile", file, "-o", engine, "--target=native", *sizes)
        return lathe_cli.run(engine, os.path.join(at, "outputs"), inputs=inputs)
    got = ran(file, engine)
    error = max(zoo.error_of(w, got[n]) for n, w in wanted.items())
    if not error <= TOLERANCE:
        around = race_choices.error_around_choices(file, inputs, lambda path: ran(path, os.path.join(at, "watched.lathe")),
                                                   lambda path: race_measure.ort_session(path, 1), zoo.error_of)
        if around is not None:
            return around, "around its choices"
    return error, ""


def answer(name, pipe):
    """What the process of a model does: its exporter may die and takes no other model with it."""
    nothing = os.open(os.devnull, os.O_WRONLY)  # torch writes whole graphs where it refuses
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    row = {"model": name, "commit": commit()}
    begin = time.perf_counter()
    try:
        error, row["judged"] = prepare_one(name)
        row["error"] = f"{error:.1e}"
        if not error <= TOLERANCE:
            row["said"] = f"differs from onnxruntime by {error:.1e}"
    except (Exception, SystemExit) as problem:
        errors = [line for line in str(problem).splitlines() if "error" in line]
        row["said"] = re.sub(r"\s+", " ", f"{type(problem).__name__}: {(errors or [str(problem)])[0]}").replace(place(name), "")[:300]
    row["seconds"] = f"{time.perf_counter() - begin:.1f}"
    pipe.send(row)


def prepare(names, again, jobs):
    import zoo
    log = os.path.join(WORK, "prepared.tsv")
    os.makedirs(WORK, exist_ok=True)
    done = set() if again else {row["model"] for row in lines(log, STATE) if not row.get("said")}
    zoo.FORKS.set_forkserver_preload(["torch", "transformers", "onnx", "onnxruntime", "numpy", "families", "breadth_networks"])

    def one(name):
        here, there = zoo.FORKS.Pipe(duplex=False)
        child = zoo.FORKS.Process(target=answer, args=(name, there))
        child.start()
        there.close()
        try:
            row = here.recv()
        except EOFError:
            row = {"model": name, "said": "the process ended"}
        child.join()
        add_line(log, STATE, row)
        print(name, *(row.get(key, "") for key in ("error", "seconds", "said", "judged")), flush=True)

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, [name for name in names if name not in done]))


# ---- Timing -------------------------------------------------------------------------------------


def digest(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()[:12]


def run(names, threads, log, options):
    import race_measure
    state = {row["model"]: row for row in lines(os.path.join(WORK, "prepared.tsv"), STATE)}
    done = {row["model"] for row in lines(log, COLUMNS) if row["threads"] == str(threads)}
    head = not os.path.exists(log)
    if head:
        add_line(log, COLUMNS, dict(zip(COLUMNS, ["# model", *COLUMNS[1:]])))
    for name in names:
        if name in done:
            continue
        row = {"model": name, "threads": threads, "commit": state.get(name, {}).get("commit") or commit()}
        said = state.get(name, {"said": "not prepared"}).get("said")
        if said:
            add_line(log, COLUMNS, row | {"round": 0, "counts": "yes", "said": said})
            continue
        at = place(name)
        try:
            found = race_measure.race(at, os.path.join(at, "model.onnx"), os.path.join(at, "ours.npz"), threads, PEERS, options)
        except RuntimeError as problem:
            print(f"{name}: {problem}", flush=True)
            continue
        for i, raw in enumerate(found["raw"]):
            add_line(log, COLUMNS, row | {p: f"{ms:.5g}" for p, ms in raw["ms"].items() if not math.isnan(ms)} | {
                "round": i, "load": f"{raw['load']:.2f}", "others": raw["others"], "counts": "yes" if raw["counts"] else "no",
                "digest": digest(os.path.join(at, "model.lathe"))})
        print(f"{name}: {found['ratio']:.3f} of {found['best']}", {p: f"{ms:.4g}" for p, ms in found["ms"].items()}, flush=True)


# ---- The table ----------------------------------------------------------------------------------


def judged(rows):
    """Of the rounds of one model at one number of threads: ratio, the better rival, medians in ms, what was said."""
    said = next((r["said"] for r in rows if r.get("said")), "")
    if said:
        return {"ratio": FAILED, "best": "", "ms": {}, "said": said}
    kept = [r for r in rows if r["counts"] == "yes" and r["lathe"]]
    ms = {p: statistics.median(float(r[p]) for r in kept if r[p]) for p in ("lathe", *PEERS) if any(r[p] for r in kept)}
    best = min((p for p in PEERS if p in ms), key=ms.get)
    ratio = statistics.median(float(r["lathe"]) / float(r[best]) for r in kept if r[best])
    return {"ratio": ratio, "best": best, "ms": ms, "said": ""}


def geometric(ratios):
    return math.exp(statistics.fmean(map(math.log, ratios))) if ratios else math.nan


def table(paths, say=print):
    """Prints the table of each number of threads; whether all bars are met."""
    rows = [row for path in paths for row in lines(path, COLUMNS)]
    met = bool(rows)
    for threads in sorted({r["threads"] for r in rows}):
        found = {name: judged(of) for name in MODELS
                 if (of := [r for r in rows if (r["model"], r["threads"]) == (name, threads)])}
        say(f"\n## Threads: {threads}\n\n| model | family | lathe, ms | onnxruntime | OpenVINO | ratio to the better |\n|---|---|---|---|---|---|")
        for name, row in sorted(found.items(), key=lambda item: item[1]["ratio"]):
            ms = " | ".join(f"{row['ms'][p]:.4g}" if p in row["ms"] else "-" for p in ("lathe", *PEERS))
            short = " **short**" if row["ratio"] > BARS["worst"] else ""
            family = MODELS[name].family + (", products" if MODELS[name].products else "")
            say(f"| {name} | {family} | {ms} | {row['ratio']:.3f}{short} {row['said']} |")
        ratios = {name: row["ratio"] for name, row in found.items()}
        products = [r for name, r in ratios.items() if MODELS[name].products]
        above = [name for name, r in ratios.items() if r > BARS["worst"]]
        left = [name for name in MODELS if name not in found]
        say(f"\n{len(found)} of {len(MODELS)} models. Geometric mean {geometric(list(ratios.values())):.3f} (bar {BARS['all']}); of the {len(products)} "
            f"in which products dominate {geometric(products):.3f} (bar {BARS['products']}); {len(above)} above {BARS['worst']}"
            + (f": {', '.join(sorted(above, key=ratios.get, reverse=True))}" if above else "") + "."
            + (f" Not timed: {', '.join(left)}." if left else ""))
        met &= (not above and not left and geometric(list(ratios.values())) <= BARS["all"]
                and (not products or geometric(products) <= BARS["products"]))
    return met


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["prepare", "run", "table", "list"])
    parser.add_argument("names", nargs="*", metavar="MODEL|FILE")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--log", default=os.path.join(WORK, "rounds.tsv"))
    parser.add_argument("--rounds", type=int, default=5, help="that count for each model; fixed")
    parser.add_argument("--seconds", type=float, default=0.1, help="of a burst")
    parser.add_argument("--any-load", action="store_true", help="rounds count beside other work, too; their rows show it")
    parser.add_argument("--again", action="store_true", help="prepare what is there, too, with this build")
    parser.add_argument("--jobs", type=int, default=1, help="models that are prepared at a time")
    options = parser.parse_intermixed_args()
    if options.verb == "table":
        return 0 if table(options.names or [options.log]) else 1
    unknown = [name for name in options.names if name not in MODELS]
    if unknown:
        parser.error(f"no model is called {', '.join(unknown)}; `breadth.py list` names them")
    names = options.names or list(MODELS)
    if options.verb == "list":
        for name in names:
            print(f"{name:26}{MODELS[name].family}{', products' * MODELS[name].products}")
    elif options.verb == "prepare":
        prepare(names, options.again, options.jobs)
    else:
        run(names, options.threads, options.log, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
