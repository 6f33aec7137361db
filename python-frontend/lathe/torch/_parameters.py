# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parameters of a module as an engine reads them: packed, and computed as far as they decide it, until one changes."""
from __future__ import annotations

import operator
from collections.abc import Sequence
from ctypes import c_int64
from typing import Any

import torch

from .. import _abi
from .._context import Context
from .._engine import Engine, Port
from .._errors import Code, Error
from ._graph import DTYPES

TORCH_DTYPES = {name.lower(): dtype for dtype, name in DTYPES.items()} | {"bool": torch.bool}


def is_parameter(place: Any) -> bool:
    """Whether a placeholder of dynamo's graph is a parameter or buffer of a module."""
    value = place.meta.get("example_value")
    return isinstance(value, torch.nn.Parameter) or "_dynamo_static_input_type" in (place.meta.get("tensor_dict") or {})


def fill(tensor: _abi.CTensor, port: Port, value: Any) -> None:
    """Makes a tensor of C, whose sizes are known, that of a row-major tensor."""
    tensor.data, tensor.bytes, tensor.strides = value.data_ptr(), value.nbytes, None
    tensor.dtype, tensor.memory = _abi.DTYPES.index(port.dtype), _abi.HOST


class Parameters:
    """What the entry `prepare` of an engine makes of parameters, on the CPU.

    It runs again where a parameter has changed since: another tensor; other memory (`p.data = value`); torch's count
    of versions (operators in place, optimizers, load_state_dict); and for writes that torch does not count
    (`p.data.mul_(2)`, arrays of numpy over the same memory) a fingerprint of some lines of each parameter's memory.
    Writes that are not counted into a few elements may go unseen: `forget` is for these.
    """

    def __init__(self, engine: Engine, context: Context, names: Sequence[str], ports: Sequence[Port]) -> None:
        """`names`: of the parameters, in the order in which they are given; `ports`: the inputs of the entry `main`
        that are parameters or made of them."""
        self._context, self._ports = context, ports
        self._sources = engine.inputs("prepare") if "prepare" in engine.entries else []
        results = engine.outputs("prepare") if self._sources else []
        made = {port.name: torch.empty([int(d) for d in port.dims], dtype=TORCH_DTYPES[port.dtype]) for port in results}
        self.bytes = sum(tensor.nbytes for tensor in made.values())  # of what is made, beside the parameters' own
        self.changes = 0  # how often it was made
        self._made = made
        self._places = {name: at for at, name in enumerate(names)}
        self._in, self._out = _table(self._sources), _table(results)
        for tensor, port in zip(self._out, results):
            fill(tensor, port, made[port.name])
        self._count = len(results)
        self._held: tuple[Any, ...] | None = None  # the parameters of the last call
        self._memory: list[Any] = []  # theirs, which nothing else can get as long as it is held here
        self._pointers: list[int] = []
        self._watched: list[int] = []  # places of those that something is made of; others are read as they lie
        self._versions: list[int] | None = []
        self._extents = _table([])  # where the memory of these is
        self._print = 0
        self.tensors: list[Any] = []
        """What the inputs of `ports` are to be, in their order."""

    def forget(self) -> None:
        self._held = None

    def changed(self, given: tuple[Any, ...]) -> bool:
        """Whether `tensors` are others than in the last call. `given`: the parameters."""
        held = self._held
        if held is not None and all(map(operator.is_, given, held)) and \
                list(map(torch.Tensor.data_ptr, given)) == self._pointers and \
                self._versions is not None and self._count_of(given) == self._versions and \
                self._fingerprint() == self._print:
            return False
        self._held = None  # until all of it is made
        self._take(given)
        self._held = given
        return True

    def _count_of(self, given: Sequence[Any]) -> list[int] | None:
        """The versions of the parameters that something is made of; None where torch does not count them."""
        try:
            return [given[at]._version for at in self._watched]
        except RuntimeError:  # made in inference_mode
            return None

    def _fingerprint(self) -> int:
        return int(self._context._library.lathe_fingerprint(self._extents, len(self._watched)))

    def _take(self, given: tuple[Any, ...]) -> None:
        memory = [p.detach() for p in given]
        rows = [p.contiguous() for p in memory]
        for port in (*self._sources, *self._ports):
            at = self._places.get(port.name)
            if at is not None and (tuple(map(str, rows[at].shape)) != port.dims or
                                   rows[at].dtype != TORCH_DTYPES[port.dtype]):
                raise Error(Code.USAGE, f"it is {rows[at].dtype} of {tuple(rows[at].shape)} now; the engine was "
                            f"compiled for {port.dtype} of {', '.join(port.dims)}", f"parameter '{port.name}'")
        self._memory = memory + rows
        made_of = {self._places[port.name] for port in self._sources}
        self._watched = [at for at, p in enumerate(memory) if at in made_of or rows[at] is not p]
        self._pointers, self._versions = [p.data_ptr() for p in memory], self._count_of(given)
        self._extents = (_abi.CTensor * max(len(self._watched), 1))()
        for tensor, at in zip(self._extents, self._watched):
            tensor.data, tensor.bytes = memory[at].data_ptr(), _extent(memory[at])
        self._print = self._fingerprint()
        for tensor, port in zip(self._in, self._sources):
            fill(tensor, port, rows[self._places[port.name]])
        if self._sources:
            self._context._library.lathe_run(self._context._handle, b"prepare", self._in, len(self._sources),
                                             self._out, self._count)
        self.changes += 1
        self.tensors = [rows[self._places[port.name]] if port.name in self._places else self._made[port.name]
                        for port in self._ports]


def _table(ports: Sequence[Port]) -> Any:
    """Tensors of C with the sizes of ports, all of which are known."""
    table = (_abi.CTensor * max(len(ports), 1))()
    for tensor, port in zip(table, ports):
        tensor.rank, tensor.dims = len(port.dims), (c_int64 * max(len(port.dims), 1))(*map(int, port.dims))
    return table


def _extent(tensor: Any) -> int:
    """Bytes from the first element of a tensor to the last one."""
    if not tensor.numel():
        return 0
    return int(sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride())) + 1) * int(tensor.itemsize)
