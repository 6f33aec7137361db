# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`export`: a model of transformers as an engine in one call, with the names that its forward has and for any of its
batches and lengths; a decoder also with its keys and values in pages, as serving wants it."""
from __future__ import annotations

import inspect
import math
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from .. import _compiler
from .._compiler import PathLike
from .._engine import Engine
from .._errors import Code, Error
from ._backend import FixedSizes, about_sizes
from ._export import traced
from ._fallback import refused
from ._graph import write

_Module: Any = torch.nn.Module  # whether mypy sees torch or not
_AUTO = torch.export.Dim.AUTO


def _named(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The tensors of an answer and their names, such as `logits`; caches, which are objects, are left out."""
    if isinstance(value, torch.Tensor):
        yield name or "output", value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _named(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, (list, tuple)):
        for at, inner in enumerate(value):
            yield from _named(inner, f"{name}.{at}" if name else f"output.{at}")


class _Plain(_Module):  # type: ignore[misc]
    """Tensors by position in, tensors out, of a model that takes keywords and gives an object."""

    def __init__(self, model: Any, names: Sequence[str]) -> None:
        super().__init__()
        self.model, self.names = model, list(names)
        takes = inspect.signature(model.forward).parameters
        self.fixed = {key: value for key, value in (("use_cache", False), ("return_dict", True)) if key in takes}

    def forward(self, *tensors: Any) -> dict[str, Any]:
        return dict(_named(self.model(**dict(zip(self.names, tensors)), **self.fixed)))


