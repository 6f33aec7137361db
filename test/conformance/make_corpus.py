# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the backend tests of the installed onnx package as files, one folder a test.

    make_corpus.py OUT

OUT/<kind>/<name>/model.onnx
OUT/<kind>/<name>/test_data_set_<N>/{input,output}_<I>.pb
OUT/index.tsv      <kind>/<name>, rtol, atol, the op that the test is of, the dtypes of its outputs;
                   sorted, the order of the ledgers

The package keeps the node tests as Python functions, the others as folders. The nine light models
have only an output: their inputs are the ramp 0, 1/n, 2/n ..., as onnx's own runner feeds them.
Does nothing where OUT/index.tsv is newer than this script.

Expected values come out of numpy, whose code and libm's and OpenBLAS's depend on the processor:
the script runs itself with all of that switched off, so that the files are the same on every x86-64
machine with the same packages.
"""
import os
import shutil
import sys
import warnings

import numpy as np


def plain_environment():
    """What makes numpy, OpenBLAS and glibc run the code that every x86-64 processor has."""
    extensions = np._core._multiarray_umath.__cpu_dispatch__
    levels = ("AVX", "AVX2", "FMA", "FMA4", "AVX512F", "AVX512VL", "AVX512BW", "AVX512DQ")
    return {"NPY_DISABLE_CPU_FEATURES": " ".join(extensions),
            "GLIBC_TUNABLES": "glibc.cpu.hwcaps=" + ",".join("-" + level for level in levels),
            "OPENBLAS_CORETYPE": "PRESCOTT", "OPENBLAS_NUM_THREADS": "1"}


if __name__ == "__main__" and any(os.environ.get(k) != v for k, v in plain_environment().items()):
    os.execve(sys.executable, [sys.executable, "-W", "ignore", *sys.argv],
              os.environ | plain_environment())

import onnx  # noqa: E402
from onnx import TensorProto, numpy_helper  # noqa: E402
from onnx.backend.test.loader import load_model_tests  # noqa: E402

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


def op_of(name, model, siblings):
    """The op that a test is of, for the table of tolerances.

    A test with one node is of its op; an op's function body spelled out (`NAME_expanded...`) is
    judged as the op of NAME. Anything else is a `model`.
    """
    base, expanded, _ = name.partition("_expanded")
    if expanded and base in siblings:
        model = siblings[base]
    nodes = model.graph.node
    return nodes[0].op_type if len(nodes) == 1 else "model"


def dtypes_of(model):
    """The element types of the outputs that are tensors, each once."""
    types = {v.type.tensor_type.elem_type for v in model.graph.output
             if v.type.HasField("tensor_type")}
    return sorted(TensorProto.DataType.Name(t).lower() for t in types)


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
        siblings = {test.name: test.model for test in tests if test.model}
        for test in tests:
            folder = os.path.join(out, kind, test.name)
            if kind == "node":
                write_node_test(test, folder)
            elif kind == "light":
                write_light_test(test, folder)
            else:
                shutil.copytree(test.model_dir, folder)
            model = onnx.load(os.path.join(folder, "model.onnx"), load_external_data=False)
            rows.append(f"{kind}/{test.name}\t{test.rtol:g}\t{test.atol:g}\t"
                        f"{op_of(test.name, model, siblings)}\t{','.join(dtypes_of(model)) or '-'}\n")
    with open(index, "w") as f:
        f.writelines(sorted(rows))
    print(f"{len(rows)} tests written")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
