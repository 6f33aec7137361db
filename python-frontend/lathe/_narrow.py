# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Elements of 4 and 2 bits: arrays of ml_dtypes have a byte for each, lathe's memory has several in a byte, the first
in its lowest bits."""
from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

BITS = {"i4": 4, "ui4": 4, "f4e2m1": 4, "i2": 2, "ui2": 2}
NAMES = {"i4": "int4", "ui4": "uint4", "f4e2m1": "float4_e2m1fn", "i2": "int2", "ui2": "uint2"}  # of ml_dtypes
BY_NAME = {name: dtype for dtype, name in NAMES.items()}


def pack(array: npt.NDArray[Any], bits: int) -> npt.NDArray[np.uint8]:
    """The bytes of an array with a byte for each element, row-major."""
    each = 8 // bits
    codes = np.ascontiguousarray(array).reshape(-1).view(np.uint8) & np.uint8((1 << bits) - 1)
    codes = np.pad(codes, (0, -len(codes) % each)).reshape(-1, each)
    packed: npt.NDArray[np.uint8] = np.bitwise_or.reduce(codes << (bits * np.arange(each, dtype=np.uint8)), axis=1)
    return packed


def unpack(packed: npt.NDArray[np.uint8], shape: tuple[int, ...], dtype: np.dtype[Any], bits: int) -> npt.NDArray[Any]:
    """The array of these bytes, of an ml_dtypes type; integers with their signs, as that library keeps them."""
    each, count = 8 // bits, int(np.prod(shape, dtype=np.int64))
    codes = packed[:, None] >> (bits * np.arange(each, dtype=np.uint8)) & np.uint8((1 << bits) - 1)
    flat = codes.reshape(-1)[:count]
    if dtype.name in ("int4", "int2"):
        signed = (flat ^ np.uint8(1 << (bits - 1))).astype(np.int8) - np.int8(1 << (bits - 1))
        return signed.astype(dtype).reshape(shape)
    return flat.view(dtype).reshape(shape)
