# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Holds the models of lathe-fuzz against onnxruntime: what legalize means wrongly, lathe-fuzz's own reference means, too.

    against_onnxruntime.py BUILD FOLDER FIRST:COUNT

The models and inputs of these seeds are written to FOLDER. A float may be off by a small multiple of what errors of
rounding in the inputs and in the results of nodes do to onnxruntime's own result; integers and bools that those do not move must be the same. A model
that onnxruntime refuses, or lathe as unsupported, is counted and not compared.
"""
import argparse
import glob
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "python-frontend"))
import lathe  # noqa: E402

EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
SHAKEN = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16)
MULTIPLE = 64  # of what rounding does
ROUNDS = 4  # of rounding errors
MANY_ROUNDS = 40  # which a difference must stand against: where one rounding decides, half of them show it
MOST_ELEMENTS = 1 << 22


def wide(array):
    return array.astype(np.float64) if array.dtype.name in EPSILON else array


def inputs_of(folder, model):
    feeds = {}
    for at, value in enumerate(model.graph.input):
        with open(os.path.join(folder, "test_data_set_0", f"input_{at}.pb"), "rb") as f:
            feeds[value.name] = numpy_helper.to_array(onnx.TensorProto.FromString(f.read()))
    return feeds


def shaken(feeds, rng):
    """The inputs with an error of rounding in each float."""
    def shake(x):
        if x.dtype.name not in EPSILON:
            return x
        with np.errstate(all="ignore"):
            return np.asarray(wide(x) * (1 + rng.uniform(-1, 1, x.shape) * EPSILON[x.dtype.name]), x.dtype)
    return {name: shake(x) for name, x in feeds.items()}


def shaken_model(model, rng):
    """The model with an error of rounding in each float that a node computes; every other node's zeros lose their sign, which ONNX
    leaves open where, say, Relu takes one."""
    made, nodes = onnx.ModelProto(), []
    made.CopyFrom(model)
    inferred = onnx.shape_inference.infer_shapes(model).graph
    types = {v.name: v.type.tensor_type.elem_type for v in [*inferred.value_info, *inferred.output]}
    for node in model.graph.node:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        nodes.append(copy)
        for at, name in enumerate(node.output):
            dtype = np.dtype(helper.tensor_dtype_to_np_dtype(types[name])) if types.get(name) in SHAKEN else None
            if name and dtype is not None:
                copy.output[at] = name + "/exact"
                factor = np.array(1 + 2 * EPSILON[dtype.name] * rng.choice([-1, 1]), dtype)
                made.graph.initializer.append(numpy_helper.from_array(factor, name + "/factor"))
                signed = bool(rng.integers(2))
                nodes.append(helper.make_node("Mul", [name + "/exact", name + "/factor"], [name if signed else name + "/signed"]))
                if not signed:
                    made.graph.initializer.append(numpy_helper.from_array(np.array(0, dtype), name + "/zero"))
                    nodes.append(helper.make_node("Add", [name + "/signed", name + "/zero"], [name]))
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    return made.SerializeToString()


def differs(name, got, want, others):
    """What is wrong with a result; None if nothing. `others`: onnxruntime's results with errors of rounding."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{name}: {got.dtype} {got.shape}, onnxruntime {want.dtype} {want.shape}"
    if any(o.shape != want.shape for o in others):
        return None
    if want.dtype.name not in EPSILON:
        wrong = got != want
        wrong &= ~np.any([o != want for o in others], 0)
    else:
        g, w, all_ = wide(got), wide(want), np.array([wide(o) for o in others])
        with np.errstate(all="ignore"):
            finite = np.isfinite(w)
            largest = np.max(np.abs(w), initial=0, where=finite)
            spread = np.max(np.abs(all_ - w), 0, initial=0, where=np.isfinite(all_) & finite)
            # A sum's error is that of its largest terms, which may cancel: of the tensor, not of the element.
            allowed = MULTIPLE * np.maximum(np.max(spread, initial=0), EPSILON[want.dtype.name] * max(largest, 1))
            wrong = np.where(finite, ~(np.abs(g - w) <= allowed), ~((g == w) | (np.isnan(g) & np.isnan(w))))
            wrong &= ~np.any((np.isfinite(all_) != finite) | (np.isinf(w) & (all_ == -w)), 0)
    if not wrong.any():
        return None
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{name}{list(place)}: {got[place]}, onnxruntime {want[place]}; {int(wrong.sum())} of {wrong.size} differ"


