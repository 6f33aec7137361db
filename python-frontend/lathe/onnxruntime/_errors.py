# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""onnxruntime's exceptions, which stand for lathe's."""
from __future__ import annotations

from .._errors import Code, Error


class OrtError(RuntimeError):
    """What all of these are; `error` is lathe's own, where there is one."""

    error: Error | None = None


class Fail(OrtError):
    pass


class InvalidArgument(OrtError):
    pass


class NoSuchFile(OrtError):
    pass


class NoModel(OrtError):
    pass


class EngineError(OrtError):
    pass


class RuntimeException(OrtError):
    pass


class InvalidProtobuf(OrtError):
    pass


class ModelLoaded(OrtError):
    pass


class NotImplemented(OrtError):  # noqa: A001 (onnxruntime's name)
    pass


class InvalidGraph(OrtError):
    pass


class EPFail(OrtError):
    pass


KINDS: dict[Code, type[OrtError]] = {
    Code.USAGE: InvalidArgument, Code.INVALID: InvalidGraph, Code.UNSUPPORTED: NotImplemented,
    Code.RUNTIME_FAILURE: RuntimeException, Code.INTERNAL: EngineError, Code.DEADLINE: RuntimeException,
    Code.CANCELLED: RuntimeException}


def of(error: Error, kind: type[OrtError] | None = None) -> OrtError:
    """The exception that a program written for onnxruntime expects in the place of lathe's."""
    made = (kind or KINDS[error.code])(str(error))
    made.error = error
    return made
