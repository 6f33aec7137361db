# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes the families of families.py smaller by `lathe prune` and holds each against the same model with zeros.

    pruned.py run [NAME...] [--log=FILE] [--jobs=N] [--budget=S]   every family, scheme and ratio; goes on where FILE ends
    pruned.py table FILE                                           the table of test/zoo/README.md

A family is exported once: for sizes of the run, or for fixed sizes where it has none, or where torch, onnxruntime or lathe
refuses them (form `any` or `static`, by TorchScript's exporter), or for fixed sizes by torch.export's (form `dynamo`) where
all of these are refused. Then for each scheme (channels, heads, ffn, blocks) and ratio (0.1, 0.25, 0.5, 0.75, 0.9) the
narrower model must pass ONNX's checker, and onnxruntime must give of it what it gives of the masked model. A row of FILE: family, form, scheme, ratio, result, units that went of how many, bytes of weights that
are left of one, largest difference over the largest value of a result, the same of the masked model against the one as it
was, what was said. Results: `equal`, `differs`,
`invalid` (the checker or onnxruntime refuses the narrower model), `nothing` (a typed refusal: no unit of this scheme can
go, which holds for all ratios; or none goes at this ratio), `defect` (a crash, an internal error or a deadline),
`undecided` (onnxruntime's own results of the masked model move as far where weights move by 1e-6: ties), `not exported`
(torch, onnxruntime or lathe refuses the family).
"""
import argparse
import concurrent.futures
import json
import math
import os
import re
import sys
import tempfile
import time

from zoo import BAR, FORKS, ROOT, checked, error_of, export, lathe

SCHEMES = ["channels", "heads", "ffn", "blocks"]
RATIOS = [0.1, 0.25, 0.5, 0.75, 0.9]
SECONDS = 120
COLUMNS = ["family", "form", "scheme", "ratio", "result", "units", "left", "error", "change", "said"]


def results_of(path, inputs):
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(None, inputs)


def weights_of(model):
    return sum(len(t.raw_data) or t.ByteSize() for t in model.graph.initializer)


def moved(path, to):
    """The model with weights other by 1e-6 of their size."""
    import numpy as np
    import onnx
    random = np.random.default_rng(1)
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            values = onnx.numpy_helper.to_array(tensor)
            values = values * (1 + 1e-6 * random.standard_normal(values.shape).astype(np.float32))
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    onnx.save(model, to)
    return to


def compare(model, masked, narrower, inputs, at):
    """(result, error, change, what was said) of two files that should compute the same, another thing than `model`."""
    import onnx
    try:
        onnx.checker.check_model(narrower, full_check=True)
        got = results_of(narrower, inputs)
    except Exception as problem:
        return "invalid", "", "", str(problem)
    want = results_of(masked, inputs)
    worst = max(error_of(a, b) for a, b in zip(want, got))
    change = max(error_of(a, b) for a, b in zip(results_of(model, inputs), want))
    if len(want) == len(got) and worst <= BAR:
        return "equal", worst, change, ""
    again = results_of(moved(masked, os.path.join(at, "moved.onnx")), inputs)
    alike = max(error_of(a, b) for a, b in zip(want, again))
    return "undecided" if alike > BAR else "differs", worst, change, ""


def hold(model, inputs, scheme, ratio, at):
    """The row of one model; `inputs` {name: array}."""
    import onnx
    row = dict.fromkeys(COLUMNS, "")
    row.update(scheme=scheme, ratio=ratio)
    narrower, masked, report = (os.path.join(at, name) for name in ("narrower.onnx", "masked.onnx", "report.json"))
    done = lathe("prune", model, "-o", narrower, "--masked", masked, f"--scheme={scheme}", f"--ratio={ratio}", "--apply=all",
                 "--seconds=0", "--multiple=4", "--json", report, f"--max-seconds={SECONDS}")
    if done.returncode:
        said = next((line for line in done.stdout.splitlines() if line.startswith("lathe: ")), done.stdout or "no word")
        nothing = done.returncode == 4 and ("can be taken out" in said or "no two residual branches" in said)
        row.update(result="nothing" if nothing else "defect", said=f"exit {done.returncode}: {said}")
        if nothing:
            row["ratio"] = "all"
        return row
    with open(report) as f:
        widths = json.load(f)["widths"]
    gone, units = sum(w["units"] - w["stay"] for w in widths), sum(w["units"] for w in widths)
    row["units"] = f"{gone}/{units}"
    if not gone:
        row["result"] = "nothing"
        return row
    row["result"], *measured, row["said"] = compare(model, masked, narrower, inputs, at)
    row["error"], row["change"] = (f"{value:.1e}" if value != "" else "" for value in measured)
    row["left"] = f"{weights_of(onnx.load(narrower)) / max(1, weights_of(onnx.load(model))):.3f}"
    return row


def exported(name, path):
    """The form in which a family comes as a file that onnxruntime runs and lathe reads, and its inputs as arrays."""
    import families
    import numpy as np
    import onnx
    module, inputs, dynamic = families.FAMILIES[name]()
    for form in ("any", "static", "dynamo") if dynamic else ("static", "dynamo"):
        try:
            export(path, module, inputs, dynamic if form == "any" else {}, "dynamo" if form == "dynamo" else "torchscript")
            here = {i.name for i in onnx.load(path, load_external_data=False).graph.input}
            given = {n: np.ascontiguousarray(v.numpy()) for n, v in inputs.items() if n in here}
            results_of(path, given)
            checked(lathe("compile", path, "--stop-after=legalize", "-o", os.devnull))
            return form, given
        except Exception as problem:
            if form == "dynamo":
                raise problem


def work(name, tasks, answer):
    """The rows of one family; in a process of its own."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    import torch
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as at:
        path = os.path.join(at, "model.onnx")
        try:
            form, given = exported(name, path)
        except Exception as problem:
            answer.send({**dict.fromkeys(COLUMNS, ""), "scheme": "all", "ratio": "all", "result": "not exported",
                         "said": f"{type(problem).__name__}: {problem}".replace(at, "")})
            tasks = []
        settled = set()
        for scheme, ratio in tasks:
            if scheme in settled:
                continue
            row = hold(path, given, scheme, ratio, at)
            row["form"], row["said"] = form, row["said"].replace(at, "")
            if row["ratio"] == "all":
                settled.add(scheme)
            answer.send(row)
    answer.send(None)


def run_family(name, tasks, write, seconds):
    """Rows of one family; none more when the seconds are over."""
    end = time.monotonic() + seconds
    if seconds <= 0:
        return
    here, there = FORKS.Pipe(duplex=False)
    child = FORKS.Process(target=work, args=(name, tasks, there))
    child.start()
    there.close()
    try:
        while here.poll(min(3 * SECONDS, max(0, end - time.monotonic()))):
            row = here.recv()
            if row is None:
                break
            write({**row, "family": name, "said": re.sub(r"\s+", " ", row["said"])[:500]})
        else:
            if time.monotonic() < end:
                write({**dict.fromkeys(COLUMNS, ""), "family": name, "result": "defect", "said": "a deadline passed"})
    except EOFError:
        write({**dict.fromkeys(COLUMNS, ""), "family": name, "result": "defect", "said": "the process ended"})
    child.terminate()
    child.join()


def rows_of(path):
    if not os.path.exists(path):
        return []
    with open(path) as f:
        return [dict(zip(COLUMNS, line.rstrip("\n").split("\t"))) for line in f if not line.startswith("#")]


def run(names, log, jobs, budget):
    import families
    FORKS.set_forkserver_preload(["torch", "transformers", "onnx", "onnxruntime", "numpy", "families"])
    unknown = [name for name in names if name not in families.FAMILIES]
    if unknown:
        sys.exit(f"no family is called {', '.join(unknown)}")
    done = {(r["family"], r["scheme"], r["ratio"]) for r in rows_of(log)}
    todo = {}
    for name in names or families.FAMILIES:
        todo[name] = [(s, r) for s in SCHEMES for r in RATIOS
                      if not done & {(name, s, str(r)), (name, s, "all"), (name, "all", "all")}]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool, open(log, "a") as out:
        def write(row):
            out.write("\t".join(str(row[c]) for c in COLUMNS) + "\n")
            out.flush()
            print(*(row[c] for c in COLUMNS), flush=True)
        end = time.monotonic() + budget
        list(pool.map(lambda item: run_family(*item, write, end - time.monotonic()), [item for item in todo.items() if item[1]]))


def table(path):
    rows = rows_of(path)
    print("scheme    " + "".join(f"{r:>12}" for r in RATIOS) + "   result: models")
    for scheme in SCHEMES:
        for result in ("equal", "nothing", "undecided", "differs", "invalid", "defect"):
            mine = [r for r in rows if r["scheme"] == scheme and r["result"] == result]
            counts = [sum(r["ratio"] in (str(ratio), "all") for r in mine) for ratio in RATIOS]
            if any(counts):
                print(f"{scheme:10}" + "".join(f"{n:12}" for n in counts) + f"   {result}")
    print(f"families: {len({r['family'] for r in rows})}, of which {sum(r['result'] == 'not exported' for r in rows)} are not exported")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["run", "table"])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--log", default=os.path.join(ROOT, "build", "pruned.tsv"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--budget", type=float, default=math.inf, help="seconds; what is not done then leaves no row")
    options = parser.parse_args()
    if options.verb == "table":
        return table(options.names[0] if options.names else options.log)
    return run(options.names, options.log, options.jobs, options.budget)


if __name__ == "__main__":
    sys.exit(main())
