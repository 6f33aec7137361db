# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One session, several sizes of the axis that has a name."""
import numpy as np
import onnxruntime as ort

session = ort.InferenceSession("affine.onnx")
results = {n: session.run(None, {"x": np.full((n, 8), 1 / (n + 1), np.float32)}) for n in (1, 7, 64, 3)}
