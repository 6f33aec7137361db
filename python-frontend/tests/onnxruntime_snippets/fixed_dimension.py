# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A named axis becomes a fixed one."""
import numpy as np
import onnxruntime as ort

options = ort.SessionOptions()
options.add_free_dimension_override_by_name("N", 4)
session = ort.InferenceSession("affine.onnx", options)
results = {
    "shape": session.get_inputs()[0].shape,
    "outputs": session.run(None, {"x": np.ones((4, 8), np.float32)}),
}
