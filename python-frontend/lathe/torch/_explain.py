# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What compiling a model of torch costs and brings."""
from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .. import _compiler, _html
from .._errors import Code, Error
from .._report import Remarks
from ._export import to_graph
from ._fallback import refused


@dataclass
class Explanation:
    """Seconds are of this machine; latencies are medians of alternating calls. `refused`: the operators that
    lathe does not have, and why; then there is no engine."""
    operators: int
    export_seconds: float
    compile_seconds: float = 0.0
    eager_seconds: float = 0.0
    engine_seconds: float = 0.0
    difference: float = 0.0
    kernels: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    remarks: Remarks = field(default_factory=Remarks)

    @property
    def break_even(self) -> int | None:
        """Calls after which compiling has cost less time than it saved; None if it never does."""
        saved = self.eager_seconds - self.engine_seconds
        return int((self.export_seconds + self.compile_seconds) / saved) + 1 if saved > 0 and not self.refused else None

    def _rows(self) -> list[tuple[str, str]]:
        rows = [("operators", str(self.operators)), ("export", f"{self.export_seconds:.2f} s")]
        if self.refused:
            return rows + [(f"refused: {name}", why) for name, why in self.refused.items()]
        calls = self.break_even
        return rows + [("compile", f"{self.compile_seconds:.2f} s"), ("kernels", str(self.kernels)),
                       ("eager", f"{1e3 * self.eager_seconds:.3f} ms"),
                       ("engine", f"{1e3 * self.engine_seconds:.3f} ms"),
                       ("largest difference", f"{self.difference:.1e}"),
                       ("breaks even", "never" if calls is None else f"after {calls} calls"),
                       ("not done", f"{sum(r.kind == 'missed' for r in self.remarks)} remarks")]

    def __str__(self) -> str:
        return "\n".join(f"{name:20}{value}" for name, value in self._rows())

    def _repr_html_(self) -> str:
        return _html.table("lathe.torch.explain", ["", ""], self._rows())


def _latencies(calls: Sequence[Callable[[], Any]], seconds: float) -> list[float]:
    """Medians of alternating calls, for about this long."""
    times: list[list[float]] = [[] for _ in calls]
    end = time.perf_counter() + seconds
    while len(times[0]) < 3 or (time.perf_counter() < end and len(times[0]) < 1000):
        for call, into in zip(calls, times):
            begin = time.perf_counter()
            call()
            into.append(time.perf_counter() - begin)
    return [statistics.median(t) for t in times]


def explain(model: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None, *, dynamic_shapes: Any = None,
            seconds: float = 1.0) -> Explanation:
    """Exports, compiles (never from the cache) and runs a module, and says what came of it. `seconds`: how long
    to measure. Operators that lathe does not have are in `refused`, not raised; other errors are."""
    begin = time.perf_counter()
    graph = to_graph(model, args, kwargs, dynamic_shapes)
    result = Explanation(graph.operators, time.perf_counter() - begin)
    begin = time.perf_counter()
    try:
        engine = _compiler.compile_graph(graph, remarks=True)
    except Error as error:
        result.refused = refused(error)
        if error.code != Code.UNSUPPORTED or not result.refused:
            raise
        return result
    result.compile_seconds = time.perf_counter() - begin
    result.remarks = engine.remarks or Remarks()
    tensors = [leaf for leaf in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    context = engine.context()
    with torch.no_grad():
        true = [v for v in torch.utils._pytree.tree_leaves(model(*args, **(kwargs or {})))
                if isinstance(v, torch.Tensor)]
        mine = [torch.utils.dlpack.from_dlpack(v) for v in context.run(tensors).values()]
        result.difference = max((float((a.double() - b.double()).abs().max()) for a, b in zip(mine, true) if a.numel()),
                                default=0.0)
        result.eager_seconds, result.engine_seconds = _latencies(
            [lambda: model(*args, **(kwargs or {})), lambda: context.run(tensors)], seconds)
    with context.profile() as profile:
        context.run(tensors)
    result.kernels = len(profile.rows)
    return result
