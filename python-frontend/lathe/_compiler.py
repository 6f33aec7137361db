# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""compile(): include/lathe/compiler/lathe_compiler.h in Python."""
from __future__ import annotations

import contextlib
import ctypes
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_void_p
from typing import Any, Union

from . import _abi
from ._abi import text
from ._engine import Engine, load, load_memory
from ._errors import Code, Error
from ._report import Remarks

ABI_VERSION = 1
FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "lathe_compiler_version": (c_char_p, []),
    "lathe_compiler_aten_operators": (c_char_p, []),
    "lathe_compile_error_code": (c_int, [c_void_p]),
    "lathe_compile_error_message": (c_char_p, [c_void_p]),
    "lathe_compile_error_location": (c_char_p, [c_void_p]),
    "lathe_compile_error_free": (None, [c_void_p]),
    "lathe_compile_options_create": (c_void_p, []),
    "lathe_compile_options_destroy": (None, [c_void_p]),
    "lathe_compile_options_add": (Error, [c_void_p, c_char_p, c_char_p]),
    "lathe_compile_to_file": (Error, [c_char_p, c_void_p, c_char_p]),
    "lathe_compile_to_memory": (Error, [c_char_p, c_void_p, POINTER(c_void_p),
                                        POINTER(c_size_t)]),
    "lathe_compile_graph_to_file": (Error, [c_char_p, c_size_t, c_void_p, c_size_t, c_void_p, c_char_p]),
    "lathe_compile_graph_to_memory": (Error, [c_char_p, c_size_t, c_void_p, c_size_t, c_void_p,
                                              POINTER(c_void_p), POINTER(c_size_t)]),
    "lathe_compile_free": (None, [c_void_p]),
    "lathe_command": (c_int, [c_int, POINTER(c_char_p)]),
    "lathe_opt_command": (c_int, [c_int, POINTER(c_char_p)]),
}
PathLike = Union[str, "os.PathLike[str]"]
Bounds = Union[int, str, Sequence[int]]
_compiler: ctypes.CDLL | None = None

# A ModelProto of more cannot be one message of protobuf.
_LARGEST_MESSAGE = (1 << 31) - (1 << 20)


def _check(error: int | None, _function: Any, _arguments: Any) -> None:
    if error and _compiler is not None:
        raised = Error(_compiler.lathe_compile_error_code(error),
                       text(_compiler.lathe_compile_error_message(error)),
                       text(_compiler.lathe_compile_error_location(error)))
        _compiler.lathe_compile_error_free(error)
        raise raised


def library() -> ctypes.CDLL:
    """The compiler library, opened on the first call."""
    global _compiler
    if _compiler is None:
        opened = _abi.open_library("LATHE_COMPILER_LIBRARY", "liblathe_compiler.so")
        if opened.lathe_compiler_abi_version() != ABI_VERSION:
            raise Error(Code.UNSUPPORTED, "the library speaks another version of the interface",
                        "liblathe_compiler.so")
        _compiler = _abi.bind(opened, FUNCTIONS, _check)
    return _compiler


def bounds_text(value: Bounds) -> str:
    """4, (1, 8, 64) for low, optimum, high, or the command line's text."""
    return value if isinstance(value, str) else \
        str(value) if isinstance(value, int) else ":".join(map(str, value))


@contextlib.contextmanager
def model_file(model: Any) -> Iterator[str]:
    """A path that the compiler can open while inside: of a file, of bytes, of a ModelProto."""
    if isinstance(model, (str, os.PathLike)):
        yield os.fspath(model)
        return
    if hasattr(model, "SerializeToString") and model.ByteSize() > _LARGEST_MESSAGE:
        import onnx
        with tempfile.TemporaryDirectory(prefix="lathe-model") as folder:
            path = os.path.join(folder, "model.onnx")
            onnx.save_model(model, path, save_as_external_data=True, location="weights")
            yield path
        return
    data = model.SerializeToString() if hasattr(model, "SerializeToString") else model
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise Error(Code.USAGE, "a model is a path, bytes, an onnx.ModelProto, a torch.nn.Module or "
                    f"a torch ExportedProgram, not {type(model).__name__}")
    # A file without a place on a disk.
    descriptor = os.memfd_create("model.onnx")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
        path = f"/proc/self/fd/{descriptor}"
        try:
            yield path
        except Error as error:
            if path not in str(error):
                raise
            raise Error(error.code, error.message.replace(path, "the model"),
                        error.location.replace(path, "the model")) from None
    finally:
        os.close(descriptor)