class _Step(_Module):  # type: ignore[misc]
    """Token ids, and a pair of keys and values for each layer in; logits and the pairs that are longer out."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Any, *past: Any) -> tuple[Any, ...]:
        from transformers import DynamicCache
        cache = DynamicCache()
        for layer, (keys, values) in enumerate(zip(past[::2], past[1::2])):
            cache.update(keys, values, layer)
        answer = self.model(input_ids=ids, past_key_values=cache, use_cache=True, return_dict=True)
        return (answer.logits, *(x for layer in answer.past_key_values.layers for x in (layer.keys, layer.values)))


def _axes(inputs: Mapping[str, Any]) -> list[dict[int, str]]:
    """Which axes vary, by the name of their size: the first of each tensor, and lengths, which are the second one of a
    matrix. Those of equal length in the examples are one size, but for a decoder's beside an encoder's."""
    lengths: dict[tuple[bool, int], str] = {}
    found = []
    for name, value in inputs.items():
        axes = {0: "batch"} if value.dim() else {}
        if value.dim() == 2:
            decoder = name.startswith("decoder_")
            base = "decoder_length" if decoder else "length"
            same = sum(kind == decoder for kind, _ in lengths)
            axes[1] = lengths.setdefault((decoder, value.shape[1]), f"{base}_{same}" if same else base)
        found.append(axes)
    return found


def _ways(axes: Sequence[Mapping[int, str]]) -> Iterator[tuple[str, bool, tuple[Any, ...]]]:
    """How torch.export is asked, one after another until it and lathe take the graph: (what it means, whether Python is
    traced by dynamo, dynamic_shapes)."""
    sizes = {name: torch.export.Dim(name, min=1) for name in dict.fromkeys(s for a in axes for s in a.values())}
    free = tuple(dict.fromkeys(a, _AUTO) for a in axes)
    yield "any sizes", False, tuple({axis: sizes[name] for axis, name in a.items()} for a in axes)
    yield "any sizes but 1", False, free
    yield "any sizes but 1", True, free
    yield "the example's lengths and any batch but 1", False, tuple({0: _AUTO} if a else {} for a in axes)
    yield "the example's sizes", False, tuple({} for _ in axes)


def _exported(module: Any, inputs: Sequence[Any], sizes: Any, strict: bool) -> Any:
    """The ExportedProgram, where need be with the bounds of sizes that torch suggests in its error (at most as many
    positions as are embedded)."""
    for last in (False, False, True):
        try:
            return traced(module, tuple(inputs), dynamic_shapes=sizes, strict=strict)
        except Exception as problem:
            if last:
                raise
            suggested = re.search(r"Suggested fixes:\n(  .*\n?)+", str(problem))
            if suggested is None:
                raise
            sizes = torch.export.dynamic_shapes.refine_dynamic_shapes_from_suggested_fixes(suggested[0], sizes)
    return None


def _worst(found: Mapping[str, Any], true: Mapping[str, Any]) -> float:
    """The largest difference over the largest value of a result."""
    worst = 0.0
    for name, value in true.items():
        mine = torch.from_numpy(found[name].numpy()) if value.numel() else value
        if value.numel():
            mine, wanted = mine.double(), value.double()
            scale = max(float(wanted.nan_to_num(0.0, 0.0, 0.0).abs().max()), 1e-30)
            same = (mine == wanted) | (mine.isnan() & wanted.isnan())
            # NaN where none is wanted is as far off as can be.
            off = torch.where(same, 0.0, (mine - wanted).abs()).nan_to_num(math.inf, math.inf)
            worst = max(worst, float(off.max()) / scale)
    return worst


def _compile(program: Any, inputs: Sequence[str], outputs: Sequence[str], output: PathLike | None,
             pairs: Sequence[tuple[str, Any]], remarks: bool, sizes: _Sizes) -> Engine:
    graph = write(program, sizes.names, equal=sizes.equal, inputs=inputs, outputs=outputs)
    return _compiler.compile_graph(graph, output, pairs, remarks)


class _Sizes:
    """What a program says of the sizes that were to vary, `axes` by input."""

    def __init__(self, program: Any, axes: Sequence[Mapping[int, str]]) -> None:
        self.names: dict[Any, str] = {}  # of symbols
        self.equal: dict[Any, Any] = {}  # symbols of one name, and the first of them
        self.fixed: dict[str, int] = {}  # what torch made a number of
        first: dict[str, Any] = {}
        for node, named in zip(program.graph.find_nodes(op="placeholder")[-len(axes):], axes):
            for axis, name in named.items():
                size = node.meta["val"].shape[axis]
                if not isinstance(size, torch.SymInt):
                    self.fixed[name] = int(size)
                elif size.node.expr.is_Symbol:
                    symbol = size.node.expr
                    if first.setdefault(name, symbol) != symbol:
                        self.equal[symbol] = first[name]
                    self.names.setdefault(symbol, name)


def export(model: Any, output: PathLike | None = None, *, inputs: Mapping[str, Any] | None = None, paged: bool = False,
           target: str = "native", tolerance: float | None = 1e-3, remarks: bool = False,
           options: Iterable[tuple[str, Any]] = ()) -> Engine:
    """An engine of a model of transformers, or of any module whose forward takes tensors by name and gives tensors or a
    dict, tuple or ModelOutput of them. Inputs and outputs have the names that the model has for them.

    inputs     examples by name, as a tokenizer or processor gives them: `tokenizer(texts, return_tensors="pt")`. Their
               first axis may have any size, and so may the second of matrices (lengths); two rows or more are wanted
    paged      of a decoder (`...ForCausalLM`), which needs no examples: the engine is for `engine.llm().generate()`,
               keys and values lie in pages, and a step takes tokens of many requests
    tolerance  where the engine runs on this CPU it is held against the model, on the examples: more is an error. None:
               it is not
    output, target, remarks, options   as of lathe.compile

    Where torch.export or lathe does not take the model for any size, others are tried, down to those of the examples,
    with a warning FixedSizes that says why; if none is taken, the error has the reasons of all.
    """
    pairs = [("target", target), *options]
    if not isinstance(model, torch.nn.Module):
        raise Error(Code.USAGE, f"a model is a torch.nn.Module, not {type(model).__name__}")
    if model.training:
        raise Error(Code.USAGE, "it is in training mode: call model.eval()", type(model).__name__)
    with torch.no_grad():
        if paged:
            if inputs is not None:
                raise Error(Code.USAGE, "with paged=True the inputs are token ids: no examples are taken")
            return _paged(model, output, pairs, tolerance if target == "native" else None, remarks)
        if not inputs or not all(isinstance(value, torch.Tensor) for value in inputs.values()):
            raise Error(Code.USAGE, "a model is traced with examples, tensors by name: inputs={\"input_ids\": ids}",
                        type(model).__name__)
        return _plain(model, dict(inputs), output, pairs, tolerance if target == "native" else None, remarks)


def _plain(model: Any, inputs: dict[str, Any], output: PathLike | None, pairs: Sequence[tuple[str, Any]],
           tolerance: float | None, remarks: bool) -> Engine:
    plain, axes = _Plain(model, list(inputs)), _axes(inputs)
    try:
        true = plain(*inputs.values())
    except Exception as problem:
        raise Error(Code.USAGE, f"the model does not run on the examples: {problem}", type(model).__name__) from problem
    whys: list[str] = []
    for what, strict, sizes in _ways(axes):
        try:
            program = _exported(plain, list(inputs.values()), (sizes,), strict)
        except Exception as problem:
            whys.append(f"{what}: torch.export: {str(problem).strip().splitlines()[0]}")
            continue
        found = _Sizes(program, axes)
        try:
            engine = _compile(program, list(inputs), list(true), output, pairs, remarks, found)
        except Error as error:
            if refused(error) and not about_sizes(error):
                raise  # of no sizes at all would lathe have these operators
            whys.append(f"{what}: {str(error).splitlines()[0]}")
            continue
        if found.fixed:
            reasons = "; ".join(dict.fromkeys(whys)) or "what the model does depends on them"
            numbers = ", ".join(f"{name} {size}" for name, size in found.fixed.items())
            warnings.warn(f"the engine has the example's {numbers}, because: {reasons}", FixedSizes, stacklevel=3)
        if tolerance is not None:
            worst = _worst(engine.run(dict(inputs)), true)
            if not worst <= tolerance:
                raise Error(Code.RUNTIME_FAILURE, f"results differ from the model's by {worst:.1e} of their largest "
                            f"value; tolerance is {tolerance:.1e}", type(model).__name__)
        return engine
    raise Error(Code.UNSUPPORTED, "no way of exporting it is taken:" + "".join(f"\n  {why}" for why in whys),
                type(model).__name__)


def _paged(model: Any, output: PathLike | None, pairs: Sequence[tuple[str, Any]], tolerance: float | None,
           remarks: bool) -> Engine:
    ids = torch.tensor([[1, 2, 3], [3, 1, 2]])
    try:
        answer = model(input_ids=ids, use_cache=True, return_dict=True)
        caches = [(layer.keys, layer.values) for layer in answer.past_key_values.layers]
    except Exception as problem:
        raise Error(Code.UNSUPPORTED, f"it has no keys and values by layer ({problem}); pages want a decoder such as "
                    "LlamaForCausalLM", type(model).__name__) from problem
    # Lengths of their own, so that torch takes none for another.
    past = [x.new_zeros(x.shape[0], x.shape[1], 5, x.shape[3]) for pair in caches for x in pair]
    names = ["input_ids", *(f"past.{i}.{kind}" for i in range(len(caches)) for kind in ("key", "value"))]
    results = ["logits", *(name.replace("past", "present") for name in names[1:])]
    axes: list[dict[int, str]] = [{0: "batch", 1: "step"}, *({0: "batch", 2: "past"} for _ in past)]
    sizes = {"batch": torch.export.Dim("batch", min=1), "step": torch.export.Dim("step", min=1),
             "past": torch.export.Dim("past", min=0)}
    shapes = tuple({axis: sizes[name] for axis, name in a.items()} for a in axes)
    try:
        program = _exported(_Step(model), [ids, *past], (shapes[0], shapes[1:]), False)
    except Exception as problem:
        raise Error(Code.UNSUPPORTED, f"torch.export does not take it: {problem}", type(model).__name__) from problem
    engine = _compile(program, names, results, output, [*pairs, ("paged", "")], remarks, _Sizes(program, axes))
    if tolerance is not None:
        token = engine.llm().generate(ids[0].tolist(), 1)[0]
        last = answer.logits[0, -1].double()
        short = float((last.max() - last[token]) / last.abs().max())
        if not short <= tolerance:
            raise Error(Code.RUNTIME_FAILURE, f"behind {ids[0].tolist()} the engine has token {token}, which the model "
                        f"finds less likely than another by {short:.1e} of its largest logit", type(model).__name__)
    return engine
