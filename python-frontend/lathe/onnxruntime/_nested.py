# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Inputs and outputs that are sequences or optional: lists, None. An engine has their tensors as ports of their own,
`x[0]`, `x[1]`, ..., and an optional without a value has none."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ._errors import InvalidArgument
from ._values import Array, as_array, element_of


def is_nested(kind: str) -> bool:
    """Whether a type, as onnxruntime writes it, is no tensor's."""
    return kind.startswith(("seq(", "optional("))


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
    """An array, a list of arrays, or None for an optional that is empty."""
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
    if isinstance(value, list):
        yield from ((f"{name}[{at}]", v) for at, v in enumerate(value))
    elif value is not None:
        yield name, value


def options(value: Any, name: str) -> list[tuple[str, str]]:
    """What the compiler is told of it: how many tensors of what sizes."""
    count = [("shape", f"{name}=[{len(value)}]")] if isinstance(value, list) else []
    if value is None:
        return [("shape", f"{name}=none")]
    return count + [("shape", f"{port}={'x'.join(map(str, array.shape))}") for port, array in ports(value, name)]


def gathered(outputs: Iterable[tuple[str, str]], results: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs of the model, given as (name, type), of those of the engine."""
    made: dict[str, Any] = {}
    for name, kind in outputs:
        optional, sequence, _ = _inside(kind) if is_nested(kind) else (False, False, "")
        if not sequence:
            made[name] = results.get(name) if optional else results[name]
            continue
        found: list[Any] = []
        while f"{name}[{len(found)}]" in results:
            found.append(results[f"{name}[{len(found)}]"])
        made[name] = None if optional and not found else found
    return made
