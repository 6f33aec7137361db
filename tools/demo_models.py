# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles and runs the two demo models through the `lathe` command and shows what they say.

Called by tools/demo, after the build; writes build/demo. Exits 1 when a result is wrong.
"""
import gzip
import json
import os
import subprocess
import sys
import time

import numpy as np
import onnxruntime

from demo_inputs import cls_input, draw_text, magika_features, magika_labels

OUT = "build/demo"
LATHE = "build/bin/lathe"
TEXTS = ["The lathe turns", "MODEL 2026", "graph in, engine out", "text direction"]
failures = []


def lathe(*arguments):
    """Runs the command and returns the seconds it took; its output is shown only if it fails."""
    begin = time.perf_counter()
    done = subprocess.run([LATHE, *arguments], capture_output=True, text=True)
    if done.returncode:
        print(" ".join([LATHE, *arguments]), file=sys.stderr)
        sys.exit(f"{done.stdout}{done.stderr}lathe {arguments[0]} ended with {done.returncode}")
    return time.perf_counter() - begin


def onnxruntime_session(model):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def median_ms(session, feed, seconds=1.0):
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        begin = time.perf_counter()
        session.run(None, feed)
        times.append(time.perf_counter() - begin)
    return 1e3 * sorted(times)[len(times) // 2]


def compile_and_run(title, model, name, data, dims):
    """Compile, run on all rows of `data`, compare with onnxruntime, bench one row."""
    stem = os.path.splitext(os.path.basename(model))[0]
    engine, saved = f"{OUT}/{stem}.lathe", f"{OUT}/{stem}_out"
    all_rows, one_row = f"{OUT}/{stem}_inputs.npy", f"{OUT}/{stem}_input.npy"
    np.save(all_rows, data)
    np.save(one_row, data[:1])
    dims = [f"--dim={d}" for d in dims]
    # Without the cache, so that a second demo shows the same time.
    seconds = lathe("compile", model, "-o", engine, "--no-cache", *dims)
    lathe("run", engine, "--input", f"{name}={all_rows}", "--save", saved)
    with open(f"{saved}/outputs.json") as f:
        got = np.load(os.path.join(saved, json.load(f)[0]["file"]))
    session = onnxruntime_session(model)
    want, = session.run(None, {name: data})
    lathe("bench", engine, "--input", f"{name}={one_row}", "--threads=1", "--seconds=1",
          "--json", f"{OUT}/{stem}_bench.json")
    with open(f"{OUT}/{stem}_bench.json") as f:
        latency = json.load(f)["median_ms"]
    theirs = median_ms(session, {name: data[:1]})
    error = float(np.abs(got - want).max()) if got.shape == want.shape else float("inf")
    agrees = error <= 1e-4 * float(np.abs(want).max())
    print(f"\n{title}")
    print(f"  compile    {seconds:8.2f} s    {engine}, {os.path.getsize(engine) / 1e6:.1f} MB")
    print(f"  latency    {latency:8.2f} ms   median of one row on one thread; "
          f"onnxruntime {theirs:.2f} ms")
    print(f"  agreement  {error:8.1e}      largest difference from onnxruntime over "
          f"{len(data)} rows: {'agrees' if agrees else 'DIFFERS'}")
    if not agrees:
        failures.append(f"{stem} differs from onnxruntime")
    with_dims = " ".join([f"{LATHE} compile {model}", *dims])
    return got, [f"{LATHE} bench {engine} --input {name}={one_row} --profile",
                 f"{LATHE} inspect {engine} --kernels", f"{with_dims} --stop-after=fuse | less"]


def run_magika():
    archive = f"{OUT}/readme.gz"
    with open("README.md", "rb") as f, gzip.open(archive, "wb") as g:
        g.write(f.read())
    files = ["README.md", "CMakeLists.txt", "tools/layering.py", "tools/demo", "LICENSE",
             "lib/support/DimExpr.cpp", f"{OUT}/text_0_up.png", archive,
             "build/models/ppocr_cls.onnx", LATHE]
    data = []
    for file in files:
        with open(file, "rb") as f:
            data.append(magika_features(f.read()))
    scores, commands = compile_and_run(
        "magika 3.3: the type of a file from its bytes", "build/models/magika.onnx", "bytes",
        np.stack(data), [])
    labels = magika_labels()
    for file, row in zip(files, scores):
        print(f"    {file:<32} {labels[int(row.argmax())]:<12} {100 * row.max():6.2f} %")
    return commands


def draw_pictures():
    pictures = []
    for i, text in enumerate(TEXTS):
        for upside_down in (False, True):
            file = f"{OUT}/text_{i}_{'down' if upside_down else 'up'}.png"
            image = draw_text(text, seed=i, upside_down=upside_down)
            image.save(file)
            pictures.append((file, image, upside_down))
    return pictures


def run_cls(pictures):
    data = np.stack([cls_input(image) for _, image, _ in pictures])
    scores, commands = compile_and_run(
        "PP-OCR cls: is a line of text upside down?", "build/models/ppocr_cls.onnx", "x", data,
        ["x[0]=1:1:16", "x[2]=48:48:48", "x[3]=32:192:320"])
    for (file, _, upside_down), row in zip(pictures, scores):
        says = bool(row.argmax())
        print(f"    {file:<32} {'upside down' if says else 'upright':<12} {100 * row.max():6.2f} %")
        if says != upside_down:
            failures.append(f"{file} was taken for {'upside down' if says else 'upright'}")
    return commands


def main():
    os.makedirs(OUT, exist_ok=True)
    pictures = draw_pictures()
    commands = run_magika() + run_cls(pictures)
    print("\nTry next:")
    for command in [*commands, f"{LATHE} --help"]:
        print("  " + command)
    for failure in failures:
        print("wrong: " + failure, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
