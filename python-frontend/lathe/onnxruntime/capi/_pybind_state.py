# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Names that programs import from onnxruntime.capi._pybind_state."""
from .onnxruntime_pybind11_state import *  # noqa: F403
from .onnxruntime_pybind11_state import __all__

__all__ = list(__all__)
