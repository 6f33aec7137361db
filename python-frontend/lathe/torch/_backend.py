# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""torch.compile(backend="lathe"): one engine for each graph that dynamo finds, of any of its sizes.

Parameters are inputs of the graphs, so that what changes them is seen by the next call. CPU only.
"""
from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from .. import _compiler
from .._errors import Code, Error
from ._fallback import Partitioned, refused
from ._graph import ready, write
from ._passes import Pass, applied

_MOST_ENGINES = 8  # of one graph, whose numbers take so many values


class LeftToTorch(UserWarning):
    """What torch runs itself: a graph that shall be differentiated, numbers that take ever new values, or with
    `fallback` operators that lathe does not have."""


def _without_sizes(module: Any) -> tuple[Any, list[int]]:
    """The graph with sizes taken from its tensors, where dynamo gives them as arguments of their own, and
    the places of the arguments that are left."""
    graph = module.graph
    places = [node for node in graph.nodes if node.op == "placeholder"]
    tensors = [node for node in places if isinstance(node.meta.get("example_value"), torch.Tensor)]
    kept = []
    for at, node in enumerate(places):
        if node in tensors:
            kept.append(at)
            continue
        size = node.meta.get("example_value")
        found = next(((t, d) for t in tensors for d, have in enumerate(t.meta["example_value"].shape)
                      if isinstance(size, torch.SymInt) and isinstance(have, torch.SymInt)
                      and have.node.expr == size.node.expr), None)
        if found is None and node.users:
            raise Error(Code.UNSUPPORTED, f"it is {type(size).__name__}, no tensor and no size of one",
                        f"argument '{node.name}'")
        if found is not None and node.users:
            with graph.inserting_before(next(n for n in graph.nodes if n.op != "placeholder")):
                node.replace_all_uses_with(graph.call_function(torch.ops.aten.sym_size.int, found))
        graph.erase_node(node)
    module.recompile()
    return module, kept


def _numbers(module: Any) -> list[int]:
    """The places of arguments that are a number of Python (the epsilon of a norm), which dynamo gives as a tensor
    where sizes are dynamic."""
    places = [node for node in module.graph.nodes if node.op == "placeholder"]
    return [at for at, node in enumerate(places) if getattr(node.meta.get("grapharg"), "pass_arg_as_tensor", False)
            and all(user.op == "call_method" and user.target == "item" for user in node.users)]


def _replace(node: Any, operand: Any, value: Any) -> None:
    """A constant in the place of an operand."""
    node.args, node.kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: value if n is operand else n)


def _with_numbers(module: Any, values: Mapping[int, Any]) -> Any:
    """A graph of its own in which the arguments at these places are constants."""
    module = torch.fx.GraphModule(module, _copy(module.graph))
    places = [node for node in module.graph.nodes if node.op == "placeholder"]
    for at, value in values.items():
        for item in list(places[at].users):
            for reader in list(item.users):
                _replace(reader, item, value)
            module.graph.erase_node(item)
        module.graph.erase_node(places[at])
    module.recompile()
    return module


class Compiled:
    """A graph of dynamo; compiled when it is first called.

    `fx_passes`: functions over the graph of torch's operators (lathe.torch.tanh_gelu and others).
    `fallback`: operators that lathe does not have are left to torch, with a warning that names them and an engine
    for each part between them; without it they are an error, all of them at once.
    """

    def __init__(self, module: Any, *, fx_passes: Sequence[Pass] = (), fallback: bool = False) -> None:
        if list(module.parameters()) or list(module.buffers()):
            raise Error(Code.UNSUPPORTED, "the graph holds parameters, which could change: "
                        "torch._dynamo.config.inline_inbuilt_nn_modules must be on")
        self._eager = module
        self._module, self._kept = _without_sizes(torch.fx.GraphModule(module, _copy(module.graph)))
        self._numbers = _numbers(self._module)
        self._passes, self._fallback = list(fx_passes), fallback
        self._engines: dict[tuple[Any, ...], Callable[[Sequence[Any]], tuple[Any, ...]]] = {}
        self._lock = threading.Lock()

    def __call__(self, *args: Any) -> Any:
        given = [args[at] for at in self._kept]
        if torch.is_grad_enabled() and any(a.requires_grad for a in given):
            warnings.warn("lathe does not differentiate: torch runs this graph; call the module inside "
                          "torch.no_grad()", LeftToTorch, stacklevel=2)
            return self._eager(*args)
        if any(a.device.type != "cpu" for a in given):
            raise Error(Code.UNSUPPORTED, "an argument is not on the CPU", "torch.compile(backend='lathe')")
        values = tuple(given[at].item() for at in self._numbers)
        with self._lock:  # a context is used by one thread at a time
            run = self._engines.get(values)
            if run is None and len(self._engines) < _MOST_ENGINES:
                run = self._engines[values] = self._compile(given, dict(zip(self._numbers, values)))
            if run is not None:
                return run([a.detach() for at, a in enumerate(given) if at not in self._numbers])
        warnings.warn(f"numbers of this graph take more than {_MOST_ENGINES} values, each of which needs an engine: "
                      "torch runs it; give them as tensors", LeftToTorch, stacklevel=2)
        return self._eager(*args)

    def _compile(self, given: Sequence[torch.Tensor],
                 numbers: Mapping[int, Any]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
        module = _with_numbers(self._module, numbers)
        given = [a for at, a in enumerate(given) if at not in numbers]
        places = [node for node in module.graph.nodes if node.op == "placeholder"]
        sizes = [{d: torch.export.Dim.AUTO for d, have in enumerate(node.meta["example_value"].shape)
                  if isinstance(have, torch.SymInt)} for node in places]
        try:
            program = torch.export.export(module, tuple(given), dynamic_shapes=tuple(sizes))
        except Exception as problem:
            raise Error(Code.UNSUPPORTED, f"torch.export does not take the graph: {problem}") from problem
        program = applied(ready(program), self._passes)
        try:
            context = _compiler.compile_graph(write(program)).context()
        except Error as error:
            left = refused(error) if self._fallback else {}
            if not left:
                raise
            parts = Partitioned(program, set(left))
            warnings.warn(f"torch runs {len(left)} operators that lathe does not have, between {parts.engines} "
                          "engines:" + "".join(f"\n  {name}: {why}" for name, why in left.items()),
                          LeftToTorch, stacklevel=4)
            return parts.run
        return lambda tensors: tuple(torch.utils.dlpack.from_dlpack(r) for r in context.run(tensors).values())


def _copy(graph: Any) -> Any:
    """A graph of its own, with the examples of the nodes."""
    copied = torch.fx.Graph()
    values: dict[Any, Any] = {}
    result = copied.graph_copy(graph, values)
    copied.output(result)
    return copied


def backend(module: Any, example_inputs: Sequence[Any], options: Mapping[str, Any] | None = None) -> Compiled:
    """What torch.compile calls for each graph; `options` are those of Compiled:
    torch.compile(module, backend="lathe", options={"fallback": True})."""
    unknown = set(options or {}) - {"fx_passes", "fallback"}
    if unknown:
        raise Error(Code.USAGE, f"there is no option {', '.join(sorted(unknown))}; there are fx_passes and fallback",
                    "torch.compile(backend='lathe')")
    return Compiled(module, **(options or {}))


torch._dynamo.register_backend(backend, name="lathe")
