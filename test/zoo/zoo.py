# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Exports the families of families.py and holds each engine against onnxruntime on the same file.

    zoo.py run [NAME...] [--log=FILE] [--jobs=N]    every family, exporter and form; goes on where FILE ends
    zoo.py table FILE                               the table of test/zoo/README.md

A form is `static`, compiled for the sizes of the export, or `any`, compiled once for sizes of the run and run with
three of them. Each family, exporter and form is done in a process of its own, forked with torch loaded, with a deadline. A row of FILE: family, exporter, form, result,
nodes, kernels of the CPU's engine, seconds of compiling, worst error, what was said. Results: `agrees`, `differs`,
`refused` (a typed error), `defect` (a crash, an internal error or a deadline), `not exported` (torch's exporter or
onnxruntime refuses), `undecided` (onnxruntime does not agree with torch: ties among the best scores). An error is the largest difference over the largest value of a result. `agrees` also says that
the model compiles for sm_90a as far as kernel texts.
"""
import argparse
import concurrent.futures
import json
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "..", ".."))
LATHE = os.environ.get("LATHE", os.path.join(ROOT, "build", "bin", "lathe"))
BAR = 1e-4  # of the largest value of a result, f32
SECONDS = 300
COLUMNS = ["family", "exporter", "form", "result", "nodes", "kernels", "seconds", "error", "said"]
FORKS = multiprocessing.get_context("forkserver")
GREATEST = 16  # of a symbol of a `any` engine


def export(path, module, inputs, dynamic, exporter):
    import torch
    names = list(inputs)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        if exporter == "torchscript":
            torch.onnx.export(module, tuple(inputs.values()), path, input_names=names, dynamo=False, opset_version=18,
                              dynamic_axes={k: v for k, v in dynamic.items() if v} or None)
        else:
            symbols = {}
            shapes = tuple({axis: symbols.setdefault(symbol, torch.export.Dim(symbol, min=2, max=GREATEST))
                            for axis, symbol in dynamic.get(name, {}).items()} for name in names) if dynamic else None
            torch.onnx.export(module, tuple(inputs.values()), path, input_names=names, dynamo=True, verbose=False,
                              dynamic_shapes=[shapes] if shapes else None)


def resized(inputs, dynamic, sizes):
    """The inputs with the symbols' sizes: cut, or repeated."""
    given = {}
    for name, value in inputs.items():
        for axis, symbol in dynamic.get(name, {}).items():
            times = -(-sizes[symbol] // value.shape[axis])
            value = value.repeat(*(times if a == axis else 1 for a in range(value.dim()))).narrow(axis, 0, sizes[symbol])
        given[name] = value.contiguous()
    return given


def lathe(*arguments):
    return subprocess.run([LATHE, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


class Refused(Exception):
    def __init__(self, result, said):
        super().__init__(said)
        self.result = result


def checked(done):
    if done.returncode:
        lines = [line for line in done.stdout.splitlines() if "error" in line] or done.stdout.splitlines() or ["no word"]
        typed = done.returncode in (2, 3, 4)
        raise Refused("refused" if typed else "defect", f"exit {done.returncode}: {lines[0]}")
    return done.stdout


def error_of(expected, found):
    """The largest difference over the largest value; infinite where sizes differ."""
    import numpy as np
    if expected.shape != found.shape:
        return float("inf")
    e, y = np.asarray(expected, np.float64), np.asarray(found, np.float64)
    # -inf and the least float of masks: where both are such, they agree.
    large = (np.abs(e) > 1e30) & (np.abs(y) > 1e30)
    e, y = np.where(large, 0, e), np.where(large, 0, y)
    error = float(np.max(np.abs(e - y)) / max(np.max(np.abs(e)), 1e-30)) if e.size else 0.0
    return error if error == error else float("inf")


def hold(path, inputs, dynamic, form, at, row, torchs):
    """Compiles and runs; fills the row. `torchs`: what torch computes of the inputs."""
    import numpy as np
    import onnx
    import onnxruntime
    model = onnx.load(path, load_external_data=False)
    row["nodes"] = len(model.graph.node)
    here = {i.name for i in model.graph.input}
    symbols = {s: GREATEST for axes in dynamic.values() for s in axes.values()}
    engine = os.path.join(at, "model.lathe")
    if form == "static":
        options = [f"--shape={n}={'x'.join(map(str, v.shape))}" for n, v in inputs.items() if n in here]
        cases = [inputs]
    else:
        options = [f"--dim={s}=1:{min(7, GREATEST)}:{GREATEST}" for s in symbols]
        cases = [inputs, *(resized(inputs, dynamic, {s: size + i for i, s in enumerate(symbols)}) for size in (2, 11))]
    try:
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    except Exception as problem:
        raise Refused("not exported", f"onnxruntime: {problem}") from problem
    expected = []
    for case in cases:
        given = {n: np.ascontiguousarray(v.numpy()) for n, v in case.items() if n in here}
        try:
            expected.append((given, session.run(None, given)))
        except Exception as problem:
            raise Refused("not exported", f"onnxruntime: {problem}") from problem
    oracles = max(error_of(t, e) for t, e in zip(torchs, expected[0][1]))
    begin = time.perf_counter()
    checked(lathe("compile", path, "-o", engine, "--target=x86-64-v3", "--no-cache", *options))
    row["seconds"] = round(time.perf_counter() - begin, 2)
    row["kernels"] = len(set(re.findall(r"^\s*(\S+)\s+x86-64-v3", lathe("inspect", engine, "--kernels").stdout, re.M))) or None
    checked(lathe("compile", path, "--target=sm_90a", "--stop-after=codegen", "-o", os.devnull, *options))
    worst = 0.0
    for given, values in expected:
        arguments = []
        for n, v in given.items():
            file = os.path.join(at, f"in{len(arguments)}.npy")
            np.save(file, v)
            arguments += ["--input", f"{n}={file}"]
        checked(lathe("run", engine, *arguments, "--save", at))
        with open(os.path.join(at, "outputs.json")) as f:
            found = [np.load(os.path.join(at, e["file"])).reshape(e["shape"]) for e in json.load(f)]
        worst = max(worst, *(error_of(e, y) for e, y in zip(values, found)))
    row["error"] = f"{worst:.1e}"
    row["result"] = "agrees" if worst <= BAR else "undecided" if oracles > BAR else "differs"


def work(task, answer):
    """One row; in a process of its own."""
    nothing = os.open(os.devnull, os.O_WRONLY)  # torch writes whole graphs where it refuses
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    import families
    import torch
    torch.set_num_threads(1)
    name, exporter, form = task
    row = dict.fromkeys(COLUMNS, "")
    row.update(family=name, exporter=exporter, form=form)
    with tempfile.TemporaryDirectory() as at:
        path = os.path.join(at, "model.onnx")
        try:
            module, inputs, dynamic = families.FAMILIES[name]()
            try:
                export(path, module, inputs, dynamic if form == "any" else {}, exporter)
            except Exception as problem:
                raise Refused("not exported", f"torch: {type(problem).__name__}: {problem}") from problem
            with torch.no_grad():
                torchs = [value.numpy() for value in module(*inputs.values())]
            hold(path, inputs, dynamic, form, at, row, torchs)
        except Refused as refused:
            row["result"], row["said"] = refused.result, re.sub(r"\s+", " ", str(refused)).replace(at, "")[:300]
    answer.send(row)


def run_one(task):
    here, there = FORKS.Pipe(duplex=False)
    child = FORKS.Process(target=work, args=(task, there))
    child.start()
    there.close()
    row = dict(zip(COLUMNS, (*task, "defect", "", "", "", "", f"more than {SECONDS} s")))
    try:
        if here.poll(SECONDS):
            row = here.recv()
    except EOFError:
        row["said"] = "the process ended"
    child.terminate()
    child.join()
    return row


def rows_of(path):
    if not os.path.exists(path):
        return []
    with open(path) as f:
        return [dict(zip(COLUMNS, line.rstrip("\n").split("\t"))) for line in f if not line.startswith("#")]


def run(names, log, jobs, exporters, forms):
    import families
    FORKS.set_forkserver_preload(["torch", "transformers", "onnx", "onnxruntime", "numpy", "families"])
    unknown = [name for name in names if name not in families.FAMILIES]
    if unknown:
        sys.exit(f"no family is called {', '.join(unknown)}")
    done = {(r["family"], r["exporter"], r["form"]) for r in rows_of(log)}
    tasks = [(name, exporter, form) for name in names or families.FAMILIES for exporter in exporters for form in forms
             if (name, exporter, form) not in done and (form == "static" or families.FAMILIES[name].args[3])]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool, open(log, "a") as out:
        for i, row in enumerate(pool.map(run_one, tasks)):
            out.write("\t".join(str(row[c]) for c in COLUMNS) + "\n")
            out.flush()
            print(f"{i + 1}/{len(tasks)} {row['family']}, {row['exporter']}, {row['form']}: {row['result']} {row['error']} {row['said']}",
                  flush=True)


def table(path):
    rows = rows_of(path)
    for result in ("agrees", "differs", "refused", "defect", "undecided", "not exported"):
        print(f"{result}: {sum(r['result'] == result for r in rows)}")
    good = {r["family"] for r in rows if r["result"] == "agrees"} - {r["family"] for r in rows if r["result"] not in ("agrees", "undecided", "not exported")}
    print(f"families all of whose exported files agree: {len(good)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["run", "table"])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--log", default=os.path.join(ROOT, "build", "zoo.tsv"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--exporter", choices=["torchscript", "dynamo"])
    parser.add_argument("--form", choices=["static", "any"])
    options = parser.parse_args()
    if options.verb == "table":
        return table(options.names[0] if options.names else options.log)
    return run(options.names, options.log, options.jobs, [options.exporter] if options.exporter else ["torchscript", "dynamo"],
               [options.form] if options.form else ["static", "any"])


if __name__ == "__main__":
    sys.exit(main())
