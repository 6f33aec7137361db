# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Drives the `lathe` command from tests: compile, run, and outputs as numpy arrays."""
import json
import os
import subprocess

import numpy as np
import onnxruntime

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
BUILD = os.environ.get("LATHE_BUILD", os.path.join(ROOT, "build"))
LATHE = os.path.join(BUILD, "bin", "lathe")
MODELS = os.path.join(ROOT, "build", "models")
# `LATHE_TEST_DEVICE=cuda:0` runs the same tests on a GPU.
DEVICE = os.environ.get("LATHE_TEST_DEVICE", "cpu")
TARGET = "native" if DEVICE == "cpu" else os.environ.get("LATHE_TEST_TARGET", "sm_90a")


def lathe(*arguments, code=0, cwd=None, env=None):
    """Runs the command, checks its exit code and returns what it printed."""
    arguments = [str(a) for a in arguments]
    done = subprocess.run([LATHE, *arguments], capture_output=True, text=True, cwd=cwd,
                          timeout=600, env={**os.environ, **(env or {})})
    text = done.stdout + done.stderr
    assert done.returncode == code, (
        f"lathe {' '.join(arguments)} ended with {done.returncode}, not {code}:\n{text[-4000:]}")
    return text


def compile_model(model, engine, *options, target=None):
    lathe("compile", model, "-o", engine, f"--target={target or TARGET}", *options)
    return engine


def load_outputs(folder):
    """{name: array} of a --save folder; bf16 is widened to f32."""
    with open(os.path.join(folder, "outputs.json")) as f:
        entries = json.load(f)
    result = {}
    for entry in entries:
        array = np.load(os.path.join(folder, entry["file"]))
        if entry["dtype"] in ("bf16", "bfloat16") and array.dtype != np.float32:
            array = widen(array.view(np.uint16))
        result[entry["name"]] = array.reshape(entry["shape"])
    return result


def widen(bits):
    """bf16 bits to f32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def run(engine, folder, *options, inputs=None, data=None, device=None):
    """Runs the engine on arrays or on an ONNX test data set; returns its outputs."""
    os.makedirs(folder, exist_ok=True)
    arguments = []
    for i, (name, array) in enumerate((inputs or {}).items()):
        file = os.path.join(folder, f"input_{i}.npy")
        np.save(file, array)
        arguments += ["--input", f"{name}={file}"]
    for file in data or ():
        arguments += ["--input", file]
    lathe("run", engine, *arguments, "--device", device or DEVICE, "--save", folder, *options)
    return load_outputs(folder)


def plans(engine):
    """What `inspect` says of each entry and target."""
    return json.loads(lathe("inspect", engine, "--json"))["plans"]


def launches(plan):
    """A kernel is a launch: shared ones count as often as they run."""
    return sum(kernel["launches"] for kernel in plan["kernels"])


def session(model):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def relative_error(got, want):
    """max |got - want| / max |want|; NaN must meet NaN, infinity the same infinity."""
    assert got.shape == want.shape, f"shape {got.shape}, not {want.shape}"
    if not want.size:
        return 0.0
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    odd = ~np.isfinite(want)
    same = np.array_equal(np.isfinite(got), ~odd) and np.array_equal(
        got[odd], want[odd], equal_nan=True)
    if not same:
        return float("inf")
    difference = np.abs(np.where(odd, 0, got - want)).max()
    return float(difference / max(np.abs(want[~odd]).max(initial=0), 1e-30))
