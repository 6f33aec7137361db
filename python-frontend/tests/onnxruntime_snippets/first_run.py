# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Open a model and run it: all outputs, the input by the name that the session gives."""
import numpy as np
import onnxruntime as ort

session = ort.InferenceSession("affine.onnx")
x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(3, 8)
results = {"outputs": session.run(None, {session.get_inputs()[0].name: x})}
