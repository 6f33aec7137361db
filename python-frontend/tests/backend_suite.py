# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The ONNX backend suite through lathe.onnxruntime, held against the ledger of the command line.

    backend_suite.py [--every=N] [--filter=TEXT] [--log=FILE]    every N-th test (1); names those that differ

What the ledger says has passed (`passed`, `frozen`, `drawn`) must run and give the suite's values, within the suite's
own tolerances or two spacings of the output's type; `drawn` ones give the sizes. What the ledger says fails is not run.
Needs build/corpus, which test/conformance/make_corpus.py writes. Not taken yet, and named: inputs that are sequences or
optional, and types of 4 and 2 bits, whose numpy arrays have a byte for each element.
"""
import argparse
import glob
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

CORPUS = os.path.join(ROOT, "build", "corpus")


def rows(path):
    with open(path) as f:
        return [line.rstrip("\n").split("\t") for line in f if not line.startswith("#")]


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


def compare(every=1, pattern="", log=None):
    """(how many were run, {name: what is wrong})"""
    index = {name: (float(rtol), float(atol)) for name, rtol, atol, *_ in rows(os.path.join(CORPUS, "index.tsv"))}
    ledger = [(name, status) for name, status, *_ in rows(os.path.join(ROOT, "test", "conformance", "ledger-cpu.tsv"))
              if status in ("passed", "frozen", "drawn") and pattern in name][::every]
    wrong = {}
    for name, status in ledger:
        problem = run(name, *index[name], status == "drawn")
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
    options = parser.parse_args()
    count, wrong = compare(options.every, options.filter, options.log)
    for name, problem in wrong.items():
        print(f"{name}: {problem}")
    print(f"{count - len(wrong)} of {count} tests agree with the ledger")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
