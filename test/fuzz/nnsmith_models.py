# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models of another generator, NNSmith (https://github.com/ise-uiuc/nnsmith), held against onnxruntime.

    nnsmith_models.py FOLDER FIRST:COUNT

NNSmith 0.1.0 is no part of .venv. It runs there without packages of its own:

    .venv/bin/pip install --no-deps --target build/nnsmith nnsmith==0.1.0 z3-solver hydra-core hydra-colorlog colorlog omegaconf \\
        antlr4-python3-runtime==4.9.3 multipledispatch appdirs networkx
    PYTHONPATH=build/nnsmith .venv/bin/python test/fuzz/nnsmith_models.py build/nnsmith-models 1:2000

The model of each seed (3 to 20 nodes) and its inputs are written to FOLDER, as `lathe run --data` takes them, and compared as
against_onnxruntime.py compares those of lathe-fuzz; models that agree are deleted again. The first run asks for three minutes which
types each op can be exported with; NNSmith keeps the answer. A model that cannot be made is counted: its solver finds no
sizes in time, or torch refuses the export.
"""
import argparse
import functools
import os
import random
import shutil
import sys

import onnx
import torch
from onnx import numpy_helper

from against_onnxruntime import compare, seed_range

NODES = (3, 20)
MOST_ELEMENTS = 4096
SOLVER_MS = 10000
TYPES = ["f32", "i32", "i64", "bool"]  # of others onnxruntime has too few of the ops that NNSmith draws


class Generator:
    """NNSmith's, with the exporter that it was written for."""

    def __init__(self):
        torch.onnx.export = functools.partial(torch.onnx.export, dynamo=False)
        try:
            from nnsmith.abstract.extension import activate_ext
            from nnsmith.graph_gen import model_gen
            from nnsmith.materialize import Model
            from nnsmith.narrow_spec import auto_opset
        except ImportError as problem:
            sys.exit(f"nnsmith_models.py: {problem}; --help says how to install NNSmith")
        self.make, self.type = model_gen, Model.init("onnx", backend_target="cpu")
        self.type.add_seed_setter()
        self.ops = auto_opset(self.type, None, vulops=False)
        activate_ext(opset=self.ops, factory=None)

    def write(self, seed, folder):
        """The model of a seed and its inputs, which follow from the seed alone."""
        graph = self.make(opset=self.ops, method="symbolic-cinit", seed=seed, max_elem_per_tensor=MOST_ELEMENTS, dtype_choices=TYPES,
                          max_nodes=random.Random(seed).randint(*NODES), timeout_ms=SOLVER_MS).make_concrete()
        torch.manual_seed(seed)
        model = self.type.from_gir(graph)
        proto = model.get_onnx_from_torch()
        values = model.torch_model.get_random_inps()
        data = os.path.join(folder, "test_data_set_0")
        os.makedirs(data)
        onnx.save(proto, os.path.join(folder, "model.onnx"))
        for at, value in enumerate(proto.graph.input):
            with open(os.path.join(data, f"input_{at}.pb"), "wb") as f:
                f.write(numpy_helper.from_array(values[value.name].numpy(), value.name).SerializeToString())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("seeds", type=seed_range, metavar="FIRST:COUNT")
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # NNSmith draws from sets
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "PYTHONHASHSEED": "0"})
    generator, unmade = Generator(), 0

    def folders():
        nonlocal unmade
        for seed in options.seeds:
            folder = os.path.join(options.folder, f"seed-{seed}")
            shutil.rmtree(folder, ignore_errors=True)
            try:
                generator.write(seed, folder)
            except Exception as problem:  # of the solver, of NNSmith's own assertions, of torch's exporter
                unmade += 1
                print(f"seed-{seed}: not made: {type(problem).__name__}: {str(problem).splitlines()[:1]}", flush=True)
                continue
            yield folder

    failed = compare(folders(), keep_passed=False)
    print(f"{unmade} of {len(options.seeds)} models could not be made")
    return failed


if __name__ == "__main__":
    sys.exit(main())
