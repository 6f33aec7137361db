# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What tests share: engines that are compiled once a session, and a small model."""
import os

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import lathe_cli


@pytest.fixture(scope="session")
def engines(tmp_path_factory):
    """engine(model, *options) -> path, compiled on the first call with these arguments."""
    folder = tmp_path_factory.mktemp("engines")
    made = {}

    def engine(model, *options, target=None):
        key = (model, options, target)
        if key not in made:
            name = f"{len(made)}_{os.path.basename(os.path.dirname(model))}.lathe"
            try:
                made[key] = lathe_cli.compile_model(model, folder / name, *options, target=target)
            except AssertionError as problem:
                made[key] = problem
        if isinstance(made[key], AssertionError):
            raise made[key]
        return made[key]

    return engine


@pytest.fixture(scope="session")
def two_products(tmp_path_factory):
    """The path of y = relu(x @ a) @ b, of any number of rows: the smallest model whose division has one all-reduce."""
    path = tmp_path_factory.mktemp("two_products") / "model.onnx"
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), n)
               for n, s in (("a", (64, 256)), ("b", (256, 64)))]
    nodes = [helper.make_node("MatMul", ["x", "a"], ["h"], "up"), helper.make_node("Relu", ["h"], ["r"], "act"),
             helper.make_node("MatMul", ["r", "b"], ["y"], "down")]
    value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", 64]) for n in "xy"]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", value[:1], value[1:], weights),
                                opset_imports=[helper.make_opsetid("", 20)], ir_version=11), path)
    return str(path)
