# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""OrtValue, NodeArg, ModelMetadata: what goes into sessions and what they tell. Host memory only."""
from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import _narrow
from .._tensor import ML, NUMPY, Tensor, ml_dtypes
from ._errors import InvalidArgument
from ._wire import TYPES, Dim

Array = npt.NDArray[Any]

# onnxruntime's names of element types, by lathe's.
ELEMENTS = {
    "f32": "float", "f64": "double", "f16": "float16", "bf16": "bfloat16", "i8": "int8", "i16": "int16",
    "i32": "int32", "i64": "int64", "ui8": "uint8", "ui16": "uint16", "ui32": "uint32", "ui64": "uint64",
    "bool": "bool", "i4": "int4", "ui4": "uint4", "c64": "complex64", "c128": "complex128",
    "f8e4m3fn": "float8e4m3fn", "f8e4m3fnuz": "float8e4m3fnuz", "f8e5m2": "float8e5m2",
    "f8e5m2fnuz": "float8e5m2fnuz", "f8e8m0": "float8e8m0", "f4e2m1": "float4e2m1", "i2": "int2",
    "ui2": "uint2", "string": "string"}
_OF_NUMPY = {numpy_name: ELEMENTS[ours] for ours, numpy_name in NUMPY.items()}
_OF_NUMPY.update({names[0]: ELEMENTS[ours] for ours, names in ML.items()})
_OF_NUMPY.update({name: ELEMENTS[ours] for ours, name in _narrow.NAMES.items()})
_NUMBERS = {name: number for number, name in TYPES.items()}


def element_of(dtype: np.dtype[Any]) -> str:
    """"float" for float32, ...; numpy types that ONNX has not keep their names."""
    if dtype.kind in "USOT":
        return "string"
    return _OF_NUMPY.get(dtype.name, dtype.name)


def host_only(device_type: str) -> None:
    if str(device_type).lower() != "cpu":
        raise NotImplementedError(f"memory of '{device_type}': lathe.onnxruntime keeps values on the host; "
                                  "lathe.Context takes DLPack of a device")


def array_at(address: int, shape: Sequence[int], element_type: Any) -> Array:
    """A view of memory of the caller's."""
    dtype = np.dtype(element_type)
    count = int(np.prod(tuple(shape), dtype=np.int64))
    if not count:
        return np.empty(tuple(shape), dtype)
    memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    return np.frombuffer(memory, dtype).reshape(tuple(shape))


@dataclasses.dataclass
class NodeArg:
    """An input or output of the model."""

    name: str
    type: str
    shape: list[Dim]


@dataclasses.dataclass
class ModelMetadata:
    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = 0
    custom_metadata_map: dict[str, str] = dataclasses.field(default_factory=dict)


class OrtDevice:
    """A place of memory: lathe.onnxruntime knows the host."""

    def __init__(self, device_type: str = "cpu", device_id: int = 0) -> None:
        host_only(device_type)
        self._id = device_id

    @staticmethod
    def make(ort_device_name: str, device_id: int) -> OrtDevice:
        return OrtDevice(ort_device_name, device_id)

    def device_type(self) -> str:
        return "cpu"

    def device_id(self) -> int:
        return self._id


class OrtValue:
    """A tensor on the host, or a list of them, or None."""

    def __init__(self, array: Any) -> None:
        self._array = array

    @classmethod
    def ortvalue_from_numpy(cls, numpy_obj: Array, device_type: str = "cpu", device_id: int = 0,
                            vendor_id: int = -1) -> OrtValue:
        """Shares the memory of a row-major array, as onnxruntime does."""
        host_only(device_type)
        return cls(np.ascontiguousarray(numpy_obj) if numpy_obj.ndim else np.asarray(numpy_obj))

    @classmethod
    def ortvalue_from_shape_and_type(cls, shape: Sequence[int], element_type: Any,
                                     device_type: str = "cpu", device_id: int = 0,
                                     vendor_id: int = -1) -> OrtValue:
        host_only(device_type)
        if isinstance(element_type, int):
            names = {v: k for k, v in _OF_NUMPY.items()}
            element_type = names[TYPES[element_type]]
        return cls(np.empty(tuple(shape), np.dtype(element_type)))

    @classmethod
    def from_dlpack(cls, data: Any, is_bool_tensor: bool = False) -> OrtValue:
        array = np.from_dlpack(data)
        return cls(array.view(np.bool_) if is_bool_tensor else array)

    def numpy(self) -> Any:
        return self._array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        array: Array = np.asarray(self._array)
        return array.astype(dtype) if dtype is not None else array

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self._array.__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def update_inplace(self, np_arr: Array) -> None:
        np.copyto(self._array, np_arr, casting="no")

    def data_ptr(self) -> int:
        return int(self._array.ctypes.data)

    def device_name(self) -> str:
        return "cpu"

    def shape(self) -> list[int]:
        return list(self._array.shape)

    def data_type(self) -> str:
        return f"tensor({element_of(self._array.dtype)})"

    def element_type(self) -> int:
        """The number of TensorProto.DataType."""
        return _NUMBERS[element_of(self._array.dtype)]

    def tensor_size_in_bytes(self) -> int:
        return int(self._array.nbytes)

    def has_value(self) -> bool:
        return self._array is not None

    def is_tensor(self) -> bool:
        return isinstance(self._array, np.ndarray)

    def is_sparse_tensor(self) -> bool:
        return False

    def is_tensor_sequence(self) -> bool:
        return isinstance(self._array, list)


NUMPY_OF = {element: name for name, element in _OF_NUMPY.items()}


def numpy_of(value: Any) -> Any:
    """What a session gives for results: arrays, of 4 and 2 bits too where ml_dtypes is there; lists, dicts and None."""
    if isinstance(value, (dict, np.ndarray)):
        return value
    if isinstance(value, list):
        return [numpy_of(v) for v in value]
    if isinstance(value, Tensor) and value.dtype in _narrow.BITS and hasattr(ml_dtypes, _narrow.NAMES[value.dtype]):
        dtype = np.dtype(getattr(ml_dtypes, _narrow.NAMES[value.dtype]))
        return _narrow.unpack(value.numpy(), value.shape, dtype, _narrow.BITS[value.dtype])
    return None if value is None else value.numpy()


def as_array(value: Any, name: str, element: str = "") -> Any:
    """What a session takes for an input: arrays, values, results of lathe, what speaks DLPack; lists and
    numbers become arrays of the input's type."""
    if isinstance(value, OrtValue):
        return value.numpy()
    if isinstance(value, (np.ndarray, np.generic)):
        return np.asarray(value)
    if isinstance(value, Tensor):
        return value.numpy()
    if hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    try:
        return np.asarray(value, NUMPY_OF.get(element))
    except (ValueError, TypeError, OverflowError) as problem:
        raise InvalidArgument(f"input '{name}': {problem}") from None
