# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Inputs and outputs that are sequences, optional or maps: lists, None, dicts. An engine has those of any length packed
(`lathe._lists`), those of known length as ports of their own, `x[0]`, `x[1]`, ..., and an optional without a value has
none; of a map, or of a sequence of maps with the same keys, `x.keys` and `x.values`, which have a row for each map."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ._errors import InvalidArgument
from ._values import NUMPY_OF, Array, as_array, element_of, numpy_of


def is_nested(kind: str) -> bool:
    """Whether a type, as onnxruntime writes it, is no tensor's."""
    return kind.startswith(("seq(", "optional(", "map("))


def _is_map(kind: str) -> bool:
    return kind.startswith(("map(", "seq(map("))


def _checked_map(value: Any, name: str, kind: str) -> dict[Any, Any]:
    key, element = kind[len("map("):-1].split(",")
    if not isinstance(value, dict) or not all(isinstance(k, str) == (key == "string") for k in value):
        raise InvalidArgument(f"Unexpected input data type. Actual: ({type(value).__name__}) , expected: ({kind}), "
                              f"input: {name}")
    try:
        values = _vector(list(value.values()), element[len("tensor("):-1])
        return {f"{name}.keys": _vector(list(value), key), f"{name}.values": values}
    except (TypeError, ValueError, OverflowError) as problem:
        raise InvalidArgument(f"Unexpected input data type: {problem}, expected: ({kind}), input: {name}") from problem


def _vector(values: list[Any], element: str) -> Array:
    made: Array = np.array(values, NUMPY_OF.get(element, object))
    return made


def _inside(kind: str) -> tuple[bool, bool, str]:
    """(whether it is optional, whether a sequence, the type of an element)"""
    optional = kind.startswith("optional(")
    kind = kind[len("optional("):-1] if optional else kind
    sequence = kind.startswith("seq(")
    kind = kind[len("seq("):-1] if sequence else kind
    return optional, sequence, kind[len("tensor("):-1]


def _element(value: Any, name: str, element: str) -> Array:
    array: Array = as_array(value, name, element)
    if element_of(array.dtype) != element:
        raise InvalidArgument(f"Unexpected input data type. Actual: (tensor({element_of(array.dtype)})) , expected: "
                              f"(tensor({element})), input: {name}")
    return array


def checked(value: Any, name: str, kind: str) -> Any:
    """An array, a list of arrays, None for an empty optional, or of a map its tensors by the names of their ports."""
    if _is_map(kind):
        return _checked_map(value, name, kind)
    optional, sequence, element = _inside(kind)
    if value is None and optional:
        return None
    if not sequence:
        return _element(value, name, element)
    if not isinstance(value, (list, tuple)):
        raise InvalidArgument(f"Unexpected input data type. Actual: ({type(value).__name__}) , expected: ({kind}), "
                              f"input: {name}")
    return [_element(v, f"{name}[{at}]", element) for at, v in enumerate(value)]


def ports(value: Any, name: str) -> Iterator[tuple[str, Array]]:
    """The inputs of the engine that a value of this input is."""
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list):
        yield from ((f"{name}[{at}]", v) for at, v in enumerate(value))
    elif value is not None:
        yield name, value


def options(value: Any, name: str) -> list[tuple[str, str]]:
    """What the compiler is told of it: how many tensors of what sizes."""
    count = [("shape", f"{name}=[{len(value)}]")] if isinstance(value, list) else []
    if value is None:
        return [("shape", f"{name}=none")]
    return count + [("shape", f"{port}={'x'.join(map(str, array.shape))}") for port, array in ports(value, name)]


def _maps(keys: Any, values: Any) -> list[dict[Any, Any]]:
    """A dict for each row, by ascending key, as onnxruntime has them."""
    names = numpy_of(keys).tolist()
    order = sorted(range(len(names)), key=names.__getitem__)
    return [{names[at]: row[at] for at in order} for row in numpy_of(values).tolist()]


def gathered(outputs: Iterable[tuple[str, str]], results: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs of the model, given as (name, type), of those of the engine."""
    made: dict[str, Any] = {}
    for name, kind in outputs:
        if _is_map(kind):
            made[name] = _maps(results[f"{name}.keys"], results[f"{name}.values"])
            continue
        optional, sequence, _ = _inside(kind) if is_nested(kind) else (False, False, "")
        if name in results and isinstance(results[name], list) and not sequence:
            made[name] = results[name][0] if results[name] else None  # an optional tensor
            continue
        if sequence and name in results:
            made[name] = results[name]
            continue
        if not sequence:
            made[name] = results.get(name) if optional else results[name]
            continue
        found: list[Any] = []
        while f"{name}[{len(found)}]" in results:
            found.append(results[f"{name}[{len(found)}]"])
        made[name] = None if optional and not found else found
    return made
