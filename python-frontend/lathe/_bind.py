# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Context.bind(): an entry with its arrays, called without preparing them again."""
from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping
from ctypes import c_char_p, c_size_t, c_void_p
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _abi
from ._errors import Code, Error
from ._tensor import PACKED, Place, borrowed_array, input_tensor

if TYPE_CHECKING:
    from ._context import Context, Inputs
    from ._engine import Port

# A call of C without ctypes' checks of results, and without the interpreter's lock.
RUN = ctypes.CFUNCTYPE(c_void_p, c_void_p, c_char_p, c_void_p, c_size_t, c_void_p, c_size_t)


def _symbols(ports: list[Port]) -> set[str]:
    """Names in the formulas of these ports' sizes; functions are among them and do no harm."""
    return {name for port in ports for dim in port.dims for name in re.findall(r"[^\W\d]\w*", dim)}


class Bound:
    """What `Context.bind` gives. Call it; `outputs` are then filled, by name.

    The arrays must not be resized or moved while this lives, which keeps them alive.
    """

    def __init__(self, context: Context, entry: str, inputs: Inputs,
                 outputs: Mapping[str, Any]) -> None:
        ports, results = context._entry(entry)
        unknown = [name for name in outputs if name not in [p.name for p in results]]
        if unknown:
            raise Error(Code.USAGE, f"the entry's outputs are {', '.join(p.name for p in results)}",
                        f"output '{unknown[0]}'")
        for port in results:
            of_data = _symbols([port]) - _symbols(ports) - {"floordiv", "ceildiv", "mod", "min", "max", "bcast"}
            if of_data:
                raise Error(Code.USAGE, f"its size {', '.join(sorted(of_data))} is known only behind "
                            "each run: use run()", f"output '{port.name}'")
        for way, all_ports in (("input", ports), ("output", results)):
            for port in all_ports:
                if port.dtype == "string":
                    raise Error(Code.USAGE, "strings are packed anew for each run: use run()", f"{way} '{port.name}'")
        self._context = context
        given = context._in_order(inputs, ports)
        made = [self._in_place(v, p, context._place) for v, p in zip(given, ports)]
        self.inputs: dict[str, Any] = {p.name: v for p, v in zip(ports, given)}
        self.outputs: dict[str, Any] = {}
        tensors = (_abi.CTensor * max(len(made), 1))(*(tensor for tensor, _ in made))
        self._out = (_abi.CTensor * max(len(results), 1))()
        self._results, self._checked, self._given = results, False, outputs
        for port, tensor in zip(results, self._out):
            if port.name in outputs:
                self._place(tensor, port, outputs[port.name])
        # All arguments as C wants them: nothing is converted when it is called.
        self._alive = (made, tensors, entry.encode())
        self._arguments = (context._handle, c_char_p(self._alive[2]),
                           ctypes.cast(tensors, c_void_p), c_size_t(len(made)),
                           ctypes.cast(self._out, c_void_p), c_size_t(len(results)))
        self._run = RUN(ctypes.cast(context._library.lathe_run, c_void_p).value or 0)

    @staticmethod
    def _in_place(value: Any, port: Port, place: Place) -> tuple[Any, Any]:
        where = f"input '{port.name}'"
        if not hasattr(value, "__dlpack__"):
            raise Error(Code.USAGE, "it is bound to memory, which an array has and "
                        f"{type(value).__name__} has not", where)
        tensor, alive = input_tensor(value, port.dtype, where, place)
        if isinstance(value, np.ndarray) and value.size and value.ctypes.data != tensor.data:
            raise Error(Code.USAGE, "it would have to be copied (reversed, or of another byte "
                        "order)", where)
        return tensor, alive

    def _place(self, tensor: Any, port: Port, value: Any) -> None:
        """Makes the memory of `value` that of an output."""
        where = f"output '{port.name}'"
        if not hasattr(value, "__dlpack__"):
            raise Error(Code.USAGE, f"it wants an array, not {type(value).__name__}", where)
        if isinstance(value, np.ndarray) and not (value.flags.writeable and value.flags.c_contiguous):
            raise Error(Code.USAGE, "its memory must be row-major and writable", where)
        placed, alive = input_tensor(value, port.dtype, where, self._context._place)
        if _abi.DTYPES[placed.dtype] != port.dtype:
            raise Error(Code.USAGE, f"it is {port.dtype}, the memory is for "
                        f"{_abi.DTYPES[placed.dtype]}", where)
        tensor.data, tensor.bytes = placed.data, placed.bytes
        tensor.memory, tensor.dtype = placed.memory, placed.dtype
        self.outputs[port.name] = value
        self._keep = [*getattr(self, "_keep", ()), alive]

    def __call__(self) -> dict[str, Any]:
        error = self._run(*self._arguments)
        if error:
            _abi.raise_error(error)
        if not self._checked:
            self._check()
        return self.outputs

    def _check(self) -> None:
        """After the first run sizes are known, and the same from now on."""
        for port, tensor in zip(self._results, self._out):
            shape = tuple(tensor.dims[i] for i in range(tensor.rank))
            if port.name not in self.outputs:
                array = borrowed_array(tensor, False).copy()
                self._place(tensor, port, array)
            elif port.dtype not in PACKED and tuple(self.outputs[port.name].shape) != shape:
                raise Error(Code.USAGE, f"it is {'x'.join(map(str, shape))}, the memory is for "
                            f"{'x'.join(map(str, self.outputs[port.name].shape))}",
                            f"output '{port.name}'")
        self.outputs = {port.name: self.outputs[port.name] for port in self._results}
        self._checked = True
