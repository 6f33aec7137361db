# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An ExportedProgram as text of the dialect `aten` (include/lathe/ir/AtenDialect.td), and its weights.

The graph is taken as torch.export left it: nothing is decomposed. Where an operator writes into memory that
something else sees, torch makes the graph functional first.
"""
from __future__ import annotations

import itertools
import json
import math
import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export.graph_signature import InputKind, OutputKind, TensorArgument

from .. import _abi, _compiler
from .._errors import Code, Error
from . import _decompositions, _inplace
from ._passes import Pass, applied
from ._sizes import NoSize, Sizes

DTYPES = {torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16",
          torch.int8: "i8", torch.int16: "i16", torch.int32: "i32", torch.int64: "i64", torch.uint8: "ui8",
          torch.uint16: "ui16", torch.uint32: "ui32", torch.uint64: "ui64", torch.bool: "i1",
          torch.float8_e4m3fn: "f8E4M3FN", torch.float8_e5m2: "f8E5M2"}
# A complex tensor is a pair of reals, the last dimension; these operators have such.
_PAIRS = {torch.complex64: "f32", torch.complex128: "f64"}
_OF_PAIRS = {"_to_copy", "_fft_c2c", "_fft_r2c", "view_as_real", "view_as_complex", "real", "imag", "clone", "alias"}
_DROPPED = (torch.device, torch.layout, torch.memory_format, torch.Generator)
_WITHOUT_RESULTS = {"_assert_async", "_assert_scalar", "_assert_tensor_metadata", "sym_constrain_range",
                    "sym_constrain_range_for_size"}


@dataclass
class Graph:
    """What the compiler is given, and the lines of Python behind the names in its errors."""
    text: str
    weights: dict[str, torch.Tensor]
    sources: dict[str, str] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    operators: int = 0  # calls of operators
    changed: list[str] = field(default_factory=list)  # inputs whose new values are the first outputs

    def with_source(self, error: Error) -> Error:
        """The error with the lines of Python that made its node."""
        named = [n for n in dict.fromkeys(re.findall(r"\bnode (\S+?):?(?=\s|$)", str(error))) if n in self.sources]
        if not named:
            return error
        lines = [self.sources[n] if len(named) == 1 else f"{n}:\n{self.sources[n]}" for n in named[:8]]
        return Error(error.code, error.message, error.location, "\n".join(lines))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=True).replace("\\u", "\\\\u")


def _number(value: float) -> str:
    if math.isnan(value) or math.isinf(value):
        return {True: "0x7FF8000000000000", False: "0x7FF0000000000000" if value > 0 else "0xFFF0000000000000"}[
            math.isnan(value)]
    mantissa, e, exponent = repr(float(value)).partition("e")
    return (mantissa if "." in mantissa else mantissa + ".0") + e + exponent


class _Unsupported(Exception):
    """Why one node cannot be stated; becomes its attribute `unsupported`."""


class _Writer:
    def __init__(self, program: Any, names: Mapping[Any, str], may_change: bool, equal: Mapping[Any, Any],
                 inputs: Sequence[str], outputs: Sequence[str]) -> None:
        self.program, self.may_change = program, may_change
        self.given, self.results = iter(inputs), iter(outputs)  # names of ports, so far as the caller has any
        self.sizes = Sizes(program.range_constraints, names, equal)
        self.head: list[str] = []  # of the module
        self.lines: list[str] = []
        self.graph = Graph("", {})
        self.count = 0
        self.types: dict[str, str] = {}  # of values, by their name in the text
        self.pairs = False  # whether the operator at hand may have complex tensors
        self.stored: dict[Any, Any] = {}  # results of writes: the node whose memory was written into

    # --- types, locations, values

    def type(self, value: Any) -> str:
        if not isinstance(value, torch.Tensor):
            return "none"
        pair = value.dtype in _PAIRS and self.pairs
        if value.dtype not in DTYPES and not pair:
            raise _Unsupported(f"tensors of {str(value.dtype).removeprefix('torch.')}")
        if value.layout is not torch.strided:
            raise _Unsupported(f"tensors of layout {value.layout}")
        dims = [self.sizes.text(size) for size in value.shape] + ["2"] * pair
        known = [dim.isdigit() for dim in dims]
        shape = "".join((dim if fixed else "?") + "x" for dim, fixed in zip(dims, known))
        encoding = "" if all(known) else f", #lathe.t<[{', '.join(dims)}]>"
        return f"tensor<{shape}{_PAIRS[value.dtype] if pair else DTYPES[value.dtype]}{encoding}>"

    def location(self, node: Any, prefix: str) -> str:
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        path = str(stack[-1][0]) if stack else ""
        # Dynamo's name of what was compiled is no part of the path.
        path = re.sub(r"^L\['\w+'\]\.?", "", path) or prefix
        name = f"{path}/{node.name}" if path else str(node.name)
        trace = (node.meta.get("stack_trace") or "").rstrip()
        if trace:
            self.graph.sources[name] = trace
        frames = re.findall(r'File "([^"]+)", line (\d+)', trace)
        if not frames:
            return f"loc({_quoted(name)})"
        # A path of this machine would make the engine another one elsewhere.
        file = re.split(r"(?:site|dist)-packages/", frames[-1][0])
        where = file[-1] if len(file) > 1 else file[0].rpartition("/")[2]
        return f"loc({_quoted(name)}({_quoted(where)}:{frames[-1][1]}:1))"

    def fresh(self, count: int = 1) -> str:
        self.count += 1
        return f"%{self.count - 1}" + (f":{count}" if count > 1 else "")

    def emit(self, op: str, operands: Sequence[str], attributes: Mapping[str, str], results: Sequence[str],
             location: str) -> list[str]:
        """One op; the names of its results."""
        name = self.fresh(len(results))
        base = name.partition(":")[0]
        names = [base] if len(results) == 1 else [f"{base}#{i}" for i in range(len(results))]
        attrs = " {" + ", ".join(f"{k} = {v}" for k, v in attributes.items()) + "}" if attributes else ""
        types = ", ".join(self.types[o] for o in operands)
        kinds = results[0] if len(results) == 1 else f"({', '.join(results)})"
        self.lines.append(f'{name} = "aten.{op}"({", ".join(operands)}){attrs} : ({types}) -> {kinds} {location}')
        self.types.update(zip(names, results))
        return names

    def none(self) -> str:
        return self.emit("none", [], {}, ["none"], "loc(unknown)")[0]

    # --- arguments

    def attribute(self, value: Any) -> str | None:
        """An argument that is no tensor; None for what says nothing about numbers."""
        if value is None or isinstance(value, _DROPPED):
            return None
        if isinstance(value, torch.fx.Node):
            value = value.meta.get("val")
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int):
            return f"{value} : i64"
        if isinstance(value, float):
            return f"{_number(value)} : f64"
        if isinstance(value, str):
            return _quoted(value)
        if isinstance(value, torch.dtype):
            if value not in DTYPES and not (self.pairs and value in _PAIRS):
                raise _Unsupported(f"the dtype {value}")
            return DTYPES.get(value) or _PAIRS[value]
        if isinstance(value, torch.SymInt):
            return f"#lathe.dim<{self.sizes.text(value)}>"
        if isinstance(value, (list, tuple)):
            values: list[Any] = [v.meta.get("val") if isinstance(v, torch.fx.Node) else v for v in value]
            if all(type(v) in (int, bool) for v in values):
                return f"array<i64{':' if values else ''} {', '.join(str(int(v)) for v in values)}>"
            if all(isinstance(v, (int, float)) for v in values):
                return f"array<f64: {', '.join(_number(v) for v in values)}>"
            if all(isinstance(v, (int, torch.SymInt)) for v in values):
                return f"[{', '.join(f'#lathe.dim<{self.sizes.text(v)}>' for v in values)}]"
        raise _Unsupported(f"an argument that is {type(value).__name__}")

    def arguments(self, node: Any, env: Mapping[Any, Any]) -> tuple[list[str], dict[str, str]]:
        """Operands and attributes in the order of the schema."""
        operands: list[str] = []
        attributes: dict[str, str] = {}
        segments: list[int] = []
        lists = False
        for at, argument in enumerate(node.target._schema.arguments):
            value = node.args[at] if at < len(node.args) else node.kwargs.get(
                argument.name, argument.default_value if argument.has_default_value() else None)
            kind = str(argument.type)
            if "Tensor" not in kind:
                text = self.attribute(value)
                if text is not None:
                    attributes[argument.name] = text
                continue
            many = isinstance(value, (list, tuple))
            lists |= many
            segments.append(len(value) if many else 1)
            for one in value if many else [value]:
                if isinstance(one, torch.fx.Node) and isinstance(one.meta.get("val"), torch.Tensor):
                    if one.meta["val"].dtype in _PAIRS and not self.pairs:
                        raise _Unsupported("operands that are complex")
                    if env.get(one) is None:
                        raise _Unsupported(f"the value of {one.name} is not known here")
                    operands.append(env[one])
                    continue
                if one is not None:  # a number in the place of a tensor
                    attributes[argument.name] = self.attribute(one) or ""
                operands.append(self.none())
        while operands and not lists and self.types[operands[-1]] == "none":
            operands.pop()
        if lists:
            attributes["segments"] = f"array<i64: {', '.join(map(str, segments))}>"
        return operands, attributes

    @staticmethod
    def promoted(node: Any) -> str | None:
        """The type that torch computes in, where operands differ."""
        values: list[Any] = [a.meta.get("val") if isinstance(a, torch.fx.Node) else a for a in node.args[:2]]
        if len(values) != 2 or not all(isinstance(v, (torch.Tensor, int, float, torch.SymInt)) for v in values):
            return None
        if not any(isinstance(v, torch.Tensor) for v in values):
            return None
        scalars: list[Any] = [1 if isinstance(v, torch.SymInt) else v for v in values]
        return DTYPES.get(torch.result_type(*scalars))

    # --- nodes

    def call(self, node: Any, env: dict[Any, Any], prefix: str) -> None:
        value = node.meta.get("val")
        many = isinstance(value, (list, tuple))
        values = list(value) if many else [value]
        if not node.users and isinstance(node.target, torch._ops.OpOverload) and not _inplace.writes(node.target) and \
                any(isinstance(v, torch.Tensor) for v in values):
            return  # torch keeps it for its random state: layers that are left out at random draw in inference, too
        if not any(isinstance(v, torch.Tensor) for v in values):
            name = getattr(node.target, "_schema", None)
            short = name.name.rpartition("::")[2] if name is not None else ""
            if short in _WITHOUT_RESULTS or (values and all(
                    isinstance(v, (int, float, torch.SymInt, torch.SymBool, torch.SymFloat)) for v in values)):
                return  # checked by torch while it exported, or part of an expression
        location = self.location(node, prefix)
        operands: list[str] = []
        attributes: dict[str, str] = {}
        name = str(getattr(node.target, "__name__", node.target)).replace(".default", "")
        types = ["none"] * max(len(values), 1)
        try:
            if not isinstance(node.target, torch._ops.OpOverload):
                raise _Unsupported("control flow and calls of Python inside of the graph")
            schema = node.target._schema
            name = _inplace.functional_name(node.target)
            if schema.overload_name:
                name += "." + schema.overload_name
            if not schema.name.startswith("aten::"):
                name = schema.name.replace("::", ".")
            self.pairs = schema.name.rpartition("::")[2] in _OF_PAIRS
            types = [self.type(v) for v in values]
            operands, attributes = self.arguments(node, env)
            promoted = self.promoted(node)
            if promoted and any(self.types[o] not in ("none",) for o in operands):
                attributes["promoted"] = promoted
        except (_Unsupported, NoSize) as problem:
            known = [env[n] for n in node.all_input_nodes if isinstance(env.get(n), str)]
            operands, attributes = known, {"unsupported": _quoted(str(problem))}
        self.pairs = False
        self.graph.operators += 1
        results = self.emit(name, operands, attributes, types, location)
        env[node] = results if many else results[0]
        if _inplace.writes(node.target):
            for into in _inplace.written(node):
                stored = self.stored.get(into, into)
                self.stored[node] = stored
                for other in [stored, *(n for n, s in self.stored.items() if s is stored)]:
                    env[other] = env[node]

    def body(self, module: Any, env: dict[Any, Any], arguments: Sequence[Any], prefix: str) -> Any:
        """The nodes of a graph; its result."""
        places = iter(arguments)
        for node in module.graph.nodes:
            if node.op == "placeholder":
                if node not in env:
                    env[node] = next(places)
            elif node.op == "get_attr":
                value = operator.attrgetter(node.target)(module)
                env[node] = self.weight(node.target, value) if isinstance(value, torch.Tensor) else value
            elif node.op == "output":
                given = [node.args[0]] if isinstance(node.args[0], torch.fx.Node) else node.args[0]
                return [_Value(env.get(v), v) if isinstance(v, torch.fx.Node) else v for v in given]
            elif node.target is operator.getitem:
                whole = env.get(node.args[0])
                env[node] = whole[node.args[1]] if isinstance(whole, (list, tuple)) else None
            elif (at := _wrapped(node)) is not None:
                inner = node.args[at]
                given = [env.get(a) if isinstance(a, torch.fx.Node) else a for a in node.args[at + 1:]]
                result = self.body(getattr(module, inner.target), {}, given, prefix)
                env[node] = [v.name if isinstance(v, _Value) else v for v in result]
            else:
                self.call(node, env, prefix)
        return ()

    def weight(self, name: str, tensor: torch.Tensor) -> str:
        if tensor.dtype not in DTYPES or tensor.layout is not torch.strided:
            raise Error(Code.UNSUPPORTED, f"has dtype {tensor.dtype} and layout {tensor.layout}", f"weight '{name}'")
        name = self.keep(name, tensor)
        return self.emit("weight", [], {"name": _quoted(name)}, [self.type(tensor)], f"loc({_quoted(name)})")[0]

    def keep(self, name: str, tensor: torch.Tensor) -> str:
        """The name under which the compiler is given the values."""
        if tensor.device.type == "meta":
            raise Error(Code.USAGE, "it is on the device meta, without values", f"weight '{name}'")
        reach = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride())) if tensor.numel() else 0
        if tensor.untyped_storage().nbytes() < (tensor.storage_offset() + reach) * tensor.element_size():
            raise Error(Code.USAGE, "its memory has been freed", f"weight '{name}'")
        while name in self.graph.weights:
            name += "_"
        value = tensor.detach().resolve_neg()
        if value.device.type != "cpu" or not value.is_contiguous():
            value = value.cpu().contiguous()
        self.graph.weights[name] = value
        return name

    def state(self, name: str, tensor: torch.Tensor, argument: str) -> str:
        """The argument for a buffer that the graph changes (include/lathe/ir/States.h); its memory is the context's."""
        if tensor.dtype not in DTYPES or tensor.layout is not torch.strided:
            raise Error(Code.UNSUPPORTED, f"has dtype {tensor.dtype} and layout {tensor.layout}", f"buffer '{name}'")
        self.types[argument] = kind = self.type(tensor)
        initial = self.keep(name, tensor)
        self.head.append(f"lathe.state @{_quoted(name)} {{axis = -1 : i64, input = {_quoted(name)}, length = \"\", "
                         f"output = {_quoted(_next(name))}, type = {kind}, lathe.initial = {_quoted(initial)}}}")
        return f"{argument}: {kind} {{lathe.name = {_quoted(name)}}}"

    def inputs(self) -> tuple[dict[Any, Any], list[str]]:
        """Values of placeholders, and the arguments of the function."""
        env: dict[Any, Any] = {}
        arguments: list[str] = []
        places = [n for n in self.program.graph.nodes if n.op == "placeholder"]
        used = {n for n in places if n.users}
        changed = set(self.program.graph_signature.buffers_to_mutate.values())
        for node, spec in zip(places, self.program.graph_signature.input_specs):
            if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
                if node not in used and spec.target not in changed:
                    env[node] = None
                    continue
                stored = self.program.state_dict.get(spec.target)
                stored = self.program.constants[spec.target] if stored is None else stored
                if spec.target in changed:
                    env[node] = f"%arg{len(arguments)}"
                    arguments.append(self.state(spec.target, stored, env[node]))
                else:
                    env[node] = self.weight(spec.target, stored)
            elif spec.kind is InputKind.USER_INPUT and isinstance(spec.arg, TensorArgument):
                value, name = node.meta["val"], next(self.given, node.name)
                for axis, size in enumerate(value.shape):
                    self.note(size, f"{name}[{axis}]")
                try:
                    kind = self.type(value)
                except (_Unsupported, NoSize) as problem:
                    raise Error(Code.UNSUPPORTED, str(problem), f"input '{name}'") from None
                argument = f"%arg{len(arguments)}"
                arguments.append(f'{argument}: {kind} {{lathe.name = {_quoted(name)}}}')
                self.types[argument] = kind
                env[node] = argument
                self.graph.inputs.append(name)
            elif spec.kind is InputKind.USER_INPUT and (
                    spec.arg is None or not isinstance(node.meta.get("val"), torch.SymInt)):
                env[node] = getattr(spec.arg, "value", None)  # a number or None, part of the graph already
            else:
                raise Error(Code.UNSUPPORTED, f"it is {type(spec.arg).__name__}, no tensor", f"input '{node.name}'")
        return env, arguments

    def note(self, size: Any, place: str) -> None:
        if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
            name = self.sizes.name(size.node.expr)
            self.sizes.places.setdefault(name, place)
            if size.node.hint is not None:
                self.sizes.hints.setdefault(name, int(size.node.hint))

    def write(self) -> Graph:
        signature = self.program.graph_signature
        changed = list(signature.user_inputs_to_mutate.values())
        if changed and not self.may_change:
            raise Error(Code.UNSUPPORTED, f"the graph writes into its arguments: {', '.join(changed)}",
                        "the exported program")
        env, arguments = self.inputs()
        results = self.body(self.program.graph_module, env, (), "")
        names: list[str] = []
        kinds: list[str] = []
        returned: list[str] = []
        for value, spec in itertools.zip_longest(results, signature.output_specs):
            if isinstance(value, _Value) and isinstance(value.node.meta.get("val"), torch.Tensor) and \
                    value.node.meta["val"].is_complex():
                raise Error(Code.UNSUPPORTED, "an output is complex: return torch.view_as_real of it",
                            "the exported program")
            if not isinstance(value, _Value) or value.name is None:
                kind = "a size" if isinstance(value, _Value) else type(value).__name__
                raise Error(Code.UNSUPPORTED, f"an output is {kind}, no tensor", "the exported program")
            name = str(value.node.name)
            if spec is not None and spec.kind is OutputKind.BUFFER_MUTATION:
                name = _next(spec.target)
            elif spec is not None and spec.kind is OutputKind.USER_INPUT_MUTATION:
                self.graph.changed.append(spec.target)
            else:
                name = next(self.results, name)
            names.append(name if name not in names else f"{name}_{len(names)}")
            returned.append(value.name)
            kinds.append(self.types[value.name])
        out = ", ".join(f"{k} {{lathe.name = {_quoted(n)}}}" for k, n in zip(kinds, names))
        body = "\n".join(f"  {line}" for line in self.lines)
        symbols = "\n".join([*self.sizes.declarations(), *self.head])
        self.graph.text = (f'module attributes {{lathe.phase = "import"}} {{\n{symbols}\n'
                           f"func.func @main({', '.join(arguments)}) -> ({out}) attributes {{lathe.entry}} {{\n{body}\n"
                           f"  return {', '.join(returned)} : {', '.join(kinds)}\n}}\n}}\n")
        return self.graph


