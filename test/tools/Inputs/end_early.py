# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ends compilations of a model of 96 MB after more and more time: end_early.py LATHE FOLDER"""
import hashlib
import os
import subprocess
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

lathe, folder = sys.argv[1:]
model, engine = os.path.join(folder, "model.onnx"), os.path.join(folder, "model.lathe")
weight = numpy_helper.from_array(np.ones((4096, 6144), np.float32), "w")
onnx.save(helper.make_model(
    helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g",
                      [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4096])],
                      [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 6144])], [weight]),
    opset_imports=[helper.make_opsetid("", 22)], ir_version=10), model)


def compiled(*limits):
    environment = dict(os.environ, LATHE_NO_CACHE="1")
    return subprocess.run([lathe, "compile", model, "-o", engine, "--target=x86-64-v3", *limits],
                          env=environment, capture_output=True, text=True)


def engine_digest():
    with open(engine, "rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


done = compiled()
if done.returncode != 0:
    sys.exit(f"without a limit: exit code {done.returncode}\n{done.stderr}")
whole = engine_digest()
os.remove(engine)

codes, seconds = set(), 0.05
while 0 not in codes and seconds < 300:
    done = compiled(f"--max-seconds={seconds:.3f}")
    codes.add(done.returncode)
    # The time may be over when the engine is in its place already and the process is about to end: then
    # the exit code says 7, and the engine is there, whole.
    left = sorted(os.listdir(folder))
    wrong = done.returncode not in (0, 7) or "model.onnx" not in left or \
        set(left) - {"model.lathe", "model.onnx"} or (done.returncode == 0 and "model.lathe" not in left)
    if wrong or ("model.lathe" in left and engine_digest() != whole):
        sys.exit(f"after {seconds:.3f} s: exit code {done.returncode}, left {left}\n{done.stderr}")
    if "model.lathe" in left:
        os.remove(engine)
    seconds *= 1.15
if codes != {0, 7}:
    sys.exit(f"exit codes {codes}: nothing was ended early, or nothing came to its end")
