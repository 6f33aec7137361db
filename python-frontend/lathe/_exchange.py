# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""DLPack's exchange table of C functions (version 1.3): views of a producer's tensors, and the stream that is current
for it, in about a microsecond, where a capsule with an event of its own takes some twenty."""
from __future__ import annotations

import ctypes
from ctypes import POINTER, c_int, c_int32, c_uint32, c_void_p, py_object
from typing import Any

from ._abi import DLTensor

_NAME, _CAPSULE = "__dlpack_c_exchange_api__", b"dlpack_exchange_api"
_MAJOR = 1

# Both give 0, or another number with a Python exception, which ctypes raises.
_VIEW = ctypes.PYFUNCTYPE(c_int, py_object, POINTER(DLTensor))
_STREAM = ctypes.PYFUNCTYPE(c_int, c_int, c_int32, POINTER(c_void_p))

_capsule_pointer = ctypes.PYFUNCTYPE(c_void_p, py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))


class _Table(ctypes.Structure):
    """DLPackExchangeAPI. `view` may be NULL."""

    _fields_ = [("major", c_uint32), ("minor", c_uint32), ("previous", c_void_p), ("allocate", c_void_p),
                ("from_object", c_void_p), ("to_object", c_void_p), ("view", c_void_p), ("stream", c_void_p)]


class Producer:
    """The functions of one type of tensors."""

    def __init__(self, table: _Table) -> None:
        self._view, self._stream = _VIEW(table.view), _STREAM(table.stream)

    def view(self, value: Any) -> DLTensor:
        """Of a tensor that must stay alive meanwhile, and must not be resized."""
        seen = DLTensor()
        self._view(value, ctypes.byref(seen))
        return seen

    def stream(self, device: int, number: int) -> int:
        """The CUstream that is current on a device of DLPack's type `device`; 0: the default one."""
        current = c_void_p()
        self._stream(device, number, ctypes.byref(current))
        return current.value or 0


_producers: dict[type, Producer | None] = {}


def _producer_of(kind: type) -> Producer | None:
    if _NAME not in vars(kind):  # a subclass may mean something else by its memory
        return None
    try:
        table = _Table.from_address(_capsule_pointer(vars(kind)[_NAME], _CAPSULE))
    except ValueError:  # something else by that name
        return None
    return Producer(table) if table.major == _MAJOR and table.view and table.stream else None


def producer_of(value: Any) -> Producer | None:
    """None for those that have no such table, and for tensors that are more than their memory: those with gradients,
    and torch's lazy conjugates and negatives."""
    kind = type(value)
    if kind not in _producers:
        _producers[kind] = _producer_of(kind)
    producer = _producers[kind]
    if producer is None or getattr(value, "requires_grad", False):
        return None
    lazy = any(getattr(value, name, bool)() for name in ("is_conj", "is_neg"))
    return None if lazy else producer
