# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models of torch as ONNX, through torch.onnx."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from .._errors import Code, Error

STACK_TRACE = "pkg.torch.onnx.stack_trace"  # metadata of a node: the lines of Python that made it


def to_onnx(model: Any, args: Sequence[Any] | None, kwargs: Mapping[str, Any] | None,
            dynamic_shapes: Any) -> Any:
    """The ModelProto of a module with `args`, or of an ExportedProgram."""
    exported = isinstance(model, torch.export.ExportedProgram)
    if exported and (args is not None or kwargs is not None or dynamic_shapes is not None):
        raise Error(Code.USAGE, "an ExportedProgram has its arguments and sizes already")
    if not exported and args is None and kwargs is None:
        raise Error(Code.USAGE, "a torch.nn.Module is traced with arguments: "
                    "lathe.compile(module, args=(x,))")
    if not exported and not isinstance(model, torch.nn.Module):
        raise Error(Code.USAGE, "a model of torch is a torch.nn.Module or an ExportedProgram, not "
                    f"{type(model).__name__}")
    try:
        if exported:
            program = torch.onnx.export(model, dynamo=True, verbose=False)
        else:
            program = torch.onnx.export(model, tuple(args or ()), kwargs=dict(kwargs or {}),
                                        dynamic_shapes=dynamic_shapes, dynamo=True, verbose=False)
    except Exception as problem:
        raise Error(Code.UNSUPPORTED, f"torch.onnx does not export it: {problem}",
                    type(model).__name__) from problem
    if program is None:
        raise Error(Code.INTERNAL, "torch.onnx gave nothing", type(model).__name__)
    return program.model_proto


def with_source(error: Error, model: Any) -> Error:
    """The error with the lines of Python that made its node, where the ModelProto knows them."""
    for node in model.graph.node:
        if error.node and node.name == error.node:
            for pair in node.metadata_props:
                if pair.key == STACK_TRACE and pair.value.strip():
                    return Error(error.code, error.message, error.location, pair.value.rstrip())
    return error
