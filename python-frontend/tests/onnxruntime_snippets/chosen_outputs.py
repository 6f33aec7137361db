# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Only the outputs that are named, in the order in which they are named."""
import numpy as np
import onnxruntime as ort

session = ort.InferenceSession("affine.onnx", providers=["CPUExecutionProvider"])
x = np.full((2, 8), 0.25, np.float32)
results = {"s": session.run(["s"], {"x": x}), "s, y": session.run(["s", "y"], {"x": x})}