def _next(buffer: str) -> str:
    """The name of the output that is the new value of a buffer."""
    return f"{buffer}.next"


@dataclass
class _Value:
    """A result of a graph."""
    name: Any
    node: Any


def write(program: Any, names: Mapping[Any, str] | None = None, passes: Iterable[Pass] = (),
          may_change: bool = False, equal: Mapping[Any, Any] | None = None, inputs: Sequence[str] = (),
          outputs: Sequence[str] = ()) -> Graph:
    """The graph of an ExportedProgram after `passes`. `names`: of symbols, `inputs` and `outputs`: of ports, in place
    of torch's own; `equal`: symbols and the one that each equals, as the caller knows. Buffers that it writes into
    become states of the engine. Inputs that it writes into are an error, or with `may_change` their new values are
    outputs ahead of the others, for the caller to store (`Graph.changed`)."""
    return _Writer(applied(ready(program), passes), names or {}, may_change, equal or {}, inputs, outputs).write()


def ready(program: Any) -> Any:
    """The program with operators that lathe knows, so far as torch can decompose others, and without writes."""
    table = _unknown(program.graph_module)
    functional = _needs_functional(program.graph_module)
    if functional:
        program = _inplace.without_identities(program)
        for graph in _graphs(program.graph_module):
            if name := _inplace.lost_write(graph):
                raise Error(Code.UNSUPPORTED, f"it writes into memory that the operator {name} may share",
                            "the exported program")
    if table or functional:
        try:
            program = program.run_decompositions(table)
            if functional and (table := _unknown(program.graph_module)):  # what writes into its operands became
                program = program.run_decompositions(table)
        except Exception as problem:
            raise Error(Code.UNSUPPORTED, f"torch cannot make the graph functional: {problem}",
                        "the exported program") from problem
    return program


