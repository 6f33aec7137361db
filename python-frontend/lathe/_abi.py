# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""include/lathe/runtime/lathe.h and lathe_llm.h in ctypes: structs, functions, and the way to the library."""
from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from ctypes import POINTER, c_char_p, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any, Callable, NoReturn

from ._errors import Code, Error

ABI_VERSION = 2
DTYPES = ("bool i8 i16 i32 i64 ui8 ui16 ui32 ui64 f16 bf16 f32 f64 f8e4m3fn f8e4m3fnuz f8e5m2 "
          "f8e5m2fnuz f8e8m0 i4 ui4 f4e2m1 i2 ui2 c64 c128 string").split()
HOST, DEVICE = 0, 1


class DLDevice(ctypes.Structure):
    _fields_ = [("device_type", c_int32), ("device_id", c_int32)]


class DLDataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class DLTensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("device", DLDevice), ("ndim", c_int32), ("dtype", DLDataType),
                ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)),
                ("byte_offset", c_uint64)]


class DLManagedTensor(ctypes.Structure):
    dl_tensor: DLTensor
    manager_ctx: Any
    deleter: Any


class DLManagedTensorVersioned(ctypes.Structure):
    """DLPack from version 1.0 on."""

    dl_tensor: DLTensor
    flags: int
    deleter: Any


DELETER = ctypes.CFUNCTYPE(None, POINTER(DLManagedTensor))
DLManagedTensor._fields_ = [("dl_tensor", DLTensor), ("manager_ctx", c_void_p),
                            ("deleter", DELETER)]
VERSIONED_DELETER = ctypes.CFUNCTYPE(None, POINTER(DLManagedTensorVersioned))
DLManagedTensorVersioned._fields_ = [
    ("major", c_uint32), ("minor", c_uint32), ("manager_ctx", c_void_p),
    ("deleter", VERSIONED_DELETER), ("flags", c_uint64), ("dl_tensor", DLTensor)]
READ_ONLY, IS_COPIED = 1, 2  # bits of `flags`


class CTensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("bytes", c_uint64), ("dtype", c_int), ("memory", c_int),
                ("rank", c_int32), ("dims", POINTER(c_int64)), ("strides", POINTER(c_int64))]


class CPort(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("dtype", c_int), ("rank", c_int32),
                ("dims", POINTER(c_char_p)), ("donated_to", c_int32)]


class CSymbol(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("min", c_int64), ("max", c_int64), ("opt", c_int64),
                ("multiple_of", c_int64)]


class COptions(ctypes.Structure):
    _fields_ = [("size", c_uint32), ("threads", c_int32), ("target", c_char_p),
                ("stream", c_void_p), ("no_graphs", c_int32), ("no_pinning", c_int32),
                ("no_overlap", c_int32), ("max_graphs", c_int32), ("max_graph_bytes", c_uint64),
                ("deadline_ms", c_int64)]


class CWorld(ctypes.Structure):
    _fields_ = [("size", c_uint32), ("rank", c_int32), ("ranks", c_int32), ("port", c_int32),
                ("host", c_char_p), ("join_ms", c_int64), ("silence_ms", c_int64)]


class COpenOptions(ctypes.Structure):
    _fields_ = [("size", c_uint32), ("key_ring", c_char_p)]


class CSubmitOptions(ctypes.Structure):
    _fields_ = [("size", c_uint32), ("wait_count", c_uint32), ("wait_events", POINTER(c_void_p)),
                ("record_event", c_void_p)]


COUNTERS = ("runs launches graph_launches graphs_captured host_steps bytes_to_device "
            "bytes_from_device bytes_staged state_bytes_appended state_bytes_copied arena_bytes "
            "state_bytes weight_bytes graph_seconds graph_nodes_updated graphs graph_bytes").split()


class CCounters(ctypes.Structure):
    _fields_ = [(name, ctypes.c_double if name == "graph_seconds" else c_uint64)
                for name in COUNTERS]


class CAttribute(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("ints", POINTER(c_int64)), ("int_count", c_size_t),
                ("floats", POINTER(ctypes.c_double)), ("float_count", c_size_t),
                ("text", c_char_p)]


class CProfileRow(ctypes.Structure):
    _fields_ = [("entry", c_char_p), ("kernel", c_char_p), ("config", c_char_p),
                ("nodes", c_char_p), ("calls", c_uint64), ("seconds", ctypes.c_double),
                ("flops", ctypes.c_double), ("bytes", ctypes.c_double)]


