# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a .onnx file says of itself, read from its bytes: no protobuf, and no weights touched.

Field numbers are those of onnx.proto: ModelProto, GraphProto, ValueInfoProto and what they hold.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Union

Field = Union[int, memoryview]
Dim = Union[int, str, None]

# TensorProto.DataType by number, as onnxruntime writes types.
TYPES = {1: "float", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 8: "string",
         9: "bool", 10: "float16", 11: "double", 12: "uint32", 13: "uint64", 14: "complex64",
         15: "complex128", 16: "bfloat16", 17: "float8e4m3fn", 18: "float8e4m3fnuz", 19: "float8e5m2",
         20: "float8e5m2fnuz", 21: "uint4", 22: "int4", 23: "float4e2m1", 24: "float8e8m0", 25: "uint2",
         26: "int2"}


@dataclasses.dataclass
class Value:
    """An input or output: `shape` has numbers, names, or None where nothing is said; `shape` itself is
    None where the rank is not said."""

    name: str
    type: str
    shape: list[Dim] | None


@dataclasses.dataclass
class Model:
    producer_name: str = ""
    domain: str = ""
    doc_string: str = ""
    version: int = 0
    properties: dict[str, str] = dataclasses.field(default_factory=dict)
    graph_name: str = ""
    graph_doc_string: str = ""
    inputs: list[Value] = dataclasses.field(default_factory=list)
    outputs: list[Value] = dataclasses.field(default_factory=list)
    initializers: set[str] = dataclasses.field(default_factory=set)


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("no number")


def _fields(data: memoryview) -> Iterator[tuple[int, Field]]:
    """(number, value) of a message; ValueError or IndexError where it is none."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        if kind == 2:
            size, at = _varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError("no field")
        if size > len(data) - at:
            raise ValueError("a field is cut off")
        yield number, data[at:at + size]
        at += size


def _text(value: Field) -> str:
    return bytes(value).decode(errors="replace") if isinstance(value, memoryview) else ""


def _message(value: Field) -> memoryview:
    if not isinstance(value, memoryview):
        raise ValueError("no message")
    return value


def _number(value: Field) -> int:
    return value if isinstance(value, int) else 0


def _dim(data: memoryview) -> Dim:
    for number, value in _fields(data):
        if number == 1:
            size = _number(value)
            return size if size < 1 << 63 else None  # negative: some exporters mean any
        if number == 2:
            return _text(value) or None
    return None


def _type(data: memoryview) -> tuple[str, list[Dim] | None]:
    """TypeProto: its name, and the sizes of a tensor. Sequences and optionals name what is in them."""
    name, shape = "", None
    for kind, content in _fields(data):
        if kind in (4, 9):
            inner = next((_type(_message(t))[0] for n, t in _fields(_message(content)) if n == 1), "")
            name = f"{'seq' if kind == 4 else 'optional'}({inner})"
        elif kind == 5:
            parts = dict(_fields(_message(content)))
            value = _type(_message(parts[2]))[0] if 2 in parts else ""
            name = f"map({TYPES.get(_number(parts.get(1, 0)), 'unknown')},{value})"
        elif kind != 1:
            name = "sparse_tensor(...)" if kind == 8 else name
        else:
            for part, inside in _fields(_message(content)):
                if part == 1:
                    name = f"tensor({TYPES.get(_number(inside), 'unknown')})"
                elif part == 2:
                    shape = [_dim(_message(d)) for n, d in _fields(_message(inside)) if n == 1]
    return name, shape


def _value(data: memoryview) -> Value:
    """ValueInfoProto: name, type."""
    out = Value("", "", None)
    for number, field in _fields(data):
        if number == 1:
            out.name = _text(field)
        elif number == 2:
            out.type, out.shape = _type(_message(field))
    return out


def _graph(data: memoryview, model: Model) -> None:
    for number, value in _fields(data):
        if number == 2:
            model.graph_name = _text(value)
        elif number == 5:
            # TensorProto.name is its eighth field; the weights are passed over by their length.
            model.initializers |= {_text(v) for n, v in _fields(_message(value)) if n == 8}
        elif number == 10:
            model.graph_doc_string = _text(value)
        elif number == 11:
            model.inputs.append(_value(_message(value)))
        elif number == 12:
            model.outputs.append(_value(_message(value)))


def read(data: memoryview) -> Model | None:
    """None where the bytes are no ModelProto."""
    model = Model()
    try:
        for number, value in _fields(data):
            if number == 2:
                model.producer_name = _text(value)
            elif number == 4:
                model.domain = _text(value)
            elif number == 5:
                model.version = _number(value)
            elif number == 6:
                model.doc_string = _text(value)
            elif number == 7:
                _graph(_message(value), model)
            elif number == 14:
                pair = {n: _text(v) for n, v in _fields(_message(value))}
                model.properties[pair.get(1, "")] = pair.get(2, "")
    except (ValueError, IndexError):
        return None
    return model
