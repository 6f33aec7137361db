# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Users' own passes over the graph that torch.export leaves, and three of them.

A pass is a function of a torch.fx.GraphModule, which it changes or replaces by one that it returns. It sees torch's
operators, nothing decomposed, and each value's type in `node.meta["val"]`; nodes that it adds get theirs by themselves.
"""
from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from .._errors import Code, Error

Pass = Callable[[Any], Any]
_aten = torch.ops.aten


@dataclass
class Program:
    """The parts of an ExportedProgram that make an engine, with a graph of their own."""
    graph_module: Any
    graph_signature: Any
    range_constraints: Mapping[Any, Any]
    state_dict: Mapping[str, Any]
    constants: Mapping[str, Any]

    @property
    def graph(self) -> Any:
        return self.graph_module.graph


def applied(program: Any, passes: Iterable[Pass]) -> Any:
    """The program after the passes; the given one stays as it is. What a pass raises is an error that names it."""
    todo = list(passes)
    if not todo:
        return program
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(program.graph, {}))
    module = torch.fx.GraphModule(program.graph_module, graph)
    for change in todo:
        name = getattr(change, "__name__", type(change).__name__)
        try:
            changed = change(module)
            module = module if changed is None else changed
            _state_types(module)
            module.graph.lint()
        except Exception as problem:
            raise Error(Code.USAGE, f"{type(problem).__name__}: {problem}", f"FX pass '{name}'") from problem
    return Program(module, program.graph_signature, program.range_constraints, program.state_dict, program.constants)


def _state_types(module: Any) -> None:
    """`val` of nodes that have none: the operator is run on what stands for its operands."""
    for node in module.graph.nodes:
        if node.op == "call_function" and "val" not in node.meta:
            args, kwargs = torch.fx.node.map_arg((node.args, dict(node.kwargs)), lambda n: n.meta["val"])
            node.meta["val"] = node.target(*args, **kwargs)
        elif node.op == "get_attr" and "val" not in node.meta:
            node.meta["val"] = operator.attrgetter(node.target)(module)


def tanh_gelu(module: Any) -> None:
    """GELU by tanh in place of erf: up to 5e-4 apart."""
    for node in module.graph.nodes:
        if node.target is _aten.gelu.default:
            node.kwargs = {**node.kwargs, "approximate": "tanh"}


def merge_linears(module: Any) -> None:
    """Linear layers of one input, such as queries, keys and values, as one of joined weights."""
    groups: dict[Any, list[Any]] = {}
    for node in module.graph.nodes:
        fixed = all(n.op in ("placeholder", "get_attr") for n in node.all_input_nodes[1:])
        if node.target is _aten.linear.default and fixed:
            groups.setdefault((node.args[0], len(node.args)), []).append(node)
    for (source, count), linears in groups.items():
        if len(linears) < 2:
            continue
        widths = [node.meta["val"].shape[-1] for node in linears]
        # Parameters stand ahead of all calls, so the first linear can have all of them.
        with module.graph.inserting_before(linears[0]):
            joined = [module.graph.call_function(_aten.cat.default, ([n.args[at] for n in linears], 0))
                      for at in range(1, count)]
            whole = module.graph.call_function(_aten.linear.default, (source, *joined))
            parts = module.graph.call_function(_aten.split_with_sizes.default, (whole, widths, -1))
            for at, node in enumerate(linears):
                part = module.graph.call_function(operator.getitem, (parts, at))
                for new in (whole, part):
                    new.meta.update({k: v for k, v in node.meta.items() if k in ("nn_module_stack", "stack_trace")})
                node.replace_all_uses_with(part)
    module.graph.eliminate_dead_code()


def bfloat16_products(module: Any) -> None:
    """Linear layers and convolutions of f32 in bf16; what is around them stays f32."""
    targets = (_aten.linear.default, _aten.conv1d.default, _aten.conv2d.default)
    for node in list(module.graph.nodes):
        if node.target not in targets or node.meta["val"].dtype != torch.float32:
            continue
        with module.graph.inserting_before(node):
            short = {n: module.graph.call_function(_aten.to.dtype, (n, torch.bfloat16)) for n in node.all_input_nodes}
        for old, new in short.items():
            node.replace_input_with(old, new)
        del node.meta["val"]
        with module.graph.inserting_after(node):
            wide = module.graph.call_function(_aten.to.dtype, (node, torch.float32))
        node.replace_all_uses_with(wide)
        wide.args = (node, torch.float32)
