# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Inputs and outputs that are sequences or optionals whose length only a run knows: lists of arrays, or of an optional
its value or None. An entry has each as the ports `x[]`, `x[].shapes` and, of an optional sequence, `x[].present`
(lathe.h)."""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ._errors import Code, Error
from ._tensor import BY_NUMPY, Array, numpy_dtype

VALUES, SHAPES, PRESENT = "[]", "[].shapes", "[].present"


def list_names(ports: Iterable[str]) -> list[str]:
    """The names of the lists among these ports."""
    ports = list(ports)
    return [p[:-len(VALUES)] for p in ports if p.endswith(VALUES) and p[:-len(VALUES)] + SHAPES in ports]


def parts_of(name: str) -> tuple[str, str, str]:
    """The names of the ports that a list may have."""
    return name + VALUES, name + SHAPES, name + PRESENT


def pack(value: Any, name: str, dtype: str, ports: Iterable[str]) -> dict[str, Array]:
    """The parts of a list by the names of their ports. An optional tensor may be given as it is, without a list, or as
    None; it has the ports of a sequence, so that only one with `x[].present` is surely none."""
    if name + PRESENT in ports and value is not None and not isinstance(value, (list, tuple)):
        raise Error(Code.USAGE, f"a sequence is a list of arrays, not {type(value).__name__}", f"input '{name}'")
    tensors = value if isinstance(value, (list, tuple)) else [] if value is None else [value]
    arrays = [np.asarray(t) if isinstance(t, (np.ndarray, np.generic)) else np.asarray(t, numpy_dtype(dtype))
              for t in tensors]
    for at, array in enumerate(arrays):
        if BY_NUMPY.get(array.dtype.name) != dtype:
            raise Error(Code.USAGE, f"element type is {array.dtype}, expected {dtype}", f"input '{name}[{at}]'")
    columns = 1 + max((array.ndim for array in arrays), default=0)
    shapes = np.zeros((len(arrays), columns), np.int64)
    for row, array in zip(shapes, arrays):
        row[:1 + array.ndim] = array.ndim, *array.shape
    values = np.concatenate([array.ravel() for array in arrays]) if arrays else np.zeros(0, numpy_dtype(dtype))
    parts = {name + VALUES: values, name + SHAPES: shapes}
    if name + PRESENT in ports:
        parts[name + PRESENT] = np.array(value is not None)
    return parts


def unpack(values: Array, shapes: Array, present: Any = True) -> list[Array] | None:
    """The arrays of a list, which have memory of their own."""
    if not present:
        return None
    tensors, at = [], 0
    for rank, *sizes in shapes.tolist():
        count = int(np.prod(sizes[:rank], dtype=np.int64))
        tensors.append(values[at:at + count].reshape(sizes[:rank]).copy())
        at += count
    return tensors


def expand(inputs: Mapping[str, Any], ports: Mapping[str, str]) -> Mapping[str, Any]:
    """The inputs with their lists packed; `ports` are the entry's, with their dtypes."""
    lists = [name for name in list_names(ports) if name in inputs]
    if not lists:
        return inputs
    expanded = {name: value for name, value in inputs.items() if name not in lists}
    for name in lists:
        expanded.update(pack(inputs[name], name, ports[name + VALUES], ports))
    return expanded


def gather(results: dict[str, Any]) -> dict[str, Any]:
    """The results with their lists in place of the parts; of an optional tensor the list has one array, or none."""
    lists = list_names(results)
    if not lists:
        return results
    gathered: dict[str, Any] = {}
    for port, value in results.items():
        name = next((name for name in lists if port in parts_of(name)), None)
        if name is None:
            gathered[port] = value
        elif name not in gathered:
            present = results.get(name + PRESENT)
            gathered[name] = unpack(results[name + VALUES].numpy(), results[name + SHAPES].numpy(),
                                    True if present is None else bool(present.numpy()))
    return gathered
