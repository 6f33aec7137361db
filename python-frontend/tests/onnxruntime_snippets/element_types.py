# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors of other types, scalars, booleans and lists."""
import numpy as np
import onnxruntime as ort

session = ort.InferenceSession("types.onnx")
feed = {
    "half": np.array([0.5, -2], np.float16), "double": np.array([1e-300, 3.0]),
    "long": np.array([1 << 40, -7]), "byte": np.array([200, 3], np.uint8),
    "flag": np.array([True, False]), "scalar": np.array(2.5, np.float32),
}
outputs = session.run(None, feed)
results = {"outputs": outputs, "dtypes": [str(o.dtype) for o in outputs], "scalar": type(outputs[-1]).__name__}
