# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of bytes by constant weights, which the ONNX corpus lacks, on another processor.

    check_byte_products.py BIN OUT TARGET RUNNER

Writes models and what numpy makes of their inputs to OUT, and lets BIN/lathe-conformance compile them for TARGET and
run them by RUNNER: each element must be equal, and each kernel be one of bytes (gemm.bytes, conv.bytes).
Last line: `N passed, N failed`, two tests a model.
"""
import os
import shutil
import subprocess
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

RNG = np.random.default_rng(0)
BOUNDS = {np.uint8: (0, 256), np.int8: (-128, 128)}


def bytes_of(dtype, shape):
    """Random, the extremes among them."""
    values = RNG.integers(*BOUNDS[dtype], size=shape).astype(dtype)
    values.flat[:2] = BOUNDS[dtype][0], BOUNDS[dtype][1] - 1
    return values


def product(rows, depth, columns, dtype=np.uint8):
    """(x, weights, op, attributes, result)"""
    x, w = bytes_of(dtype, (rows, depth)), bytes_of(np.int8, (depth, columns))
    return x, w, "MatMulInteger", {}, x.astype(np.int32) @ w.astype(np.int32)


def convolution(channels, filters, size, kernel):
    x, w = bytes_of(np.uint8, (1, channels, size, size)), bytes_of(np.int8, (filters, channels, kernel, kernel))
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.int32), (kernel, kernel), (2, 3))
    result = np.einsum("nchwij,fcij->nfhw", windows, w.astype(np.int32)).astype(np.int32)
    return x, w, "ConvInteger", {"kernel_shape": [kernel, kernel]}, result


MODELS = {
    "rows": product(37, 128, 40),
    "row": product(1, 256, 24),
    "odd": product(9, 51, 13),
    "signed": product(16, 64, 32, np.int8),
    "saturated": (np.full((8, 512), 255, np.uint8), np.full((512, 16), -128, np.int8), "MatMulInteger", {},
                  np.full((8, 16), -255 * 128 * 512, np.int32)),
    "pixels": convolution(16, 24, 12, 1),
    "windows": convolution(8, 20, 11, 3),
    "colours": convolution(3, 16, 14, 3),
}


def write(out):
    shutil.rmtree(out, ignore_errors=True)
    with_index = []
    for name, (x, w, op, attributes, result) in MODELS.items():
        data = f"{out}/bytes/{name}/test_data_set_0"
        os.makedirs(data)
        x, w, result = (numpy_helper.from_array(a, n) for a, n in ((x, "x"), (w, "w"), (result, "y")))
        ends = [helper.make_tensor_value_info(t.name, t.data_type, list(t.dims)) for t in (x, result)]
        graph = helper.make_graph([helper.make_node(op, ["x", "w"], ["y"], **attributes)], name, ends[:1], ends[1:], [w])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10),
                  f"{out}/bytes/{name}/model.onnx")
        for path, tensor in (("input_0.pb", x), ("output_0.pb", result)):
            with open(f"{data}/{path}", "wb") as f:
                f.write(tensor.SerializeToString())
        with_index.append(f"bytes/{name}\t0\t0\t{op}\t{TensorProto.DataType.Name(x.data_type).lower()}\n")
    with open(f"{out}/index.tsv", "w") as f:
        f.writelines(with_index)


def main(argv):
    if len(argv) != 5:
        print(__doc__)
        return 2
    binaries, out, target, runner = argv[1:]
    write(out)
    subprocess.run([f"{binaries}/lathe-conformance", out, f"--target={target}", f"--runner={runner}", "-o",
                    f"{out}/run.tsv"], check=True)
    failed = 0
    with open(f"{out}/run.tsv") as f:
        rows = [line.rstrip("\n").split("\t") for line in f if line[0] != "#"]
    for name, *columns in rows:
        if columns != ["passed", "generated", "0", "0.00", ""]:
            failed += 1
            print(f"{name}: {' '.join(columns)}")
        kernels = subprocess.run([f"{binaries}/lathe", "inspect", f"{out}/{name}/model.onnx", "--kernels",
                                  f"--target={target}"], check=True, capture_output=True, text=True).stdout
        if ".bytes." not in kernels:
            failed += 1
            print(f"{name}: no kernel of bytes:\n{kernels}")
    print(f"{2 * len(MODELS) - failed} passed, {failed} failed")
    return 1 if failed or len(rows) != len(MODELS) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
