# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the backend tests of the installed onnx package as files, one folder a test.

    make_corpus.py OUT

OUT/<kind>/<name>/model.onnx
OUT/<kind>/<name>/test_data_set_<N>/{input,output}_<I>.pb
OUT/index.tsv      <kind>/<name>, rtol, atol; sorted, the order of the ledgers

The package keeps the node tests as Python functions, the others as folders. The nine light models
have only an output: their inputs are the ramp 0, 1/n, 2/n ..., as onnx's own runner feeds them.
Does nothing where OUT/index.tsv is newer than this script.
"""
import os
import shutil
import sys
import warnings

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

COUNTS = {"node": 1884, "simple": 23, "pytorch-converted": 82, "pytorch-operator": 35, "light": 9}
TOTAL = sum(COUNTS.values())


def to_proto(value, info):
    """A value of a node test as the message that its declared type asks for."""
    if isinstance(value, onnx.TensorProto):
        return value
    kind = info.type.WhichOneof("value")
    if kind == "sequence_type":
        return numpy_helper.from_list(value, info.name)
    if kind == "optional_type":
        return numpy_helper.from_optional(value, info.name)
    if kind == "map_type":
        return numpy_helper.from_dict(value, info.name)
    return numpy_helper.from_array(np.asarray(value), info.name)


def write_message(path, message):
    with open(path, "wb") as f:
        f.write(message.SerializeToString())


def write_node_test(test, folder):
    os.makedirs(folder)
    write_message(f"{folder}/model.onnx", test.model)
    for i, (inputs, outputs) in enumerate(test.data_sets):
        data = f"{folder}/test_data_set_{i}"
        os.makedirs(data)
        graph = test.model.graph
        for prefix, values, infos in (("input", inputs, graph.input),
                                      ("output", outputs, graph.output)):
            for j, value in enumerate(values):
                write_message(f"{data}/{prefix}_{j}.pb", to_proto(value, infos[j]))


def write_light_test(test, folder):
    root = os.path.dirname(onnx.__file__)
    source = os.path.join(os.path.dirname(root), test.url)
    data = f"{folder}/test_data_set_0"
    os.makedirs(data)
    shutil.copy(source, f"{folder}/model.onnx")
    graph = onnx.load(source).graph
    constants = {t.name for t in graph.initializer}
    fed = [v for v in graph.input if v.name not in constants]
    for i, value in enumerate(fed):
        shape = [d.dim_value or 1 for d in value.type.tensor_type.shape.dim]
        count = int(np.prod(shape))
        ramp = (np.arange(count).reshape(shape) / count).astype(np.float32)
        write_message(f"{data}/input_{i}.pb", numpy_helper.from_array(ramp, value.name))
    for i in range(len(graph.output)):
        shutil.copy(f"{source[:-len('.onnx')]}_output_{i}.pb", f"{data}/output_{i}.pb")


def main(argv):
    out = argv[1]
    index = os.path.join(out, "index.tsv")
    if os.path.exists(index) and os.path.getmtime(index) > os.path.getmtime(__file__):
        print(f"{TOTAL} tests are there")
        return 0
    warnings.filterwarnings("ignore")
    rows = []
    for kind, expected in COUNTS.items():
        # "real" holds the light models: a name and a path inside the package.
        tests = load_model_tests(kind="real" if kind == "light" else kind)
        if len(tests) != expected:
            print(f"{len(tests)} {kind} tests, {expected} expected", file=sys.stderr)
            return 1
        shutil.rmtree(os.path.join(out, kind), ignore_errors=True)
        for test in tests:
            folder = os.path.join(out, kind, test.name)
            if kind == "node":
                write_node_test(test, folder)
            elif kind == "light":
                write_light_test(test, folder)
            else:
                shutil.copytree(test.model_dir, folder)
            rows.append(f"{kind}/{test.name}\t{test.rtol:g}\t{test.atol:g}\n")
    with open(index, "w") as f:
        f.writelines(sorted(rows))
    print(f"{len(rows)} tests written")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
