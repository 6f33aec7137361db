# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The ONNX backend suite through lathe.onnxruntime, held against the ledger of the command line.

    backend_suite.py [--every=N] [--filter=TEXT] [--log=FILE] [--jobs=N]    every N-th test (1); names those that differ
    backend_suite.py --take [--log=FILE] [--jobs=N]                         all of it; writes backend_suite.tsv

What the ledger says has passed (`passed`, `frozen`, `drawn`) must run and give the suite's values, within the suite's
own tolerances or two spacings of the output's type; `drawn` ones give the sizes. What it says has `failed` runs and
gives other values. Needs build/corpus, which test/conformance/make_corpus.py writes. backend_suite.tsv says
what the last whole run found: how many tests of each status agree, and which (a digest of the ledger's names and
statuses).
"""
import argparse
import contextlib
import glob
import hashlib
import multiprocessing
import os
import re
import sys
import warnings

import numpy as np
import onnx
from onnx import numpy_helper

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "python-frontend"))
import lathe.onnxruntime as ort  # noqa: E402

NARROW = ("int4", "uint4", "int2", "uint2", "float4_e2m1fn")
RESULT = os.path.join(ROOT, "python-frontend", "tests", "backend_suite.tsv")
CORPUS = os.path.join(ROOT, "build", "corpus")


def rows(path):
    with open(path) as f:
        return [line.rstrip("\n").split("\t") for line in f if not line.startswith("#")]


def ledger_rows():
    return [(name, status) for name, status, *_ in rows(os.path.join(ROOT, "test", "conformance", "ledger-cpu.tsv"))]


def value_of(path, kind):
    """What onnxruntime takes and gives for a file of the suite: an array, a list, None."""
    with open(path, "rb") as f:
        data = f.read()
    which = kind.WhichOneof("value")
    if which == "tensor_type":
        return numpy_helper.to_array(onnx.TensorProto.FromString(data))
    if which == "sequence_type":
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))


def files_of(folder, kind, ports):
    files = sorted(glob.glob(os.path.join(folder, f"{kind}_*.pb")), key=lambda f: int(re.findall(r"(\d+)\.pb$", f)[0]))
    return [value_of(f, port.type) for f, port in zip(files, ports)]


def same(got, true, rtol, atol, drawn):
    if true is None or got is None:
        return got is true
    if isinstance(true, list):
        return len(got) == len(true) and all(same(g, t, rtol, atol, drawn) for g, t in zip(got, true))
    got, true = np.asarray(got), np.asarray(true)
    if true.dtype.name in NARROW:
        return got.dtype == true.dtype and np.array_equal(got.astype(np.float32), true.astype(np.float32))
    if got.dtype.kind == "u" and true.dtype.kind == "V" and got.dtype.itemsize == true.dtype.itemsize:
        got = got.view(true.dtype)  # the bits of a type that numpy lacks
    if got.shape != true.shape or drawn:
        return got.shape == true.shape
    if true.dtype.kind in "OUS":
        return got.astype(str).tolist() == [t.decode() if isinstance(t, bytes) else str(t) for t in true.ravel()] \
            if true.ndim == 1 else got.astype(str).tolist() == true.astype(str).tolist()
    if true.dtype.kind in "biu":
        return np.array_equal(got, true)
    spacing = {2: 2 ** -9, 1: 2 ** -2}.get(true.dtype.itemsize, 0) if true.dtype.kind in "fV" else 0
    if true.dtype.name == "bfloat16":
        spacing = 2 ** -6
    rtol = max(rtol, spacing)
    wide = np.complex128 if true.dtype.kind == "c" else np.float64
    return np.allclose(got.astype(wide), true.astype(wide), rtol, atol, equal_nan=True)


def run(name, rtol, atol, drawn):
    """None, or what is wrong."""
    folder = os.path.join(CORPUS, name)
    model = onnx.load(os.path.join(folder, "model.onnx"))
    held = {i.name for i in model.graph.initializer}
    inputs = [i for i in model.graph.input if i.name not in held]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            session = ort.InferenceSession(os.path.join(folder, "model.onnx"))
            for data in sorted(glob.glob(os.path.join(folder, "test_data_set_*"))):
                feed = dict(zip((i.name for i in inputs), files_of(data, "input", inputs)))
                got = session.run(None, feed)
                true = files_of(data, "output", model.graph.output)
                wrong = [o.name for o, g, t in zip(model.graph.output, got, true) if not same(g, t, rtol, atol, drawn)]
                if wrong:
                    return f"values of {', '.join(wrong)} differ"
    except Exception as problem:
        return re.sub(r"\s+", " ", f"{type(problem).__name__}: {problem}")[:200]
    return None


def summary(agreeing):
    """The text of backend_suite.tsv; `agreeing`: the rows (name, status) of the tests that agree."""
    statuses = [status for _, status in agreeing]
    digest = hashlib.sha256("\n".join("\t".join(row) for row in sorted(agreeing)).encode()).hexdigest()
    counts = "".join(f"{status}\t{statuses.count(status)}\n" for status in sorted(set(statuses)))
    return f"# tests of the ledger that agree with it through lathe.onnxruntime\n{counts}sha256\t{digest}\n"


def judged(row):
    """None, or how a row (name, status, rtol, atol) differs from what the ledger says."""
    name, status, rtol, atol = row
    problem = run(name, rtol, atol, status == "drawn")
    if status == "failed":  # other values than the suite's, and nothing worse
        problem = None if problem and problem.startswith("values of") else problem or "it gives the suite's values"
    return problem


def compare(every=1, pattern="", log=None, jobs=1):
    """(how many were run, {name: what is wrong}); `jobs` processes at a time."""
    index = {name: (float(rtol), float(atol)) for name, rtol, atol, *_ in rows(os.path.join(CORPUS, "index.tsv"))}
    ledger = [(name, status, *index[name]) for name, status in ledger_rows() if pattern in name][::every]
    wrong = {}
    with contextlib.ExitStack() as stack:
        problems = map(judged, ledger)
        if jobs > 1:
            problems = stack.enter_context(multiprocessing.get_context("forkserver").Pool(jobs)).imap(judged, ledger)
        for (name, status, *_), problem in zip(ledger, problems):
            if problem:
                wrong[name] = f"{status} in the ledger; {problem}"
            if log:
                print(name, status, problem or "agrees", sep="\t", file=log, flush=True)
    return len(ledger), wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--filter", default="")
    parser.add_argument("--log", type=argparse.FileType("w"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--take", action="store_true")
    options = parser.parse_args()
    if options.take and (options.every != 1 or options.filter):
        parser.error("what is taken over is the whole")
    count, wrong = compare(options.every, options.filter, options.log, options.jobs)
    for name, problem in wrong.items():
        print(f"{name}: {problem}")
    if options.take:
        with open(RESULT, "w") as f:
            f.write(summary([row for row in ledger_rows() if row[0] not in wrong]))
    print(f"{count - len(wrong)} of {count} tests agree with the ledger")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
