# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Names that programs import from onnxruntime.capi.onnxruntime_inference_collection."""
from .._binding import IOBinding
from .._session import InferenceSession
from .._values import OrtDevice, OrtValue

__all__ = ["IOBinding", "InferenceSession", "OrtDevice", "OrtValue"]