def _graphs(module: Any) -> list[Any]:
    return [inner.graph for inner in module.modules() if isinstance(inner, torch.fx.GraphModule)]


def _wrapped(node: Any) -> int | None:
    """Which argument is the graph of a call that changes nothing but torch's mode: no gradients, no autocast."""
    name = getattr(node.target, "__name__", "")
    if name == "wrap_with_set_grad_enabled":
        return 1
    return 4 if name == "wrap_with_autocast" and node.args[2] is False else None


def _needs_functional(module: Any) -> bool:
    return any(not _inplace.plain(graph) or any(
        (getattr(n.target, "__name__", "") == "wrap_with_autocast" and _wrapped(n) is None) or
        _inplace.trains(n) for n in graph.nodes) for graph in _graphs(module))


def _unknown(module: Any) -> dict[Any, Any]:
    """Decompositions for operators that lathe does not know."""
    known = set(_abi.text(_compiler.library().lathe_compiler_aten_operators()).split())
    unknown = set()
    for graph in _graphs(module):
        for node in graph.nodes:
            target = node.target
            makes = isinstance(node.meta.get("val"), (torch.Tensor, tuple, list))
            if not isinstance(target, torch._ops.OpOverload) or not makes:
                continue
            name = _inplace.functional_name(target)
            if name not in known and f"{name}.{target._schema.overload_name}" not in known:
                unknown.add(target)
    if not unknown:
        return {}
    table = {**torch.export.default_decompositions(), **_decompositions.TABLE}
    return {target: table[target] for target in unknown if target in table}
