# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""torch.compile(backend="lathe"): one engine for each graph that dynamo finds, of any of its sizes.

Parameters are inputs of the graphs, so that what changes them is seen by the next call. On the CPU engines keep
packed copies of them, which are made again when they change (_parameters.py). The device is that of the
arguments: the CPU, or a GPU, whose memory is read and written in place.
"""
from __future__ import annotations

import re
import threading
import warnings
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._sympy.functions import Mod, PythonMod

from .. import _compiler
from .._context import Context
from .._errors import Code, Error
from ._arguments import Changing, Run, negated
from ._call import Call, device_of, target_of
from ._export import traced
from ._fallback import Partitioned, refused
from ._graph import ready, write
from ._parameters import Parameters, is_parameter
from ._passes import Pass, applied
from ._sizes import sympy

_MOST_ENGINES = 8  # of one graph, whose numbers and fixed sizes take so many values


class LeftToTorch(UserWarning):
    """What torch runs itself: a graph that shall be differentiated, numbers that take ever new values, or with
    `fallback` operators that lathe does not have."""


def _without_sizes(module: Any) -> tuple[Any, list[int]]:
    """The graph with sizes taken from its tensors, where dynamo gives them as arguments of their own, and
    the places of the arguments that are left: tensors, and integers that are no size of one."""
    graph = module.graph
    places = graph.find_nodes(op="placeholder")
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
        if found is None and node.users and isinstance(size, torch.SymInt):
            kept.append(at)
            continue
        if found is None and node.users:
            raise Error(Code.UNSUPPORTED, f"it is {type(size).__name__}, no tensor and no size of one",
                        f"argument '{node.name}'")
        if found is not None and node.users:
            with graph.inserting_before(next(n for n in graph.nodes if n.op != "placeholder")):
                node.replace_all_uses_with(graph.call_function(torch.ops.aten.sym_size.int, found))
        graph.erase_node(node)
    module.recompile()
    return module, kept


def _varies(size: Any) -> bool:
    """Whether a size is no number. What the module asked of a size while dynamo traced it (`if height != 64: raise`)
    makes a symbol a number, and is not in the graph: torch.export would take it for a symbol again."""
    return isinstance(size, torch.SymInt) and not size.node.expr.is_Integer


def _varying(module: Any) -> list[tuple[int, int]]:
    """The sizes of arguments that vary: (place of the argument, axis)."""
    places = module.graph.find_nodes(op="placeholder")
    return [(at, d) for at, node in enumerate(places) if isinstance(node.meta["example_value"], torch.Tensor)
            for d, have in enumerate(node.meta["example_value"].shape) if _varies(have)]


def _guards(sizes: Iterable[Any]) -> list[Any]:
    """What the module asked of these sizes while dynamo traced it, as expressions of sympy."""
    return [env.replace(guard.expr) for env in {size.shape_env for size in sizes} for guard in env.guards]


def _decided(module: Any, varying: Iterable[tuple[int, int]]) -> set[tuple[int, int]]:
    """The sizes of which each value has an engine, because torch.export would not find what follows from them:

    - those of which the module asks that a formula of them is a number, as `(height // 16) ** 2 == 16` where it adds
      as many embeddings;
    - heights and widths that it flattens: torch.export takes minutes for their products and what is cut from them.
    """
    places = module.graph.find_nodes(op="placeholder")
    sizes = {(at, d): places[at].meta["example_value"].shape[d].node for at, d in varying}
    outer = {symbol for (_, d), size in sizes.items() if d < 2 for symbol in size.expr.free_symbols}
    symbols: set[Any] = set()
    for asked in _guards(sizes.values()):
        if asked.func.__name__ == "Equality" and not asked.atoms(Mod, PythonMod) and any(
                side.is_Integer for side in asked.args):
            symbols |= asked.free_symbols
        for product in asked.atoms(sympy.Mul, sympy.Pow):
            factors = product.args if product.is_Mul else (product.base, product.base)
            inner = [f for f in factors if f.free_symbols - outer]
            if len(inner) > 1:
                symbols |= set().union(*(f.free_symbols for f in inner)) - outer
    return {place for place, size in sizes.items() if size.expr.free_symbols & symbols}


def _numbers(module: Any) -> list[int]:
    """The places of arguments that are a number of Python: an integer, or the epsilon of a norm, which dynamo gives as
    a tensor where sizes are dynamic."""
    places = module.graph.find_nodes(op="placeholder")
    def is_number(node: Any) -> bool:
        return not isinstance(node.meta["example_value"], torch.Tensor) or (
            getattr(node.meta.get("grapharg"), "pass_arg_as_tensor", False) and
            all(user.op == "call_method" and user.target == "item" for user in node.users))
    return [at for at, node in enumerate(places) if is_number(node)]


def _replace(node: Any, operand: Any, value: Any) -> None:
    """A constant in the place of an operand."""
    node.args, node.kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: value if n is operand else n)


def _with_numbers(module: Any, values: Mapping[int, Any]) -> Any:
    """A graph of its own in which the arguments at these places are constants."""
    module = torch.fx.GraphModule(module, _copy(module.graph))
    places = module.graph.find_nodes(op="placeholder")
    for at, value in values.items():
        for item in list(places[at].users):
            if not isinstance(places[at].meta["example_value"], torch.Tensor):
                _replace(item, places[at], value)
                continue
            for reader in list(item.users):
                _replace(reader, item, value)
            module.graph.erase_node(item)
        module.graph.erase_node(places[at])
    module.recompile()
    return module


class FixedSizes(UserWarning):
    """Sizes that may vary, but of which each value has an engine of its own."""


class Compiled:
    """A graph of dynamo; compiled when it is first called.

    `fx_passes`: functions over the graph of torch's operators (lathe.torch.tanh_gelu and others).
    `fallback`: operators that lathe does not have are left to torch, with a warning that names them and an engine
    for each part between them; without it they are an error, all of them at once.
    `prepare`: on the CPU what follows from parameters alone is kept until they change, packed weights above all. It
    takes memory (`prepared_bytes`), and time in each call behind a change. Without it they are read as they lie.
    """

    def __init__(self, module: Any, *, fx_passes: Sequence[Pass] = (), fallback: bool = False,
                 prepare: bool = True) -> None:
        if list(module.parameters()) or list(module.buffers()):
            raise Error(Code.UNSUPPORTED, "the graph holds parameters, which could change: "
                        "torch._dynamo.config.inline_inbuilt_nn_modules must be on")
        self._eager = module
        self._module, self._kept = _without_sizes(torch.fx.GraphModule(module, _copy(module.graph)))
        self._numbers = _numbers(self._module)
        self._varying = _varying(self._module)
        self._fixed = _decided(self._module, self._varying)  # sizes of which each value has an engine
        self._passes, self._fallback, self._prepare = list(fx_passes), fallback, prepare
        # What of the arguments is a parameter. Sizes that vary are no parameter's.
        self._parameters = {at for at, node in enumerate(self._module.graph.find_nodes(op="placeholder"))
                            if is_parameter(node) and not any(map(_varies, node.meta["example_value"].shape))}
        self._engines: dict[tuple[Any, ...], Run] = {}
        self._lock = threading.Lock()
        _COMPILED.add(self)

    def __call__(self, *args: Any) -> Any:
        given = [args[at] for at in self._kept]
        if torch.is_grad_enabled() and any(isinstance(a, torch.Tensor) and a.requires_grad for a in given):
            warnings.warn("lathe does not differentiate: torch runs this graph; call the module inside "
                          "torch.no_grad()", LeftToTorch, stacklevel=2)
            return self._eager(*args)
        numbers = {at: given[at].item() if isinstance(given[at], torch.Tensor) else given[at] for at in self._numbers}
        with self._lock:  # a context is used by one thread at a time
            run = self._engines.get(self._key(given, numbers))
            if run is None and len(self._engines) < _MOST_ENGINES:
                run = self._compile(given, numbers)
                self._engines[self._key(given, numbers)] = run
            if run is not None:
                return run([a for at, a in enumerate(given) if at not in self._numbers])
        what = "fixed sizes" if self._fixed else "numbers"
        warnings.warn(f"{what} of this graph take more than {_MOST_ENGINES} values, each of which needs an engine: "
                      "torch runs it" + ("" if self._fixed else "; give them as tensors"), LeftToTorch, stacklevel=2)
        return self._eager(*args)

    @property
    def contexts(self) -> list[Context]:
        """The contexts of its engines, which count what they copy (`Context.counters`)."""
        return [call.context for call in self._calls()]

    @property
    def prepared_bytes(self) -> int:
        """Memory of what its engines have made of parameters, beside the parameters' own."""
        return sum(p.bytes for p in self._made())

    def refresh(self) -> None:
        """Lets the next call make anew what is made of parameters."""
        with self._lock:
            for parameters in self._made():
                parameters.forget()

    def _made(self) -> list[Parameters]:
        return [call.parameters for call in self._calls() if call.parameters]

    def _calls(self) -> list[Call]:
        runs = [run.run if isinstance(run, Changing) else run for run in self._engines.values()]
        return [run for run in runs if isinstance(run, Call)]

    def _key(self, given: Sequence[torch.Tensor], numbers: Mapping[int, Any]) -> tuple[Any, ...]:
        return (*numbers.values(), *(given[at].shape[d] for at, d in sorted(self._fixed)))

    def _compile(self, given: Sequence[torch.Tensor],
                 numbers: Mapping[int, Any]) -> Run:
        """An engine for any size that varies and is not fixed. Where a size is in the way of an operator (heads of
        attention that follow from the height of an image), all sizes but the first of each argument are fixed."""
        try:
            return self._compile_for(given, numbers)
        except Error as error:
            inner = {(at, d) for at, d in self._varying if d > 0}
            if inner <= self._fixed or not about_sizes(error):
                raise
            self._engines.clear()  # their keys have other sizes
            before, self._fixed = self._fixed, self._fixed | inner
            try:
                run = self._compile_for(given, numbers)
            except Error:
                self._fixed = before
                raise error from None
            warnings.warn("an engine for each size of the inner axes of this graph, because: "
                          f"{str(error).splitlines()[0]}", FixedSizes, stacklevel=4)
            return run

    def _compile_for(self, given: Sequence[torch.Tensor],
                     numbers: Mapping[int, Any]) -> Run:
        module = _with_numbers(self._module, numbers)
        free = [set() if at in numbers else {d for a, d in self._varying if a == at and (a, d) not in self._fixed}
                for at in range(len(given))]
        sizes = [dict.fromkeys(axes, torch.export.Dim.AUTO) for at, axes in enumerate(free) if at not in numbers]
        kept = self._parameters if self._prepare else ()
        parameters = [at in kept and not a.is_inference() and not a.is_neg() for at, a in enumerate(given)
                      if at not in numbers]
        given = [a for at, a in enumerate(given) if at not in numbers]
        try:
            program = traced(module, tuple(given), dynamic_shapes=tuple(sizes))
        except Exception as problem:
            raise Error(Code.UNSUPPORTED, f"torch.export does not take the graph: {problem}") from problem
        program = applied(ready(program), self._passes)
        device = device_of(given)
        graph = write(program, may_change=True, equal=self._equal(program, numbers))
        places = [graph.inputs.index(name) for name in graph.changed]
        names = []
        if device.type == "cpu":
            names = [name for name, is_one in zip(graph.inputs, parameters) if is_one and name not in graph.changed]

        def around(run: Run) -> Run:  # dynamo's guards know the bits of signs
            run = negated(run, [at for at, a in enumerate(given) if a.is_neg()])
            return Changing(run, places) if places else run

        try:
            engine = _compiler.compile_graph(graph, pairs=[("target", target_of(device)),
                                                           *(("parameter", name) for name in names)])
        except Error as error:
            left = refused(error) if self._fallback else {}
            if not left:
                raise
            parts = Partitioned(program, set(left), device)
            warnings.warn(f"torch runs {len(left)} operators that lathe does not have, between {parts.engines} "
                          "engines:" + "".join(f"\n  {name}: {why}" for name, why in left.items()),
                          LeftToTorch, stacklevel=4)
            return around(parts.run)
        return around(Call(engine, device, graph.inputs, names))

    def _equal(self, program: Any, numbers: Mapping[int, Any]) -> dict[Any, Any]:
        """Symbols of the program and the one that each equals. Dynamo has one symbol for sizes that it guards to be
        equal, as the lengths of keys and values; torch.export has one for each size, unless an operator asks."""
        found: dict[Any, Any] = {}
        equal: dict[Any, Any] = {}
        places = [node for at, node in enumerate(self._module.graph.find_nodes(op="placeholder")) if at not in numbers]
        exported = program.graph.find_nodes(op="placeholder")[-len(places):] if places else []
        for ours, theirs in zip(places, exported):
            for size, symbol in zip(ours.meta["example_value"].shape, theirs.meta["val"].shape):
                if _varies(size) and isinstance(symbol, torch.SymInt) and symbol.node.expr.is_Symbol:
                    first = found.setdefault(size.node.expr, symbol.node.expr)
                    if first != symbol.node.expr:
                        equal[symbol.node.expr] = first
        return equal


def about_sizes(error: Error) -> bool:
    """Whether a shape is what the compiler refused."""
    return re.search(r"\): (invalid|unsupported) shape: ", str(error)) is not None


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
    unknown = set(options or {}) - {"fx_passes", "fallback", "prepare"}
    if unknown:
        raise Error(Code.USAGE, f"there is no option {', '.join(sorted(unknown))}; there are fx_passes, fallback and "
                    "prepare",
                    "torch.compile(backend='lathe')")
    return Compiled(module, **(options or {}))


_COMPILED: weakref.WeakSet[Compiled] = weakref.WeakSet()


def refresh() -> None:
    """Lets the next calls of all compiled graphs make anew what they keep of parameters: behind writes into a few
    elements that torch does not count, as those through `parameter.data` or an array of numpy."""
    for compiled in list(_COMPILED):
        compiled.refresh()


torch._dynamo.register_backend(backend, name="lathe")
