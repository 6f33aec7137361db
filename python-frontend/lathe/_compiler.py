# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""compile(): include/lathe/compiler/lathe_compiler.h in Python."""
import os
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_void_p, string_at

from . import _abi
from ._abi import text
from ._engine import load
from ._errors import Code, Error

ABI_VERSION = 1
FUNCTIONS = {
    "lathe_compiler_version": (c_char_p, []),
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
    "lathe_compile_free": (None, [c_void_p]),
}
_compiler = None


def _raise(error, _function, _arguments):
    if error:
        raised = Error(_compiler.lathe_compile_error_code(error),
                       text(_compiler.lathe_compile_error_message(error)),
                       text(_compiler.lathe_compile_error_location(error)))
        _compiler.lathe_compile_error_free(error)
        raise raised


def _library():
    global _compiler
    if _compiler is None:
        library = _abi.open_library("LATHE_COMPILER_LIBRARY", "liblathe_compiler.so")
        if library.lathe_compiler_abi_version() != ABI_VERSION:
            raise Error(Code.UNSUPPORTED, "the library speaks another version of the interface",
                        "liblathe_compiler.so")
        _compiler = _abi.bind(library, FUNCTIONS, _raise)
    return _compiler


def _bounds(value):
    """4, (1, 8, 64) for low, optimum, high, or the command line's text."""
    return value if isinstance(value, str) else \
        ":".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)


def compile(model, output=None, *, target="native", dims=None, shapes=None, entries=None,  # noqa: A001
            donate=None, options=()):
    """Compiles a model file (.onnx, ONNX text, MLIR of any phase) and returns the Engine.

    With `output` the engine is written there; without, it stays in memory.

    target   "native", "x86-64-v3", "sm_90a", or several with commas
    dims     {"N": (1, 8, 64)} or {"N": 8}: bounds and optimum of symbolic sizes, or fixed ones
    shapes   {"x": (1, 3, 224, 224)}
    entries  {"prefill": "P=0", "decode": "S=1"}: named entries of one graph
    donate   {"k0": "pk0"}: inputs that become outputs; the pair is a state, or of equal sizes one
             memory of the caller's
    options  further (name, value) pairs of `lathe compile`, e.g. ("remarks", "remarks.json")
    """
    library = _library()
    pairs = [("target", target)]
    pairs += [("dim", f"{k}={_bounds(v)}") for k, v in (dims or {}).items()]
    pairs += [("shape", f"{k}={'x'.join(map(str, v))}") for k, v in (shapes or {}).items()]
    pairs += [("entry", f"{k}:{v}") for k, v in (entries or {}).items()]
    pairs += [("donate", f"{k}={v}") for k, v in (donate or {}).items()]
    handle = library.lathe_compile_options_create()
    try:
        for name, value in [*pairs, *options]:
            library.lathe_compile_options_add(handle, name.encode(), str(value).encode())
        if output is not None:
            library.lathe_compile_to_file(os.fsencode(model), handle, os.fsencode(output))
            return load(output)
        data, size = c_void_p(), c_size_t()
        library.lathe_compile_to_memory(os.fsencode(model), handle, byref(data), byref(size))
        try:
            return load(string_at(data.value, size.value))
        finally:
            library.lathe_compile_free(data)
    finally:
        library.lathe_compile_options_destroy(handle)
