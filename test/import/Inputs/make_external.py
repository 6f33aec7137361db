# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes models whose weights lie in other files: make_external.py FOLDER CASE.

Plain bytes of protobuf, so that no package is needed.
"""
import os
import sys


def varint(value):
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, str):
        value = value.encode()
    return varint(number << 3 | 2) + varint(len(value)) + value


def tensor_type(sizes):
    shape = b"".join(field(1, field(1, size)) for size in sizes)
    return field(1, field(1, 1) + field(2, shape))


def model(entries, sizes=(64, 2)):
    weight = b"".join(field(1, size) for size in sizes) + field(2, 1) + field(8, "w") + field(14, 1)
    for key, value in entries.items():
        weight += field(13, field(1, key) + field(2, value))
    node = field(1, "x") + field(1, "w") + field(2, "y") + field(3, "add") + field(4, "Add")
    graph = (field(1, node) + field(2, "g") + field(5, weight)
             + field(11, field(1, "x") + field(2, tensor_type(sizes)))
             + field(12, field(1, "y") + field(2, tensor_type(sizes))))
    return field(1, 8) + field(7, graph) + field(8, field(1, "") + field(2, 17))


def main(folder, case):
    inside = os.path.join(folder, "model")
    os.makedirs(os.path.join(inside, "data"), exist_ok=True)
    data = bytes(range(256)) * 2
    secret = os.path.join(folder, "secret.bin")
    for path in (secret, os.path.join(inside, "w.bin"), os.path.join(inside, "data", "w.bin")):
        if not os.path.exists(path):
            with open(path, "wb") as f:
                f.write(bytes(64) + data)
    location = {"good": "w.bin", "below": "data/w.bin", "parent": "../secret.bin", "absolute": secret,
                "link": "link.bin", "hard": "hard.bin", "through": "up/secret.bin", "fifo": "fifo",
                "absent": "absent.bin", "short": "w.bin", "offset": "w.bin",
                "length": "w.bin", "again": "data/../w.bin"}[case]
    entries = {"location": location, "offset": "64", "length": "512"}
    if case == "short":
        entries["length"] = "1024"
    if case == "offset":
        entries["offset"] = "18446744073709551615"
    if case == "length":
        entries["length"] = "100"
    make = {"link": lambda: os.symlink(secret, os.path.join(inside, "link.bin")),
            "hard": lambda: os.link(secret, os.path.join(inside, "hard.bin")),
            "through": lambda: os.symlink("..", os.path.join(inside, "up")),
            "fifo": lambda: os.mkfifo(os.path.join(inside, "fifo"))}.get(case)
    if make:
        make()
    with open(os.path.join(inside, "model.onnx"), "wb") as f:
        f.write(model(entries))


main(*sys.argv[1:])
