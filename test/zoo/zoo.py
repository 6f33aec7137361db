# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Exports the families of families.py and holds each engine against onnxruntime on the same file.

    zoo.py run [NAME...] [--log=FILE] [--jobs=N] [--device=cpu,cuda]   every family, exporter and form; goes on where
                                                                       FILE ends
    zoo.py table FILE...                                               the table of test/zoo/table.md, to stdout

A form is `static`, compiled for the sizes of the export, or `any`, compiled once for sizes of the run and run with
three of them. Each family, exporter and form is done in a process of its own, forked with torch loaded, with a deadline,
and gives a row of FILE for each device; one engine holds the code for both. Columns: family, exporter, form, device,
result, nodes of the file, launches of kernels in a run, seconds of compiling (without the cache; of the CPU's and the
GPU's code together, where both are asked for), worst error, time over onnxruntime's (of the CPU: the median of
alternating rounds at the sizes of the export, one thread each), what was said. An error is the largest difference over
the largest value of a result. Results: `agrees`, `differs`, `refused` (a typed error), `defect` (a crash, an internal
error, a failed run or a deadline), `not exported` (torch's exporter or onnxruntime refuses), `undecided` (onnxruntime
does not agree with torch: ties among the best scores).

Without --device=cuda, `agrees` also says that the model compiles for sm_90a as far as kernel texts.
"""
import argparse
import concurrent.futures
import json
import math
import multiprocessing
import os
import queue
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "..", ".."))
LATHE = os.environ.get("LATHE", os.path.join(ROOT, "build", "bin", "lathe"))
BAR = 1e-4  # of the largest value of a result, f32
TARGETS = {"cpu": "x86-64-v3", "cuda": "sm_90a"}
COLUMNS = ["family", "exporter", "form", "device", "result", "nodes", "kernels", "seconds", "error", "time", "said"]
RESULTS = ["agrees", "differs", "refused", "defect", "undecided", "not exported"]
ROUNDS = 3  # of timing, alternating
FORKS = multiprocessing.get_context("forkserver")
GREATEST = 16  # of a symbol of a `any` engine
# Read once, ahead of all forks: what a family and an export import otherwise takes longer than the export.
PRELOAD = ["torch", "onnx", "onnxruntime", "numpy", "vision", "transformers.modeling_utils", "transformers.generation", "torch._dynamo",
           "torch._functorch.aot_autograd", "torch._inductor.codecache", "torch.export._trace", "torch.onnx._internal.exporter._core",
           "onnxscript.optimizer", "onnxscript.rewriter.onnx_fusions", "onnxscript.version_converter", "onnx.reference", "networkx"]


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


def times(engine, arguments, session, given, at, rounds=ROUNDS, seconds=0.1):
    """Ours over onnxruntime's, one thread each: the median of the rounds' ratios."""
    ratios = []
    for _ in range(rounds):
        file = os.path.join(at, "bench.json")
        checked(lathe("bench", engine, *arguments, "--threads=1", f"--seconds={seconds}", "--json", file))
        with open(file) as f:
            ours = json.load(f)["median_ms"]
        theirs, end = [], time.perf_counter() + seconds
        while len(theirs) < 3 or time.perf_counter() < end:
            begin = time.perf_counter()
            session.run(None, given)
            theirs.append(1e3 * (time.perf_counter() - begin))
        ratios.append(ours / statistics.median(theirs))
    return f"{statistics.median(ratios):.2f}"


def oracle(path, cases, torchs):
    """onnxruntime's session, what it is given, its results, and how far it is from torch in the first case."""
    import numpy as np
    import onnxruntime
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    settings.log_severity_level = 4
    expected = []
    try:
        session = onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
        here = {i.name for i in session.get_inputs()}
        for case in cases:
            given = {n: np.ascontiguousarray(v.numpy()) for n, v in case.items() if n in here}
            expected.append((given, session.run(None, given)))
    except Exception as problem:
        raise Refused("not exported", f"onnxruntime: {problem}") from problem
    return session, expected, max(error_of(t, e) for t, e in zip(torchs, expected[0][1]))


def compiled(path, at, devices, options, rows):
    """{device: engine}, one for all where it can be; the rows of the others say why not."""
    tries = [devices] if len(devices) == 1 else [devices, *([d] for d in devices)]
    found = {}
    for together in tries:
        engine = os.path.join(at, f"{'-'.join(together)}.lathe")
        begin = time.perf_counter()
        try:
            checked(lathe("compile", path, "-o", engine, "--target=" + ",".join(TARGETS[d] for d in together), "--no-cache",
                          "--threads=1", *options))
        except Refused as refused:
            if len(together) == 1:
                rows[together[0]].update(result=refused.result, said=str(refused))
            continue
        plans = {plan["target"]: plan for plan in json.loads(checked(lathe("inspect", engine, "--json")))["plans"]}
        for device in together:
            rows[device].update(seconds=round(time.perf_counter() - begin, 2),
                                kernels=sum(kernel["launches"] for kernel in plans[TARGETS[device]]["kernels"]))
            found[device] = engine
        if together is devices:
            break
    return found


def hold(path, inputs, dynamic, form, at, rows, torchs, finished):
    """Compiles and runs; fills the rows, {device: row}. `torchs`: what torch computes of the inputs."""
    import numpy as np
    import onnx
    model = onnx.load(path, load_external_data=False)
    for row in rows.values():
        row["nodes"] = len(model.graph.node)
    cases = [inputs]
    if form == "any":
        symbols = sorted({s for axes in dynamic.values() for s in axes.values()})
        cases += [resized(inputs, dynamic, {s: size + i for i, s in enumerate(symbols)}) for size in (2, 11)]
    session, expected, distance = oracle(path, cases, torchs)
    if form == "static":
        options = [f"--shape={n}={'x'.join(map(str, v.shape))}" for n, v in expected[0][0].items()]
    else:
        named = {d.dim_param for i in model.graph.input for d in i.type.tensor_type.shape.dim if d.dim_param}
        options = [f"--dim={s}=1:{min(7, GREATEST)}:{GREATEST}" for s in sorted(named)]
    arguments = []
    for n, v in expected[0][0].items():
        file = os.path.join(at, f"in{len(arguments)}.npy")
        np.save(file, v)
        arguments += ["--input", f"{n}={file}"]
    if "cuda" not in rows:
        checked(lathe("compile", path, "--target=sm_90a", "--stop-after=codegen", "-o", os.devnull, *options))
    for device, engine in compiled(path, at, list(rows), options, rows).items():
        row = rows[device]
        worst = run_all(engine, device, expected)
        row["error"] = f"{worst:.1e}"
        row["result"] = "agrees" if worst <= BAR else "undecided" if distance > BAR else "differs"
        if device == "cpu":
            row["time"] = times(engine, arguments, session, expected[0][0], at)
        finished(device)


def run_all(engine, device, expected):
    """The worst error of an engine over all cases."""
    sys.path.insert(0, os.path.join(ROOT, "python-frontend"))
    import lathe as frontend
    worst = 0.0
    try:
        context = frontend.load(engine).context(device="cuda:0" if device == "cuda" else "cpu", threads=1)
        for given, values in expected:
            found = list(context.run(given).values())
            worst = max([worst, *(error_of(e, y.numpy()) for e, y in zip(values, found, strict=True))])
    except frontend.Error as problem:
        raise Refused("defect", f"{device}: {problem}") from problem
    return worst


def work(task, devices, core, answer):
    """The rows of a task, sent as they are finished; in a process of its own."""
    nothing = os.open(os.devnull, os.O_WRONLY)  # torch writes whole graphs where it refuses
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    os.setsid()  # a deadline ends what this process started, too
    if core is not None:
        os.sched_setaffinity(0, {core})
    import torch
    import vision
    torch.set_num_threads(1)
    name, exporter, form = task
    rows = {device: dict.fromkeys(COLUMNS, "") | dict(family=name, exporter=exporter, form=form, device=device)
            for device in devices}

    def finished(device):
        answer.send(rows[device])

    with tempfile.TemporaryDirectory() as at:
        path = os.path.join(at, "model.onnx")
        try:
            try:
                module, inputs, dynamic = vision.FAMILIES[name]()
                with torch.no_grad():
                    torchs = [value.numpy() for value in module(*inputs.values())]
                export(path, module, inputs, dynamic if form == "any" else {}, exporter)
            except Exception as problem:
                raise Refused("not exported", f"torch: {type(problem).__name__}: {problem}") from problem
            hold(path, inputs, dynamic, form, at, rows, torchs, finished)
            said = ""
        except Refused as refused:
            result, said = refused.result, str(refused)
        except Exception as problem:
            result, said = "defect", f"{type(problem).__name__}: {problem}"
        for device, row in rows.items():
            if said and not row["result"]:
                row.update(result=result, said=said)
            row["said"] = re.sub(r"\s+", " ", row["said"]).replace(at, "")[:300]
            finished(device)
    answer.send(None)


def run_one(task, devices, cores, deadline, end):
    """The rows of a task; none, if the time for all is over before it is done."""
    core = cores.get()
    begin = time.perf_counter()
    if begin > end:
        cores.put(core)
        return []
    here, there = FORKS.Pipe(duplex=False)
    child = FORKS.Process(target=work, args=(task, devices, core, there))
    child.start()
    there.close()
    rows = {device: dict(zip(COLUMNS, (*task, device, "defect", "", "", "", "", "", f"more than {deadline} s"))) for device in devices}
    ended = False
    try:
        while here.poll(max(0, min(begin + deadline, end) - time.perf_counter())):
            row = here.recv()
            if row is None:
                ended = True
                break
            rows[row["device"]] = row
    except EOFError:
        ended = True
        for row in rows.values():
            row["said"] = row["said"].replace(f"more than {deadline} s", "the process ended")
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        child.kill()
    child.join()
    cores.put(core)
    return list(rows.values()) if ended or begin + deadline <= end else []


def rows_of(path):
    if not os.path.exists(path):
        return []
    with open(path) as f:
        return [dict(zip(COLUMNS, line.rstrip("\n").split("\t"))) for line in f if not line.startswith("#")]


def run(names, log, jobs, exporters, forms, devices, deadline, budget):
    from vision import FAMILIES
    FORKS.set_forkserver_preload(PRELOAD)
    unknown = [name for name in names if name not in FAMILIES]
    if unknown:
        sys.exit(f"no family is called {', '.join(unknown)}")
    done = {(r["family"], r["exporter"], r["form"], r["device"]) for r in rows_of(log)}
    tasks = [(name, exporter, form) for exporter in exporters for form in forms for name in names or FAMILIES
             if not {(name, exporter, form, device) for device in devices} <= done
             and (form == "static" or FAMILIES[name].args[3])]
    cores, here = queue.SimpleQueue(), sorted(os.sched_getaffinity(0), reverse=True)
    for job in range(jobs):
        cores.put(here[job] if 1 < jobs <= len(here) else None)
    end = time.perf_counter() + budget
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool, open(log, "a") as out:
        running = [pool.submit(run_one, task, devices, cores, deadline, end) for task in tasks]
        for i, found in enumerate(concurrent.futures.as_completed(running)):
            for row in found.result():
                out.write("\t".join(str(row[c]) for c in COLUMNS) + "\n")
                out.flush()
                print(f"{i + 1}/{len(tasks)}", *(row[c] for c in COLUMNS), flush=True)


def table(paths):
    """Markdown: counts, what agrees, and what does not with what was said. Of rows of one task the last file's counts."""
    rows = list({(r["family"], r["exporter"], r["form"], r["device"]): r for path in paths for r in rows_of(path)}.values())
    rows.sort(key=lambda r: (r["family"], r["exporter"], r["form"], r["device"]))
    print("| device | exporter | sizes | " + " | ".join(RESULTS) + " |\n|" + "---|" * (3 + len(RESULTS)))
    for kind in sorted({(r["device"], r["exporter"], r["form"]) for r in rows}):
        found = [r["result"] for r in rows if (r["device"], r["exporter"], r["form"]) == kind]
        print("|", " | ".join([*kind, *(str(found.count(result)) for result in RESULTS)]), "|")
    for device in sorted({r["device"] for r in rows}):
        here = [r for r in rows if r["device"] == device]
        wrong = {r["family"] for r in here if r["result"] in ("differs", "refused", "defect")}
        forms = {form: {r["family"] for r in here if r["result"] == "agrees" and r["form"] == form} - wrong for form in ("any", "static")}
        print(f"\nFamilies on {device} of which some file agrees and none differs or is refused: {len(forms['any'] | forms['static'])}; "
              f"with sizes of the run {len(forms['any'])}, with fixed sizes {len(forms['static'])}, with both {len(forms['any'] & forms['static'])}.")
    print("\n| family | exporter | sizes | device | nodes | kernels | compile, s | worst error | time over onnxruntime's |\n|" + "---|" * 9)
    for r in rows:
        if r["result"] == "agrees":
            print("|", " | ".join(r[c] for c in ("family", "exporter", "form", "device", "nodes", "kernels", "seconds", "error", "time")), "|")
    print("\n| family | exporter | sizes | device | result | what was said |\n|" + "---|" * 6)
    for r in rows:
        if r["result"] != "agrees":
            said = r["said"].replace("|", "/").replace("<", "(").replace(">", ")")[:160]
            print("|", " | ".join([*(r[c] for c in ("family", "exporter", "form", "device", "result")), said]), "|")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["run", "table"])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--log", default=os.path.join(ROOT, "build", "zoo.tsv"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--exporter", choices=["torchscript", "dynamo"])
    parser.add_argument("--form", choices=["static", "any"])
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cpu,cuda (cpu)")
    parser.add_argument("--seconds", type=int, default=300, help="of one family, exporter and form (300)")
    parser.add_argument("--budget", type=float, default=math.inf, help="of all; what is not done then leaves no row")
    options = parser.parse_args()
    if options.verb == "table":
        return table(options.names or [options.log])
    return run(options.names, options.log, options.jobs, [options.exporter] if options.exporter else ["torchscript", "dynamo"],
               [options.form] if options.form else ["any", "static"], options.device.split(","), options.seconds, options.budget)


if __name__ == "__main__":
    sys.exit(main())
