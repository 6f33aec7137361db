# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A graph of which torch runs what lathe cannot: engines between the operators that are left."""
from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch.export.graph_signature import InputKind, TensorArgument
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner

from .. import _compiler
from .._errors import Error
from ._call import Call, target_of
from ._graph import write
from ._passes import Program


def refused(error: Error) -> dict[str, str]:
    """The nodes that an error of the compiler names, and why."""
    reasons = {}
    for line in str(error).splitlines():
        found = re.search(r"\bnode (\S+?): '[^']*' \((\S+?)\): (.*)", line)
        if found:
            reasons[found[1].rpartition("/")[2]] = f"{found[2]}: {found[3]}"
    return reasons


_Module: Any = torch.nn.Module  # whether mypy sees torch or not


class _Part(_Module):  # type: ignore[misc]
    """An engine in the place of a part of the graph."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        specs = []
        self._kept = []
        for at, node in enumerate(n for n in module.graph.nodes if n.op == "placeholder"):
            tensor = isinstance(node.meta.get("val"), torch.Tensor)
            specs.append(SimpleNamespace(kind=InputKind.USER_INPUT, arg=TensorArgument(node.name) if tensor else None))
            if tensor:
                self._kept.append(at)
        result = next(n for n in module.graph.nodes if n.op == "output").args[0]
        self._single = isinstance(result, torch.fx.Node)
        signature = SimpleNamespace(input_specs=specs, output_specs=[], buffers_to_mutate={},
                                    user_inputs_to_mutate={})
        self._program = Program(module, signature, {}, {}, {})
        self._call: Call | None = None

    def compile(self, ranges: Any, device: torch.device) -> None:
        self._program.range_constraints = ranges
        graph = write(self._program)
        self._call = Call(_compiler.compile_graph(graph, pairs=[("target", target_of(device))]), device)

    def forward(self, *args: Any) -> Any:
        assert self._call is not None
        tensors = self._call([args[at].detach() for at in self._kept])
        return tensors[0] if self._single else tensors


class _Supported:
    """What engines can have: calls that make tensors and that nobody refused. Complex tensors, which do not pass
    between engines, stay with torch."""

    def __init__(self, left: set[str]) -> None:
        self.left = left

    def is_node_supported(self, _modules: Any, node: Any) -> bool:
        value = node.meta.get("val")
        tensors = isinstance(value, torch.Tensor) or (
            isinstance(value, (list, tuple)) and all(isinstance(v, torch.Tensor) for v in value))
        seen = [value, *(n.meta.get("val") for n in node.all_input_nodes)]
        complex_ = any(isinstance(v, torch.Tensor) and v.is_complex() for v in seen)
        return node.op == "call_function" and tensors and not complex_ and node.name not in self.left


class Partitioned:
    """`left`: the names of nodes that torch runs. `engines`: how many parts lathe runs."""

    def __init__(self, program: Any, left: set[str], device: torch.device) -> None:
        # A result of several tensors stays with those who take them apart.
        whole = {n.name for n in program.graph.nodes if n.name in left}
        for node in program.graph.nodes:
            if any(source.name in whole and isinstance(source.meta.get("val"), (list, tuple))
                   for source in node.all_input_nodes):
                whole.add(node.name)
        module = torch.fx.GraphModule(program.graph_module, copy.deepcopy(program.graph))
        supported: Any = _Supported(whole)
        partitioner = CapabilityBasedPartitioner(module, supported, allows_single_node_partition=True)
        self._module = partitioner.fuse_partitions(partitioner.propose_partitions())
        self._given = [None if spec.kind is InputKind.USER_INPUT else
                       program.state_dict.get(spec.target, program.constants.get(spec.target))
                       for spec in program.graph_signature.input_specs]
        self.engines = 0
        for node in self._module.graph.nodes:
            if node.op == "call_module":
                part = _Part(getattr(self._module, node.target))
                part.compile(program.range_constraints, device)
                setattr(self._module, node.target, part)
                self.engines += 1
        self._module.recompile()

    def run(self, given: Sequence[Any]) -> tuple[Any, ...]:
        rest = iter([tensor.detach() for tensor in given])
        with torch.no_grad():
            result = self._module(*[next(rest) if held is None else held for held in self._given])
        return tuple(result)
