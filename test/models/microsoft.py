# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ops of com.microsoft against onnxruntime: many nodes in one graph, each with inputs of its own, compiled once."""
import dataclasses
import itertools
import os

import numpy as np
import onnx
from onnx import helper, numpy_helper

import lathe_cli

DOMAIN = "com.microsoft"
ROUNDS = 20  # attribute sets an op at least


@dataclasses.dataclass
class Case:
    """A node: arrays, or None where an operand is absent."""
    op: str
    inputs: list
    attributes: dict = dataclasses.field(default_factory=dict)
    outputs: int = 1
    absent: tuple = ()  # outputs without a name
    constants: tuple = ()  # operands that are initializers
    symbols: dict = dataclasses.field(default_factory=dict)  # operand: a name, or None, a dimension
    domain: str = DOMAIN
    # (operands, results, prefix) -> nodes of ONNX ops that mean the same, where onnxruntime has no CPU kernel
    reference: callable = None


def graph_of(cases, reference):
    """(nodes, inputs, initializers, feeds, output names)"""
    nodes, inputs, initializers, feeds, outputs = [], [], [], {}, []
    for i, case in enumerate(cases):
        names = []
        for j, array in enumerate(case.inputs):
            name = "" if array is None else f"x{i}_{j}"
            names.append(name)
            if array is None:
                continue
            tensor = numpy_helper.from_array(np.asarray(array), name)
            if j in case.constants:
                initializers.append(tensor)
                continue
            dims = [f"{symbol}_{i}" if symbol else size for symbol, size in
                    itertools.zip_longest(case.symbols.get(j, ()), np.shape(array))]
            inputs.append(helper.make_tensor_value_info(name, tensor.data_type, dims))
            feeds[name] = np.asarray(array)
        results = ["" if k in case.absent else f"y{i}_{k}" for k in range(case.outputs)]
        outputs += [name for name in results if name]
        if reference and case.reference:
            nodes += case.reference(names, results, f"r{i}_")
        else:
            nodes.append(helper.make_node(case.op, names, results, f"{case.op}_{i}", domain=case.domain, **case.attributes))
    return nodes, inputs, initializers, feeds, outputs


def save_model(path, cases, opset, types=None):
    """The ONNX library infers nothing of these ops: `types` of outputs come from onnxruntime's results."""
    nodes, inputs, initializers, feeds, names = graph_of(cases, reference=types is None)
    outputs = [onnx.ValueInfoProto(name=n) if types is None else helper.make_tensor_value_info(n, *types[n]) for n in names]
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return feeds, names


def compare(folder, cases, opset=21, options=()):
    """(case, name of the output, lathe's, onnxruntime's) for each output of each case."""
    model = str(folder / "m.onnx")
    feeds, names = save_model(model, cases, opset)
    wanted = dict(zip(names, lathe_cli.session(model).run(names, feeds)))
    # Some sizes are symbols; what is stated is the rank alone.
    types = {n: (helper.np_dtype_to_tensor_dtype(w.dtype), [None] * w.ndim) for n, w in wanted.items()}
    save_model(model, cases, opset, types)
    engine = lathe_cli.compile_model(model, folder / "m.lathe", *options)
    got = lathe_cli.run(engine, os.path.join(folder, "run"), inputs=feeds)
    return [(cases[int(name[1:].split("_")[0])], name, got[name], wanted[name]) for name in names]


def agree(folder, cases, tolerance=2e-6, opset=21, options=()):
    """Floats within `tolerance` of the largest element, integers exactly."""
    for case, name, got, want in compare(folder, cases, opset, options):
        what = f"{case.op} {name} {case.attributes} {[np.shape(x) for x in case.inputs]}"
        assert got.dtype == want.dtype, what
        if np.issubdtype(want.dtype, np.floating):
            assert lathe_cli.relative_error(got, want) <= tolerance, what
        else:
            np.testing.assert_array_equal(got, want, what)


def floats(rng, *shape, dtype=np.float32):
    return rng.normal(size=shape).astype(dtype)


def pick(rng, *choices):
    return choices[rng.integers(len(choices))]


def maybe(rng, value):
    """The value, or None as often."""
    return value if rng.integers(2) else None


def without(**attributes):
    """Attributes that are not None."""
    return {k: v for k, v in attributes.items() if v is not None}