class CProfileEvent(ctypes.Structure):
    _fields_ = [("row", c_uint64), ("begin", ctypes.c_double), ("seconds", ctypes.c_double)]


class CCall(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("inputs", POINTER(CTensor)), ("input_count", c_size_t),
                ("outputs", POINTER(CTensor)), ("output_count", c_size_t),
                ("attributes", POINTER(CAttribute)), ("attribute_count", c_size_t)]


class CLlmOptions(ctypes.Structure):
    _fields_ = [("size", c_uint32), ("threads", c_int32), ("kv_bytes", c_uint64),
                ("max_sequence_tokens", c_uint32), ("max_step_tokens", c_uint32),
                ("max_requests", c_uint32), ("no_prefix_cache", c_int32),
                ("batch_invariant", c_int32), ("no_graphs", c_int32),
                ("swap_bytes", c_uint64), ("overlap", c_int32)]


class CLlmRequest(ctypes.Structure):
    _fields_ = [("size", c_uint32), ("max_tokens", c_uint32), ("tokens", POINTER(c_uint32)),
                ("token_count", c_size_t), ("stop_tokens", POINTER(c_uint32)),
                ("stop_count", c_size_t), ("temperature", c_float), ("top_p", c_float),
                ("top_k", c_uint32), ("seed", c_uint64), ("min_p", c_float),
                ("repetition_penalty", c_float), ("presence_penalty", c_float),
                ("frequency_penalty", c_float), ("bias_tokens", POINTER(c_uint32)),
                ("bias_values", POINTER(c_float)), ("bias_count", c_size_t),
                ("allowed", POINTER(c_uint32)), ("allowed_words", c_size_t),
                ("min_tokens", c_uint32), ("logprobs", c_int32), ("prompt_logprobs", c_int32),
                ("top_logprobs", c_uint32), ("samples", c_uint32), ("priority", c_int32),
                ("tenant", c_uint64)]


class CLlmTenant(ctypes.Structure):
    _fields_ = [("size", c_uint32), ("max_requests", c_uint32), ("max_tokens", c_uint64),
                ("weight", ctypes.c_double)]


class CLlmResult(ctypes.Structure):
    _fields_ = [("tokens", POINTER(c_uint32)), ("token_count", c_size_t), ("finish", c_int),
                ("first_token_ns", c_int64), ("last_token_ns", c_int64)]


class CLlmLogprob(ctypes.Structure):
    _fields_ = [("token", c_uint32), ("logprob", c_float)]


class CLlmLogprobs(ctypes.Structure):
    _fields_ = [("logprob", c_float), ("rank", c_uint32), ("top", POINTER(CLlmLogprob)),
                ("top_count", c_size_t)]


LLM_COUNTERS = ("steps prompt_tokens prompt_hits computed_tokens generated_tokens preemptions "
                "waiting running kv_blocks kv_blocks_held swaps waited_ns").split()


class CLlmCounters(ctypes.Structure):
    _fields_ = [("size", c_uint32),
                *((name, c_uint64 if i < 6 or i > 9 else c_uint32) for i, name in enumerate(LLM_COUNTERS))]


# The result is the address of a message, or NULL.
CALL = ctypes.CFUNCTYPE(c_void_p, c_void_p, POINTER(CCall))


