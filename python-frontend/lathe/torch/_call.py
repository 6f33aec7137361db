# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of an engine with tensors of torch, in whose memory inputs and results lie: nothing is copied."""
from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Mapping, Sequence
from ctypes import c_char_p, c_int64, c_size_t, c_void_p
from typing import Any

import torch

from .. import _abi
from .._bind import RUN
from .._context import Context
from .._engine import Engine, Port
from .._errors import Code, Error
from ._graph import DTYPES

_TORCH = {name.lower(): dtype for dtype, name in DTYPES.items()} | {"bool": torch.bool}
_FUNCTIONS: dict[str, Callable[..., int]] = {
    "floordiv": lambda a, b: a // b, "ceildiv": lambda a, b: -(-a // b), "mod": lambda a, b: a % b, "min": min,
    "max": max, "bcast": lambda a, b: b if a == 1 else a}


def target_of(device: torch.device) -> str:
    """The target of lathe for a device of torch."""
    if device.type == "cpu":
        return "native"
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}" + ("a" if major >= 9 else "")


def _shape(port: Port) -> Callable[[Mapping[str, int]], tuple[int, ...]]:
    """The sizes of a port as a function of its symbols."""
    code = compile(f"({' '.join(f'{d},' for d in port.dims)})", f"sizes of {port.name}", "eval")
    return lambda symbols: tuple(eval(code, {"__builtins__": {}}, {**_FUNCTIONS, **symbols}))  # noqa: S307


class Call:
    """An engine on a device of torch. One thread at a time may call it.

    Arguments are tensors of the device, or of the CPU without dimensions; sizes and types are those that the engine
    was compiled for, which the caller has checked (dynamo's guards). Results are new tensors. On a GPU the run is
    behind what torch's current stream has to do, and has ended when the call returns.
    """

    def __init__(self, engine: Engine, device: torch.device) -> None:
        self._device = device
        self._stream: Any = None
        if device.type == "cuda":
            stream: Any = torch.cuda.Stream  # untyped in torch
            self._stream = stream(device)
        self.context: Context = engine.context(str(device), threads=torch.get_num_threads(),
                                               stream=self._stream.cuda_stream if self._stream else None)
        inputs, outputs = engine.inputs(), engine.outputs()
        self._inputs, self._outputs = inputs, outputs
        self._in = (_abi.CTensor * max(len(inputs), 1))()
        self._out = (_abi.CTensor * max(len(outputs), 1))()
        self._dims: list[Any] = []  # memory of sizes
        self._strides: list[Any] = []
        self._varying: list[tuple[int, int, str]] = []  # (input, axis, symbol or formula)
        for at, (port, tensor) in enumerate(zip(inputs, self._in)):
            rank = len(port.dims)
            dims, strides = (c_int64 * max(rank, 1))(), (c_int64 * max(rank, 1))()
            self._dims.append(dims)
            self._strides.append(strides)
            tensor.dtype, tensor.rank, tensor.dims = _abi.DTYPES.index(port.dtype), rank, dims
            for axis, size in enumerate(port.dims):
                if size.isdigit():
                    dims[axis] = int(size)
                else:
                    self._varying.append((at, axis, size))
        self._shapes = [_shape(port) for port in outputs]
        given = {size for _, _, size in self._varying}
        self._of_data = any(set(re.findall(r"[^\W\d]\w*", size)) - given - set(_FUNCTIONS)
                            for port in outputs for size in port.dims)
        self._entry = c_char_p(engine.entries[0].encode())
        self._arguments = (self.context._handle, self._entry, ctypes.cast(self._in, c_void_p), c_size_t(len(inputs)),
                           ctypes.cast(self._out, c_void_p), c_size_t(len(outputs)))
        self._run = RUN(ctypes.cast(self.context._library.lathe_run, c_void_p).value or 0)

    def __call__(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        if self._of_data:  # the sizes of results are known only behind the run
            if self._stream is not None:
                self._stream.wait_stream(torch.cuda.current_stream(self._device))
            found = self.context.run(list(tensors), memory="host" if self._stream is None else "device")
            return tuple(torch.utils.dlpack.from_dlpack(r) for r in found.values())
        for given, tensor, strides in zip(tensors, self._in, self._strides):
            tensor.data = given.data_ptr()
            tensor.bytes = given.nbytes
            if given.is_contiguous():
                tensor.strides = None
            else:
                strides[:] = given.stride()
                tensor.bytes = given.untyped_storage().nbytes() - given.storage_offset() * given.itemsize
                tensor.strides = strides
            if self._stream is not None:
                tensor.memory = _abi.DEVICE if given.is_cuda else _abi.HOST
        symbols: dict[str, int] = {}
        for at, axis, size in self._varying:
            symbols[size] = self._dims[at][axis] = tensors[at].shape[axis]
        results = []
        for port, shape, tensor in zip(self._outputs, self._shapes, self._out):
            made = torch.empty(shape(symbols), dtype=_TORCH[port.dtype], device=self._device)
            tensor.data, tensor.bytes, tensor.dtype = made.data_ptr(), made.nbytes, _abi.DTYPES.index(port.dtype)
            tensor.memory = _abi.HOST if self._stream is None else _abi.DEVICE
            results.append(made)
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._device))
        error = self._run(*self._arguments)
        if error:
            _abi.raise_error(error)
        return tuple(results)


def device_of(tensors: Sequence[Any]) -> torch.device:
    """The one device of tensors; tensors of the CPU without dimensions may be beside those of another."""
    devices = {t.device for t in tensors if t.dim() or t.device.type != "cpu"}
    if len(devices) > 1:
        raise Error(Code.UNSUPPORTED, f"arguments are on several devices: {', '.join(sorted(map(str, devices)))}",
                    "torch.compile(backend='lathe')")
    device = devices.pop() if devices else torch.device("cpu")
    if device.type not in ("cpu", "cuda"):
        raise Error(Code.UNSUPPORTED, f"an argument is on {device}, no CPU and no CUDA device",
                    "torch.compile(backend='lathe')")
    return device
