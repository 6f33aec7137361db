# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Engines: what they hold, and contexts of them."""
from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from ctypes import byref, c_char_p, c_void_p, sizeof
from typing import Any, NamedTuple

from . import _abi, _html
from ._abi import text
from ._context import Context, Inputs
from ._errors import Code, Error
from ._group import Group
from ._llm import Llm
from ._report import Remarks
from ._tensor import Tensor


class Port(NamedTuple):
    """An input or output: `dims` are formulas over named symbols, "B" or "P + S" or "768";
    `donated_to` is the number of the output that may lie in an input's memory, or -1."""

    name: str
    dtype: str
    dims: tuple[str, ...]
    donated_to: int = -1


class Symbol(NamedTuple):
    """A named size: bounds, the size that the engine is made for, and what it is a multiple of."""

    name: str
    min: int
    max: int
    opt: int
    multiple_of: int


def load(source: str | os.PathLike[str] | bytes | bytearray | memoryview, *,
         trust: str | os.PathLike[str] | None = None) -> Engine:
    """Opens an engine: a path, or the bytes of an engine file (which are copied).

    An engine is a program. `trust` is the path of a key ring: only an engine that one of its keys
    has signed (`lathe sign`) is opened then; others raise an Error with Code.INVALID.
    """
    library, handle = _abi.runtime(), c_void_p()
    options = _abi.COpenOptions(sizeof(_abi.COpenOptions),
                                None if trust is None else os.fsencode(trust))
    if isinstance(source, (bytes, bytearray, memoryview)):
        data = bytes(source)
        library.lathe_engine_open_memory_with(data, len(data), byref(options), byref(handle))
    else:
        library.lathe_engine_open_with(os.fsencode(source), byref(options), byref(handle))
    return Engine(handle)


def load_memory(address: c_void_p, size: int) -> Engine:
    """Opens an engine of `size` bytes at an address; they are copied."""
    handle = c_void_p()
    _abi.runtime().lathe_engine_open_memory(ctypes.cast(address, c_char_p), size, byref(handle))
    return Engine(handle)


def _name(entry: str | None) -> bytes | None:
    return entry.encode() if entry is not None else None