# name: result, arguments. A result of `Error` is a lathe_error* that becomes an exception.
FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "lathe_error_code": (c_int, [c_void_p]),
    "lathe_error_message": (c_char_p, [c_void_p]),
    "lathe_error_location": (c_char_p, [c_void_p]),
    "lathe_error_free": (None, [c_void_p]),
    "lathe_tensor_from_dlpack": (Error, [c_void_p, POINTER(CTensor)]),
    "lathe_tensor_to_dlpack": (Error, [c_void_p, POINTER(CTensor),
                                       POINTER(POINTER(DLManagedTensor))]),
    "lathe_tensor_take_dlpack": (Error, [c_void_p, POINTER(CTensor),
                                         POINTER(POINTER(DLManagedTensor))]),
    "lathe_fingerprint": (c_uint64, [POINTER(CTensor), c_size_t]),
    "lathe_engine_open": (Error, [c_char_p, POINTER(c_void_p)]),
    "lathe_engine_open_memory": (Error, [c_char_p, c_size_t, POINTER(c_void_p)]),
    "lathe_engine_open_with": (Error, [c_char_p, POINTER(COpenOptions), POINTER(c_void_p)]),
    "lathe_engine_open_memory_with": (Error, [c_char_p, c_size_t, POINTER(COpenOptions),
                                              POINTER(c_void_p)]),
    "lathe_engine_close": (None, [c_void_p]),
    "lathe_engine_build_id": (c_char_p, [c_void_p]),
    "lathe_engine_entry_count": (c_size_t, [c_void_p]),
    "lathe_engine_entry_name": (c_char_p, [c_void_p, c_size_t]),
    "lathe_engine_target_count": (c_size_t, [c_void_p]),
    "lathe_engine_target_name": (c_char_p, [c_void_p, c_size_t]),
    "lathe_engine_input_count": (c_size_t, [c_void_p, c_char_p]),
    "lathe_engine_output_count": (c_size_t, [c_void_p, c_char_p]),
    "lathe_engine_input": (POINTER(CPort), [c_void_p, c_char_p, c_size_t]),
    "lathe_engine_output": (POINTER(CPort), [c_void_p, c_char_p, c_size_t]),
    "lathe_engine_symbol_count": (c_size_t, [c_void_p, c_char_p]),
    "lathe_engine_symbol": (POINTER(CSymbol), [c_void_p, c_char_p, c_size_t]),
    "lathe_engine_state_count": (c_size_t, [c_void_p]),
    "lathe_engine_state_name": (c_char_p, [c_void_p, c_size_t]),
    "lathe_context_create": (Error, [c_void_p, c_char_p, POINTER(COptions), POINTER(c_void_p)]),
    "lathe_context_destroy": (None, [c_void_p]),
    "lathe_context_create_rank": (Error, [c_void_p, c_char_p, POINTER(COptions), POINTER(CWorld),
                                          POINTER(c_void_p)]),
    "lathe_context_rank": (c_int32, [c_void_p]),
    "lathe_context_ranks": (c_int32, [c_void_p]),
    "lathe_context_target": (c_char_p, [c_void_p]),
    "lathe_context_input_stream": (Error, [c_void_p, POINTER(c_void_p)]),
    "lathe_context_wait_for": (Error, [c_void_p, c_void_p]),
    "lathe_context_register_call": (Error, [c_void_p, c_char_p, CALL, c_void_p]),
    "lathe_run": (Error, [c_void_p, c_char_p, POINTER(CTensor), c_size_t, POINTER(CTensor),
                          c_size_t]),
    "lathe_submit": (Error, [c_void_p, c_char_p, POINTER(CTensor), c_size_t, POINTER(CTensor),
                             c_size_t, POINTER(CSubmitOptions), POINTER(c_uint64)]),
    "lathe_wait": (Error, [c_void_p, c_uint64, c_int64]),
    "lathe_poll": (Error, [c_void_p, c_uint64, POINTER(c_int)]),
    "lathe_cancel": (None, [c_void_p, c_uint64]),
    "lathe_warm": (Error, [c_void_p, c_char_p, POINTER(CTensor), c_size_t, POINTER(CTensor),
                           c_size_t]),
    "lathe_group_create": (Error, [c_void_p, POINTER(c_char_p), c_size_t, POINTER(COptions),
                                   POINTER(c_void_p)]),
    "lathe_group_destroy": (None, [c_void_p]),
    "lathe_group_member": (c_void_p, [c_void_p, c_size_t]),
    "lathe_group_submit": (Error, [c_void_p, c_char_p, POINTER(CTensor), c_size_t,
                                   POINTER(CTensor), c_size_t, POINTER(c_uint64)]),
    "lathe_group_wait": (Error, [c_void_p, c_uint64, c_int64]),
    "lathe_group_cancel": (None, [c_void_p, c_uint64]),
    "lathe_state_length": (Error, [c_void_p, c_char_p, POINTER(c_int64)]),
    "lathe_state_capacity": (Error, [c_void_p, c_char_p, POINTER(c_int64)]),
    "lathe_state_truncate": (Error, [c_void_p, c_char_p, c_int64]),
    "lathe_state_reset": (Error, [c_void_p, c_char_p]),
    "lathe_state_read": (Error, [c_void_p, c_char_p, c_void_p]),
    "lathe_state_write": (Error, [c_void_p, c_char_p, c_void_p]),
    "lathe_context_seed": (Error, [c_void_p, c_uint64]),
    "lathe_context_counters": (None, [c_void_p, POINTER(CCounters)]),
    "lathe_context_reset_counters": (None, [c_void_p]),
    "lathe_context_time_graphs": (None, [c_void_p, c_int]),
    "lathe_context_profile": (None, [c_void_p, c_int]),
    "lathe_llm_create": (Error, [c_void_p, c_char_p, POINTER(CLlmOptions), POINTER(c_void_p)]),
    "lathe_llm_destroy": (None, [c_void_p]),
    "lathe_llm_submit": (Error, [c_void_p, POINTER(CLlmRequest), POINTER(c_uint64)]),
    "lathe_llm_set_tenant": (Error, [c_void_p, c_uint64, POINTER(CLlmTenant)]),
    "lathe_llm_step": (Error, [c_void_p, POINTER(c_size_t)]),
    "lathe_llm_result_of": (Error, [c_void_p, c_uint64, POINTER(CLlmResult)]),
    "lathe_llm_logprobs_of": (Error, [c_void_p, c_uint64, c_int32, c_size_t,
                                      POINTER(CLlmLogprobs)]),
    "lathe_llm_cancel": (Error, [c_void_p, c_uint64]),
    "lathe_llm_release": (Error, [c_void_p, c_uint64]),
    "lathe_llm_get_counters": (None, [c_void_p, POINTER(CLlmCounters)]),
    "lathe_context_profile_rows": (POINTER(CProfileRow), [c_void_p, POINTER(c_size_t)]),
    "lathe_context_profile_events": (POINTER(CProfileEvent), [c_void_p, POINTER(c_size_t)]),
}


