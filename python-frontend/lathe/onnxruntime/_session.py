# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""InferenceSession: a model compiled by lathe behind onnxruntime's interface."""
from __future__ import annotations

import mmap
import os
import tempfile
import threading
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable

import numpy as np

from .. import _compiler, _lists
from .._context import Context
from .._engine import Engine, Port, load
from .._errors import Code, Error
from . import _nested, _wire
from ._binding import IOBinding
from ._errors import InvalidArgument, InvalidProtobuf, NoSuchFile, of
from ._options import RunOptions, SessionOptions, ignore
from ._providers import PROVIDERS, Providers, chosen, device_of, get_available_providers, targets_of
from ._values import ELEMENTS, Array, ModelMetadata, NodeArg, OrtValue, as_array, element_of, numpy_of

Feed = Mapping[str, Any]
Callback = Callable[[Any, Any, str], None]


def _size(formula: str) -> _wire.Dim:
    return int(formula) if formula.isdigit() else formula if formula.isidentifier() else None


class Specialized(UserWarning):
    """A model that lathe compiles again for each size that comes; the text says why."""


def _decides(argument: NodeArg, value: Any) -> bool:
    """Whether a value may be a size, an axis or a choice, which a specialized engine has inside."""
    return not _nested.is_nested(argument.type) and value.dtype.kind in "iub" and value.size <= 16


def _key(argument: NodeArg, value: Any) -> Any:
    """What an engine that is specialized knows of an input."""
    if isinstance(value, list):
        return tuple(v.shape for v in value)
    return None if value is None else (value.shape, value.tobytes() if _decides(argument, value) else b"")


