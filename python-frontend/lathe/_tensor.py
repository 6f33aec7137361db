# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arrays in and out: numpy and DLPack to lathe_tensor and back."""
from __future__ import annotations

import contextlib
import ctypes
import importlib
from collections.abc import Callable
from ctypes import POINTER, byref, c_char_p, c_int64, c_void_p, cast, py_object
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from . import _abi, _exchange, _narrow, _strings
from ._abi import CTensor, DLManagedTensor, DLManagedTensorVersioned
from ._errors import Code, Error

ml_dtypes: Any = None
with contextlib.suppress(ImportError):
    ml_dtypes = importlib.import_module("ml_dtypes")

Array = npt.NDArray[Any]

# Names of numpy types; where ml_dtypes is missing, the second: unsigned integers with the bits.
NUMPY = {
    "bool": "bool", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "ui8": "uint8", "ui16": "uint16", "ui32": "uint32", "ui64": "uint64",
    "f16": "float16", "f32": "float32", "f64": "float64", "c64": "complex64", "c128": "complex128",
}
ML = {
    "bf16": ("bfloat16", "uint16"), "f8e4m3fn": ("float8_e4m3fn", "uint8"),
    "f8e4m3fnuz": ("float8_e4m3fnuz", "uint8"), "f8e5m2": ("float8_e5m2", "uint8"),
    "f8e5m2fnuz": ("float8_e5m2fnuz", "uint8"), "f8e8m0": ("float8_e8m0fnu", "uint8"),
}
PACKED = _narrow.BITS  # several elements share a byte
BY_NUMPY = {name: dtype for dtype, name in NUMPY.items()}
BY_NUMPY.update({names[0]: dtype for dtype, names in ML.items()})

# The newest DLPack that is spoken; consumers that ask for none get capsules of before 1.0.
DLPACK = (1, 0)
CPU, CUDA = 1, 2  # device types of DLPack
LEGACY_STREAM = 1  # CU_STREAM_LEGACY, the default stream, because 0 is none

_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype, _capsule_pointer.argtypes = c_void_p, [py_object, c_char_p]
_capsule_valid = ctypes.pythonapi.PyCapsule_IsValid
_capsule_valid.restype, _capsule_valid.argtypes = ctypes.c_int, [py_object, c_char_p]
_capsule_new = ctypes.pythonapi.PyCapsule_New
_capsule_new.restype, _capsule_new.argtypes = py_object, [c_void_p, c_char_p, c_void_p]
# The destructor runs on an object without references: only its address may be touched.
_dead_valid = ctypes.PYFUNCTYPE(ctypes.c_int, c_void_p, c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi))
_dead_pointer = ctypes.PYFUNCTYPE(c_void_p, c_void_p, c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi))


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """The numpy type of a lathe dtype by name; 4-bit and 2-bit types stay packed bytes, strings are
    objects (str)."""
    if dtype == "string":
        return np.dtype(object)
    if dtype in NUMPY:
        return np.dtype(NUMPY[dtype])
    if dtype in ML:
        name, bits = ML[dtype]
        return np.dtype(getattr(ml_dtypes, name)) if ml_dtypes else np.dtype(bits)
    return np.dtype("uint8")


class Place(NamedTuple):
    """Where inputs are read: a device as contexts name it, and of a GPU the stream (CUstream) that steps begin
    behind, which those who make inputs let wait for them, and what lets it wait for a stream of theirs."""

    device: str = "cpu"
    stream: int = 0
    wait_for: Callable[[int], Any] | None = None


HOST = Place()


