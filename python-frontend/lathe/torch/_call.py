# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of an engine with tensors of torch, in whose memory inputs and results lie: nothing is copied."""
from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from ctypes import c_char_p, c_int64, c_size_t, c_void_p
from typing import Any

import torch

from .. import _abi
from .._bind import RUN
from .._context import Context
from .._engine import Engine, Port
from .._errors import Code, Error
from ._parameters import TORCH_DTYPES, Parameters, fill

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

    `names`: of the arguments, as the graph has them; without them they are the inputs of the engine, in its order.
    `parameters`: the names of those that the engine was compiled for as parameters.

    Arguments are tensors of the device, or of the CPU without dimensions; sizes and types are those that the engine
    was compiled for, which the caller has checked (dynamo's guards). Results are new tensors. On a GPU the run is
    behind what torch's current stream has to do, and has ended when the call returns; views that are not row-major,
    which a CPU reads as they lie, are copied there by torch first.
    """

    def __init__(self, engine: Engine, device: torch.device, names: Sequence[str] = (),
                 parameters: Collection[str] = ()) -> None:
        self._device = device
        self._stream: Any = None
        if device.type == "cuda":
            stream: Any = torch.cuda.Stream  # untyped in torch
            self._stream = stream(device)
        self.context: Context = engine.context(str(device), threads=torch.get_num_threads(),
                                               stream=self._stream.cuda_stream if self._stream else None)
        entry = engine.entries[0]
        ports, outputs = engine.inputs(entry), engine.outputs(entry)
        inputs = [port for port in ports if not names or (port.name in names and port.name not in parameters)]
        self._inputs, self._outputs = inputs, outputs
        self._places = [names.index(port.name) for port in inputs] if names else list(range(len(inputs)))
        self.parameters: Parameters | None = None
        self._given = [at for at, name in enumerate(names) if name in parameters]
        self._fixed = [(at, port) for at, port in enumerate(ports) if port not in inputs]
        if parameters:
            self.parameters = Parameters(engine, self.context, [names[at] for at in self._given],
                                         [port for _, port in self._fixed])
        self._in = (_abi.CTensor * max(len(ports), 1))()
        self._out = (_abi.CTensor * max(len(outputs), 1))()
        self._own = [self._in[at] for at, port in enumerate(ports) if port in inputs]  # those of `inputs`
        self._dims: list[Any] = []  # memory of sizes
        self._strides: list[Any] = []
        self._varying: list[tuple[int, int, str]] = []  # (input, axis, symbol or formula)
        for at, port in self._fixed:
            rank = len(port.dims)
            self._in[at].rank, self._in[at].dims = rank, (c_int64 * max(rank, 1))(*map(int, port.dims))
        for at, (port, tensor) in enumerate(zip(inputs, self._own)):
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
        self._entry = c_char_p(entry.encode())
        self._arguments = (self.context._handle, self._entry, ctypes.cast(self._in, c_void_p), c_size_t(len(ports)),
                           ctypes.cast(self._out, c_void_p), c_size_t(len(outputs)))
        self._run = RUN(ctypes.cast(self.context._library.lathe_run, c_void_p).value or 0)

    def __call__(self, arguments: Sequence[Any]) -> tuple[Any, ...]:
        tensors = [arguments[at] for at in self._places]
        if self._stream is not None:  # no stride may be given of memory of a device
            tensors = [tensor.contiguous() for tensor in tensors]
        if self.parameters is not None and self.parameters.changed(tuple([arguments[at] for at in self._given])):
            for (at, port), tensor in zip(self._fixed, self.parameters.tensors):
                fill(self._in[at], port, tensor)
        if self._of_data:  # the sizes of results are known only behind the run
            return self._run_of_data(tensors)
        for given, tensor, strides in zip(tensors, self._own, self._strides):
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
            made = torch.empty(shape(symbols), dtype=TORCH_DTYPES[port.dtype], device=self._device)
            tensor.data, tensor.bytes, tensor.dtype = made.data_ptr(), made.nbytes, _abi.DTYPES.index(port.dtype)
            tensor.memory = _abi.HOST if self._stream is None else _abi.DEVICE
            results.append(made)
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._device))
        error = self._run(*self._arguments)
        if error:
            _abi.raise_error(error)
        return tuple(results)

    def _run_of_data(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        given = {port.name: tensor.detach() for port, tensor in zip(self._inputs, tensors)}
        if self.parameters is not None:
            given.update((port.name, tensor) for (_, port), tensor in zip(self._fixed, self.parameters.tensors))
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._device))
        found = self.context.run(given, memory="host" if self._stream is None else "device")
        return tuple(torch.utils.dlpack.from_dlpack(r) for r in found.values())


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
