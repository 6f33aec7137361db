# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Data sets of lists.test: write_lists.py OUT"""
import os
import sys

import numpy as np
from onnx import OptionalProto, SequenceProto, numpy_helper


def write(folder, name, value):
    os.makedirs(f"{sys.argv[1]}/{folder}", exist_ok=True)
    if isinstance(value, (SequenceProto, OptionalProto)):
        message = value
    elif isinstance(value, list):
        message = numpy_helper.from_list(value)
    else:
        message = numpy_helper.from_array(value)
    with open(f"{sys.argv[1]}/{folder}/{name}.pb", "wb") as f:
        f.write(message.SerializeToString())


some = [np.arange(n, dtype=np.float32) for n in (3, 0, 5)]
k = np.float32([2])
optional = numpy_helper.from_optional(some)
for folder, s, o, has in [("three", some, optional, True), ("none", [], numpy_helper.from_optional(None), False)]:
    write(folder, "input_0", s)
    write(folder, "input_1", k)
    write(folder, "input_2", o)
    write(folder, "output_0", [*s, k])
    write(folder, "output_1", np.array(has))
    write(folder, "output_2", np.array(len(s) + 1))
for folder, s in [("wrong", some), ("rank", [np.ones((2, 2), np.float32)])]:
    write(folder, "input_0", s)
    write(folder, "input_1", k)
    write(folder, "input_2", optional)
write("wrong", "output_0", [some[0], some[1], some[2] + 1, k])
