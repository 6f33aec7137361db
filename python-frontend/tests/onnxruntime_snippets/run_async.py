# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A run that calls back."""
import threading

import numpy as np
import onnxruntime as ort

session = ort.InferenceSession("affine.onnx")
done, seen = threading.Event(), {}


def callback(outputs, user_data, error):
    seen.update(outputs=outputs, user_data=user_data, error=error)
    done.set()


session.run_async(None, {"x": np.ones((2, 8), np.float32)}, callback, "mine")
assert done.wait(60)
results = seen