class Engine:
    """A compiled model: immutable, shared by any number of contexts."""

    def __init__(self, handle: c_void_p) -> None:
        self._library, self._handle = _abi.runtime(), handle
        self._default: Context | None = None
        library = self._library
        count = library.lathe_engine_entry_count(handle)
        self.entries = [text(library.lathe_engine_entry_name(handle, i)) for i in range(count)]
        count = library.lathe_engine_target_count(handle)
        self.targets = [text(library.lathe_engine_target_name(handle, i)) for i in range(count)]
        count = library.lathe_engine_state_count(handle)
        self.states = [text(library.lathe_engine_state_name(handle, i)) for i in range(count)]
        self.build_id = text(library.lathe_engine_build_id(handle))
        self.remarks: Remarks | None = None
        """What the compiler did and did not do, where `compile` was asked with remarks=True."""

    def __del__(self) -> None:
        handle, self._handle = getattr(self, "_handle", None), c_void_p()
        if handle:
            self._library.lathe_engine_close(handle)

    def __repr__(self) -> str:
        return f"lathe.Engine(entries={self.entries}, targets={self.targets})"

    def _ports(self, direction: str, entry: str | None) -> list[Port]:
        if entry is not None and entry not in self.entries:
            raise Error(Code.USAGE, f"there is no entry '{entry}'; there is "
                        f"{', '.join(self.entries)}")
        count = getattr(self._library, f"lathe_engine_{direction}_count")(
            self._handle, _name(entry))
        get = getattr(self._library, f"lathe_engine_{direction}")
        ports = []
        for i in range(count):
            port = get(self._handle, _name(entry), i).contents
            ports.append(Port(text(port.name), _abi.DTYPES[port.dtype],
                              tuple(text(port.dims[d]) for d in range(port.rank)),
                              port.donated_to))
        return ports

    def inputs(self, entry: str | None = None) -> list[Port]:
        """The entry's inputs as Ports; the first entry if none is named."""
        return self._ports("input", entry)

    def outputs(self, entry: str | None = None) -> list[Port]:
        return self._ports("output", entry)

    def symbols(self, entry: str | None = None) -> list[Symbol]:
        """The named sizes of the entry, with their bounds."""
        count = self._library.lathe_engine_symbol_count(self._handle, _name(entry))
        symbols = []
        for i in range(count):
            s = self._library.lathe_engine_symbol(self._handle, _name(entry), i).contents
            symbols.append(Symbol(text(s.name), s.min, s.max, s.opt, s.multiple_of))
        return symbols

    def context(self, device: str = "cpu", *, threads: int = 0, target: str | None = None,
                stream: Any = None, graphs: bool = True, pinning: bool = True,
                overlap: bool = True) -> Context:
        """A context: `device` is "cpu" or "cuda:N"; `threads` 0 means all cores. On a GPU steps run on `stream`
        (torch.cuda.Stream, cupy.cuda.Stream or the number of a CUstream), without it on one of the context's own."""
        return Context(self, device, threads, target, stream, graphs, pinning, overlap)

    def rank(self, rank: int | None = None, ranks: int | None = None, *, host: str | None = None,
             port: int = 0, device: str = "cpu", threads: int = 0, target: str | None = None,
             deadline: float | None = None, join: float | None = None,
             silence: float | None = None, graphs: bool = True) -> Context:
        """A context that is one of the `ranks` of an engine for a mesh, each a process (or thread).

        All meet at a port of rank 0, whose `host` is this machine if it is not said; without `rank`
        and `ranks` everything is what torchrun, mpirun or srun says in the environment. Every rank
        runs the same entries in the same order on the same inputs, and has the same outputs. `device`
        "cuda" is the GPU of the rank's place on its host; ranks on GPUs are on one host. Where
        another rank is gone, a step raises an Error with Code.PEER_LOST: let go of the context then and
        make another, of the same engine. In seconds: `deadline`, what a wait takes at most (60); `join`,
        what it takes at most until all have come (60); `silence`, after which a rank that is not
        heard of is lost (3). `threads` 0: a share of the cores for each rank of this machine.
        """
        if (rank is None) != (ranks is None):
            raise Error(Code.USAGE, "rank and ranks are given together, or neither")
        world = _abi.CWorld(sizeof(_abi.CWorld), rank or 0, ranks or 0, port,
                            None if host is None else host.encode(),
                            *(0 if t is None else max(1, int(t * 1000)) for t in (join, silence)))
        return Context(self, device, threads, target, None, graphs, True, True, deadline, world)

    def group(self, devices: Iterable[str], *, threads: int = 0, target: str | None = None,
              graphs: bool = True, pinning: bool = True, overlap: bool = True,
              deadline: float | None = None) -> Group:
        """A `Group` on these devices, in this order; one may occur several times. `deadline`: what
        a wait takes at most, in seconds (60 if it is not said)."""
        return Group(self, list(devices), threads, target, graphs, pinning, overlap, deadline)

    def llm(self, device: str = "cpu", *, threads: int = 0, kv_bytes: int = 0,
            max_sequence_tokens: int = 0, max_step_tokens: int = 0, max_requests: int = 0,
            prefix_cache: bool = True, batch_invariant: bool = False, graphs: bool = True,
            swap_bytes: int = 0, overlap: bool | None = None) -> Llm:
        """An `Llm` of an engine that was compiled with --paged; 0 means the usual, as lathe_llm.h
        says it. `overlap`: whether a step is launched before the tokens of the one before have come,
        as it is on a GPU; answers are the same."""
        return Llm(self, device, _abi.CLlmOptions(
            0, threads, kv_bytes, max_sequence_tokens, max_step_tokens, max_requests,
            not prefix_cache, batch_invariant, not graphs, swap_bytes,
            0 if overlap is None else 1 if overlap else -1))

    def run(self, inputs: Inputs, entry: str | None = None) -> dict[str, Tensor | Any]:
        """Runs an entry in a context of the engine's own, on the CPU; see Context.run."""
        if self._default is None:
            self._default = self.context()
        return self._default.run(inputs, entry)

    def _repr_html_(self) -> str:
        parts = [_html.line(f"<b>lathe engine</b> for {_html.text(', '.join(self.targets))}")]
        for entry in self.entries:
            rows = [[way, port.name, port.dtype, " × ".join(port.dims) or "scalar"]
                    for way, ports in (("in", self.inputs(entry)), ("out", self.outputs(entry)))
                    for port in ports]
            parts.append(_html.table(f"entry {entry}", ["", "name", "type", "shape"], rows))
            sizes = [[s.name, s.min, "any" if s.max >= 2 ** 62 else s.max, s.opt]
                     for s in self.symbols(entry)]
            if sizes:
                parts.append(_html.table("sizes", ["name", "from", "to", "made for"], sizes))
        if self.states:
            parts.append(_html.line("states: " + _html.text(", ".join(self.states))))
        return "".join(parts)