def compile(model: Any, output: PathLike | None = None, *, args: Sequence[Any] | None = None,  # noqa: A001
            kwargs: Mapping[str, Any] | None = None, dynamic_shapes: Any = None,
            target: str = "native", dims: Mapping[str, Bounds] | None = None,
            shapes: Mapping[str, Sequence[int]] | None = None,
            entries: Mapping[str, str] | None = None, donate: Mapping[str, str] | None = None,
            remarks: bool = False, importer: str = "aten", fx_passes: Iterable[Any] = (),
            options: Iterable[tuple[str, Any]] = ()) -> Engine:
    """Compiles a model and returns the Engine.

    `model` is the path of a file (.onnx, ONNX text, MLIR of any phase), the bytes of a .onnx file,
    an onnx.ModelProto, a torch.nn.Module with `args`, or torch's ExportedProgram. With `output` the
    engine is written there; without, it stays in memory.

    args, kwargs, dynamic_shapes   of a module, as torch.export.export takes them
    target   "native", "x86-64-v3", "sm_90a", or several with commas
    dims     {"N": (1, 8, 64)} or {"N": 8}: bounds and optimum of symbolic sizes, or fixed ones
    shapes   {"x": (1, 3, 224, 224)}
    entries  {"prefill": "P=0", "decode": "S=1"}: named entries of one graph
    donate   {"k0": "pk0"}: inputs that become outputs; the pair is a state, or of equal sizes one
             memory of the caller's
    remarks  whether Engine.remarks is wanted; the compilation is then not taken from the cache
    importer  of models of torch: "aten" takes the operators that torch.export leaves as they are, "onnx" goes
             through torch.onnx
    fx_passes  of models of torch: functions over the torch.fx.GraphModule that torch.export leaves
             (lathe.torch.tanh_gelu, merge_linears, bfloat16_products are three)
    options  further (name, value) pairs of `lathe compile`, e.g. ("threads", 2)

    >>> import onnx.parser
    >>> model = onnx.parser.parse_model(
    ...     '<ir_version: 10, opset_import: ["": 21]> double (float[N] x) => (float[N] y) { y = Add(x, x) }')
    >>> engine = lathe.compile(model, dims={"N": (1, 4, 64)})
    >>> engine.inputs()
    [Port(name='x', dtype='f32', dims=('N',), donated_to=-1)]
    """
    from_torch = type(model).__module__.partition(".")[0] == "torch" or hasattr(model, "named_parameters")
    if importer not in ("aten", "onnx"):
        raise Error(Code.USAGE, f"importer is 'aten' or 'onnx', not {importer!r}")
    fx_passes = list(fx_passes)
    if fx_passes and (importer != "aten" or not from_torch):
        raise Error(Code.USAGE, "fx_passes are for models of torch that are imported by 'aten'")
    if not from_torch and (args is not None or kwargs is not None or dynamic_shapes is not None):
        raise Error(Code.USAGE, "args, kwargs and dynamic_shapes are for models of torch")
    graph = None
    if from_torch:
        from . import torch as torch_frontend
        if importer == "aten":
            graph = torch_frontend.to_graph(model, args, kwargs, dynamic_shapes, fx_passes)
        else:
            model = torch_frontend.to_onnx(model, args, kwargs, dynamic_shapes)
    pairs: list[tuple[str, Any]] = [("target", target)]
    pairs += [("dim", f"{k}={bounds_text(v)}") for k, v in (dims or {}).items()]
    pairs += [("shape", f"{k}={'x'.join(map(str, v))}") for k, v in (shapes or {}).items()]
    pairs += [("entry", f"{k}:{v}") for k, v in (entries or {}).items()]
    pairs += [("donate", f"{k}={v}") for k, v in (donate or {}).items()]
    pairs += options
    if graph is not None:
        return compile_graph(graph, output, pairs, remarks)
    try:
        with model_file(model) as path:
            return _with_remarks(lambda more: _compile_file(path, output, [*pairs, *more]), remarks)
    except Error as error:
        if not from_torch:
            raise
        raise torch_frontend.with_source(error, model) from None


def _with_remarks(compiled: Callable[[list[tuple[str, Any]]], Engine], wanted: bool) -> Engine:
    """The engine of `compiled`, which is given further options, with its remarks if they are wanted."""
    if not wanted:
        return compiled([])
    with tempfile.TemporaryDirectory(prefix="lathe-remarks") as folder:
        file = os.path.join(folder, "remarks.json")
        engine = compiled([("remarks", file)])
        engine.remarks = Remarks.read(file)
        return engine


def compile_graph(graph: Any, output: PathLike | None = None, pairs: Iterable[tuple[str, Any]] = (),
                  remarks: bool = False) -> Engine:
    """Compiles a lathe.torch.Graph; errors have the lines of Python that made their nodes."""
    try:
        return _with_remarks(lambda more: _compile_graph(graph.text, graph.weights, output, [*pairs, *more]), remarks)
    except Error as error:
        raise graph.with_source(error) from None


class _Weight(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("data", c_void_p), ("bytes", c_size_t)]


def _compile_graph(text_: str, weights: Mapping[str, Any], output: PathLike | None,
                   pairs: Iterable[tuple[str, Any]]) -> Engine:
    """The dialect aten as text; weights are torch tensors on the CPU, contiguous."""
    data = text_.encode()
    names = [name.encode() for name in weights]
    table = (_Weight * max(len(names), 1))()
    for row, name, tensor in zip(table, names, weights.values()):
        row.name, row.data, row.bytes = name, tensor.data_ptr(), tensor.numel() * tensor.element_size()
    return _engine(pairs, output, "graph", data, len(data), ctypes.cast(table, c_void_p), len(names))


def _compile_file(model: str, output: PathLike | None, pairs: Iterable[tuple[str, Any]]) -> Engine:
    return _engine(pairs, output, "", os.fsencode(model))


def _engine(pairs: Iterable[tuple[str, Any]], output: PathLike | None, kind: str, *model: Any) -> Engine:
    """`model`: the first arguments of the functions of this kind."""
    compiler = library()
    prefix = f"lathe_compile_{kind}_to_" if kind else "lathe_compile_to_"
    handle = compiler.lathe_compile_options_create()
    try:
        for name, value in pairs:
            compiler.lathe_compile_options_add(handle, name.encode(), os.fsencode(str(value)))
        if output is not None:
            getattr(compiler, prefix + "file")(*model, handle, os.fsencode(output))
            return load(output)
        data, size = c_void_p(), c_size_t()
        getattr(compiler, prefix + "memory")(*model, handle, byref(data), byref(size))
        try:
            return load_memory(data, size.value)
        finally:
            compiler.lathe_compile_free(data)
    finally:
        compiler.lathe_compile_options_destroy(handle)
