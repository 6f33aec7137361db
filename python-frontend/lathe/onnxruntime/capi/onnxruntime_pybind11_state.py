# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Names that programs import from onnxruntime.capi.onnxruntime_pybind11_state."""
from .._binding import SessionIOBinding
from .._errors import (
    EngineError,
    EPFail,
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    ModelLoaded,
    NoModel,
    NoSuchFile,
    NotImplemented,  # noqa: A004
    RuntimeException,
)
from .._options import ExecutionMode, ExecutionOrder, GraphOptimizationLevel, RunOptions, SessionOptions
from .._providers import get_all_providers, get_available_providers
from .._values import ModelMetadata, NodeArg, OrtDevice, OrtValue

__all__ = [
    "EPFail", "EngineError", "ExecutionMode", "ExecutionOrder", "Fail", "GraphOptimizationLevel",
    "InvalidArgument", "InvalidGraph", "InvalidProtobuf", "ModelLoaded", "ModelMetadata", "NoModel",
    "NoSuchFile", "NodeArg", "NotImplemented", "OrtDevice", "OrtValue", "RunOptions", "RuntimeException",
    "SessionIOBinding", "SessionOptions", "get_all_providers", "get_available_providers"]
