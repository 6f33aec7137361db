# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is raised for wrong names, types and sizes, and for files that are no models."""
import numpy as np
import onnxruntime as ort
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, InvalidProtobuf, NoSuchFile

session = ort.InferenceSession("affine.onnx")
x = np.ones((2, 8), np.float32)
results = {}
for name, kind, call in [
        ("missing", ValueError, lambda: session.run(None, {})),
        ("unknown input", (ValueError, InvalidArgument), lambda: session.run(None, {"x": x, "z": x})),
        ("unknown output", (ValueError, InvalidArgument), lambda: session.run(["nothing"], {"x": x})),
        ("type", InvalidArgument, lambda: session.run(None, {"x": x.astype(np.float64)})),
        ("rank", InvalidArgument, lambda: session.run(None, {"x": x[0]})),
        ("size", InvalidArgument, lambda: session.run(None, {"x": x[:, :7]})),
        ("no file", NoSuchFile, lambda: ort.InferenceSession("nothing.onnx")),
        ("no model", (InvalidProtobuf, Fail), lambda: ort.InferenceSession(b"no model"))]:
    try:
        call()
    except kind:
        results[name] = "raised"
