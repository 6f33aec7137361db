# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arrays of strings: packed as lathe.h has them, and back."""
from __future__ import annotations

import ctypes
from ctypes import c_int64
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _abi
from ._abi import CTensor
from ._errors import Code, Error

Array = npt.NDArray[Any]


def pack(value: Any, where: str) -> tuple[CTensor, tuple[Any, ...]]:
    """A tensor of strings, and what must live as long: from a str, lists of str, or an array of str,
    bytes (UTF-8) or objects that are either."""
    array = np.asarray(value) if isinstance(value, (np.ndarray, np.generic)) else np.asarray(value, object)
    if array.dtype.kind not in "USOT":
        raise Error(Code.USAGE, f"arrays of {array.dtype} are not taken; string is asked for", where)
    texts = []
    for one in array.ravel().tolist():
        if isinstance(one, str):
            try:
                texts.append(one.encode())
            except UnicodeEncodeError as problem:
                raise Error(Code.USAGE, f"a string is no UTF-8: {problem}", where) from None
        elif isinstance(one, bytes):
            texts.append(one)
        else:
            raise Error(Code.USAGE, f"it holds {type(one).__name__}, not str", where)
    offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(text) for text in texts], out=offsets[1:])
    packed = ctypes.create_string_buffer(offsets.tobytes() + b"".join(texts))
    rank = array.ndim
    dims = (c_int64 * max(rank, 1))(*array.shape)
    tensor = CTensor(ctypes.addressof(packed), len(packed) - 1, _abi.DTYPES.index("string"), _abi.HOST, rank, dims)
    return tensor, (packed, dims)


def unpack(tensor: CTensor) -> Array:
    """A copy as an array of str objects."""
    shape = [tensor.dims[i] for i in range(tensor.rank)]
    count = int(np.prod(shape, dtype=np.int64))
    array = np.empty(count, object)
    if count:
        memory = ctypes.string_at(tensor.data, tensor.bytes)
        offsets = np.frombuffer(memory, np.int64, count + 1).tolist()
        text = memory[8 * (count + 1):]
        array[:] = [text[a:b].decode() for a, b in zip(offsets, offsets[1:])]
    return array.reshape(shape)