def folders() -> list[str]:
    """Where the libraries are looked for: beside the package, then in a build of the source tree."""
    here = os.path.dirname(os.path.abspath(__file__))
    source = os.path.dirname(os.path.dirname(here))
    build = os.environ.get("LATHE_BUILD", os.path.join(source, "build"))
    return [os.path.join(here, "lib"), os.path.join(build, "lib")]


def open_library(variable: str, name: str) -> ctypes.CDLL:
    """`variable` of the environment, or `name` in the folders above, or the system's."""
    path = os.environ.get(variable)
    if not path:
        found = [p for p in (os.path.join(f, name) for f in folders()) if os.path.exists(p)]
        path = found[0] if found else name
    try:
        return ctypes.CDLL(path)
    except OSError as problem:
        raise Error(Code.UNSUPPORTED, f"{problem}; install lathe-compiler, or build lathe with "
                                      f"tools/setup and set LATHE_BUILD to its build folder, or "
                                      f"{variable} to {name}", name) from None


def bind(library: ctypes.CDLL, functions: Mapping[str, tuple[Any, list[Any]]],
         raise_error: Callable[[Any, Any, Any], None]) -> ctypes.CDLL:
    """Gives each function its types; those that return an error raise it."""
    for name, (result, arguments) in functions.items():
        function = getattr(library, name)
        function.argtypes = arguments
        if result is Error:
            function.restype = c_void_p
            function.errcheck = raise_error
        else:
            function.restype = result
    return library


def text(value: bytes | None) -> str:
    """A string of C's; "" for none."""
    return value.decode() if value is not None else ""


def raise_error(error: int) -> NoReturn:
    """Raises a lathe_error, by its address, and frees it."""
    library = runtime()
    raised = Error(library.lathe_error_code(error), text(library.lathe_error_message(error)),
                   text(library.lathe_error_location(error)))
    library.lathe_error_free(error)
    raise raised


def _check(error: int | None, _function: Any, _arguments: Any) -> None:
    if error:
        raise_error(error)


_runtime: ctypes.CDLL | None = None


def runtime() -> ctypes.CDLL:
    """The runtime library, opened on the first call."""
    global _runtime
    if _runtime is None:
        library = open_library("LATHE_RUNTIME_LIBRARY", "liblathe_runtime.so")
        if library.lathe_abi_version() != ABI_VERSION:
            raise Error(Code.UNSUPPORTED, f"the library speaks version "
                        f"{library.lathe_abi_version()} of the interface, this package "
                        f"{ABI_VERSION}", "liblathe_runtime.so")
        _runtime = bind(library, FUNCTIONS, _check)
    return _runtime
