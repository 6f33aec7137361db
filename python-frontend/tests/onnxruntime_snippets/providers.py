# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Providers by name, and with options."""
import numpy as np
import onnxruntime as ort

session = ort.InferenceSession(
    "affine.onnx", providers=[("CPUExecutionProvider", {"arena_extend_strategy": "kSameAsRequested"})])
results = {
    "has": "CPUExecutionProvider" in ort.get_available_providers(),
    "providers": session.get_providers(),
    "device": ort.get_device(),
    "outputs": session.run(None, {"x": np.ones((1, 8), np.float32)}),
}
