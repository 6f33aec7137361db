# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A data set whose expectation is wrong, and an index that is out of range: write_data.py OUT"""
import sys

import numpy as np
from onnx import numpy_helper


def write(name, array):
    with open(f"{sys.argv[1]}/{name}.pb", "wb") as f:
        f.write(numpy_helper.from_array(array, "").SerializeToString())


write("input_0", np.ones((2, 8), np.float32))
write("output_0", np.full((2, 16), 0.7, np.float32))
np.save(f"{sys.argv[1]}/index.npy", np.array([1, 99], np.int64))