def with_casts_kept(model):
    """The model with results of casts to integers as outputs, too. onnxruntime merges casts of casts even where it is not to optimize:
    double to int64 to int32 becomes double to int32, which makes something else of NaN."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    there = {v.name for v in model.graph.output}
    for node in model.graph.node:
        if node.op_type == "Cast" and node.output[0] not in there:
            to = next(a.i for a in node.attribute if a.name == "to")
            if np.issubdtype(helper.tensor_dtype_to_np_dtype(to), np.integer):
                made.graph.output.append(helper.make_tensor_value_info(node.output[0], to, None))
    return made


def check(folder):
    """"" where both agree, "- REASON" where they cannot be compared, else what differs."""
    model = onnx.load(os.path.join(folder, "model.onnx"))
    feeds = inputs_of(folder, model)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    rng, kept = np.random.default_rng(1), with_casts_kept(model)

    def run(data, values):
        return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"]).run(None, values)

    def shaken_run():
        return run(shaken_model(kept, rng), shaken(feeds, rng))

    try:
        want = run(kept.SerializeToString(), feeds)[:len(model.graph.output)]
        if sum(w.size for w in want) > MOST_ELEMENTS:
            return "- too large"
        others = [shaken_run() for _ in range(ROUNDS)]
    except Exception as problem:  # onnxruntime has classes of its own for each way not to know an op or a type
        return "- onnxruntime: " + str(problem).splitlines()[0][:150]
    try:
        got = lathe.compile(model, target="x86-64-v3").run(feeds)
    except lathe.Error as error:
        return f"- lathe: {error}" if error.code == lathe.Code.UNSUPPORTED else f"lathe: {error}"

    def difference():
        found = (differs(v.name, got[v.name].numpy(), w, [o[i] for o in others])
                 for i, (v, w) in enumerate(zip(model.graph.output, want)))
        return next(filter(None, found), "")

    if difference():
        others += [shaken_run() for _ in range(MANY_ROUNDS - ROUNDS)]
    return difference()


def seed_range(text):
    """FIRST:COUNT of a command line."""
    found = re.fullmatch(r"(\d+):([1-9]\d*)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not FIRST:COUNT")
    return range(int(found.group(1)), int(found.group(1)) + int(found.group(2)))


def compare(folders, keep_passed=True):
    """Prints what is wrong with the models of `folders`, and how many agree. Whether any failed, or none passed."""
    counts = {"passed": 0, "failed": 0, "left": 0}
    for folder in folders:
        said = check(folder)
        counts["left" if said.startswith("-") else "failed" if said else "passed"] += 1
        if said and not said.startswith("- onnxruntime"):
            print(f"{os.path.basename(folder)}: {said}", flush=True)
        if not said and not keep_passed:
            shutil.rmtree(folder)
    print(f"{counts['left']} of {sum(counts.values())} models cannot be compared")
    print(f"{counts['passed']} passed, {counts['failed']} failed")
    return 1 if counts["failed"] or not counts["passed"] else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("folder")
    parser.add_argument("seeds", type=seed_range, metavar="FIRST:COUNT")
    options = parser.parse_args()
    shutil.rmtree(options.folder, ignore_errors=True)
    seeds = f"--seeds={options.seeds.start}:{len(options.seeds)}"
    subprocess.run([os.path.join(options.build, "bin", "lathe-fuzz"), seeds, f"--save={options.folder}"],
                   check=True, stdout=subprocess.DEVNULL)
    return compare(sorted(glob.glob(os.path.join(options.folder, "seed-*"))))


if __name__ == "__main__":
    sys.exit(main())
