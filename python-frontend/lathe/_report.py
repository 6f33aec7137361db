# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What compiling and running tell: remarks, profiles, memory. Each shows itself in a notebook."""
from __future__ import annotations

import dataclasses
import json
import os

from . import _html


@dataclasses.dataclass(frozen=True)
class Remark:
    """What a phase did ("passed"), did not do ("missed") or found out ("analysis"), and why."""

    kind: str
    name: str
    phase: str
    message: str
    location: str
    nodes: tuple[str, ...]
    values: dict[str, str]


class Remarks(list[Remark]):
    """The remarks of a compilation, in their order."""

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Remarks:
        """Reads the file that `lathe compile --remarks=FILE` writes."""
        with open(path, encoding="utf-8") as file:
            return cls(Remark(r["kind"], r["name"], r["phase"], r["message"], r["location"],
                              tuple(r["nodes"]), r["values"]) for r in json.load(file))

    def of(self, node: str) -> Remarks:
        """Those about an ONNX node."""
        return Remarks(r for r in self if node in r.nodes)

    def _repr_html_(self) -> str:
        return _html.table(f"{len(self)} remarks", ["phase", "kind", "name", "nodes", "message"],
                           [[r.phase, r.kind, r.name, ", ".join(r.nodes) or r.location,
                             " ".join([r.message, *(f"{k}={v}" for k, v in r.values.items())])]
                            for r in self])


@dataclasses.dataclass(frozen=True)
class ProfileRow:
    """A kernel, or "host:NAME", or "copy": `seconds` is of all calls, `flops` and `bytes` of one."""

    entry: str
    kernel: str
    config: str
    nodes: str
    calls: int
    seconds: float
    flops: float
    bytes: float


@dataclasses.dataclass(frozen=True)
class ProfileEvent:
    """One call of what `row`, a number, of the profile counts; `begin` is in seconds since the profile began."""

    row: int
    begin: float
    seconds: float


@dataclasses.dataclass
class Profile:
    """Times of kernels, in the order of the plan; `events` are the first 65536 calls in the order of time."""

    rows: list[ProfileRow] = dataclasses.field(default_factory=list)
    events: list[ProfileEvent] = dataclasses.field(default_factory=list)

    @property
    def seconds(self) -> float:
        return sum(row.seconds for row in self.rows)

    def write_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes the calls as a timeline that Perfetto and chrome://tracing open."""
        rows = self.rows
        events = [{"name": rows[e.row].kernel, "ph": "X", "pid": 1, "tid": 1,
                   "ts": 1e6 * e.begin, "dur": 1e6 * e.seconds,
                   "args": {"nodes": rows[e.row].nodes, "configuration": rows[e.row].config,
                            "bytes": rows[e.row].bytes, "flops": rows[e.row].flops}} for e in self.events]
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"displayTimeUnit": "ns", "traceEvents": events}, file)

    def _repr_html_(self) -> str:
        total = self.seconds or 1.0
        rows = sorted(self.rows, key=lambda row: -row.seconds)
        shown: list[list[object]] = []
        for r in rows:
            each = r.seconds / max(r.calls, 1)
            shown.append([r.kernel, r.calls, 1e6 * each, r.bytes / each / 1e9 if each else 0.0,
                          r.flops / each / 1e9 if each else 0.0, r.config, r.nodes])
        return _html.table(f"{1e3 * self.seconds:.3f} ms in kernels",
                           ["kernel", "calls", "µs each", "GB/s", "GFLOP/s", "configuration",
                            "ONNX nodes"], shown, [row.seconds / total for row in rows])


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes that a context holds: weights (shared with others of the engine on a CPU), states, the
    arena of values in between, and captured CUDA graphs."""

    weights: int
    states: int
    arena: int
    graphs: int

    @property
    def total(self) -> int:
        return self.weights + self.states + self.arena + self.graphs

    def _repr_html_(self) -> str:
        parts = dataclasses.asdict(self)
        return _html.table(f"{_html.megabytes(self.total)}", ["", ""],
                           [[name, _html.megabytes(size)] for name, size in parts.items()],
                           [size / (self.total or 1) for size in parts.values()])
