# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs on values, and a value that is written again."""
import numpy as np
import onnxruntime as ort

session = ort.InferenceSession("affine.onnx")
x = ort.OrtValue.ortvalue_from_numpy(np.zeros((2, 8), np.float32))
first = session.run_with_ort_values(["y"], {"x": x})[0].numpy()
x.update_inplace(np.ones((2, 8), np.float32))
second = session.run_with_ort_values(None, {"x": x})
results = {"first": first, "second": [value.numpy() for value in second]}
