# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""onnxruntime's interface over lathe: programs run with one import changed.

    import lathe.onnxruntime as ort

or, for packages that import onnxruntime themselves, before they do:

    import lathe.onnxruntime
    lathe.onnxruntime.install()

What onnxruntime has and lathe has not is ignored with one warning each (`IgnoredOption`), or an error
with strict=True. Models are compiled when the session is made.
"""
from __future__ import annotations

import importlib
import sys

from .. import __version__ as _lathe_version
from ._binding import IOBinding, SessionIOBinding
from ._errors import (
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
    OrtError,
    RuntimeException,
)
from ._options import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    IgnoredOption,
    RunOptions,
    SessionOptions,
    ignore,
)
from ._providers import get_all_providers, get_available_providers
from ._session import InferenceSession, Specialized
from ._values import ModelMetadata, NodeArg, OrtDevice, OrtValue

# The interface that this is: packages ask for at least one of onnxruntime's versions.
__version__ = "1.31.0"
version = __version__


def get_version_string() -> str:
    return __version__


def get_build_info() -> str:
    return f"lathe {_lathe_version} with the interface of onnxruntime {__version__}"


def get_device() -> str:
    """"GPU" where there is one."""
    return "GPU" if len(get_available_providers()) > 1 else "CPU"


def set_default_logger_severity(level: int) -> None:
    ignore("set_default_logger_severity", InferenceSession.strict)


def set_default_logger_verbosity(level: int) -> None:
    ignore("set_default_logger_verbosity", InferenceSession.strict)


def set_seed(seed: int) -> None:
    ignore("set_seed", InferenceSession.strict)


def disable_telemetry_events() -> None:
    """There are none."""


def enable_telemetry_events() -> None:
    ignore("enable_telemetry_events", InferenceSession.strict)


def install(strict: bool = False) -> None:
    """Stands in for `onnxruntime`: whoever imports it from now on gets this module.

    What has imported the real one already keeps it. `strict` becomes the default of sessions.
    """
    InferenceSession.strict = strict
    name = __name__
    for part in ("", ".capi", ".capi.onnxruntime_pybind11_state", ".capi._pybind_state",
                 ".capi.onnxruntime_inference_collection"):
        sys.modules["onnxruntime" + part] = importlib.import_module(name + part)


def uninstall() -> None:
    """Takes `install` back, for those who import from now on."""
    for module in [m for m in sys.modules if m == "onnxruntime" or m.startswith("onnxruntime.")]:
        if sys.modules[module].__name__.startswith(__name__):
            del sys.modules[module]
    InferenceSession.strict = False


__all__ = [
    "EPFail", "EngineError", "ExecutionMode", "ExecutionOrder", "Fail", "GraphOptimizationLevel",
    "IOBinding", "IgnoredOption", "InferenceSession", "InvalidArgument", "InvalidGraph",
    "InvalidProtobuf", "ModelLoaded", "ModelMetadata", "NoModel", "NoSuchFile", "NodeArg",
    "NotImplemented", "OrtDevice", "OrtError", "OrtValue", "RunOptions", "RuntimeException",
    "SessionIOBinding", "SessionOptions", "Specialized", "__version__", "disable_telemetry_events",
    "enable_telemetry_events", "get_all_providers", "get_available_providers", "get_build_info",
    "get_device", "get_version_string", "install", "set_default_logger_severity",
    "set_default_logger_verbosity", "set_seed", "uninstall", "version"]