def input_tensor(value: Any, dtype: str, where: str, place: Place = HOST) -> tuple[CTensor, tuple[Any, ...]]:
    """(CTensor, objects that must live as long): from a numpy array, a number or DLPack.

    `dtype` is what the entry asks for: numbers and lists take it, bits of the same width pass for
    it; any other type must already be it. Arrays of ml_dtypes with 4 or 2 bits are packed.
    """
    if isinstance(value, StringTensor):
        value = value.numpy()
    if dtype == "string" and not isinstance(value, Tensor):
        return _strings.pack(value, where)
    if isinstance(value, Tensor):
        return _from_managed(value)
    if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray):
        return _from_dlpack(value, where, place)
    if not isinstance(value, (np.ndarray, np.generic)):
        value = _array(value, dtype, where)
    array = np.asarray(value)
    if narrow := _narrow.BY_NAME.get(array.dtype.name):
        return _packed(array, narrow)
    given = BY_NUMPY.get(array.dtype.name)
    if given is None:
        raise Error(Code.USAGE, f"arrays of {array.dtype} are not taken; {dtype} is asked for",
                    where)
    if dtype in ML and array.dtype == np.dtype(ML[dtype][1]):
        given = dtype
    if array.dtype.byteorder == ">" or any(s % array.itemsize for s in array.strides):
        array = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
    if any(s < 0 for s in array.strides):
        array = np.ascontiguousarray(array)
    rank = array.ndim
    dims = (c_int64 * max(rank, 1))(*array.shape)
    strides = (c_int64 * max(rank, 1))(*(s // array.itemsize for s in array.strides))
    tensor = CTensor(array.ctypes.data, array.nbytes, _abi.DTYPES.index(given), _abi.HOST, rank,
                     dims, strides)
    return tensor, (array, dims, strides)


def _array(value: Any, dtype: str, where: str) -> Array:
    """Numbers and lists of them."""
    if value is None:
        raise Error(Code.USAGE, "there is no value", where)
    try:
        return np.asarray(value, numpy_dtype(dtype))
    except (ValueError, TypeError, OverflowError) as problem:
        raise Error(Code.USAGE, f"it is no array of {dtype}: {problem}", where) from problem


def _packed(array: Array, dtype: str) -> tuple[CTensor, tuple[Any, ...]]:
    data = _narrow.pack(array, PACKED[dtype])
    dims = (c_int64 * max(array.ndim, 1))(*array.shape)
    tensor = CTensor(data.ctypes.data, data.nbytes, _abi.DTYPES.index(dtype), _abi.HOST, array.ndim, dims, None)
    return tensor, (data, dims)


def _from_managed(value: Tensor) -> tuple[CTensor, tuple[Any, ...]]:
    tensor = CTensor()
    _abi.runtime().lathe_tensor_from_dlpack(value._managed, byref(tensor))
    return tensor, (value,)


def _check_device(number: int, where: str, place: Place) -> None:
    """A value on a GPU must lie in memory of the place."""
    name, _, at = place.device.partition(":")
    if name == "cpu" or int(at or 0) != number:
        raise Error(Code.USAGE, f"it is on cuda:{number}, and the context on {place.device}", where)


def _stream_for(value: Any, where: str, place: Place) -> dict[str, int]:
    """What a producer is told of streams: on a GPU that which shall wait for the value, on the CPU nothing. The value
    must lie in host memory, or in that of the place."""
    try:
        device, number = map(int, value.__dlpack_device__()) if hasattr(value, "__dlpack_device__") else (CPU, 0)
    except (BufferError, RuntimeError, ValueError) as problem:
        raise Error(Code.USAGE, f"it gives no DLPack: {problem}", where) from problem
    if device != CUDA:
        return {}
    _check_device(number, where, place)
    return {"stream": place.stream}


def _seen(producer: _exchange.Producer, value: Any, where: str, place: Place) -> tuple[CTensor, tuple[Any, ...]] | None:
    """As _from_dlpack, by a view; None where the producer gives none."""
    problems = BufferError, RuntimeError, ValueError
    try:
        view = producer.view(value)
    except problems:
        return None
    device, number = view.device.device_type, view.device.device_id
    if device == CUDA:
        _check_device(number, where, place)
        if place.wait_for is None:
            return None
        try:
            stream = producer.stream(device, number)
        except problems:
            return None
        place.wait_for(stream or LEGACY_STREAM)
    # Sizes and strides are the producer's own, who may change them (unsqueeze_) while a binding reads these.
    sizes = (c_int64 * view.ndim)(*view.shape[:view.ndim])
    view.shape = cast(sizes, POINTER(c_int64))
    steps = (c_int64 * view.ndim)(*view.strides[:view.ndim]) if view.strides else None
    if steps is not None:
        view.strides = cast(steps, POINTER(c_int64))
    tensor = CTensor()
    _abi.runtime().lathe_tensor_from_dlpack(byref(view), byref(tensor))  # whose first member is the view
    return tensor, (value, view, sizes, steps)


def _from_dlpack(value: Any, where: str, place: Place) -> tuple[CTensor, tuple[Any, ...]]:
    if (producer := _exchange.producer_of(value)) and (seen := _seen(producer, value, where, place)):
        return seen
    if getattr(value, "is_neg", bool)():  # torch's own bit, of which DLPack knows nothing
        value = value.resolve_neg()
    stream = _stream_for(value, where, place)
    try:
        try:
            capsule = value.__dlpack__(max_version=DLPACK, **stream)
        except TypeError:  # a producer of before version 1.0
            capsule = value.__dlpack__(**stream)
    except (BufferError, RuntimeError, ValueError) as problem:
        raise Error(Code.USAGE, f"it gives no DLPack: {problem}", where) from problem
    tensor = CTensor()
    if _capsule_valid(capsule, b"dltensor_versioned"):
        versioned = DLManagedTensorVersioned.from_address(
            _capsule_pointer(capsule, b"dltensor_versioned"))
        if versioned.major > DLPACK[0]:
            raise Error(Code.USAGE, f"it speaks DLPack {versioned.major}, newer than {DLPACK[0]}", where)
        # The two structs hold the same DLTensor, at different places.
        plain = DLManagedTensor(versioned.dl_tensor, None, _abi.DELETER())
        _abi.runtime().lathe_tensor_from_dlpack(byref(plain), byref(tensor))
        return tensor, (capsule, value, plain)
    _abi.runtime().lathe_tensor_from_dlpack(_capsule_pointer(capsule, b"dltensor"), byref(tensor))
    return tensor, (capsule, value)


def borrowed_array(tensor: CTensor, writable: bool) -> Array:
    """A numpy view of a row-major host CTensor, for as long as its memory is there."""
    dtype = numpy_dtype(_abi.DTYPES[tensor.dtype])
    if not tensor.bytes:
        array: Array = np.empty(0, dtype)
    else:
        memory = (ctypes.c_char * tensor.bytes).from_address(tensor.data)
        array = np.frombuffer(memory, dtype)
    array.flags.writeable = writable
    packed = _abi.DTYPES[tensor.dtype] in PACKED
    return array if packed else array.reshape([tensor.dims[i] for i in range(tensor.rank)])


class Tensor:
    """A result: row-major, with memory of its own. `numpy()` and DLPack share that memory."""

    def __init__(self, managed: Any, dtype: str) -> None:
        self._managed, self.dtype = managed, dtype
        plain = managed.contents.dl_tensor
        self.shape: tuple[int, ...] = tuple(plain.shape[i] for i in range(plain.ndim))

    def __del__(self) -> None:
        managed, self._managed = getattr(self, "_managed", None), None
        if managed and managed.contents.deleter:
            managed.contents.deleter(managed)

    def __repr__(self) -> str:
        return f"lathe.Tensor({'x'.join(map(str, self.shape)) or 'scalar'}, {self.dtype})"

    def __dlpack_device__(self) -> tuple[int, int]:
        device = self._managed.contents.dl_tensor.device
        return device.device_type, device.device_id

    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        """A capsule that shares the memory and keeps this tensor alive until it is consumed.

        Of the form of DLPack 1.0 when the consumer asks for that version or a later one. The
        result is complete: there is no stream to wait for.
        """
        if dl_device is not None and tuple(map(int, dl_device)) != self.__dlpack_device__():
            raise BufferError(f"the tensor is on device {self.__dlpack_device__()}, not {dl_device}")
        if copy:
            return self.numpy().copy().__dlpack__()
        plain = self._managed.contents.dl_tensor
        if max_version is not None and tuple(max_version) >= DLPACK:
            shared: Any = DLManagedTensorVersioned(*DLPACK, None, _release_versioned, 0, plain)
            name, drop = b"dltensor_versioned", _drop_unused_versioned
        else:
            shared = DLManagedTensor(plain, None, _release)
            name, drop = b"dltensor", _drop_unused
        address = ctypes.addressof(shared)
        _exported[address] = (shared, self)
        return _capsule_new(address, name, cast(drop, c_void_p))

    def numpy(self) -> Array:
        """A view as a numpy array; host memory only."""
        plain = self._managed.contents.dl_tensor
        if plain.device.device_type != CPU:
            raise Error(Code.USAGE, "the tensor is on a device: ask for it on the host, or use "
                                    "DLPack")
        dtype = numpy_dtype(self.dtype)
        count = int(np.prod(self.shape, dtype=np.int64))
        if not count:
            return np.empty(self.shape, dtype)
        bits = PACKED.get(self.dtype)
        size = (count * bits + 7) // 8 if bits else count * dtype.itemsize
        # A subclass, because its instances can hold the owner: numpy keeps the buffer alive.
        memory: Any = type("Memory", (ctypes.c_char * size,), {}).from_address(  # type: ignore[attr-defined]
            plain.data + plain.byte_offset)
        memory.owner = self
        array: Array = np.frombuffer(memory, dtype)
        return array if bits else array.reshape(self.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        array = self.numpy()
        return array.astype(dtype) if dtype is not None else array.copy() if copy else array


class StringTensor:
    """A result that is strings, with memory of its own. It speaks no DLPack, which has no strings."""

    dtype = "string"

    def __init__(self, array: Array) -> None:
        self._array = array
        self.shape: tuple[int, ...] = array.shape

    def __repr__(self) -> str:
        return f"lathe.StringTensor({'x'.join(map(str, self.shape)) or 'scalar'})"

    def numpy(self) -> Array:
        """An array of str objects."""
        return self._array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return self._array.astype(dtype) if dtype is not None else self._array.copy() if copy else self._array


# Tensors that were given away, by the address of their struct.
_exported: dict[int, tuple[Any, Tensor]] = {}


def _forget(managed: Any) -> None:
    """A consumer has no more use for it."""
    _exported.pop(ctypes.addressof(managed.contents), None)


def _drop(capsule: Any, name: bytes) -> None:
    """A consumer renames the capsule; what still has its name was never consumed."""
    if _dead_valid(capsule, name):
        _exported.pop(_dead_pointer(capsule, name), None)


def _drop_plain(capsule: Any) -> None:
    _drop(capsule, b"dltensor")


def _drop_versioned(capsule: Any) -> None:
    _drop(capsule, b"dltensor_versioned")


# Functions of C, which must live as long as anything that was given away.
_release, _release_versioned = _abi.DELETER(_forget), _abi.VERSIONED_DELETER(_forget)
_DESTRUCTOR = ctypes.PYFUNCTYPE(None, c_void_p)
_drop_unused, _drop_unused_versioned = _DESTRUCTOR(_drop_plain), _DESTRUCTOR(_drop_versioned)


def take_output(context: Any, tensor: CTensor) -> Tensor | StringTensor:
    """A tensor from what a run left in the context's memory."""
    if _abi.DTYPES[tensor.dtype] == "string":
        return StringTensor(_strings.unpack(tensor))
    managed = POINTER(DLManagedTensor)()
    _abi.runtime().lathe_tensor_take_dlpack(context, byref(tensor), byref(managed))
    return Tensor(managed, _abi.DTYPES[tensor.dtype])
