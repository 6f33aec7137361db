# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""plan(): the host program of an engine, as `lathe inspect --plan` prints it."""
from __future__ import annotations

import dataclasses
import json
from typing import Any

from . import _html
from ._command_output import output_of
from ._compiler import model_file


@dataclasses.dataclass(frozen=True)
class PlanStep:
    """A launch, a copy, a host operation: its text with the types of its buffers, and the ONNX nodes that it is of."""

    step: str
    nodes: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Plan:
    """The steps of an entry for a target, in their order. Behind the first list come those of the bodies of its `if`
    and `loop` steps, which name them by number."""

    entry: str
    target: str
    procedures: tuple[tuple[PlanStep, ...], ...]

    @property
    def steps(self) -> tuple[PlanStep, ...]:
        return self.procedures[0]

    def of(self, node: str) -> tuple[PlanStep, ...]:
        """Those of an ONNX node."""
        return tuple(step for procedure in self.procedures for step in procedure if node in step.nodes)

    def _repr_html_(self) -> str:
        return "".join(_html.table(f"entry {self.entry} for {self.target}" if at == 0 else f"body {at}",
                                   ["", "step", "ONNX nodes"],
                                   [[number, step.step, ", ".join(step.nodes)] for number, step in enumerate(steps)])
                       for at, steps in enumerate(self.procedures))


def plan(source: Any, *, target: str | None = None) -> list[Plan]:
    """The plans of an engine, an entry and target each.

    `source` is the path or the bytes of an engine, or a model: a path, bytes or an onnx.ModelProto, which is compiled
    for this. (The verb `lathe plan` is another thing: the memory planner alone.) `target`: of an engine these alone,
    of a model what it is compiled for.

    >>> import onnx.parser
    >>> model = onnx.parser.parse_model(
    ...     '<ir_version: 10, opset_import: ["": 21]> double (float[N] x) => (float[N] y) { y = Add(x, x) }')
    >>> lathe.plan(model)[0].steps
    (PlanStep(step='launch add_0(x f32[N], y f32[N])', nodes=('Add_0',)),)
    """
    with model_file(source) as path:
        told = json.loads(output_of(["inspect", path, "--plan", "--json",
                                     *([] if target is None else [f"--target={target}"])], path))
    return [Plan(p["entry"], p["target"], tuple(tuple(PlanStep(s["step"], tuple(s["nodes"])) for s in procedure)
                                                for procedure in p["steps"])) for p in told["plans"]]
