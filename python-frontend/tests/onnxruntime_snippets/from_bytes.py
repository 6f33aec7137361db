# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A model in memory."""
import numpy as np
import onnxruntime as ort

with open("affine.onnx", "rb") as file:
    session = ort.InferenceSession(file.read())
results = {"outputs": session.run(None, {"x": np.ones((2, 8), np.float32)})}