class InferenceSession:
    """Compiles a model (a path or bytes; an engine too) and runs it, from any number of threads.

    A model that lathe compiles only where sizes are known is compiled by the runs, for each size and each
    value of small integer inputs, with a warning (`Specialized`); as long as engines are few, that is well.
    What onnxruntime has and lathe has not is ignored with one warning each; with strict=True it is an
    error. Providers choose the device by their names.
    """

    strict = False
    """The default of `strict`; `install(strict=True)` sets it."""

    def __init__(self, path_or_bytes: str | bytes | os.PathLike[str], sess_options: SessionOptions | None = None,
                 providers: Providers | None = None,
                 provider_options: Sequence[dict[Any, Any]] | None = None, *,
                 strict: bool | None = None, **kwargs: Any) -> None:
        self._options = sess_options if sess_options is not None else SessionOptions()
        self._strict = self.strict if strict is None else strict
        self._options._tell(self._strict)
        for name, value in kwargs.items():
            if value:
                ignore(f"InferenceSession({name}=...)", self._strict)
        self._open(path_or_bytes, providers, provider_options)

    def _open(self, model: Any, providers: Providers | None, options: Any) -> None:
        self._model = model
        self._providers, self._provider_options = chosen(providers, options, self._strict)
        self._device = device_of(self._providers, self._provider_options)
        said, is_engine = self._read(model)
        self._said = said or _wire.Model()
        self._idle: dict[Any, list[Context]] = {}
        self._engines: dict[Any, Engine] = {}
        self._lock = threading.Lock()
        self._special = False
        """Whether the model compiles only where sizes and small integers are known: then there is an
        engine for each that comes."""
        try:
            engine = load(model) if is_engine else self._compile(model, self._options._sizes, ())
        except Error as error:
            if error.code != Code.UNSUPPORTED or said is None or not said.inputs:
                raise of(error, InvalidProtobuf if error.code == Code.INVALID and error.node is None
                         else None) from error
            self._special, self._reason = True, error
            named = [v for v in said.inputs if v.name not in said.initializers]
            self._inputs, self._outputs = ([NodeArg(v.name, v.type, self._sizes(v.shape or [])) for v in values]
                                           for values in (named, said.outputs))
        else:
            self._engines[None] = engine
            shapes = {value.name: value.shape for value in [*self._said.inputs, *self._said.outputs]}
            self._inputs = self._arguments(engine.inputs(), shapes)
            self._outputs = self._arguments(engine.outputs(), shapes)
            if any(_nested.is_nested(v.type) for v in self._said.inputs):
                self._inputs = [NodeArg(v.name, v.type, self._sizes(v.shape or [])) for v in self._said.inputs
                                if v.name not in self._said.initializers]
            if any(_nested.is_nested(v.type) for v in self._said.outputs):
                self._outputs = [NodeArg(v.name, v.type, self._sizes(v.shape or [])) for v in self._said.outputs]
        self._pool: ThreadPoolExecutor | None = None

    @staticmethod
    def _read(model: Any) -> tuple[_wire.Model | None, bool]:
        """What the model says of itself, and whether it is an engine already."""
        if isinstance(model, (str, os.PathLike)):
            try:
                with open(model, "rb") as file:
                    if os.fstat(file.fileno()).st_size == 0:
                        return None, False
                    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                        is_engine = data[:5] == b"LATHE"
                        with memoryview(data) as view:
                            return (None if is_engine else _wire.read(view)), is_engine
            except FileNotFoundError:
                raise NoSuchFile(f"Load model from {os.fspath(model)} failed: file doesn't exist") from None
        if not isinstance(model, (bytes, bytearray, memoryview)):
            raise TypeError(f"Unable to load from type '{type(model)}'")
        is_engine = bytes(model[:5]) == b"LATHE"
        return (None if is_engine else _wire.read(memoryview(model))), is_engine

    def _compile(self, model: Any, dims: Mapping[str, int], options: Sequence[tuple[str, str]]) -> Engine:
        return _compiler.compile(model, dims=dims, target=targets_of(self._device), options=options)

    def _specialize(self, inputs: Sequence[Any]) -> Engine:
        """An engine for the sizes and the small integers of these inputs."""
        warnings.warn(f"lathe compiles this model for each size that comes: {self._reason}", Specialized,
                      stacklevel=6)
        with tempfile.TemporaryDirectory(prefix="lathe-constants") as folder:
            options = []
            for at, (argument, array) in enumerate(zip(self._inputs, inputs)):
                if _nested.is_nested(argument.type):
                    options += _nested.options(array, argument.name)
                elif _decides(argument, array):
                    path = os.path.join(folder, f"{at}.npy")
                    np.save(path, array)
                    options.append(("const", f"{argument.name}={path}"))
                elif array.ndim:
                    options.append(("shape", f"{argument.name}={'x'.join(map(str, array.shape))}"))
            try:
                return self._compile(self._model, {}, options)
            except Error as error:
                raise of(error) from self._reason

    def _sizes(self, shape: Sequence[_wire.Dim]) -> list[_wire.Dim]:
        return [self._options._sizes.get(d, d) if isinstance(d, str) else d for d in shape]

    def _arguments(self, ports: Sequence[Port], shapes: Mapping[str, Any]) -> list[NodeArg]:
        """What an engine has, lists in place of their parts, which do not tell an optional tensor from a sequence."""
        names = [port.name for port in ports]
        parts = {part: name for name in _lists.list_names(names) for part in _lists.parts_of(name)}
        made: dict[str, NodeArg] = {}
        for port in ports:
            name = parts.get(port.name)
            if name is None:
                made[port.name] = self._argument(port, shapes)
            elif port.name == name + _lists.VALUES:
                kind = f"seq(tensor({ELEMENTS[port.dtype]}))"
                made[name] = NodeArg(name, f"optional({kind})" if name + _lists.PRESENT in names else kind, [])
        return list(made.values())

    def _argument(self, port: Port, shapes: Mapping[str, Any]) -> NodeArg:
        shape = shapes.get(port.name)
        if shape is None or len(shape) != len(port.dims):
            shape = [_size(dim) for dim in port.dims]
        return NodeArg(port.name, f"tensor({ELEMENTS[port.dtype]})", self._sizes(shape))

    # What it is.

    def get_inputs(self) -> list[NodeArg]:
        return list(self._inputs)

    def get_outputs(self) -> list[NodeArg]:
        return list(self._outputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Initializers that are inputs too; lathe compiles their values, so that none can be overridden."""
        return []

    def get_modelmeta(self) -> ModelMetadata:
        said = self._said
        return ModelMetadata(said.producer_name, said.graph_name, said.domain, said.doc_string,
                             said.graph_doc_string, said.version, dict(said.properties))

    def get_providers(self) -> list[str]:
        return list(self._providers)

    def get_provider_options(self) -> dict[str, dict[str, Any]]:
        return dict(zip(self._providers, self._provider_options))

    def set_providers(self, providers: Providers | None = None,
                      provider_options: Sequence[dict[Any, Any]] | None = None) -> None:
        self._open(self._model, providers, provider_options)

    def get_session_options(self) -> SessionOptions:
        return self._options

    def disable_fallback(self) -> None:
        """There never is one."""

    def enable_fallback(self) -> None:
        ignore("InferenceSession.enable_fallback", self._strict)

    def end_profiling(self) -> str:
        ignore("InferenceSession.end_profiling", self._strict)
        return ""

    def get_profiling_start_time_ns(self) -> int:
        return 0

    # Running.

    def run(self, output_names: Sequence[str] | None, input_feed: Feed,
            run_options: RunOptions | None = None) -> list[Any]:
        """The outputs that are named, as numpy arrays; all where none is."""
        return [numpy_of(value) for value in self._run(output_names, input_feed, run_options)]

    def run_with_ort_values(self, output_names: Sequence[str] | None, input_dict_ort_values: Feed,
                            run_options: RunOptions | None = None) -> list[OrtValue]:
        return [OrtValue(numpy_of(value))
                for value in self._run(output_names, input_dict_ort_values, run_options)]

    def run_async(self, output_names: Sequence[str] | None, input_feed: Feed, callback: Callback,
                  user_data: Any, run_options: RunOptions | None = None) -> None:
        """Runs in a thread, which then calls `callback(outputs, user_data, error)`; `error` is a text,
        empty where all went well."""
        def work() -> None:
            try:
                outputs, error = self.run(output_names, input_feed, run_options), ""
            except Exception as problem:
                outputs, error = [], str(problem)
            callback(outputs, user_data, error)

        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(4, "lathe-onnxruntime")
        self._pool.submit(work)

    def io_binding(self) -> IOBinding:
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        iobinding._run(run_options)

    def _run(self, names: Sequence[str] | None, feed: Feed, options: RunOptions | None) -> list[Any]:
        if options is not None:
            options._tell(self._strict)
        known = [argument.name for argument in self._outputs]
        for name in names or ():
            if name not in known:
                raise InvalidArgument(f"Invalid output name: {name}; the model's are {', '.join(known)}")
        inputs = self._check(feed)
        key = tuple(map(_key, self._inputs, inputs)) if self._special else None
        context, given = self._take(key, inputs)
        try:
            outputs = context.run(given)
        except Error as error:
            raise of(error) from error
        finally:
            with self._lock:
                self._idle.setdefault(key, []).append(context)
        made = _nested.gathered([(argument.name, argument.type) for argument in self._outputs], outputs)
        return [made[name] for name in (names or known)]

    def _check(self, feed: Feed) -> list[Any]:
        """The inputs in order; what is wrong with them in onnxruntime's words."""
        wanted = [argument.name for argument in self._inputs]
        missing = [name for name in wanted if name not in feed]
        if missing:
            raise ValueError(f"Required inputs ({missing}) are missing from input feed ({list(feed)}).")
        for name in feed:
            if name not in wanted:
                raise InvalidArgument(f"Invalid input name: {name}; the model's are {', '.join(wanted)}")
        arrays = []
        for argument in self._inputs:
            if _nested.is_nested(argument.type):
                arrays.append(_nested.checked(feed[argument.name], argument.name, argument.type))
                continue
            array = as_array(feed[argument.name], argument.name, argument.type[len("tensor("):-1])
            given = f"tensor({element_of(array.dtype)})"
            if given != argument.type:
                raise InvalidArgument(f"Unexpected input data type. Actual: ({given}) , expected: "
                                      f"({argument.type}), input: {argument.name}")
            if array.ndim != len(argument.shape):
                raise InvalidArgument(f"Invalid rank for input: {argument.name} Got: {array.ndim} Expected: "
                                      f"{len(argument.shape)}")
            for at, (have, want) in enumerate(zip(array.shape, argument.shape)):
                if isinstance(want, int) and have != want:
                    raise InvalidArgument("Got invalid dimensions for input: "
                                          f"{argument.name}\n index: {at} Got: {have} Expected: {want}")
            arrays.append(array)
        return arrays

    def _take(self, key: Any, inputs: list[Any]) -> tuple[Context, list[Array]]:
        """A context that nobody uses (a session may be run by several threads, a context by one), and
        those of the inputs that its engine has."""
        with self._lock:
            if key not in self._engines:
                self._engines[key] = self._specialize(inputs)
            engine = self._engines[key]
            idle = self._idle.get(key)
            context = idle.pop() if idle else None
        if self._special or any(_nested.is_nested(argument.type) for argument in self._inputs):
            named = {port.name: port.dtype for port in engine.inputs()}
            lists = _lists.list_names(named)
            parts: list[tuple[str, Any]] = []
            for argument, value in zip(self._inputs, inputs):
                name = argument.name
                parts += (_lists.pack(value, name, named[name + _lists.VALUES], named).items() if name in lists
                          else _nested.ports(value, name))
            inputs = [array for name, array in parts if name in named]
        try:
            return context or engine.context(self._device, threads=self._options.intra_op_num_threads), inputs
        except Error as error:
            raise of(error) from error


__all__ = ["PROVIDERS", "InferenceSession", "Specialized", "get_available_providers"]
