# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models of torch as an ExportedProgram and as ONNX."""
from __future__ import annotations

import ast
import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from .._errors import Code, Error
from ._graph import Graph, write
from ._passes import Pass

# Metadata of a node: the paths of the modules around it and, last, its own name, as a list of Python.
NAME_SCOPES = "pkg.torch.onnx.name_scopes"
STACK_TRACE = "pkg.torch.onnx.stack_trace"  # metadata of a node: the lines of Python that made it


def _check(model: Any, args: Sequence[Any] | None, kwargs: Mapping[str, Any] | None, dynamic_shapes: Any) -> bool:
    """Whether the model is exported already; a Usage error where the arguments do not fit."""
    exported = isinstance(model, torch.export.ExportedProgram)
    if exported and (args is not None or kwargs is not None or dynamic_shapes is not None):
        raise Error(Code.USAGE, "an ExportedProgram has its arguments and sizes already")
    if not exported and args is None and kwargs is None:
        raise Error(Code.USAGE, "a torch.nn.Module is traced with arguments: "
                    "lathe.compile(module, args=(x,))")
    if not exported and not isinstance(model, torch.nn.Module):
        raise Error(Code.USAGE, "a model of torch is a torch.nn.Module or an ExportedProgram, not "
                    f"{type(model).__name__}")
    return exported


def traced(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, **options: Any) -> Any:
    """torch.export.export, inside of which Python's collector of cycles does not run: a trace makes many objects and
    keeps most of them, which the collector visits again and again, a seventh of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return torch.export.export(model, args, kwargs, **options)
    finally:
        if was_enabled:
            gc.enable()


def _leaves(value: Any, sizes: Any) -> Iterator[Any]:
    """What `sizes` says of each leaf of an argument, in torch's order."""
    if isinstance(value, (list, tuple)):
        for at, inner in enumerate(value):
            yield from _leaves(inner, sizes[at] if isinstance(sizes, (list, tuple)) and at < len(sizes) else None)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, sizes.get(key) if isinstance(sizes, Mapping) else None)
    else:
        yield sizes


def _dimension_names(program: Any, args: Sequence[Any], kwargs: Mapping[str, Any], sizes: Any) -> dict[Any, str]:
    """The user's names of symbols: those of the torch.export.Dim in dynamic_shapes."""
    if isinstance(sizes, Mapping):
        given = list(sizes.values())
    else:
        given = list(sizes or ())
    leaves = [leaf for value, size in zip([*args, *kwargs.values()], given) for leaf in _leaves(value, size)]
    kinds = program.graph_signature.input_specs
    places = [n for n in program.graph.nodes if n.op == "placeholder"]
    user = [n for n, spec in zip(places, kinds) if spec.kind is torch.export.graph_signature.InputKind.USER_INPUT]
    names: dict[Any, str] = {}
    for node, leaf in zip(user, leaves):
        listed = enumerate(leaf) if isinstance(leaf, (list, tuple)) else ()
        pairs = leaf.items() if isinstance(leaf, Mapping) else listed
        for axis, dim in pairs:
            name = getattr(dim, "__name__", None)
            size = node.meta["val"].shape[axis] if isinstance(node.meta.get("val"), torch.Tensor) else None
            if name and isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                names.setdefault(size.node.expr, name)
    return names


def to_graph(model: Any, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None,
             dynamic_shapes: Any = None, passes: Iterable[Pass] = ()) -> Graph:
    """The graph of a module with `args`, or of an ExportedProgram, in the dialect aten, after `passes`."""
    if _check(model, args, kwargs, dynamic_shapes):
        return write(model, passes=passes)
    try:
        program = traced(model, tuple(args or ()), dict(kwargs or {}), dynamic_shapes=dynamic_shapes)
    except Exception as problem:
        raise Error(Code.UNSUPPORTED, f"torch.export does not take it: {problem}", type(model).__name__) from problem
    return write(program, _dimension_names(program, args or (), kwargs or {}, dynamic_shapes), passes)


def to_onnx(model: Any, args: Sequence[Any] | None, kwargs: Mapping[str, Any] | None,
            dynamic_shapes: Any) -> Any:
    """The ModelProto of a module with `args`, or of an ExportedProgram."""
    exported = _check(model, args, kwargs, dynamic_shapes)
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
    return _with_module_paths(program.model_proto)


def _with_module_paths(model: Any) -> Any:
    """The ModelProto with the path of its module ahead of each node's name, so that kernels say what they compute."""
    for node in model.graph.node:
        for pair in node.metadata_props:
            if pair.key == NAME_SCOPES:
                try:
                    modules = ast.literal_eval(pair.value)[:-1]
                except (SyntaxError, ValueError, TypeError):  # torch writes it for people
                    continue
                if modules and modules[-1]:
                    node.name = f"{modules[-1]}/{node.name}"
    return model


def with_source(error: Error, model: Any) -> Error:
    """The error with the lines of Python that made its node, where the ModelProto knows them."""
    for node in model.graph.node:
        if error.node and node.name == error.node:
            for pair in node.metadata_props:
                if pair.key == STACK_TRACE and pair.value.strip():
                    return Error(error.code, error.message, error.location, pair.value.rstrip())
    return error
