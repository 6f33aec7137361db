# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bars of speed on the CPU: one thread against onnxruntime, compile times, size of the runtime.

Medians of alternating rounds, so that a busy neighbour meets both. Run on an idle machine.
"""
import json
import os
import sys
import time

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "models"))
import lathe_cli  # noqa: E402

RATIO, ROUNDS = 1.3, 7
COLD, CACHED, RUNTIME_BYTES = 8.0, 0.5, 2 << 20
LLAMA = os.path.join(lathe_cli.MODELS, "llama", "dynamo18_sdpa")


def llama_inputs(case):
    names = ["ids", "pos", "mask", "k0", "v0", "k1", "v1"]
    result = {}
    for i, name in enumerate(names):
        with open(f"{LLAMA}/{case}/input_{i}.pb", "rb") as f:
            result[name] = numpy_helper.to_array(onnx.TensorProto.FromString(f.read()))
    return result


def bytes_input():
    return {"bytes": np.random.default_rng(0).integers(0, 257, (1, 2048)).astype(np.int32)}


def picture():
    return {"x": np.random.default_rng(0).uniform(-1, 1, (1, 3, 48, 192)).astype(np.float32)}


DIMS = ["--dim=B=1:1:4", "--dim=S=1:16:512", "--dim=P=0:17:511"]
MODELS = {
    "magika": (f"{lathe_cli.MODELS}/magika.onnx", ["--dim=unk__214=1:1:16"], bytes_input),
    "cls": (f"{lathe_cli.MODELS}/ppocr_cls.onnx",
            ["--dim=x[0]=1:1:16", "--dim=x[2]=32:48:64", "--dim=x[3]=32:192:320"], picture),
    "llama_prefill": (f"{LLAMA}/model.onnx", DIMS, lambda: llama_inputs("prefill")),
    "llama_decode": (f"{LLAMA}/model.onnx", DIMS, lambda: llama_inputs("decode")),
}


def onnxruntime_ms(session, inputs, seconds):
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        begin = time.perf_counter()
        session.run(None, inputs)
        times.append(time.perf_counter() - begin)
    return 1e3 * float(np.median(times))


@pytest.mark.parametrize("name", MODELS)
def test_against_onnxruntime(tmp_path, name):
    model, dims, make = MODELS[name]
    inputs = make()
    engine = lathe_cli.compile_model(model, tmp_path / "model.lathe", *dims)
    arguments = []
    for i, (key, array) in enumerate(inputs.items()):
        np.save(tmp_path / f"{i}.npy", array)
        arguments += ["--input", f"{key}={tmp_path / f'{i}.npy'}"]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    ours, theirs = [], []
    for _ in range(ROUNDS):
        theirs.append(onnxruntime_ms(session, inputs, 0.4))
        lathe_cli.lathe("bench", engine, *arguments, "--threads=1", "--seconds=0.4",
                        "--json", tmp_path / "bench.json")
        with open(tmp_path / "bench.json") as f:
            ours.append(json.load(f)["median_ms"])
    mine, other = float(np.median(ours)), float(np.median(theirs))
    print(f"{name}: {mine:.3f} ms, onnxruntime {other:.3f} ms, ratio {mine / other:.2f}")
    assert mine <= RATIO * other


@pytest.mark.parametrize("name", ["magika", "cls", "llama_prefill"])
def test_compile_time(tmp_path, name):
    model, dims, _ = MODELS[name]
    environment = {"LATHE_CACHE_DIR": str(tmp_path / "cache")}
    seconds = []
    for i in range(2):
        begin = time.perf_counter()
        lathe_cli.lathe("compile", model, "-o", tmp_path / f"{i}.lathe", *dims, env=environment)
        seconds.append(time.perf_counter() - begin)
    print(f"{name}: cold {seconds[0]:.2f} s, cached {seconds[1]:.2f} s")
    assert seconds[0] <= COLD and seconds[1] <= CACHED


def test_runtime_size():
    assert os.path.getsize(os.path.join(lathe_cli.BUILD, "lib", "liblathe_runtime.so")) <= RUNTIME_BYTES
